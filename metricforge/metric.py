"""A learned metric: distances, kernel, embedding, neighbours, arithmetic, files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import cluster, modelfile, neighbors
from . import rows as _rows
from .constraints import Constraint, Labels
from .errors import InputError, ModelFileError
from .kernels import Kernel, Mixture, is_number
from .problem import Solution, Solver
from .space import FeatureMap, Stacked, check_memory, embedding, explicit_width, represent

Array = NDArray[Any]

EXACT_NEIGHBORS = 2 * 10**9
"""Kernel values up to which `Metric.neighbors` compares every pair; beyond, it searches the embedding first."""
SENT_NEIGHBORS = 10**8
"""Pairs beyond which a search among rows in memory is worth sending to an active client: a second of work here."""


class Report(Mapping[str, Any]):
    """What a fit did, by name: ``report.gap`` or ``report["gap"]``."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__["_values"] = dict(values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            known = ", ".join(self.__dict__.get("_values", ()))
            raise AttributeError(f"the report has no {name!r}; it has {known}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a report is read-only")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._values]

    def __repr__(self) -> str:
        width = max((len(name) for name in self), default=0)
        return "\n".join(f"{name:<{width}}  {_short(value)}" for name, value in self.items())


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array {value.shape} {value.dtype}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple | list) and len(value) > 6:
        return f"{len(value)} entries, last {value[-1]}"
    return str(value)


