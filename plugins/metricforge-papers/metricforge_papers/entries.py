"""The tables and figures that can be reproduced, and how to run one."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from metricforge.errors import UnknownNameError
from metricforge.validation import nearest, one_of

from .experiment import Run
from .result import Result


@dataclass(frozen=True)
class Entry:
    """One table or figure of a paper.

    Attributes
    ----------
    paper, name : str
        As typed: ``metricforge reproduce PAPER NAME``; the module of the paper has a function of that name.
    title : str
        What it shows.
    repeats : int
        The default number of repeats, with which the committed results were computed.
    peers : bool
        Whether it compares with methods of metric-learn.
    """

    paper: str
    name: str
    title: str
    repeats: int
    peers: bool = False

    @property
    def kind(self) -> str:
        """Return "table" or "figure"."""
        return self.name.rstrip("0123456789")


ENTRIES: tuple[Entry, ...] = (
    Entry("idealized", "table2", "nearest-neighbour errors, learned from similar pairs", 50, peers=True),
    Entry("idealized", "table3", "clustering errors, learned from similar pairs", 50, peers=True),
    Entry("idealized", "table4", "nearest-neighbour errors and alignments, learned from labels", 50, peers=True),
    Entry("idealized", "figure1", "kernel matrices of the toy data", 10, peers=True),
    Entry("kcr", "table1", "training and test errors of the kernel rule", 20, peers=True),
    Entry("kcr", "figure1", "three Gaussian classes in the learned plane", 100),
    Entry("krca", "table1", "clustering the XOR data", 300),
    Entry("krca", "table2", "retrieving proteins", 175),
    Entry("krca", "table4", "clustering twelve data sets from little and from much side information", 20),
    Entry("krca", "figure1", "the XOR data before and after linear RCA", 100),
    Entry("krca", "figure2", "the XOR data in the leading axes of kernel PCA", 100),
    Entry("krca", "figure3", "time to add a chunklet", 20),
    Entry("lpdesign", "figure1", "single kernels and mixtures on nine data sets", 10),
    Entry("lpdesign", "figure2", "how many features the mixture uses", 40),
    Entry("lpdesign", "figure3", "the mixture and Xing's metric", 10, peers=True),
    Entry("simplenpkl", "table2", "clustering nine small data sets, and time", 20),
    Entry("simplenpkl", "table4", "clustering Adult, and time", 20),
    Entry("simplenpkl", "figure1", "convergence on a1a and a2a", 1),
    Entry("simplenpkl", "figure2", "active choice of pairs on a1a", 20),
)
QUICK_REPEATS = 2


def find(paper: str | None = None, name: str | None = None) -> tuple[Entry, ...]:
    """Return the entries of a paper, or the one of that name; all without a paper."""
    if paper is not None:
        one_of(paper, "paper", list(dict.fromkeys(e.paper for e in ENTRIES)))
    found = tuple(e for e in ENTRIES if paper in (None, e.paper))
    if name is None:
        return found
    if name not in [e.name for e in found]:
        raise UnknownNameError(f"{paper} has no {name!r}; {nearest(name, [e.name for e in found])}")
    return tuple(e for e in found if e.name == name)


def reproduce(
    entry: Entry,
    *,
    repeats: int | None = None,
    seed: int = 0,
    quick: bool = False,
    peers: bool = False,
    partial: Path | None = None,
    earlier: Result | None = None,
) -> Result:
    """Run an entry.

    Parameters
    ----------
    repeats : int, optional
        Default: the entry's own, or 2 with ``quick``.
    quick : bool
        Few rows and small grids, to see that it runs; the numbers mean nothing.
    peers : bool
        Whether methods of metric-learn run too if the entry compares with them, in an environment that is installed in
        the user's cache folder.
    partial : Path, optional
        A file to which finished parts are written, and from which those of an interrupted run are read.
    earlier : Result, optional
        An earlier result, whose numbers of metric-learn are kept if it does not run.
    """
    default = min(QUICK_REPEATS, entry.repeats) if quick else entry.repeats
    import sklearn.cluster  # noqa: F401 - the limit below applies to libraries that are loaded
    from threadpoolctl import threadpool_limits

    count = default if repeats is None else repeats
    run = Run(entry.paper, entry.name, count, seed, quick, peers and entry.peers, partial, earlier)
    started, cpu = time.perf_counter(), time.process_time()
    experiment = getattr(import_module(f".{entry.paper}", __package__), entry.name)
    with threadpool_limits(1):  # threads of BLAS change the last digits, and cost more than they save on small problems
        result: Result = experiment(run)
    spent = time.process_time() - cpu + run.resumed_seconds
    return replace(result, title=entry.title, seconds=time.perf_counter() - started, cpu_seconds=spent)
