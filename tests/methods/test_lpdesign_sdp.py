from __future__ import annotations

import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
from metricforge_cases.lpdesign_programs import case, compared, from_sdpa, learned
from metricforge_plugins.lpdesign.solver import LPDesign
from metricforge_plugins.lpdesign.tune import tune

import metricforge as mf
from metricforge.errors import InputError


@pytest.mark.parametrize("seed", range(4))
def test_optima_are_those_of_the_program(seed):
    above, bound, gap, closed, dominant = compared(seed)
    assert closed
    assert abs(above) <= 1e-6
    assert bound <= 1e-6
    assert above <= gap + 1e-6
    assert dominant >= -1e-6  # dominant matrices are some of the semidefinite ones


@pytest.mark.parametrize("seed", range(4))
def test_optima_are_those_of_another_solver(seed):
    pytest.importorskip("sdpap", reason="SDPA is not installed: it is a peer, not a part")
    assert from_sdpa(seed) <= 1e-5


@pytest.mark.parametrize("seed", [1, 3])
def test_the_mixture_with_white_is_semidefinite(seed):
    X, triples, options = case(seed)
    metric = learned(X, triples, cone="sdp", **options)
    K = metric.kernel(X) + metric.report.white * np.eye(len(X))
    w = np.linalg.eigvalsh(K)
    assert w[0] >= -1e-12 * w[-1]
    # the objective is the cost of what is returned
    i, j, k = triples.triples.T
    G = metric.kernel(X)
    loss = np.maximum(0, 1 - G[i, j] + G[i, k]).mean()
    cost = loss + options["sparsity"] * np.abs(metric.kernel.weights).sum() + options["trace"] * K.trace() / len(X) ** 2
    assert metric.report.objective == pytest.approx(cost, rel=1e-9)


def test_no_mixture_is_an_optimum_too():
    X, triples, options = case(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metric = learned(X, triples, cone="sdp", **{**options, "sparsity": 100.0})
    assert metric.report.objective == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("change", [{"sparsity": 0.0}, {"trace": 0.0, "white": True}])
def test_designs_without_a_bound_are_refused(change):
    X, triples, options = case(1)
    with pytest.raises(InputError, match="needs sparsity > 0 and trace > 0"):
        learned(X, triples, cone="sdp", **{**options, **change})


def test_too_many_rows_are_refused():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(301, 2))
    triples = mf.Triplets([(0, 1, 2)], n=301)
    with pytest.raises(InputError, match='cone="sdp" is for at most 300 rows'):
        mf.learn(X, triples, method="lpdesign", cone="sdp", bases=[mf.kernels.RBF(1.0)])


def test_without_clarabel_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "clarabel", None)
    X, triples, options = case(1)
    with pytest.raises(InputError, match=r"metricforge\[sdp\]"):
        learned(X, triples, cone="sdp", **options)


def test_tuning_scores_semidefinite_designs():
    """It once tuned diagonal dominance: under its penalties no dominant mixture of these bases is better than none."""
    rng = np.random.default_rng(0)
    y = np.arange(20) % 2
    X = rng.normal(size=(20, 3)) + 3 * y[:, None]
    triplets = mf.Triplets.from_labels(y, n_triplets=60, seed=0)
    base = LPDesign(bases=[mf.kernels.Linear(), mf.kernels.RBF(0.1)], cone="sdp", white=False, tol=1e-4)
    grid = {"sparsities": (1e-3, 1e-1), "traces": (1e-2, 1.0)}
    found = tune(X, triplets, solver=base, folds=2, seed=0, **grid)
    part = np.random.default_rng(0).permutation(60) % 2
    expected = np.zeros((2, 2))
    for fold in range(2):
        training = mf.Triplets(triplets.triples[part != fold], n=20)
        i, j, k = triplets.triples[part == fold].T
        for s, sparsity in enumerate(grid["sparsities"]):
            for t, trace in enumerate(grid["traces"]):
                solver = replace(base, sparsity=sparsity, trace=trace)
                K = mf.learn(X, training, method="lpdesign", kernel="rbf", solver=solver).kernel(X)
                expected[s, t] += np.mean(K[i, j] > K[i, k]) / 2
    assert np.allclose(found.accuracy, expected, atol=0.02)
    assert found.accuracy.max() > 0.9
