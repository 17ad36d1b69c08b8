"""Bad input of the tasks: errors name the argument, what is wrong and the repair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metricforge.constraints import Chunklets, Labels, Pairs, Triplets
from metricforge.errors import InputError, NotAcceptedError
from metricforge.kernels import RBF, Linear
from metricforge.tasks import alignment, constrained_kmeans, one_cluster_rand, retrieval_auc, triplet_accuracy

Array = NDArray[Any]

Z8 = np.random.default_rng(0).normal(size=(8, 2))
NAN = np.where(np.arange(16).reshape(8, 2) == 6, np.nan, Z8)
Y8 = [0, 0, 0, 0, 1, 1, 1, 1]
T8 = Triplets([(0, 1, 4)], n=8)


def dask_of(Z: Array) -> Any:
    import dask.array as da

    return da.from_array(Z)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: constrained_kmeans(Z8[:, 0], 2), "Z must be 2-d"),
        (lambda: constrained_kmeans(NAN, 2), r"Z contains NaN .* row 3"),
        (lambda: constrained_kmeans(csr_array(Z8), 2), r"Z is sparse; give Z\.toarray"),
        (lambda: constrained_kmeans(dask_of(Z8), 2), r"Z is a dask array.*Z\.compute"),
        (lambda: constrained_kmeans(Z8, 0), "n_clusters must be a whole number of at least 1, got 0"),
        (lambda: constrained_kmeans(Z8, 2.0), "n_clusters must be a whole number"),  # type: ignore[arg-type]
        (lambda: constrained_kmeans(Z8, True), "n_clusters must be a whole number"),
        (lambda: constrained_kmeans(Z8, 9), "n_clusters is 9, but the 8 rows of Z make 8 super-point"),
        (lambda: constrained_kmeans(Z8, 8, Pairs([(0, 1)], n=8)), "make 7 super-point.*at most 7"),
        (lambda: constrained_kmeans(Z8, 2, n_init=0), "n_init must be a whole number of at least 1"),
        (lambda: constrained_kmeans(Z8, 2, max_iter=0), "max_iter must be a whole number of at least 1"),
        (lambda: constrained_kmeans(Z8, 2, seed=-1), "seed must be a whole number of at least 0"),
        (lambda: constrained_kmeans(Z8, 2, Pairs([(0, 1)], n=9)), "constraint is about 9 rows, but X has 8"),
        (lambda: constrained_kmeans(Z8, 2, Chunklets([1, 1])), "constraint is about 2 rows"),
    ],
)
def test_bad_input_of_clustering_is_named_with_its_repair(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_clustering_refuses_other_kinds_and_names_the_conversion() -> None:
    for other in (T8, Labels(Y8), [(0, 1)]):
        with pytest.raises(NotAcceptedError, match=r"Pairs or Chunklets, got .*constraint\.to"):
            constrained_kmeans(Z8, 2, other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: triplet_accuracy(None, Z8, Triplets([(0, 1, 2)], n=5)), "triplets is about 5 rows"),
        (lambda: triplet_accuracy(None, Z8, Triplets([], n=8)), "triplets holds no triplet"),
        (lambda: triplet_accuracy(None, NAN, T8), "X contains NaN"),
        (lambda: triplet_accuracy(None, Z8, T8, by="norm"), "by='norm' is unknown; known: distance, kernel"),  # type: ignore[arg-type]
        (lambda: triplet_accuracy("rbf", Z8, T8), "metric must be a Metric, a Kernel, or None"),  # type: ignore[arg-type]
        (lambda: triplet_accuracy(RBF(), Z8, T8), r"kernel\.resolve\(X\)"),
        (lambda: alignment(Y8), "give either the Gram matrix K or an embedding Z"),
        (lambda: alignment(Y8, K=np.eye(8), Z=Z8), "give either the Gram matrix K or an embedding Z"),
        (lambda: alignment(Y8, K=Z8), r"K must be a square Gram matrix, got shape \(8, 2\)"),
        (lambda: alignment(Y8, K=np.zeros((8, 8))), "K is zero everywhere"),
        (lambda: alignment(Y8, Z=np.zeros((8, 2))), "Z is zero everywhere"),
        (lambda: alignment(Y8, Z=NAN), r"Z contains NaN .* row 3"),
        (lambda: alignment(Y8[:5], Z=Z8), "y is about 5 rows, but X has 8"),
        (lambda: alignment([*Y8[:6], None, None], Z=Z8), r"y: 2 row\(s\) have no label, first rows 6, 7"),
        (lambda: retrieval_auc(None, Z8, [0] * 8), "no query has both"),
        (lambda: retrieval_auc(None, Z8, np.arange(8)), "no query has both"),
        (lambda: retrieval_auc(None, Z8, Y8, queries=[3, 8]), r"queries names row 8, outside 0 \.\. 7"),
        (lambda: retrieval_auc(None, Z8, Y8, queries=[0.5]), "queries must be a list of row numbers"),
        (lambda: retrieval_auc(None, Z8, Y8, queries=[]), "queries must be a list of row numbers"),
        (lambda: retrieval_auc(None, dask_of(Z8), Y8), r"X is a dask array.*X\.compute"),
        (lambda: retrieval_auc(None, Z8, [0.0, np.nan, *Y8[2:]]), r"y: 1 row\(s\) have no label, first row 1"),
        (lambda: one_cluster_rand([3]), "y has one row"),
        (lambda: one_cluster_rand([]), "y must be 1-d"),
    ],
)
def test_bad_input_of_scores_is_named_with_its_repair(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_scores_refuse_other_kinds_and_name_the_conversion() -> None:
    with pytest.raises(NotAcceptedError, match="triplets must be Triplets, got Pairs"):
        triplet_accuracy(None, Z8, Pairs([(0, 1)], n=8))  # type: ignore[arg-type]


def test_a_kernel_that_gives_nan_is_named() -> None:
    class Broken(Linear):
        def squared_distance(self, X: Any, Y: Any) -> Array:
            return np.full((len(X), len(Y)), np.nan)

    with pytest.raises(InputError, match=r"distances from rows 0, 1, 2, 3, 4, \.\.\. of X are not finite"):
        retrieval_auc(Broken(), Z8, Y8)