@dataclass(frozen=True, eq=False, repr=False)
class Metric:
    """A distance (equivalently a kernel) learned from hints.

    Attributes
    ----------
    kernel : Kernel
        The learned kernel; ``metric.kernel(A, B)`` is its block.
    report : Report
        Method, status, objective, gap and what else the fit has to say.
    rows : rows or None
        The training rows, among which `neighbors` searches.
    solver : Solver or None
        What learned it; `update` asks it.
    rank, seed
        How `transform` represents a kernel that has no embedding of its own.
    stored_map : FeatureMap or Stacked, optional
        That representation, where it was found before (by the metric that was saved).
    width : int, optional
        The number of features of a row; default: that of ``rows``.
    """

    kernel: Kernel
    report: Report
    rows: Any = None
    solver: Solver | None = None
    rank: str | int = "auto"
    seed: int = 0
    stored_map: FeatureMap | Stacked | None = field(default=None)
    width: int | None = None

    def __post_init__(self) -> None:
        if self.width is None and self.rows is not None:
            object.__setattr__(self, "width", _rows.width(self.rows))

    # -- using it ------------------------------------------------------------------------------------------------

    def distance(self, A: Any, B: Any = None) -> Any:
        """Return the (len(A), len(B)) distances; without B those of A with itself.  Lazy for dask arrays."""
        A = self._check(A, "A")
        other = A if B is None else self._check(B, "B")
        dtype = np.result_type(_rows.float_dtype(A), _rows.float_dtype(other))
        if not (_rows.is_dask(A) or _rows.is_dask(other)):
            cells = _rows.count(A) * _rows.count(other)
            check_memory(
                2 * dtype.itemsize * cells,
                f"a {_rows.count(A)} × {_rows.count(other)} distance matrix",
                "use metric.neighbors, or give dask arrays",
            )
        D = _rows.map_pairs(self.kernel.distance, A, other, dtype)
        if _rows.is_dask(D):
            return D
        if not np.isfinite(D).all():
            raise InputError("A: some distances overflow; rescale the features, for instance with StandardScaler")
        if B is None:
            np.fill_diagonal(D, 0)
        return D

    def paired_distance(self, A: Any, B: Any) -> Any:
        """Return the (len(A),) distances of A's rows to B's, row by row."""
        A, B = self._check(A, "A"), self._check(B, "B")
        if _rows.count(A) != _rows.count(B):
            raise InputError(f"A has {_rows.count(A)} rows and B has {_rows.count(B)}; paired_distance needs as many")
        return _rows.map_paired(_PairedDistance(self.kernel), A, B, np.float64)

    def transform(self, A: Any) -> Any:
        """Return the Euclidean embedding of A, whose distances are the metric's (to the rank in the report)."""
        A = self._check(A, "A")
        if not _rows.is_dask(A):
            shape = _rows.count(A), self.embedding.columns
            size = _rows.float_dtype(A).itemsize * shape[0] * shape[1]
            check_memory(size, f"a {shape[0]} × {shape[1]} embedding", "give fewer rows at a time, or a dask array")
            if size > _rows.BLOCK_BYTES:
                return _rows.gathered(self.embedding(_rows.spread(A)))
        return self.embedding(A)

    def neighbors(self, A: Any, k: int = 10) -> tuple[Array, Array]:
        """Return the k nearest training rows of each row of A: indices and distances, nearest first.

        Up to two thousand million pairs every one is compared; beyond, candidates come from a search in the embedding
        (approximate when large) and are put in order by their exact distance.  Where A is a dask array both answers
        are lazy dask arrays; where A or the training rows are, every pair of chunks is one task, and all are compared.
        """
        if self.rows is None:
            raise InputError(
                "this metric keeps no training rows to search; compare two sets with metric.distance(A, B)"
            )
        n = _rows.count(self.rows)
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= n:
            raise InputError(f"k must be a whole number between 1 and the {n} training rows, got {k!r}")
        A = self._check(A, "A")
        if _rows.is_dask(A):
            return self._search_chunks(self.rows, A, k)
        if _rows.is_dask(self.rows) or (cluster.client() is not None and n * _rows.count(A) > SENT_NEIGHBORS):
            indices, distances = cluster.compute(*self._search_chunks(_rows.spread(self.rows), _rows.spread(A), k))
            return indices, distances
        if self.embedding_is_exact:
            return neighbors.search(self._training, k, queries=self.embedding(A), seed=self.seed)
        if n * _rows.count(A) <= EXACT_NEIGHBORS or not self._embeds():
            return neighbors.search_blocks(_DistanceBlock(self.kernel, A, self.rows), n, _rows.count(A), k)
        candidates, _ = neighbors.search(self._training, min(n, 2 * k), queries=self.embedding(A), seed=self.seed)
        return self._reorder(A, candidates, k)

    def _search_chunks(self, rows: Any, A: Any, k: int) -> tuple[Any, Any]:
        if self.embedding_is_exact:
            return neighbors.search(self.embedding(rows), k, queries=self.embedding(A), seed=self.seed)
        return neighbors.across(_NearestByKernel(self.kernel), rows, k, queries=A)

    def update(self, X: Any, constraints: Any, **options: Any) -> Metric:
        """Return a new Metric that has also seen these rows; this one stays valid.  Only some methods can.

        Parameters
        ----------
        X : rows
            Further rows.
        constraints : Constraint, or a 1-d array of labels
            Over these rows only.  Kinds that the method cannot use are converted as in `learn`.
        **options
            Of the method's update, for instance ``hold="epsilon"`` of krca.
        """
        if self.solver is None:
            raise InputError("a sum of metrics cannot be updated; update its parts and add them again")
        rows = self._check(X, "X")
        relations = constraints if isinstance(constraints, Constraint) else Labels(constraints)
        relations.check(_rows.count(rows))
        if not self.solver.can_update or isinstance(relations, self.solver.accepts):
            usable = relations
        else:
            usable = relations.to(self.solver.accepts[0], seed=self.seed)
        started = time.perf_counter()
        solution = self.solver.update(self, rows, usable, **options)
        return replace(
            self,
            kernel=solution.kernel,
            rows=None if self.rows is None else _rows.stack(self.rows, rows),
            report=self._report_after(solution, usable, time.perf_counter() - started),
            stored_map=self._map_after(solution.kernel, rows),
        )

    def _map_after(self, kernel: Kernel, rows: Any) -> FeatureMap | None:
        """Return the embedding of an updated metric that kept no training rows: over its landmarks and the new rows."""
        if self.rows is not None or not isinstance(self.stored_map, FeatureMap):
            return None
        new = _rows.take(rows, np.arange(_rows.count(rows)))
        return represent(kernel, _rows.stack(self.stored_map.landmarks, new), self.rank, seed=self.seed).map

    def _report_after(self, solution: Solution, usable: Constraint, seconds: float) -> Report:
        """Return the report of an update: what is counted adds up, the rest is about the update."""
        before = self.report
        told = {
            "status": str(solution.status),
            "objective": solution.objective,
            "gap": solution.gap,
            "certificate": solution.certificate,
            "n_iter": solution.n_iter,
            "trace": solution.trace,
            "n": before["n"] + usable.n,
            "seconds": seconds,
            "relations": before["relations"] + usable.size,
            "dropped": before["dropped"] + usable.dropped,
            "notes": tuple(dict.fromkeys((*before["notes"], *solution.notes))),
            "updates": before.get("updates", 0) + 1,
        }
        return Report({**before, **told, **solution.report})

    @cached_property
    def embedding(self) -> FeatureMap | Stacked:
        """The map behind `transform`: what the kernel has of its own, else landmarks among the training rows."""
        return self.stored_map or embedding(self.kernel, self.rows, self.rank, seed=self.seed)

    @property
    def embedding_is_exact(self) -> bool:
        """Whether distances in the embedding are the metric's for any row, not only on the span of landmarks."""
        try:
            own = self.kernel.embedding() or self.stored_map
            if own is None and explicit_width(self.kernel, self.rows) is None and not isinstance(self.kernel, Mixture):
                return False  # landmarks: known without choosing them
            return self.embedding.exact
        except InputError:
            return False  # an indefinite kernel, or a sum with one: there is none

    def _embeds(self) -> bool:
        try:
            return self.embedding is not None
        except InputError:
            return False

    def _known_map(self) -> FeatureMap | Stacked | None:
        """Return the embedding, or None where a loaded copy finds it in the kernel, or there can be none."""
        try:
            return None if self.kernel.embedding() is not None else self.embedding
        except InputError:
            return None

    @cached_property
    def _training(self) -> Array:
        return np.asarray(self.embedding(self.rows))

    def _reorder(self, A: Any, candidates: Array, k: int) -> tuple[Array, Array]:
        q, c = candidates.shape
        D = np.empty((q, c))
        paired = _PairedDistance(self.kernel)
        for part in _rows.blocks(q, 8 * c * max(self.embedding.columns, _rows.width(A) or 1)):
            who = np.repeat(np.arange(q)[part], c)
            D[part] = paired(A[who], _rows.take(self.rows, candidates[part].ravel())).reshape(-1, c)
        order = np.lexsort((candidates, D), axis=1)[:, :k]
        return np.take_along_axis(candidates, order, axis=1), np.take_along_axis(D, order, axis=1)

    def _check(self, X: Any, name: str) -> Any:
        given, learned = _rows.column_names(X), tuple(self.report.get("columns", ()))
        named = not all(map(str.isdigit, learned))  # a file that names no columns has them numbered
        if given and named and given != learned:
            raise InputError(
                f"{name} has the columns {_listed(given)}, but the metric was learned on {_listed(learned)}, in that "
                f'order; select them with {name}[list(metric.report["columns"])]'
            )
        X = self.kernel.check(X, name)
        if self.width is not None and _rows.width(X) != self.width:
            raise InputError(f"{name} has {_rows.width(X)} features, but the metric was learned on {self.width}")
        return X

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def __mul__(self, weight: Any) -> Metric:
        if not is_number(weight):
            return NotImplemented
        if not 0 < weight < np.inf:
            raise InputError(f"a metric can only be scaled by a positive number, got {weight!r}")
        told = {"method": f"{float(weight):g} · ({self.report['method']})", "parts": (dict(self.report),)}
        told |= {name: value for name, value in self.report.items() if name == "columns"}
        scaled = float(weight) * self.kernel
        kept = None if self.stored_map is None else Stacked(tuple(m.scaled(weight) for m in _maps(self.stored_map)))
        return replace(self, kernel=scaled, report=Report(told), solver=None, stored_map=kept)

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Metric:
        if is_number(other) and other == 0:
            return self  # so that sum(metrics) works
        if not isinstance(other, Metric):
            return NotImplemented
        same = self.rows is not None and (
            self.rows is other.rows or _rows.digest(self.rows) == _rows.digest(other.rows)
        )
        parts = tuple(p for m in (self, other) for p in m.report.get("parts", (dict(m.report),)))
        told = {"method": f"{self.report['method']} + {other.report['method']}", "parts": parts}
        if self.report.get("columns") == other.report.get("columns") is not None:
            told["columns"] = self.report["columns"]
        if not same:
            told["notes"] = ("the parts were learned on different rows: neighbors has none to search",)
        return replace(
            self,
            kernel=self.kernel + other.kernel,
            report=Report(told),
            rows=self.rows if same else None,
            solver=None,
            stored_map=self._map_of_sum(other) if not same else None,
        )

    __radd__ = __add__

    def _map_of_sum(self, other: Metric) -> Stacked:
        """Return both embeddings side by side, for a sum whose parts have different training rows."""
        return Stacked((*_maps(self.embedding), *_maps(other.embedding)))

    def __repr__(self) -> str:
        told = [f"{name}={_short(self.report[name])}" for name in ("method", "status", "gap") if name in self.report]
        rows = "" if self.rows is None else f", {_rows.count(self.rows)} training rows"
        return f"Metric({', '.join(told)}{rows})"

    # -- files ---------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the metric to one file, atomically: an old file stays whole until the new one is complete.

        Training rows go along, except those of a dask array (`neighbors` then says so after loading).
        """
        keep = self.rows is not None and not _rows.is_dask(self.rows)
        # without rows the map could not be found again; one that was used must stay what it is on another machine
        known = None if keep and "embedding" not in self.__dict__ else self._known_map()
        content = {
            "kernel": self.kernel,
            "report": {name: value for name, value in self.report.items() if not _rows.is_dask(value)},
            "rows": self.rows if keep else None,
            "solver": self.solver,
            "rank": self.rank,
            "seed": self.seed,
            "width": self.width,
            "map": known,
        }
        modelfile.write(path, content)


def load(path: str | os.PathLike[str]) -> Metric:
    """Return the metric that `Metric.save` wrote.  No code from the file is run.

    Raises
    ------
    ModelFileError
        When the file is not a saved metric, is damaged, or was written by a later version.
    MissingPluginError
        When a component's plugin is not installed; the message names it.
    """
    content = modelfile.read(path)
    wanted = {
        "kernel": Kernel,
        "report": dict,
        "rows": object,
        "solver": Solver | None,
        "rank": str | int,
        "seed": int,
        "width": int | None,
        "map": FeatureMap | Stacked | None,
    }
    wrong = [name for name, kind in wanted.items() if name not in content or not isinstance(content[name], kind)]
    if wrong:
        raise ModelFileError(
            f"{os.fspath(path)!r} is not a saved metric: its {wrong[0]!r} is missing or of a wrong kind"
        )
    found = {name: content[name] for name in ("kernel", "rows", "solver", "rank", "seed", "width")}
    metric = Metric(report=Report(content["report"]), stored_map=content["map"], **found)
    if metric.rows is not None:
        try:
            metric._check(metric.rows, "rows")
        except (InputError, TypeError) as error:
            raise ModelFileError(f"{os.fspath(path)!r} is not a saved metric: {error}") from error
    return metric


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def _maps(embedding: FeatureMap | Stacked) -> tuple[FeatureMap, ...]:
    return embedding.maps if isinstance(embedding, Stacked) else (embedding,)


@dataclass(frozen=True, eq=False)
class _PairedDistance:
    """d(a_i, b_i) as an object that can be sent to a worker."""

    kernel: Kernel

    def __call__(self, A: Any, B: Any) -> Array:
        return np.sqrt(self.kernel.paired_squared_distance(A, B))


@dataclass(frozen=True, eq=False)
class _NearestByKernel:
    """The nearest rows of a chunk by the metric's own distance, as an object that can be sent to a worker."""

    kernel: Kernel

    def __call__(self, X: Any, k: int, *, queries: Any) -> tuple[Array, Array]:
        block = _DistanceBlock(self.kernel, queries, X)
        return neighbors.search_blocks(block, _rows.count(X), _rows.count(queries), k)


@dataclass(frozen=True, eq=False)
class _DistanceBlock:
    """Distances from a slice of the queries to a slice of the training rows."""

    kernel: Kernel
    queries: Any
    rows: Any

    def __call__(self, q0: int, q1: int, c0: int, c1: int) -> Array:
        return self.kernel.distance(self.queries[q0:q1], self.rows[c0:c1])
