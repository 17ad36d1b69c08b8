"""Scores of a metric on rows: triplets, alignment, retrieval, satisfied relations, and a baseline for clusterings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..constraints import Constraint, Distances, Labels, Satisfied, Triplets, row_auc
from ..errors import InputError
from ..kernels import Kernel, Linear
from ..kernels.alignment import factor_alignment, gram_alignment
from ..rows import as_vectors, blocks, count, is_dask, is_sparse, take, width
from ..validation import first_rows, one_of, shown

if TYPE_CHECKING:
    from ..metric import Metric


Array = NDArray[Any]


def as_embedding(Z: Any, name: str) -> Array:
    """Return dense float64 rows in memory."""
    if is_dask(Z):
        raise InputError(f"{name} is a dask array, and this works in memory; call {name}.compute() first")
    if is_sparse(Z):
        raise InputError(f"{name} is sparse; give {name}.toarray(), or an embedding such as metric.transform(X)")
    return np.asarray(as_vectors(Z, name), dtype=np.float64)


def group_means(Z: Array, group: Array, weight: Array) -> Array:
    """Return the weighted mean row of every group ``0 .. group.max()``, none of them empty."""
    from scipy.sparse import csr_array

    n, total = len(Z), np.bincount(group, weights=weight)
    indicator = csr_array((weight.astype(float), group, np.arange(n + 1)), shape=(n, len(total)))
    means: Array = indicator.T @ Z / total[:, None]
    return means


def satisfied(
    metric: Metric | Kernel | None, X: Any, constraint: Constraint, *, seed: int = 0
) -> tuple[Satisfied, ...]:
    """Count the relations over the rows of X that a metric satisfies, one entry per type of relation.

    The constraint decides when a relation is satisfied (`Constraint.satisfied`).

    Parameters
    ----------
    metric : Metric, Kernel or None
        None: X is an embedding, compared by Euclidean distance.
    X : rows
        The rows that the constraint indexes.
    constraint : Constraint
    seed : int
        At most 20,000 relations of each type are compared, drawn by the seed; for labels the pairs among 2,000 rows.
    """
    kernel = kernel_of(metric)
    X = kernel.check(X, "X")
    if not isinstance(constraint, Constraint):
        raise InputError(f"constraint must be a Constraint such as mf.Pairs, got {shown(constraint)}")
    constraint.check(count(X))
    return constraint.satisfied(Distances(kernel, X, seed))


def triplet_accuracy(
    metric: Metric | Kernel | None,
    X: Any,
    triplets: Triplets,
    *,
    by: Literal["distance", "kernel"] = "distance",
    both: bool = False,
) -> float:
    """Return the fraction of judgements "i is more similar to j than to k" that a metric satisfies.

    By distance a judgement is satisfied when d(i, j) < d(i, k), by kernel when k(i, j) > k(i, k); the two differ where
    the k(x, x) do.  With ``both``, also d(i, j) < d(j, k), or k(i, j) > k(j, k): the "percentage correct" of Fung et
    al., for triplets whose i and j share a class.  A tie does not satisfy it.

    Parameters
    ----------
    metric : Metric, Kernel or None
        None: X is an embedding, compared by Euclidean distance and inner product.
    X : rows
        The rows that the triplets index.
    triplets : Triplets

    Notes
    -----
    Two (with ``both`` three) kernel values per triplet, in blocks: O(t) time, memory for a block of rows.

    References
    ----------
    G. Fung, R. Rosales, R. B. Rao. Feature selection and kernel design via linear programming. IJCAI 2007, Sec. 3.1.
    """
    kernel = kernel_of(metric)
    X = kernel.check(X, "X")
    triplets = Triplets.expect(triplets, "triplets")
    triplets.check(count(X), "triplets")
    if not triplets.size:
        raise InputError("triplets holds no triplet, so there is no fraction; give at least one")
    one_of(by, "by", ("distance", "kernel"))

    def similarity(A: Any, B: Any) -> Array:
        return kernel.paired(A, B) if by == "kernel" else -kernel.paired_squared_distance(A, B)

    satisfied = 0
    # at most 8192 triplets at a time: a learned kernel may need a thousand features per row
    for part in blocks(triplets.size, 8 * max(1024, 3 * (width(X) or 1))):
        first, second, third = (take(X, rows) for rows in triplets.triples[part].T)
        similar = similarity(first, second)
        agrees = similar > similarity(first, third)
        if both:
            agrees &= similar > similarity(second, third)
        satisfied += int(np.count_nonzero(agrees))
    return satisfied / triplets.size


def alignment(y: Any, *, K: Any = None, Z: Any = None) -> float:
    """Return the alignment ⟨K, K*⟩ / (‖K‖ ‖K*‖) of a kernel with the ideal kernel of the labels.

    K*_ij = 1 where y_i = y_j and 0 elsewhere; the products are Frobenius products.  1 is perfect; nothing is centred.
    For an embedding Z with K = Z Z' only ⟨K, K*⟩ = Σ_c ‖Σ_{i in c} z_i‖² and ‖K‖ = ‖Z'Z‖ are formed.

    Parameters
    ----------
    y : array of n labels, or Labels
    K : (n, n) array
        The Gram matrix; or
    Z : (n, m) array
        an embedding, for instance ``metric.transform(X)``.

    Notes
    -----
    K: O(n²) time, memory for a scaled copy of K.  Z: O(n m²) time, memory for a copy of Z and O(m² + m · classes).

    References
    ----------
    J. T. Kwok, I. W. Tsang. Learning with idealized kernels. ICML 2003, eq. (1) and Sec. 2.
    """
    if (K is None) == (Z is None):
        raise InputError("give either the Gram matrix K or an embedding Z with K = Z Z', not both and not neither")
    A = as_embedding(K, "K") if Z is None else as_embedding(Z, "Z")
    n = len(A)
    codes = _classes(y, n)
    if Z is None and A.shape != (n, n):
        raise InputError(f"K must be a square Gram matrix, got shape {A.shape}; pass an embedding as Z=")
    scale = float(max(A.max(), -A.min()))  # divided by, so that no product overflows or underflows
    if scale == 0:
        raise InputError(f"{'K' if Z is None else 'Z'} is zero everywhere, so its alignment is not defined")
    return (gram_alignment if Z is None else factor_alignment)(A / scale, codes)


@dataclass(frozen=True, eq=False)
class RetrievalResult:
    """The result of `retrieval_auc`.

    Attributes
    ----------
    auc : float
        The mean over ``queries``.
    per_query : (q,) array
        The area under the ROC curve of each of ``queries``.
    queries : (q,) int array
        The requested rows for which there are another row of their class and a row of a different class.
    left_out : int array
        The other requested rows.
    """

    auc: float
    per_query: Array
    queries: Array
    left_out: Array


def retrieval_auc(metric: Metric | Kernel | None, X: Any, y: Any, *, queries: Any = None) -> RetrievalResult:
    """Rank all other rows by their distance to each query and score how well the query's class comes first.

    The score of a query is the area under the ROC curve: the probability that a row of its class is nearer than a row
    of another, where ties count one half.  Squared distances that differ by less than 2⁻³⁴ of the query's largest are
    ties: rounding must not order equal distances.

    Parameters
    ----------
    metric : Metric, Kernel or None
        None: X is an embedding, compared by Euclidean distance.
    X : rows in memory
    y : array of n labels, or Labels
    queries : row numbers, optional
        The rows to query; default: all.

    Notes
    -----
    O(n log n) time per query in addition to the distances; memory for a block of distances.  A learned kernel
    represents all n rows again for every block: for many queries over many rows pass its embedding,
    ``retrieval_auc(None, metric.transform(X), y)``.

    References
    ----------
    The measure of Table II of the KRCA paper.
    """
    kernel = kernel_of(metric)
    if is_dask(X):
        raise InputError("X is a dask array, and this works in memory; call X.compute() first")
    X = kernel.check(X, "X")
    n = count(X)
    codes = _classes(y, n)
    asked = np.arange(n) if queries is None else _row_numbers(queries, n, "queries")
    positives = np.bincount(codes)[codes[asked]] - 1
    negatives = n - 1 - positives
    scored = (positives > 0) & (negatives > 0)
    if not scored.any():
        raise InputError(
            "y: no query has both another row of its class and a row of a different one; give at least two classes, "
            "and classes of two rows or more"
        )
    found = asked[scored]
    per_query = np.empty(len(found))
    for part in blocks(len(found), 48 * n):
        rows = found[part]
        D = np.asarray(kernel.squared_distance(X[rows], X), dtype=np.float64)  # (b, n)
        if not np.isfinite(D).all():
            bad = first_rows(rows[~np.isfinite(D).all(axis=1)])
            raise InputError(f"metric: the distances from {bad} of X are not finite; check the kernel")
        same = codes[rows, None] == codes
        different = ~same
        same[np.arange(len(rows)), rows] = False  # the query itself does not count
        per_query[part] = row_auc(D, same, different)
    return RetrievalResult(auc=float(per_query.mean()), per_query=per_query, queries=found, left_out=asked[~scored])


def one_cluster_rand(y: Any) -> float:
    """Return the Rand index of putting every row into one cluster, Σ_c n_c (n_c − 1) / (n (n − 1)).

    With unequal classes it is high, so a Rand index is only meaningful next to this one (and the adjusted Rand index,
    which is 0 here).  For the Rand and adjusted Rand index use ``rand_score`` and ``adjusted_rand_score`` of
    scikit-learn.
    """
    codes = _classes(y, None)
    n = len(codes)
    if n < 2:
        raise InputError("y has one row, so there is no pair; give at least two")
    size = np.bincount(codes)
    return float((size * (size - 1)).sum() / (n * (n - 1)))


def kernel_of(metric: Metric | Kernel | None) -> Kernel:
    """Return the kernel of a metric, a kernel itself, or Linear() for None."""
    if metric is None:
        return Linear()
    # in this order, because composite kernels also have a field of that name
    kernel = metric if isinstance(metric, Kernel) else getattr(metric, "kernel", None)
    if not isinstance(kernel, Kernel):
        raise InputError(
            f"metric must be a Metric, a Kernel, or None where X is an embedding, got {type(metric).__name__}"
        )
    return kernel


def _classes(y: Any, n: int | None) -> Array:
    """Return the class number of every row; unlabelled rows are an error."""
    labels = Labels.of(y)
    if n is not None:
        labels.check(n, "y")
    missing = np.flatnonzero(labels.codes < 0)
    if len(missing):
        raise InputError(f"y: {len(missing)} row(s) have no label, first {first_rows(missing)}; remove these rows")
    return labels.codes


def _row_numbers(values: Any, n: int, name: str) -> Array:
    rows = np.asarray(values)
    if rows.ndim != 1 or not len(rows) or rows.dtype.kind not in "iu":
        raise InputError(f"{name} must be a list of row numbers, got shape {rows.shape} and dtype {rows.dtype}")
    bad = rows[(rows < 0) | (rows >= n)]
    if len(bad):
        raise InputError(f"{name} names {first_rows(bad)}, outside 0 .. {n - 1}; rows are counted from 0")
    return rows.astype(np.int64)
