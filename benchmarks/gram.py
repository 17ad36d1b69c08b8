"""Speed of kernel blocks: entries per second, relative to GEMM on this machine and to scikit-learn.

GEMM is ``X @ Y.T`` on the same rows, the lower bound for a kernel of inner products.  One BLAS thread throughout.
"""

from __future__ import annotations

import numpy as np

from metricforge import kernels
from metricforge.distributed.chunks import split
from metricforge.rows import gathered

from .run import Table, best_of

PEERS = {
    "linear": (kernels.Linear(), {"metric": "linear"}),
    "RBF": (kernels.RBF(0.01), {"metric": "rbf", "gamma": 0.01}),
    "polynomial": (kernels.Polynomial(2, coef0=1.0), {"metric": "poly", "degree": 2, "gamma": 1, "coef0": 1}),
    "Laplacian": (kernels.Laplacian(0.01), {"metric": "laplacian", "gamma": 0.01}),
}


def run(quick: bool = False) -> Table:
    from sklearn.metrics.pairwise import pairwise_kernels
    from threadpoolctl import threadpool_limits

    n = 500 if quick else 4000
    table = Table(["kernel", "d", "million entries / s", "time / GEMM", "scikit-learn / ours", "dask chunks / ours"])
    with threadpool_limits(1):
        for d in (16, 128):
            X = np.random.default_rng(0).normal(size=(n, d))
            gemm = best_of(lambda X=X: X @ X.T, 5)
            for name, (kernel, peer) in PEERS.items():
                ours = best_of(lambda X=X, kernel=kernel: kernel.block(X, X))
                theirs = best_of(lambda X=X, peer=peer: pairwise_kernels(X, **peer))
                lazy = kernel(split(X, n // 4))
                chunked = best_of(lambda lazy=lazy: gathered(lazy))
                table.add(name, d, n * n / ours / 1e6, ours / gemm, theirs / ours, chunked / ours)
    table.notes += [
        f"blocks of {n} × {n} in float64, best of 3 (GEMM: of 5)",
        "dask chunks: sixteen blocks on this process's threads, gathered into one array; below 1 where there are cores",
        "the Laplacian sums absolute differences, which is no matrix product",
    ]
    return table
