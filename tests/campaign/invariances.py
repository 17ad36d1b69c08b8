"""Fit twice, the second time under a change that must not matter, and compare distances.

Repetition, saving and pickling must reproduce every bit.  The order of rows, threads, chunks and sparse storage may
change rounding only.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

import metricforge as mf
from metricforge import kernels as k

from .battery import in_memory
from .rows import Rng, pick
from .trial import Trial, Verdict


@dataclass
class Change:
    """The outcome of a change.

    Attributes
    ----------
    distances : (n, n) array
    exact : bool
        Whether every bit must be the same.
    refit : Metric or None
        What was learned under the change, if something was.
    """

    distances: Any
    exact: bool = False
    refit: Any = None


TOLERANCE = 1e-6
"""How far distances may differ, relative to the largest, where only rounding can differ."""
CLOSED = ("euclidean", "krca", "lfda", "llr", "simplenpkl")
"""Methods that compute the one optimum itself; simplenpkl with the linear loss.  Others stop within a gap, or choose
among several optima (of a linear program): rounding decides where, so two fits must only certify the same optimum."""
STATIONARY = ("mlkr", "nca")
"""Methods whose problem is not convex: rounding may lead to another stationary point, so that only what must reproduce
every bit, and the use of the metric, is compared."""
TIED = ("lmnn", "simplenpkl")
"""Methods that choose neighbours: integers have ties, which depend on the order of rows."""
METHODS = {
    "euclidean": ("labels",),
    "krca": ("chunklets", "pairs"),
    "idealized": ("pairs",),
    "itml": ("pairs",),
    "kcr": ("labels",),
    "lfda": ("labels",),
    "llr": ("pairs",),
    "lmnn": ("labels",),
    "lpdesign": ("triplets",),
    "lsml": ("quadruplets",),
    "mlkr": ("targets",),
    "nca": ("labels",),
    "relevance": ("triplets",),
    "simplenpkl": ("pairs",),
}
"""Kinds of hints that a method uses without random conversion."""


@dataclass
class Setting:
    """A problem, and how to fit it."""

    X: Any
    y: Any
    hint: str
    method: str
    kernel: Any
    options: dict[str, Any]
    pairs: Any
    triples: Any
    content: str

    def constraint(self, order: Any = None) -> Any:
        """Return the hint over rows in another order: row ``order[i]`` comes i-th."""
        n = len(self.y)
        order = np.arange(n) if order is None else order
        place = np.empty(n, dtype=int)
        place[order] = np.arange(n)
        if self.hint == "labels":
            return mf.Labels(self.y[order])
        if self.hint == "chunklets":
            return mf.Chunklets(self.y[order])
        if self.hint == "triplets":
            return mf.Triplets(place[self.triples], n=n)
        if self.hint == "quadruplets":
            return mf.Quadruplets(place[self.triples[:, [0, 1, 0, 2]]], n=n)
        if self.hint == "targets":
            return mf.Targets(self.y[order] + 0.1 * self.X[order, -1] / np.abs(self.X[:, -1]).max())
        same = self.y[self.pairs[:, 0]] == self.y[self.pairs[:, 1]]
        return mf.Pairs(place[self.pairs[same]], place[self.pairs[~same]], n=n)

    def learn(self, X: Any = None, order: Any = None) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return mf.learn(
                self.X if X is None else X,
                self.constraint(order),
                method=self.method,
                kernel=self.kernel,
                seed=0,
                **self.options,
            )


def draw(rng: Rng) -> Setting:
    """Draw a problem with a unique solution: rows without duplicates, and hints that need no conversion."""
    n, d = int(rng.integers(12, 70)), int(rng.integers(2, 7))
    y = rng.permutation(np.arange(n) % int(rng.integers(2, 4)))
    X = rng.normal(size=(n, d)) + rng.choice([0.5, 1.5]) * rng.normal(size=(4, d))[y]
    method = pick(rng, METHODS)
    content = pick(rng, ["plain", "plain", "half zeros", "timestamps", "offset", "scales"])
    if content == "timestamps" and method in TIED:
        content = "offset"
    if content == "half zeros":
        zero = rng.random(X.shape) < 0.5
        zero[zero.sum(axis=1) > d - 2] = False  # so that no two rows are equal, or have the same neighbours by a tie
        X[zero] = 0
    elif content == "timestamps":
        X = np.column_stack([1.7e9 + rng.integers(0, 3, size=n), rng.integers(0, 2, size=(n, d))]).astype(float)
    elif content == "offset":
        X += 1e6
    elif content == "scales":
        X *= 10.0 ** rng.integers(-3, 4, size=d)
    P = np.stack(np.triu_indices(n, 1), axis=1)
    P = P[rng.permutation(len(P))[: 3 * n]]
    T = np.stack([rng.choice(n, 3, replace=False) for _ in range(3 * n)])
    T = T[(y[T[:, 0]] == y[T[:, 1]]) & (y[T[:, 0]] != y[T[:, 2]])]
    kernel = pick(rng, [None, None, k.Linear(), k.RBF("median"), k.Standardized(k.Linear()), k.Cauchy("median")])
    options: dict[str, Any] = {}
    if method == "simplenpkl":
        options = {"loss": pick(rng, ["linear", "linear", "squared_hinge"])}
    return Setting(X, y, pick(rng, METHODS[method]), method, kernel, options, P, T, content)


def prepare(folder: Any) -> None:
    """Import dask, which takes a second."""
    import dask.array  # noqa: F401


def attack(trial: Trial, rng: Rng) -> None:
    """Fit twice, once under a change that must not matter, and compare distances."""
    setting = draw(rng)
    name = pick(rng, CHANGES)
    if "sparse" in name and isinstance(setting.kernel, k.Standardized):
        setting.kernel = None  # does not centre sparse rows, as documented, so it is another kernel there
    n, d = setting.X.shape
    content = setting.content
    trial.describe(
        f"{n} × {d} ({content}), {setting.method} from {setting.hint}, {setting.kernel!r}, {setting.options}; {name}"
    )
    first = trial.call("the first fit", setting.learn)
    truth = in_memory(trial.call("its distances", first.distance, setting.X))
    change = CHANGES[name](trial, setting, first, rng)
    other = np.asarray(in_memory(change.distances), dtype=float)
    top = float(np.abs(truth).max())
    off = float(np.abs(other - truth).max())
    trial.figure(f"{setting.method}: {name}", off / top if top else off)
    site = f"{setting.method}: {name} changes the answer" + (f" ({content})" if content in OFFSET else "")
    if setting.method in STATIONARY and change.refit is not None and not change.exact:
        return
    stops = "hinge" in str(setting.options.get("loss")) or setting.method not in CLOSED
    if change.refit is not None and stops and not change.exact:
        if name != "single precision":  # other rows, so another program
            same_optimum(trial, site, first.report, change.refit.report)
        return
    single = name == "single precision"
    allowed = 0.0 if change.exact else top * max(1e-3 if single else TOLERANCE, _magnified(first, single=single))
    if single and content in OFFSET:
        allowed = np.inf
    trial.check(off <= allowed, Verdict.WRONG, site, f"by {off / top if top else off:.3g} of the largest distance")


def _magnified(metric: Any, *, single: bool) -> float:
    """Return what rounding may change in distances of a method that divides by scatters as small as a share ``null``.

    Scatters are computed to a share eps of the largest, rows in single precision to that of a coordinate.
    """
    null = getattr(metric.solver, "null", None)
    if null is None:
        return 0.0
    return float(100 * (np.finfo(np.float32).eps / np.sqrt(null) if single else np.finfo(np.float64).eps / null))


def same_optimum(trial: Trial, site: str, one: Any, two: Any) -> None:
    """Check that the intervals [objective − gap, objective] of two fits of one convex program have a common point."""
    (a, c), (b, d) = ((float(r["objective"]), float(r["gap"])) for r in (one, two))
    slack = SLACK * max(abs(a), abs(b))
    detail = f"objectives {a:.9g} and {b:.9g}, gaps {c:.3g} and {d:.3g}"
    trial.check(max(a - c, b - d) <= min(a, b) + slack, Verdict.CERTIFICATE, site, detail)


SLACK = 1e-7
"""Rounding of an objective, relative."""


OFFSET = ("timestamps", "offset")


# -------------------------------------------------------------------------------------------------------------- changes


def _again(trial: Trial, s: Setting, metric: Any, rng: Rng) -> Change:
    return Change(trial.call("the same fit again", s.learn).distance(s.X), exact=True)


def _permuted(trial: Trial, s: Setting, metric: Any, rng: Rng) -> Change:
    order = rng.permutation(len(s.y))
    found = trial.call("the fit on rows in another order", s.learn, s.X[order], order)
    return Change(trial.call("its distances", found.distance, s.X), refit=found)


def _threads(trial: Trial, s: Setting, metric: Any, rng: Rng) -> Change:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(4):
        found = trial.call("the fit with four threads", s.learn)
        return Change(found.distance(s.X), refit=found)


def _chunked(trial: Trial, s: Setting, metric: Any, rng: Rng) -> Change:
    import dask.array as da

    X = da.from_array(s.X, chunks=(int(rng.integers(1, len(s.X))), int(rng.integers(1, s.X.shape[1] + 1))))
    found = trial.call(f"the fit in chunks {X.chunks}", s.learn, X)
    return Change(trial.call("its distances", found.distance, s.X), refit=found)


def _used_in_chunks(trial: Trial, s: Setting, metric: Any, rng: Rng) -> Change:
    import dask.array as da

    X = da.from_array(s.X, chunks=(int(rng.integers(1, len(s.X))), -1))
    return Change(trial.call("distances of rows in chunks", lambda: metric.distance(X).compute()))


def _sparse(trial: Trial, s: Setting, metric: Any, rng: Rng) -> Change:
    X = pick(rng, [sparse.csr_array, sparse.csr_matrix])(s.X)
    found = trial.call("the fit on sparse rows", s.learn, X)
    return Change(trial.call("its distances", found.distance, X), refit=found)


def _used_sparse(trial: Trial, s: Setting, metric: Any, rng: Rng) -> Change:
    return Change(trial.call("distances of sparse rows", metric.distance, sparse.csr_array(s.X)))


def _saved(trial: Trial, s: Setting, metric: Any, rng: Rng) -> Change:
    trial.call("save", metric.save, trial.folder / "case.metric")
    return Change(trial.call("load", mf.load, trial.folder / "case.metric").distance(s.X), exact=True)


def _pickled(trial: Trial, s: Setting, metric: Any, rng: Rng) -> Change:
    import pickle

    return Change(trial.call("pickle", lambda: pickle.loads(pickle.dumps(metric))).distance(s.X), exact=True)


def _layout(trial: Trial, s: Setting, metric: Any, rng: Rng) -> Change:
    forms: list[Callable[[Any], Any]] = [
        np.asfortranarray,
        lambda X: X.tolist(),
        lambda X: X.astype(">f8"),
        lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    ]
    found = trial.call("the fit on another layout", s.learn, pick(rng, forms)(s.X))
    return Change(found.distance(s.X), refit=found)


def _single(trial: Trial, s: Setting, metric: Any, rng: Rng) -> Change:
    X = s.X.astype(np.float32)
    # where rounding to single precision changes the rows noticeably, there is nothing to compare
    if s.method in ("kcr", "lpdesign") or np.abs(X - s.X).max() > 1e-6 * np.abs(s.X).max():
        return Change(metric.distance(s.X))
    found = trial.call("the fit in single precision", s.learn, X)
    return Change(found.distance(X), refit=found)


CHANGES: dict[str, Callable[[Trial, Setting, Any, Rng], Change]] = {
    "repetition": _again,
    "order of rows": _permuted,
    "threads": _threads,
    "chunks": _chunked,
    "use in chunks": _used_in_chunks,
    "sparse rows": _sparse,
    "use on sparse rows": _used_sparse,
    "save and load": _saved,
    "pickle": _pickled,
    "layout": _layout,
    "single precision": _single,
}
