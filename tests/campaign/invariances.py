"""Fit twice, the second time under a change that must not matter, and compare distances.

Repetition, saving and pickling must reproduce every bit.  The order of rows, names of classes, units of X and targets
(powers of two), rows without labels, threads, chunks and sparse storage may change rounding only.  Half of the second
fits are on rows in chunks as well.
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
    same : bool
        Whether the second fit takes the same steps, as in another unit, so that distances must agree for any method.
    """

    distances: Any
    exact: bool = False
    refit: Any = None
    same: bool = False


TOLERANCE = 1e-6
"""How far distances may differ, relative to the largest, where only rounding can differ."""
CLOSED = ("euclidean", "krca", "lfda", "llr", "simplenpkl")
"""Methods that compute the one optimum itself; simplenpkl with the linear loss.  Others stop within a gap, or choose
among several optima (of a linear program): rounding decides where, so two fits must only certify the same optimum."""
STATIONARY = ("mlkr", "nca")
"""Methods whose problem is not convex: rounding may lead to another stationary point, so that only what must reproduce
every bit, and the use of the metric, is compared."""
UNIT = ("lpdesign", "lsml", "mlkr", "nca")
"""Methods that depend on the unit of X under a linear kernel: by penalties, or by where they begin."""
ALL_ROWS = ("itml", "llr", "lpdesign", "simplenpkl")
"""Methods that learn something from rows without labels too."""
REFITS = ("repetition", "unit of X", "unit of targets", "names of classes", "rows without labels")
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
    chunks: tuple[int, int] | None = None
    names: Any = None
    unit: float = 1.0

    def constraint(self, order: Any = None) -> Any:
        """Return the hint over rows in another order: row ``order[i]`` comes i-th.

        ``names`` are the classes by other names, targets are multiplied by ``unit``.
        """
        n = len(self.y)
        order = np.arange(n) if order is None else order
        place = np.empty(n, dtype=int)
        place[order] = np.arange(n)
        if self.hint == "labels":
            return mf.Labels((self.y if self.names is None else self.names[self.y])[order])
        if self.hint == "chunklets":
            return mf.Chunklets(self.y[order])
        if self.hint == "triplets":
            return mf.Triplets(place[self.triples], n=n)
        if self.hint == "quadruplets":
            return mf.Quadruplets(place[self.triples[:, [0, 1, 0, 2]]], n=n)
        if self.hint == "targets":
            return mf.Targets(self.unit * (self.y[order] + 0.1 * self.X[order, -1] / np.abs(self.X[:, -1]).max()))
        same = self.y[self.pairs[:, 0]] == self.y[self.pairs[:, 1]]
        return mf.Pairs(place[self.pairs[same]], place[self.pairs[~same]], n=n)

    def learn(self, X: Any = None, order: Any = None, constraint: Any = None) -> Any:
        X = self.X if X is None else X
        if self.chunks is not None:
            import dask.array as da

            X = da.from_array(np.asarray(X), chunks=self.chunks)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return mf.learn(
                X,
                self.constraint(order) if constraint is None else constraint,
                method=self.method,
                kernel=self.kernel,
                seed=0,
                **self.options,
            )


