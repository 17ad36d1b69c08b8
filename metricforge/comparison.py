"""compare(): every method that can learn from some hints, with its settings, on held-out relations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import join
from . import rows as _rows
from .checks import nearest, whole_number
from .constraints import Constraint
from .errors import InputError, UnknownNameError
from .fitting import fit
from .join import as_constraint
from .kernels import Kernel
from .metric import Metric
from .pages.figures import grid
from .plans import declared_methods, find_kernel, start_kernel
from .registry import registry
from .selection import FOLDS, START, Candidate, Scored, read_candidate, score, start_candidate


def compare(
    X: Any,
    constraints: Any,
    *,
    candidates: Sequence[Any] | None = None,
    kernel: Kernel | Metric | str | None = None,
    rank: str | int = "auto",
    folds: int = FOLDS,
    seed: int = 0,
) -> Comparison:
    """Compare methods on relations that they did not learn from.

    Every candidate learns from the relations inside the training rows of a fold, and is scored on those that touch a
    held-out row.  The start, the metric before learning, is always among them.

    Parameters
    ----------
    X : rows
        In memory.
    constraints : Constraint, or 1-d array of labels
    candidates : sequence, optional
        Names of methods, or dicts such as ``{"method": name, option: value}``.  Default: every installed method that
        can learn from this kind, with its default and with each of the settings that it declares.
    kernel : Kernel, Metric or str, optional
        The kernel that all start from; default: each method's own, and on strings that of `metricforge.learn`.
    rank : "auto", "exact" or int
    folds : int >= 2
    seed : int
        The same seed gives the same folds and scores.

    Returns
    -------
    Comparison
        Prints as a table; ``best`` is a name, ``fit()`` a Metric.
    """
    relations = as_constraint(constraints)
    seed, folds = whole_number(seed, "seed", least=0), whole_number(folds, "folds", least=2)
    kernel = start_kernel(kernel, "auto", X)
    base = None if kernel is None else find_kernel(kernel)
    found = _declared(relations, base) if candidates is None else _given(candidates, base)
    start = start_candidate(base)
    every = (*found, *(() if start is None else (start,)))
    if not every:
        raise InputError(f"no installed method can learn from {type(relations).__name__}; give candidates")
    rows = every[0].plan.kernel.check(X, "X")
    if every[0].plan.kernel.takes == "gram":
        raise InputError("kernel: a precomputed Gram matrix cannot be split into folds; give rows and a kernel")
    if _rows.is_dask(rows):
        raise InputError("X is a dask array; compare on rows in memory, for instance a sample of them")
    relations.check(_rows.count(rows), "constraints")
    with join.progress(f"comparing {len(every)} candidates on {_rows.count(rows)} rows") as step:
        scored = score(every, rows, relations, rank=rank, seed=seed, folds=folds, step=step, balanced=True)
    order = sorted(range(len(every)), key=lambda place: (not scored[place].scores, -scored[place].mean))
    return Comparison(
        tuple(scored[place] for place in order),
        tuple(every[place] for place in order),
        rows,
        relations,
        rank,
        seed,
        folds,
        tuple(_rows.column_names(X) or ()),
    )


def _declared(constraint: Constraint, kernel: Kernel | None) -> list[Candidate]:
    found: list[Candidate] = []
    for name, method in declared_methods()[0].items():
        path = registry.path(type(constraint), method.solver.accepts)
        if path is None or method.baseline or (kernel is None and method.kernel.takes != "vectors"):
            continue
        settings = [setting for setting in method.settings if kernel is None or "kernel" not in setting]
        found += [read_candidate({"method": name, **setting}, kernel) for setting in ({}, *settings)]
    return found


def _given(candidates: Sequence[Any], kernel: Kernel | None) -> list[Candidate]:
    found = [read_candidate(one, kernel) for one in candidates]
    names = [candidate.name for candidate in found]
    again = next((name for name in names if names.count(name) > 1 or name == START), None)
    if again is not None:
        raise InputError(f"candidates: {again!r} is there twice; give each once")
    return found


@dataclass(frozen=True, eq=False)
class Comparison:
    """Candidates and their scores on held-out relations, the best first.

    Attributes
    ----------
    scores : tuple of Scored
        Name, scores by fold, mean, standard error, seconds, certificate and failure of each candidate.
    candidates : tuple of Candidate
    rows, constraint, rank, seed, folds, columns
        What was compared.
    """

    scores: tuple[Scored, ...]
    candidates: tuple[Candidate, ...]
    rows: Any
    constraint: Constraint
    rank: str | int
    seed: int
    folds: int
    columns: tuple[str, ...] = ()

    @property
    def best(self) -> str:
        """The name of the candidate with the highest mean score; "start" if no method is better than the start."""
        if not self.scores[0].scores:
            raise InputError(f"every candidate failed; {self.scores[0].name}: {self.scores[0].failure}")
        return self.scores[0].name

    def fit(self, name: str | None = None) -> Metric:
        """Return the metric that a candidate, by default the best, learns from all rows and relations."""
        name = self.best if name is None else name
        found = {candidate.name: candidate for candidate in self.candidates}
        if name not in found:
            raise UnknownNameError(f"name={name!r} is not a candidate; {nearest(str(name), found)}")
        candidate = found[name]
        one = next(scored for scored in self.scores if scored.name == name)
        line = f"{name}, of {len(found)} candidates compared ({self.constraint.score_name} {_percent(one)})"
        return fit(
            candidate.plan,
            self.rows,
            self.constraint,
            rank=self.rank if candidate.rank is None else candidate.rank,
            seed=self.seed,
            columns=self.columns,
            choice={"choice": line},
        )

    def records(self) -> list[dict[str, Any]]:
        """Return a dict for each candidate: name, score, error, seconds, certificate, failure.

        Where the hints name classes, ``balanced`` is the balanced accuracy of the nearest row.
        """
        classes = self._classes
        return [
            {
                "name": one.name,
                "score": one.mean if one.scores else None,
                "error": one.error if one.scores else None,
                "seconds": one.seconds,
                "certificate": "" if one.certificate is None else one.certificate.describe(),
                "failure": one.failure,
                **({"balanced": float(np.mean(one.balanced)) if one.balanced else None} if classes else {}),
            }
            for one in self.scores
        ]

    @property
    def _classes(self) -> bool:
        return any(one.balanced for one in self.scores)

    def to_frame(self) -> Any:
        """Return a pandas frame with a row for each candidate."""
        try:
            import pandas as pd
        except ImportError:
            raise InputError("to_frame() needs pandas, which is not installed; use records()") from None
        return pd.DataFrame(self.records())

    def plot(self, ax: Any = None) -> Any:
        """Draw the scores with their standard errors, the start as a line; return the axes."""
        shown = [one for one in self.scores if one.scores][::-1]
        if ax is None:
            ax = grid(1, 1, width=6.0, height=1.2 + 0.3 * len(shown))[1][0, 0]
        places = range(len(shown))
        errors = [100 * one.error for one in shown]
        ax.errorbar([100 * one.mean for one in shown], places, xerr=errors, fmt="o", color="C0", capsize=3)
        for one in shown:
            if one.name == START:
                ax.axvline(100 * one.mean, color="0.5", linestyle="dashed", linewidth=0.8)
        ax.set_yticks(places, [one.name for one in shown])
        ax.set_xlabel(f"{self.constraint.score_name}, %")
        return ax

    def __str__(self) -> str:
        middle = ("balanced %",) if self._classes else ()
        head = ("candidate", "score %", "± ", *middle, "CPU s", "certificate")
        lines = [
            (
                one.name,
                f"{100 * one.mean:.1f}" if one.scores else "–",
                f"{100 * one.error:.1f}" if one.scores else "–",
                *(f"{100 * np.mean(one.balanced):.1f}" if one.balanced else "–" for _ in middle),
                f"{one.seconds:.2f}",
                one.failure or ("" if one.certificate is None else one.certificate.describe()),
            )
            for one in self.scores
        ]
        wide = [max(len(line[place]) for line in (head, *lines)) for place in range(len(head) - 1)]
        shown = [
            f"{line[0]:<{wide[0]}}  "
            + "  ".join(f"{text:>{w}}" for text, w in zip(line[1:-1], wide[1:], strict=True))
            + f"  {line[-1]}".rstrip()
            for line in (head, *lines)
        ]
        if middle:
            shown.append("balanced: balanced accuracy of the nearest row")
        note = f"score: {self.constraint.score_name}, mean and standard error of {self.folds} folds over rows"
        return "\n".join([*shown, note])

    def __repr__(self) -> str:
        return str(self)


def _percent(one: Scored) -> str:
    return f"{100 * one.mean:.1f} ± {100 * one.error:.1f} %" if one.scores else "not measured"
