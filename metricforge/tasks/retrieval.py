"""Retrieval: hard negatives to learn from, and precision, recall, MRR and nDCG of a ranking on held-out queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..constraints.relevance import check_grades, check_relevance, listed_rows
from ..errors import InputError
from ..kernels import Kernel
from ..neighbors.scanning import largest_scores
from ..rows import count, is_dask, take
from ..validation import generator, number, one_of, whole_number
from .scores import kernel_of

if TYPE_CHECKING:
    from ..metric import Metric

Array = NDArray[Any]

By = Literal["kernel", "distance"]
RESAMPLES = 1000
MARGIN = 0.05
"""A negative must score at least so much less than the least relevant row of its query, relative to the spread."""


@dataclass(frozen=True)
class RetrievalScores:
    """The result of `retrieval_scores`: means over queries, with bootstrap standard errors.

    Attributes
    ----------
    precision, recall, mrr, ndcg : float
    errors : dict of str to float
        The standard error of each, over `RESAMPLES` bootstrap samples of queries.
    k : int
    per_query : (q, 4) array
        Precision, recall, reciprocal rank and nDCG of each query.
    """

    precision: float
    recall: float
    mrr: float
    ndcg: float
    errors: dict[str, float]
    k: int
    per_query: Array

    def __str__(self) -> str:
        names = {
            "ndcg": f"nDCG@{self.k}",
            "precision": f"precision@{self.k}",
            "recall": f"recall@{self.k}",
            "mrr": "MRR",
        }
        return ", ".join(f"{word} {getattr(self, name):.3f} ± {self.errors[name]:.3f}" for name, word in names.items())


def retrieval_scores(
    metric: Metric | Kernel | None,
    X: Any,
    queries: Sequence[int],
    relevant: Sequence[Sequence[int]],
    *,
    documents: Sequence[int] | None = None,
    grades: Sequence[Sequence[int]] | None = None,
    k: int = 10,
    by: By = "kernel",
    seed: int = 0,
) -> RetrievalScores:
    """Score how a metric ranks documents for queries that were not learned from.

    Parameters
    ----------
    metric : Metric, Kernel or None
        None: X is an embedding, ranked by inner product, or by Euclidean distance.
    X : rows
        Queries and documents, in memory.
    queries : sequence of int
        Row numbers.
    relevant : sequence of sequences of int
        The relevant rows of each query.
    documents : sequence of int, optional
        The rows that are ranked; default: all rows but the query itself.
    grades : sequence of sequences of int, optional
        How relevant each row of ``relevant`` is, from 1: its gain in nDCG; default: 1.
    k : int
        The depth of the ranking.  MRR is cut at the same depth.
    by : {"kernel", "distance"}
        Rank by the largest k(q, x), or by the smallest distance.  They differ where the k(x, x) do.
    """
    kernel = kernel_of(metric)
    X = kernel.check(X, "X")
    if is_dask(X):
        raise InputError("X must be in memory; give the rows that the queries and documents use")
    one_of(by, "by", ("kernel", "distance"))
    queries_, truth = check_relevance(queries, relevant, count(X))
    pool = np.arange(count(X)) if documents is None else listed_rows(documents, "documents", count(X))
    k = whole_number(k, "k", most=len(pool))
    gains = [np.ones(len(rows)) for rows in truth] if grades is None else check_grades(truth, grades)
    found = ranked(kernel, X, queries_, pool, k, by=by)
    scores = np.array([_scored(*parts, k) for parts in zip(found, truth, gains, strict=True)])
    draws = generator(seed).integers(len(scores), size=(RESAMPLES, len(scores)))
    errors = scores[draws].mean(axis=1).std(axis=0)
    names = ("precision", "recall", "mrr", "ndcg")
    means = dict(zip(names, scores.mean(axis=0).tolist(), strict=True))
    return RetrievalScores(**means, errors=dict(zip(names, errors.tolist(), strict=True)), k=k, per_query=scores)


def ranked(kernel: Kernel, X: Any, queries: Array, documents: Array, k: int, *, by: By = "kernel") -> Array:
    """Return the k best documents of each query, best first; a query is not its own document.

    Memory: a block of scores, at most 32 MB, beside the documents' rows.
    """
    D = take(X, documents)

    def block(part: slice) -> Array:
        S = _scores(kernel, take(X, queries[part]), D, by)
        S[queries[part][:, None] == documents[None]] = -np.inf
        return S

    return np.asarray(documents[largest_scores(block, len(documents), len(queries), k)[0]])


def hard_negatives(
    X: Any,
    queries: Sequence[int],
    relevant: Sequence[Sequence[int]],
    *,
    kernel: Kernel | Metric | None = None,
    documents: Sequence[int] | None = None,
    per_query: int = 5,
    margin: float = MARGIN,
    by: By = "kernel",
    seed: int = 0,
) -> list[Array]:
    """Return rows that score high for each query although they are not relevant, to learn from.

    Unlabelled rows that score as high as a relevant one are often relevant themselves.  So a negative must score less
    than the best relevant row of its query by ``margin`` times the spread of that query's scores.

    Parameters
    ----------
    X, queries, relevant, documents : as in `retrieval_scores`
    kernel : Kernel or Metric, optional
        The start; default: linear.
    per_query : int
        Negatives of a query at the most.
    margin : float >= 0
    seed : int
        Draws from rows of equal score.

    Returns
    -------
    list of int arrays
        For ``Triplets.from_relevance(queries, relevant, n, irrelevant=...)``.
    """
    chosen = kernel_of(kernel)
    X = chosen.check(X, "X")
    number(margin, "margin", least=0)
    per_query = whole_number(per_query, "per_query")
    queries_, truth = check_relevance(queries, relevant, count(X))
    pool = np.arange(count(X)) if documents is None else listed_rows(documents, "documents", count(X))
    rng = generator(seed)
    D = take(X, pool)
    found = []
    for query, good in zip(queries_, truth, strict=True):
        Q, G = take(X, np.array([query])), take(X, good)
        s, best = (_scores(chosen, Q, rows, by)[0] for rows in (D, G))
        allowed = ~np.isin(pool, [*good, query]) & (s < best.max() - margin * float(np.std(s)))
        candidates = np.flatnonzero(allowed)
        order = np.lexsort((rng.random(len(candidates)), -s[candidates]))[:per_query]
        found.append(pool[candidates[order]])
    return found


def _scores(kernel: Kernel, Q: Any, D: Any, by: By) -> Array:
    """Return the scores of documents for queries, higher is better."""
    return np.asarray(kernel.block(Q, D) if by == "kernel" else -kernel.squared_distance(Q, D), dtype=np.float64)


def _scored(found: Array, relevant: Array, gains: Array, k: int) -> tuple[float, float, float, float]:
    """Return precision, recall, reciprocal rank and nDCG of one ranking."""
    gain = dict(zip(relevant.tolist(), gains.tolist(), strict=True))
    reached = np.array([gain.get(row, 0) for row in found.tolist()], dtype=np.float64)
    discount = 1 / np.log2(np.arange(2, k + 2))
    best = np.sort(gains)[::-1][:k]
    first = np.flatnonzero(reached)
    return (
        float(np.mean(reached > 0)),
        float(np.count_nonzero(reached) / len(relevant)),
        1 / (1 + float(first[0])) if len(first) else 0.0,
        float(reached @ discount[: len(found)] / (best @ discount[: len(best)])),
    )