def draw(rng: Rng) -> Setting:
    """Draw a problem with a unique solution: rows without duplicates, and hints that need no conversion."""
    n, d = int(rng.integers(12, 70)), int(rng.integers(2, 7))
    classes = int(rng.integers(2, 4))
    y = np.arange(n) % classes
    if rng.random() < 0.3:  # few rows in all classes but one
        y[3 * classes :] = 0
    y = rng.permutation(y)
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
    if name == "names of classes" and setting.method != "mlkr":
        setting.hint = "labels"  # relations are drawn from them, which must not depend on the names
    if name == "unit of targets":
        setting.method, setting.hint, setting.options = "mlkr", "targets", {}
    if name == "unit of X" and setting.method in UNIT and isinstance(setting.kernel, k.Linear):
        setting.kernel = None
    if name == "rows without labels":
        setting.kernel = pick(rng, [k.Linear(), k.RBF(1 / float(setting.X.var(axis=0).sum()))])
        while setting.method in ALL_ROWS:
            setting.method = pick(rng, METHODS)
        setting.hint, setting.options = pick(rng, METHODS[setting.method]), {}
    n, d = setting.X.shape
    content = setting.content
    trial.describe(
        f"{n} × {d} ({content}), {setting.method} from {setting.hint}, {setting.kernel!r}, {setting.options}; {name}"
    )
    first = trial.call("the first fit", setting.learn)
    truth = in_memory(trial.call("its distances", first.distance, setting.X))
    if rng.random() < 0.5 and name not in ("sparse rows", "layout"):
        setting.chunks = int(rng.integers(1, n)), int(rng.integers(1, d + 1))
        trial.describe(f"the second fit in chunks of {setting.chunks}")
    change = CHANGES[name](trial, setting, first, rng)
    other = np.asarray(in_memory(change.distances), dtype=float)
    top = float(np.abs(truth).max())
    off = float(np.abs(other - truth).max())
    trial.figure(f"{setting.method}: {name}", off / top if top else off)
    site = f"{setting.method}: {name} changes the answer" + (f" ({content})" if content in OFFSET else "")
    if change.refit is not None and setting.method not in STATIONARY:
        ends = [str(one.report.status) for one in (first, change.refit)]
        good = ends[0] in ("stalled", "iteration_limit") or ends[1] not in ("stalled", "iteration_limit")
        trial.check(
            good, Verdict.CERTIFICATE, f"{setting.method}: with {name} it does not converge", " and ".join(ends)
        )
    if change.exact and setting.chunks is not None:
        change.exact = name not in REFITS
    if setting.method in STATIONARY and change.refit is not None and not change.exact and not change.same:
        return
    stops = "hinge" in str(setting.options.get("loss")) or setting.method not in CLOSED
    if change.refit is not None and stops and not change.exact and not change.same:
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
    found = trial.call("the same fit again", s.learn)
    return Change(found.distance(s.X), exact=True, refit=found)


def _renamed(trial: Trial, s: Setting, metric: Any, rng: Rng) -> Change:
    classes = int(s.y.max()) + 1
    order = rng.permutation(classes)
    names: list[Callable[[Any], Any]] = [
        lambda codes: 10 * codes - 7,
        lambda codes: np.array([f"class {code}" for code in codes.tolist()]),
        lambda codes: codes / 3,
        lambda codes: np.array([*codes.tolist(), None], dtype=object)[:-1],
    ]
    s.names = pick(rng, names)(order)
    found = trial.call(f"the fit with classes {s.names.tolist()}", s.learn)
    in_order = (np.diff(order) > 0).all()
    return Change(trial.call("its distances", found.distance, s.X), refit=found, exact=bool(in_order))


def _unit(trial: Trial, s: Setting, metric: Any, rng: Rng) -> Change:
    unit = 2.0 ** int(rng.integers(-20, 21))
    X = unit * s.X
    found = trial.call(f"the fit on {unit} X", s.learn, X)
    D, truth = (np.asarray(one) for one in (found.distance(X), metric.distance(s.X)))
    at = np.unravel_index(truth.argmax(), truth.shape)
    factor = D[at] / truth[at] if truth[at] > 0 else 1.0  # some metrics measure in the unit of X
    powers = trial.check(factor > 0, Verdict.WRONG, f"{s.method}: all distances are 0 in another unit", f"unit {unit}")
    return Change(D / factor if powers else truth, refit=found, same=s.chunks is None)


def _target_unit(trial: Trial, s: Setting, metric: Any, rng: Rng) -> Change:
    s.unit = 2.0 ** int(rng.integers(-150, 151))
    found = trial.call(f"the fit to {s.unit} y", s.learn)
    return Change(found.distance(s.X), refit=found, same=s.chunks is None)


def _unlabelled(trial: Trial, s: Setting, metric: Any, rng: Rng) -> Change:
    more, n = int(rng.integers(1, 30)), len(s.y)
    X = np.vstack([s.X, s.X[rng.integers(0, n, more)] + 0.1 * s.X.std(axis=0) * rng.normal(size=(more, s.X.shape[1]))])
    c = s.constraint()
    made: dict[str, Callable[[], Any]] = {
        "labels": lambda: mf.Labels([*s.y, *[None] * more]),
        "chunklets": lambda: mf.Chunklets([*s.y, *[None] * more]),
        "targets": lambda: mf.Targets(np.append(c.y, np.full(more, np.nan))),
        "pairs": lambda: mf.Pairs(c.similar, c.dissimilar, n=n + more),
        "triplets": lambda: mf.Triplets(c.triples, n=n + more),
        "quadruplets": lambda: mf.Quadruplets(s.triples[:, [0, 1, 0, 2]], n=n + more),
    }
    found = trial.call(f"the fit with {more} rows that no hint is about", s.learn, X, None, made[s.hint]())
    return Change(found.distance(s.X), refit=found)


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
    "names of classes": _renamed,
    "unit of X": _unit,
    "unit of targets": _target_unit,
    "rows without labels": _unlabelled,
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
