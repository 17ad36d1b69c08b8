"""Adapters beside large offsets, and what they refuse."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

import metricforge as mf
from metricforge.errors import InputError
from metricforge.kernels import Linear, Standardized


def stamped(n, d=4):
    rng = np.random.default_rng(0)
    return np.column_stack([1.7e9 + rng.integers(0, 3, size=n), rng.integers(0, 2, size=(n, d - 1))]).astype(float)


@pytest.mark.parametrize(
    ("method", "n"), [("idealized", 40), ("krca", 40), ("lfda", 40), ("idealized", 3), ("lfda", 3)]
)  # explicit features, and landmarks
def test_a_map_beside_a_timestamp_keeps_its_digits(method, n):
    """The factor of the bilinear form has squares of the offset in it, in which the kernel vanishes."""
    X = stamped(n)
    y = np.arange(n) % 2 if n > 3 else [0, 0, 1]
    metric = mf.learn(X, y, method=method, kernel=Standardized(Linear()))
    K = metric.kernel(X)
    both = metric.adapter("both")(X)
    np.testing.assert_allclose(both @ both.T, K, atol=1e-5 * np.abs(K).max())
    A, b = metric.adapter("query")
    scores = (X @ A.T + b) @ X.T
    np.testing.assert_allclose(scores - scores[:, :1], K - K[:, :1], atol=1e-5 * np.abs(K).max())


def test_a_map_that_has_lost_its_digits_is_refused():
    X = stamped(40)
    metric = mf.learn(X, np.arange(40) % 2, method="euclidean", kernel=Standardized(Linear()))
    mixed = metric + mf.learn(X, np.arange(40) % 2, method="krca", kernel=Standardized(Linear()))
    with pytest.raises(InputError, match="lost its digits beside a large offset"):
        mixed.adapter("both")


def test_a_map_beyond_single_precision_is_not_written_as_onnx(tmp_path):
    pytest.importorskip("onnx", reason="onnx is not installed: the extra onnx has it")
    X = np.random.default_rng(0).normal(size=(20, 2))
    metric = mf.learn(1e-25 * X, np.arange(20) % 2, method="euclidean", kernel=Standardized(Linear()))
    with pytest.raises(InputError, match=r"too large for the float32 of an \.onnx file"):
        metric.adapter("query").save(tmp_path / "map.onnx")
    metric.adapter("query").save(tmp_path / "map.npy")


def test_an_adapter_of_rows_on_dask_is_checked_too(rng):
    X = rng.normal(size=(12, 4))
    X[:, 0] += 1e12
    metric = mf.learn(da.from_array(X, chunks=(6, 4)), np.arange(12) % 2, method="krca", kernel=Standardized(Linear()))
    with pytest.raises(InputError, match="has lost its digits beside a large offset or scale of a column"):
        metric.adapter("both")


@pytest.mark.parametrize("far", [1e17, 1e100, 1e140])
def test_beside_a_far_row_the_map_keeps_its_digits(far):
    X = np.random.default_rng(0).standard_normal((29, 13))
    X[25] *= far
    metric = mf.learn(X, np.arange(29) % 2, method="euclidean")
    Z = metric.adapter("both")(X)
    np.testing.assert_allclose(Z @ Z.T, metric.kernel(X), rtol=0, atol=1e-13)
