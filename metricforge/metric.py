"""Metric, a learned distance."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import neighbors
from . import rows as _rows
from .adapters import Adapter, adapter_of
from .distributed import cluster
from .distributed.chunks import spread
from .distributed.neighbors import across
from .errors import InputError, ModelFileError
from .index import BoundCoordinates, DistanceBlock, Index, NearestByKernel, PairedDistance, finite_distances, make
from .kernels import Kernel, Mixture, is_number
from .neighbors import LowerBounds, Search, Searcher
from .neighbors.scanning import largest_scores
from .registry.progress import progress
from .report import Report, card, lines_of, short
from .serialization import model as modelfile
from .serialization import probe
from .serialization.model import MissingPart
from .solver import Solver
from .space import (
    FeatureMap,
    Stacked,
    check_memory,
    embedding,
    explicit_width,
    parts_of,
    principal_axes,
)
from .tables.preparation import Origin
from .validation import one_of, plural, shown, whole_number

__all__ = ["Metric", "Report", "load"]

Array = NDArray[Any]

EXACT_NEIGHBORS = 2 * 10**9
"""Pairs of rows up to which `Metric.neighbors` compares all; beyond that, it searches the embedding first."""
BOUNDED_ROWS = 5000
"""Training rows from which they are compared by lower bounds first, where the embedding is not exact."""
BOUND_BYTES = 64 * 2**20
LEAST_AXES, AXES_ROWS = 16, 2000
"""What the coordinates for these bounds may take, the least number of them, and the rows that they are chosen from."""
SENT_NEIGHBORS = 10**8
"""Pairs of rows beyond which a search in memory is sent to an active client, and reports progress: about one second."""


@dataclass(frozen=True, eq=False, repr=False)
class Metric:
    """A learned distance, or equivalently a learned kernel.

    Attributes
    ----------
    kernel : Kernel
        The learned kernel; ``metric.kernel(A, B)`` is its block.
    report : Report
        Method, status, objective, gap and the other records of the fit.
    rows : rows or None
        The training rows, which `neighbors` searches.
    solver : Solver or None
        The solver that learned the metric; `update` calls it.  None for a sum of metrics, and for a loaded metric
        whose solver is not installed.
    rank, seed
        How `transform` represents a kernel that has no embedding of its own.
    stored_map : FeatureMap or Stacked, optional
        That representation, if it is known already, for instance from a file.
    width : int, optional
        The number of features of a row; default: that of ``rows``.
    start : Kernel or None
        The resolved kernel that learning began from; None if a file does not have it.
    columns : tuple of str
        The names of the columns; empty if the rows had none.
    origin : Origin or None
        The table that the metric was learned from, where a command read it: what was done to its columns, and the
        labels and identifiers of its rows.
    missing : mapping of str to MissingPart
        Parts of a loaded metric whose plugin is not installed: "solver", "start".  `save` writes them as they were.
    """

    kernel: Kernel
    report: Report
    rows: Any = None
    solver: Solver | None = None
    rank: str | int = "auto"
    seed: int = 0
    stored_map: FeatureMap | Stacked | None = field(default=None)
    width: int | None = None
    start: Kernel | None = None
    columns: tuple[str, ...] = ()
    missing: Mapping[str, MissingPart] = field(default_factory=dict)
    origin: Origin | None = None

    def __post_init__(self) -> None:
        if self.width is None and self.rows is not None:
            object.__setattr__(self, "width", _rows.width(self.rows))

    # -- distances -----------------------------------------------------------------------------------------------

    def distance(self, A: Any, B: Any = None) -> Any:
        """Return the (len(A), len(B)) distances; without B, those between the rows of A.  Lazy for dask arrays.

        Two single rows (1-d arrays, or two strings) give one number, as scikit-learn asks of a callable metric.
        """
        if self._is_row(A) and self._is_row(B):
            return float(self.paired_distance([A], [B])[0])
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
        D = _rows.map_pairs(self.kernel.distance, A, other, dtype, widest=self.kernel.widest)
        if _rows.is_dask(D):
            return D
        finite_distances(D)
        if B is None:
            np.fill_diagonal(D, 0)
            _rows.mirror(D)
        return D

    def _is_row(self, value: Any) -> bool:
        """Return whether a value is one row, not a table of rows."""
        if self.kernel.takes == "strings":
            return isinstance(value, str)
        if self.kernel.takes != "vectors" or isinstance(value, str):
            return False
        try:
            return np.ndim(value) == 1
        except ValueError:  # rows of unequal lengths, which the check refuses
            return False

    def paired_distance(self, A: Any, B: Any) -> Any:
        """Return the (len(A),) distances between the i-th rows of A and B."""
        A, B = self._check(A, "A"), self._check(B, "B")
        if _rows.count(A) != _rows.count(B):
            raise InputError(
                f"A has {_rows.count(A)} rows and B has {_rows.count(B)}; paired_distance needs equally many"
            )
        D = _rows.map_paired(PairedDistance(self.kernel), A, B, np.float64, widest=self.kernel.widest)
        return D if _rows.is_dask(D) else finite_distances(D)

    def transform(self, A: Any) -> Any:
        """Return the Euclidean embedding of A, whose distances equal the metric's (to the rank in the report)."""
        A = self._check(A, "A")
        if not _rows.is_dask(A):
            shape = _rows.count(A), self.embedding.columns
            size = _rows.float_dtype(A).itemsize * shape[0] * shape[1]
            check_memory(size, f"a {shape[0]} × {shape[1]} embedding", "give fewer rows at a time, or a dask array")
            if size > _rows.BLOCK_BYTES:
                return self._finite(_rows.gathered(self.embedding(spread(A))))
        return self._finite(self.embedding(A))

    def _finite(self, Z: Any) -> Any:
        """Return coordinates, or raise where they overflow; those on dask are lazy."""
        if _rows.is_dask(Z) or not Z.size:
            return Z
        with _rows.quiet():
            total = Z.sum()  # finite only if all are, or else the sum itself overflows
        if not np.isfinite(total) and not np.isfinite(max(Z.max(), -Z.min())):
            raise InputError("A: some coordinates overflow; rescale the features, for instance with StandardScaler")
        return Z

    def neighbors(
        self, A: Any, k: int = 10, *, method: str | Search = "auto", by: str = "distance"
    ) -> tuple[Array, Array]:
        """Return the k nearest training rows of each row of A: indices and distances, nearest first.

        Parameters
        ----------
        A : rows
        k : int
        method : str or callable
            "auto": up to 2e9 pairs of rows, all are compared.  Beyond that, candidates are searched for in the
            embedding and ordered by their exact distances.  "cells" is approximate: among many rows it finds 95 % of
            the nearest in a fraction of the time.  This and the other searches of `metricforge.neighbors.search`, a
            registered one or a function always run in the embedding.
        by : {"distance", "kernel"}
            "kernel" returns the rows with the largest k(a, x), and these values, largest first; all pairs are compared.
            The two differ where the k(x, x) do: use "kernel" for scores learned from relevance.

        Notes
        -----
        If A or the training rows are a dask array, all pairs are compared, and each pair of chunks is one task; if A
        is, both results are lazy.
        """
        if self.rows is None:
            raise InputError(
                "this metric keeps no training rows to search; compare two sets with metric.distance(A, B)"
            )
        n = _rows.count(self.rows)
        k = whole_number(k, "k", most=n, most_is="the number of training rows")
        A = self._check(A, "A")
        if one_of(by, "by", ("distance", "kernel")) == "kernel":
            return self._largest(A, k)
        if _rows.is_dask(A):
            return self._search_chunks(self.rows, A, k, method)
        if n * _rows.count(A) <= SENT_NEIGHBORS:
            return self._search(A, k, method)
        with progress(f"neighbors of {_rows.count(A)} rows among {n}"):
            return self._search(A, k, method)

    def _search(self, A: Any, k: int, method: str | Search) -> tuple[Array, Array]:
        """Return the k nearest training rows of rows in memory."""
        n = _rows.count(self.rows)
        if _rows.is_dask(self.rows) or (cluster.client() is not None and n * _rows.count(A) > SENT_NEIGHBORS):
            found = self._search_chunks(spread(self.rows), spread(A), k, method)
            indices, distances = cluster.compute(*found)
            return indices, distances
        if self.embedding_is_exact:
            return self._searcher(method).search(k, queries=self.embedding(A))
        if method == "auto" and (n * _rows.count(A) <= EXACT_NEIGHBORS or not self._embeds()):
            return self._nearest(A, k)
        most = min(n, 2 * k)
        candidates, _ = self._searcher(method).search(most, queries=self.embedding(A))
        return self._reorder(A, candidates, k)

    def index(
        self, *, k: int = 10, recall: float = 0.95, by: str = "distance", path: str | os.PathLike[str] | None = None
    ) -> Index:
        """Return an index of the training rows, for many small searches: ``metric.index().search(A, k=10)``.

        Parameters
        ----------
        k : int
            The number of neighbours for which ``recall`` is to hold; searches may ask for any other number.
        recall : float in (0, 1]
            The share of true neighbours to find, estimated on a sample; 1 compares all rows.
        by : {"distance", "kernel"}
            "kernel": searches return the rows with the largest k(a, x), and these values, as `neighbors` does.
        path : path, optional
            A folder.  If it exists, the index there is opened without being built again; otherwise it is written
            there, and the rows are mapped into memory.  Training rows may then be a dask array.
        """
        return make(self, k, recall, by, path)

    def _nearest(self, A: Any, k: int) -> tuple[Array, Array]:
        """Return the k nearest training rows by the kernel's distance, from lower bounds where rows are many."""
        n = _rows.count(self.rows)
        if n < BOUNDED_ROWS or not self._embeds():
            return neighbors.search_blocks(DistanceBlock(self.kernel, A, self.rows), n, _rows.count(A), k)
        coordinates, bounds = self._bounds

        def distance(i: int, rows: Array) -> Array:
            D: Array = DistanceBlock(self.kernel, A, _rows.take(self.rows, rows))(i, i + 1, 0, len(rows))[0]
            return D

        found, left = bounds.search(coordinates(A), distance, k)
        if len(left):
            block = DistanceBlock(self.kernel, _rows.take(A, left), self.rows)
            found[0][left], found[1][left] = neighbors.search_blocks(block, n, len(left), k)
        return found

    @cached_property
    def _bounds(self) -> tuple[BoundCoordinates, LowerBounds]:
        """Coordinates of rows whose distances are at most those of the metric, and those of the training rows.

        The embedding over landmarks is a projection, and so are its principal axes: what they leave out of a row has
        the norm of the last coordinate.
        """
        map, most = self.embedding, max(LEAST_AXES, BOUND_BYTES // (4 * _rows.count(self.rows)))
        if map.columns > most:
            sample = _rows.take(self.rows, _rows.draw(_rows.count(self.rows), AXES_ROWS, self.seed))
            map = map.rotated(principal_axes(map, sample)[0][:, :most])
        coordinates = BoundCoordinates(self.kernel, map)
        Z = _rows.map_rows(coordinates, self.rows, map.columns + 1, np.float32, widest=self.kernel.widest)
        return coordinates, LowerBounds.of(Z)

    def _largest(self, A: Any, k: int) -> tuple[Array, Array]:
        """Return the k training rows with the largest k(a, x) of each row of A, and these values."""
        if _rows.is_dask(A) or _rows.is_dask(self.rows):
            raise InputError('by="kernel" needs rows in memory; use by="distance" for dask arrays')
        n, q = _rows.count(self.rows), _rows.count(A)
        return largest_scores(lambda part: self.kernel.block(A[part], self.rows), n, q, k)

    def adapter(self, side: str = "query", *, n_components: int | None = None) -> Adapter:
        """Return the metric as a linear map (A, b), for a vector store that keeps its own vectors.

        Parameters
        ----------
        side : {"query", "both"}
            "query": (A q + b)·x ranks stored rows x as k(q, x) does; only queries are mapped.  b is 0 unless the start
            kernel centres the columns.  "both": inner products of mapped rows are k(x, y); with ``n_components`` the
            map keeps the largest axes.  A metric that is not linear in the columns has neither.
        """
        if self.width is None:
            raise InputError("this metric does not compare rows of columns, so it has no linear map")
        return adapter_of(self.kernel, self.width, side, n_components, self.rows)

    def _search_chunks(self, rows: Any, A: Any, k: int, method: str | Search) -> tuple[Any, Any]:
        if self.embedding_is_exact:
            return neighbors.search(self.embedding(rows), k, queries=self.embedding(A), method=method, seed=self.seed)
        if method != "auto":
            raise InputError(
                f"method={method!r} searches dask rows in the embedding, and that of this metric is not exact; "
                'use method="auto", or rows in memory'
            )
        return across(NearestByKernel(self.kernel), rows, k, queries=A)

    def update(self, X: Any, constraints: Any, **options: Any) -> Metric:
        """Return a new Metric that has also learned from these rows; this one stays valid.  Only some methods can.

        Parameters
        ----------
        X : rows
            Further rows.
        constraints : Constraint, or a 1-d array of labels
            Over these rows only.  Kinds that the method cannot use are converted, as in `learn`.
        **options
            Of the method's update, for instance ``hold="epsilon"`` of krca.
        """
        from .fitting import update  # a fit returns a Metric, so that the module is above this one

        return update(self, self._check(X, "X"), constraints, options)

    @cached_property
    def embedding(self) -> FeatureMap | Stacked:
        """The map behind `transform`: the kernel's own if it has one, else over landmarks among the training rows."""
        return self.stored_map or embedding(self.kernel, self.rows, self.rank, seed=self.seed)

    def truncated(self, n_components: int) -> Metric:
        """Return this metric with an embedding of at most ``n_components`` columns.

        The columns are the principal axes of the embedded training rows.  `transform` then returns the coordinates
        along them; `distance`, `neighbors` and the kernel stay exact.  ``report.kept`` is the share of the variance
        of the embedded training rows that the columns keep.

        Cost: one pass over the embedded rows, 8 m² bytes for m columns of the full embedding, O(n m² + m³) time.
        """
        if self.rows is None:
            raise InputError("n_components: this metric keeps no training rows to find principal axes of")
        k = whole_number(n_components, "n_components")
        axes, variances = principal_axes(self.embedding, self.rows)
        k = min(k, len(variances))
        total = float(variances.sum())
        kept = float(variances[:k].sum()) / total if total > 0 else 1.0
        values = {**self.report._core, "n_components": k, "kept": kept}
        return replace(self, report=Report(values, self.report.outcome), stored_map=self.embedding.rotated(axes[:, :k]))

    def with_facts(self, **facts: Any) -> Metric:
        """Return this metric with further fields in its report, such as scores on held-out rows."""
        return replace(self, report=Report({**self.report._core, **facts}, self.report.outcome))

    def mahalanobis(self) -> Array:
        """Return the (d, d) matrix M with distance² (x − y)'M(x − y) on the columns.

        Raises
        ------
        InputError
            If the metric is not a Mahalanobis metric on the columns, for instance with a Gaussian kernel.
        """
        if self.width is None:
            raise InputError("this metric does not compare rows of columns, so it has no matrix M")
        return self.kernel.mahalanobis(self.width)

    @property
    def embedding_is_exact(self) -> bool:
        """Whether distances in the embedding equal the metric's for any row, not only on the span of landmarks."""
        try:
            own = self.stored_map or self.kernel.embedding()
            if own is None and explicit_width(self.kernel, self.rows) is None and not isinstance(self.kernel, Mixture):
                return False  # landmarks; no need to choose them
            return self.embedding.exact
        except InputError:
            return False  # an indefinite kernel has none

    def _embeds(self) -> bool:
        try:
            return self.embedding is not None
        except InputError:
            return False

    def _known_map(self) -> FeatureMap | Stacked | None:
        """Return the embedding to save, or None if the kernel has its own, or can have none."""
        if self.stored_map is not None:
            return self.stored_map
        try:
            return None if self.kernel.embedding() is not None else self.embedding
        except InputError:
            return None

    def _searcher(self, method: str | Search) -> Searcher:
        """Return the searcher of the embedded training rows, which is kept until another method is asked for."""
        kept: Searcher | None = self.__dict__.get("_kept_searcher")
        if kept is None or kept.method != method:
            rows = np.asarray(self.embedding(self.rows)) if kept is None else kept.rows.X
            kept = self.__dict__["_kept_searcher"] = Searcher(rows, method=method, seed=self.seed)
        return kept

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_kept_searcher", "_bounds")}

    def _reorder(self, A: Any, candidates: Array, k: int, by: str = "distance") -> tuple[Array, Array]:
        """Return the k best candidates of each row of A by exact distances or kernel values, and these."""
        q, c = candidates.shape
        D = np.empty((q, c))
        paired = self.kernel.paired if by == "kernel" else PairedDistance(self.kernel)
        for part in _rows.blocks(q, 8 * c * max(self.embedding.columns, _rows.width(A) or 1)):
            who = np.repeat(np.arange(q)[part], c)
            D[part] = paired(A[who], _rows.take(self.rows, candidates[part].ravel())).reshape(-1, c)
        order = np.lexsort((candidates, -D if by == "kernel" else D), axis=1)[:, :k]
        return np.take_along_axis(candidates, order, axis=1), np.take_along_axis(D, order, axis=1)

    def _check(self, X: Any, name: str) -> Any:
        given, learned = _rows.column_names(X), self.columns
        named = not all(map(str.isdigit, learned))  # columns of a file without a header are numbered
        missing = [column for column in learned if column not in set(given or learned)]
        if missing and named:
            raise InputError(
                f"{name} lacks {plural(len(missing), 'column')} that the metric was learned on: {_listed(missing)}; "
                f"add {'it' if len(missing) == 1 else 'them'}, and select {name}[list(metric.columns)]"
            )
        if given and named and given != learned:
            raise InputError(
                f"{name} has the columns {_listed(given)}, but the metric was learned on {_listed(learned)}, in that "
                f"order; select them with {name}[list(metric.columns)]"
            )
        X = self.kernel.check(X, name)
        if self.width is not None and _rows.width(X) != self.width:
            raise InputError(f"{name} has {_rows.width(X)} features, but the metric was learned on {self.width}")
        return X

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def __mul__(self, other: Any) -> Metric:
        if is_number(other):
            return self._scaled(other)
        if not isinstance(other, Metric | Kernel):
            return NotImplemented
        factor = self._with_same_rows(other)
        return self._combined(factor, self.kernel * factor.kernel, "·", operator.mul)

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Metric:
        if is_number(other) and other == 0:
            return self  # the start of sum(metrics)
        if not isinstance(other, Metric | Kernel):
            return NotImplemented
        term = self._with_same_rows(other)
        total = self._combined(term, self.kernel + term.kernel, "+", operator.add)
        return total if total.rows is not None else replace(total, stored_map=self._map_of_sum(term))

    __radd__ = __add__

    def _scaled(self, weight: Any) -> Metric:
        if not 0 < weight < np.inf:
            raise InputError(f"a metric can only be scaled by a positive number, got {shown(weight)}")
        values = {"method": f"{float(weight):g} · ({self.report['method']})", "parts": (dict(self.report),)}
        return replace(
            self,
            kernel=float(weight) * self.kernel,
            report=Report(values | self._named_columns()),
            solver=None,
            stored_map=None if self.stored_map is None else self.stored_map.scaled(weight),
            start=None if self.start is None else float(weight) * self.start,
            missing={},
        )

    def _with_same_rows(self, other: Metric | Kernel) -> Metric:
        """Return a kernel as a metric on the training rows of this one; a Metric as it is."""
        if isinstance(other, Metric):
            return other
        kernel = other if self.rows is None else other.resolve(other.check(self.rows, "rows"), seed=self.seed)
        return Metric(
            kernel,
            Report({"method": repr(kernel)}),
            rows=self.rows,
            rank=self.rank,
            seed=self.seed,
            width=self.width,
            start=kernel,
            columns=self.columns,
        )

    def _combined(self, other: Metric, kernel: Kernel, sign: str, combine: Callable[[Any, Any], Any]) -> Metric:
        """Return the metric of a sum or product of kernels; training rows are kept where both have the same."""
        same = self.rows is not None and (
            self.rows is other.rows or _rows.digest(self.rows) == _rows.digest(other.rows)
        )
        parts = tuple(p for m in (self, other) for p in m.report.get("parts", (dict(m.report),)))
        values = {"method": f"{self.report['method']} {sign} {other.report['method']}", "parts": parts}
        columns = self.columns if self.columns == other.columns else ()
        if columns:
            values |= self._named_columns()
        if not same:
            values["notes"] = ("the parts were learned on different rows: neighbors has none to search",)
        return replace(
            self,
            kernel=kernel,
            report=Report(values),
            rows=self.rows if same else None,
            solver=None,
            stored_map=None,
            start=None if self.start is None or other.start is None else combine(self.start, other.start),
            columns=columns,
            missing={},
            origin=self.origin if same and self.columns == other.columns else None,
        )

    def _named_columns(self) -> dict[str, Any]:
        return {"columns": self.columns} if self.columns else {}

    def _map_of_sum(self, other: Metric) -> Stacked | None:
        """Return the concatenated embeddings, for a sum without training rows; None if a part has none."""
        try:
            maps = [part for metric in (self, other) for part in parts_of(metric.embedding)]
        except InputError:
            return None
        return Stacked(tuple(maps))

    def __repr__(self) -> str:
        facts = [f"{name}={short(self.report[name])}" for name in ("method", "status", "gap") if name in self.report]
        rows = "" if self.rows is None else f", {_rows.count(self.rows)} training rows"
        return f"Metric({', '.join(facts)}{rows})"

    def _repr_html_(self) -> str:
        """Return a card for notebooks: what was learned from what, and how well it does on rows held out."""
        return card(f"Metric learned by {self.report.get('method', 'hand')}", lines_of(self))

    # -- files ---------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the metric to one file, atomically: an old file stays intact until the new one is complete.

        Training rows are saved too, except those of a dask array: after loading, `neighbors` has none to search.
        """
        keep = self.rows is not None and not _rows.is_dask(self.rows)
        # Without rows the map could not be computed again; one that was used must be the same on another machine.
        computed = self.stored_map is not None or "embedding" in self.__dict__
        known = self._known_map() if computed or not keep else None
        report, start = _without_dask(self.report._core), self.missing.get("start", self.start)
        if why := modelfile.obstacle(start, "start"):  # the metric can be used without it
            report, start = report | {"notes": (*report.get("notes", ()), f"not saved: {why}")}, None
        content = {
            "kernel": self.kernel,
            "report": report,
            "outcome": _without_dask(self.report.outcome),
            "rows": self.rows if keep else None,
            "solver": self.missing.get("solver", self.solver),
            "start": start,
            "columns": self.columns,
            "origin": self.origin,
            "rank": self.rank,
            "seed": self.seed,
            "width": self.width,
            "map": known,
        }
        modelfile.write(path, content)


def load(path: str | os.PathLike[str]) -> Metric:
    """Return the metric that `Metric.save` wrote.  No code from the file is run.

    The plugin that trained the metric is not needed if the kernel does not need it: ``metric.solver`` is then None,
    and `Metric.update` raises MissingPluginError.

    Raises
    ------
    ModelFileError
        If the file is not a saved metric, is damaged, or was written by a later version.
    MissingPluginError
        If the plugin of a component of the kernel is not installed; the message names it.
    """
    content = modelfile.read(path)
    expected = {
        "kernel": Kernel,
        "report": dict,
        "outcome": dict,
        "rows": object,
        "solver": Solver | MissingPart | None,
        "start": Kernel | MissingPart | None,
        "columns": tuple,
        "origin": Origin | None,
        "rank": str | int,
        "seed": int,
        "width": int | None,
        "map": FeatureMap | Stacked | None,
    }
    wrong = [name for name, kind in expected.items() if name not in content or not isinstance(content[name], kind)]
    if wrong:
        raise ModelFileError(
            f"{os.fspath(path)!r} is not a saved metric: its {wrong[0]!r} is missing or of a wrong kind"
        )
    with modelfile.rebuilding(path):
        return _rebuilt(content)


def _rebuilt(content: Mapping[str, Any]) -> Metric:
    """Return the metric of a file's content; raise an exception of any type if its parts do not work together."""
    probe.check_report(content["report"], updatable=content["solver"] is not None)
    whole_number(content["seed"], "seed", least=0)
    if not all(isinstance(name, str) for name in content["columns"]):
        raise InputError("columns must be strings")
    missing = {name: content[name] for name in ("solver", "start") if isinstance(content[name], MissingPart)}
    direct = {name: content[name] for name in ("kernel", "rows", "columns", "rank", "seed", "width", "origin")}
    metric = Metric(
        report=Report(content["report"], content["outcome"]),
        solver=None if "solver" in missing else content["solver"],
        start=None if "start" in missing else content["start"],
        stored_map=content["map"],
        missing=missing,
        **direct,
    )
    rows = metric.rows
    if rows is not None:
        metric._check(rows, "rows")
    if metric.origin is not None and rows is not None:
        metric.origin.check(_rows.count(rows))
    for kernel in filter(None, (metric.kernel, metric.start)):
        probe.check_kernel(kernel, rows, metric.width)
    if metric.stored_map is not None:
        probe.check_map(metric.stored_map, metric.kernel, rows, metric.width)
    repr(metric), repr(metric.report)
    return metric


def _without_dask(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if not _rows.is_dask(value)}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
