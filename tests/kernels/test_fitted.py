"""What learned kernels share: the rows they take, the width they were learned on, nothing left to resolve."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import metricforge as mf
from metricforge.errors import InputError
from metricforge.kernels import RBF, FittedKernel, Linear, Precomputed

FITS = {
    "idealized": {"method": "idealized"},
    "idealized landmarks": {"method": "idealized", "kernel": "rbf", "rank": 10},
    "idealized paper": {"method": "idealized", "psd": "paper", "c_similar": 1e-3},
    "kcr": {"method": "kcr"},
    "krca exact": {"method": "krca", "rank": "exact"},
    "krca landmarks": {"method": "krca", "rank": 5},
    "krca explicit": {"method": "krca", "kernel": "linear"},
    "simplenpkl ridge": {"method": "simplenpkl"},
    "simplenpkl explicit": {"method": "simplenpkl", "kernel": "linear"},
    "simplenpkl nystrom": {"method": "simplenpkl", "extension": "nystrom"},
}


@pytest.mark.parametrize("name", FITS)
def test_learned_kernels_know_their_start_and_the_width_of_their_rows(name, rng):
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    kernel = mf.learn(X, y, **FITS[name]).kernel
    assert isinstance(kernel, FittedKernel)
    assert kernel.takes == kernel.start.takes == "vectors"
    assert kernel.start == kernel.start.resolve(X)  # resolved: no parameter is left to take from data
    assert kernel.resolve(rng.normal(size=(5, 3))) is kernel
    assert kernel.learned_width == 3
    with pytest.raises(InputError, match="X has 2 features, but the metric was learned on 3"):
        kernel(X[:, :2])


def test_rows_without_columns_have_no_width(rng):
    words = ["".join(rng.choice(list("abc"), size=8)) for _ in range(30)]
    kernel = mf.learn(words, np.arange(30) % 2, method="krca", kernel="spectrum(2)").kernel
    assert kernel.takes == "strings"
    assert kernel.learned_width is None
    assert kernel(words).shape == (30, 30)


@pytest.mark.parametrize("method", ["idealized", "krca", "simplenpkl"])
def test_a_gram_matrix_of_lower_rank_is_its_own_judge_of_width(method, rng):
    X, y = rng.normal(size=(30, 3)), np.arange(30) % 2
    metric = mf.learn(X @ X.T, y, method=method, kernel=Precomputed())
    assert metric.kernel(X @ X.T).shape == (30, 30)
    with pytest.raises(InputError, match="similarities to the 30 training rows"):
        metric.kernel((X @ X.T)[:, :3])


def test_content_decides_equality(rng):
    X, y = rng.normal(size=(20, 3)), np.arange(20) % 2
    kernel = mf.learn(X, y, method="krca", kernel=RBF(0.5)).kernel
    same = replace(kernel, ridge=kernel.ridge)
    assert same == kernel
    assert hash(same) == hash(kernel)
    assert replace(kernel, ridge=2 * kernel.ridge) != kernel
    assert kernel != Linear()
