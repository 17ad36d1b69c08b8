"""NCA against scikit-learn's objective and gradient; neighbours against all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from metricforge_plugins.nca import objective, solver
from metricforge_plugins.nca.objective import Softmax
from metricforge_plugins.nca.solver import NCA
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from sklearn.neighbors import NeighborhoodComponentsAnalysis

import metricforge as mf
from metricforge.errors import InputError
from metricforge.kernels import RBF
from metricforge.rows import mapping


def data(n=90, d=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    return rng.normal(size=(n, d)) + 1.5 * rng.normal(size=(3, d))[y], y


@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("r", [2, 4])
def test_objective_and_gradient_are_scikit_learns(scale, r, monkeypatch):
    monkeypatch.setattr(objective, "BLOCK", 16_000)  # several blocks
    X, y = data()
    L = scale * np.random.default_rng(1).normal(size=(r, 4))
    peer = NeighborhoodComponentsAnalysis()
    peer.n_iter_ = 0
    loss, gradient = peer._loss_grad_lbfgs(L.ravel(), X, y[:, None] == y, -1.0)
    f, G = Softmax(X, y, 0.0).exact(L)
    assert_allclose(f, -loss, rtol=1e-9)
    assert_allclose(G.ravel(), -gradient, rtol=1e-6, atol=1e-8 * np.abs(gradient).max())


def test_neighbours_that_cover_everything_give_the_exact_values():
    X, y = data()
    softmax = Softmax(X, y, 0.1)
    L = np.random.default_rng(2).normal(size=(3, 4))
    assert softmax.search(L, 89) == pytest.approx(softmax.exact(L)[0])
    assert softmax.coverage == pytest.approx(1)
    f, G = softmax.listed(L)
    expected, H = softmax.exact(L)
    assert_allclose(f, expected, rtol=1e-10)
    assert_allclose(G, H, rtol=1e-8, atol=1e-8)
    softmax.search(0.01 * L, 10)
    assert 0.05 < softmax.coverage < 0.3
    D = np.square((X[:, None] - X[None]) @ L.T).sum(-1)
    np.fill_diagonal(D, np.inf)
    assert np.array_equal(np.sort(softmax.near, axis=1), np.sort(np.argsort(D, axis=1)[:, :10], axis=1))


def test_it_ends_where_the_gradient_vanishes_and_no_worse_than_scikit_learn():
    X, y = data()
    metric = mf.learn(X, y, method="nca", kernel="linear", max_iter=2000, tol=1e-6)
    report = metric.report
    peer = NeighborhoodComponentsAnalysis(init="identity", tol=1e-9, max_iter=2000).fit(X, y)
    theirs = Softmax(X, y, 0.0).exact(peer.components_)[0]
    assert report.objective >= 0.98 * theirs
    assert report.objective == pytest.approx(Softmax(X, y, 0.0).exact(metric.kernel.L)[0])
    assert report.certificate.kind == "gradient"
    assert report.accuracy == pytest.approx(report.objective / 90)
    assert report.status in ("stationary", "stalled", "iteration_limit")


def test_the_penalised_problem_is_stationary():
    X, y = data()
    report = mf.learn(X, y, method="nca", kernel="linear", penalty=0.5, max_iter=2000).report
    assert report.status == "stationary"
    assert report.gap <= 1e-3


def test_steps_over_neighbours_reach_what_all_pairs_reach(monkeypatch):
    X, y = data(300)
    exact = mf.learn(X, y, method="nca", kernel="linear").report
    monkeypatch.setattr(solver, "EXACT", 100)
    metric = mf.learn(X, y, method="nca", kernel="linear")
    assert metric.report.neighbours == 100
    assert metric.report.objective >= 0.97 * exact.objective
    assert metric.report.objective == pytest.approx(Softmax(X, y, 0.0).exact(metric.kernel.L)[0])


def test_rank_rows_and_kernels():
    X, y = data()
    low = mf.learn(X, y, method="nca", kernel="linear", n_components=2, max_iter=20)
    assert low.transform(X).shape == (90, 2)
    dense, sparse = (mf.learn(A, y, method="nca", kernel="linear", max_iter=3) for A in (X, csr_array(X)))
    assert_allclose(sparse.distance(X), dense.distance(X), rtol=1e-5, atol=1e-6)
    curved = mf.learn(X, y, method="nca", kernel=RBF("median"), rank=15, max_iter=20)
    assert curved.report.objective > 30
    with pytest.raises(InputError, match="every class has one labelled row"):
        mf.learn(X[:3], [0, 1, 2], method="nca", kernel="linear")
    for options in ({"penalty": -1}, {"tol": 0}, {"max_iter": 0}, {"n_components": 0}):
        with pytest.raises(InputError, match=next(iter(options))):
            NCA(**options)


def test_a_part_of_the_rows_estimates_the_objective():
    X, y = data(400)
    L = np.random.default_rng(3).normal(size=(3, 4))
    some = np.arange(0, 400, 4)
    part = Softmax(X, y, 0.0, some)
    whole = Softmax(X, y, 0.0)
    assert part.exact(L)[0] == pytest.approx(whole.exact(L)[0], rel=0.1)
    each = [Softmax(X, y, 0.0, np.array([i])).exact(L) for i in some]
    assert_allclose(part.exact(L)[0], np.mean([f for f, _ in each]), rtol=1e-10)
    assert_allclose(part.exact(L)[1], np.mean([G for _, G in each], axis=0), rtol=1e-8, atol=1e-8)
    assert part.search(L, 20) == pytest.approx(part.exact(L)[0])
    whole.search(L, 20)
    assert [set(a) for a in part.near.tolist()] == [set(a) for a in whole.near.tolist()]
    metric = mf.learn(X, y, method="nca", queries=100)
    assert metric.report.queries == 100
    assert "estimated from 100 rows of 400" in " ".join(metric.report.notes)


def test_queries_follow_from_the_sizes():
    assert solver._most_queries(3000, 100, 100) == 3000
    assert solver.LEAST_QUERIES <= solver._most_queries(10_000, 4, 4) < 10_000
    assert solver._most_queries(10_000, 200, 200) == solver.LEAST_QUERIES


def test_every_value_of_a_line_search_is_a_sign_of_progress(plugged, monkeypatch):
    """On wide rows a value takes a second, and a step several values."""
    X, y = data(n=solver.EXACT + 100)
    happened = []

    def listed(self, L):
        happened.append("value")
        return run(self, L)

    run = Softmax.listed
    monkeypatch.setattr(Softmax, "listed", listed)
    monkeypatch.setattr(mapping, "INTERVAL", 0.0)
    with plugged(step=lambda event: happened.append("event")):
        mf.learn(X, y, method="nca")
    values = [i for i, what in enumerate(happened) if what == "value"]
    assert len(values) > 5
    assert all(happened[i + 1] == "event" for i in values)


def test_passes_over_listed_neighbours_show_progress(monkeypatch):
    """On wide rows such a pass takes seconds."""
    X, y = data()
    softmax = Softmax(X, y, 0.0)
    L = np.eye(4)
    softmax.search(L, 10)
    f, G = softmax.listed(L)
    heard = []
    monkeypatch.setattr(objective, "LISTED", 8 * 10 * 4 * 20)  # blocks of 20 rows
    monkeypatch.setattr(mapping, "INTERVAL", 0.0)
    with mapping.listening(lambda done, total: heard.append(done)):
        again, H = softmax.listed(L)
    assert heard == [20, 40, 60, 80, 90]
    assert again == pytest.approx(f, rel=1e-12)
    assert_allclose(H, G, rtol=1e-12)


@pytest.mark.parametrize("unit", [1e-100, 1e-10, 1e10])
def test_the_unit_of_the_rows_does_not_decide_where_it_ends(unit):
    X, y = data(60)
    before = Softmax(X, y, 0.0).exact(np.eye(4))[0]
    metric = mf.learn(unit * X, y, method="nca", kernel="linear")
    assert metric.report.status == "stationary"
    assert metric.report.n_iter > 0
    assert metric.report.objective > 1.05 * before
    start = tuple(map(tuple, (np.eye(4) / unit).tolist()))
    given = mf.learn(unit * X, y, method="nca", kernel="linear", start=start)
    assert given.report.status == "stationary"
    assert given.report.objective > 1.05 * before


@pytest.mark.parametrize("most", [500, 50])
def test_rows_without_a_label_change_nothing(most, monkeypatch):
    monkeypatch.setattr(solver, "EXACT", most)
    X, y = data(120)
    others = np.random.default_rng(1).normal(size=(20_000, 4))
    alone = mf.learn(X, y, method="nca", kernel="linear")
    labels = np.concatenate([y, np.full(len(others), -1)])
    beside = mf.learn(np.vstack([X, others]), mf.Labels(labels, unlabelled=-1), method="nca", kernel="linear")
    assert beside.report.status == alone.report.status
    assert beside.report.n_iter == alone.report.n_iter
    assert_allclose(beside.distance(X), alone.distance(X), rtol=1e-6, atol=1e-9)
