"""Components of wide explicit features: what ``rank="auto"`` takes where all of them would take long."""

from __future__ import annotations

import re

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

import metricforge as mf
from metricforge import rows
from metricforge.fitting import contrast
from metricforge.kernels import Linear
from metricforge.resolve import resolve
from metricforge.solver import Method
from metricforge.space import Contrast, directions, represent

SIGNAL = slice(120, 124)
"""Columns that differ between classes; the first 120 are the widest, and carry none of them."""


def wide_rows(n=700, d=300, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 4
    spread = np.full(d, 0.05)
    spread[:120] = 3.0
    X = rng.normal(size=(n, d)) * spread
    X[:, SIGNAL] += 2 * np.eye(4)[y]
    return X, y


def hints(y, n_pairs=1500):
    pairs = mf.Pairs.from_labels(y, n_pairs=n_pairs, seed=0)
    return Contrast(pairs.similar, pairs.dissimilar)


def share_of_signal(V):
    return np.square(V[SIGNAL]).sum() / 4


@pytest.mark.parametrize("dense", [1000, 50])
def test_components_keep_what_tells_classes_apart(monkeypatch, dense):
    monkeypatch.setattr(directions, "DENSE_WIDTH", dense)
    X, y = wide_rows()
    made = represent(Linear(), X, cost=lambda size: 0.04 * size.m, hints=lambda: hints(y))
    assert (made.representation, made.rank, made.width) == ("components", 125, 300)
    V = made.basis
    np.testing.assert_allclose(V.T @ V, np.eye(125), atol=1e-6)
    assert share_of_signal(V) > 0.7
    principal = np.linalg.eigh(np.cov(X.T))[1][:, -100:]
    assert share_of_signal(principal) < 0.1
    np.testing.assert_allclose(made.features, X @ V)


@pytest.mark.parametrize("missing", ["like", "unlike"])
def test_one_kind_of_pairs_is_enough(missing):
    X, y = wide_rows()
    both = hints(y)
    none = np.empty((0, 2), dtype=np.int64)
    found = Contrast(*(none if name == missing else getattr(both, name) for name in ("like", "unlike")))
    V = represent(Linear(), X, cost=lambda size: 0.04 * size.m, hints=lambda: found).basis
    assert share_of_signal(V) > 0.5


def test_components_are_the_most_within_the_budget():
    X, y = wide_rows()

    def made(cost, rank="auto", **options):
        return represent(Linear(), X, rank, cost=cost, hints=lambda: hints(y), **options)

    found = made(lambda size: 0.03 * size.m)  # 9 s for all features
    assert (found.representation, found.rank, found.forecast) == ("components", 133, pytest.approx(3.99))
    assert found.automatic
    assert made(lambda size: 0.025 * size.m).representation == "explicit"  # 7.5 s: not above twice the budget
    assert made(lambda size: 99.0).representation == "explicit"  # as long with components
    assert made(lambda size: 10.0 * size.m).rank == 125  # at least 100, and what adds a quarter to their cost
    assert made(lambda size: 10.0 * size.m, "exact").representation == "explicit"
    assert made(lambda size: 10.0 * size.m, explicit_columns=5000).representation == "explicit"
    assert represent(Linear(), X, cost=lambda size: 10.0 * size.m).representation == "explicit"
    assert represent(Linear(), X, cost=lambda size: 10.0 * size.m, hints=lambda: None).representation == "explicit"
    assert represent(Linear(), X[:, :100], cost=lambda size: 1e9 * size.m, hints=lambda: hints(y)).rank == 100


def test_components_take_the_place_of_landmarks_of_wider_features():
    """More than 1000 columns: hints choose the directions, where landmarks would be chosen without them."""
    X, y = wide_rows(1250, 1200)
    made = represent(Linear(), X, cost=lambda size: 0.04 * size.m, hints=lambda: hints(y))
    assert (made.representation, made.rank, made.width) == ("components", 125, 1200)
    assert share_of_signal(made.basis) > 0.7
    assert represent(Linear(), X, cost=lambda size: 1e-3 * size.m, hints=lambda: hints(y)).representation == "exact"
    assert represent(Linear(), X[:1100], cost=lambda size: 0.04 * size.m, hints=lambda: hints(y[:1100])).width is None


def test_share_left_out_is_that_of_the_variance():
    X, y = wide_rows()
    far = represent(Linear(), X + 1000.0, cost=lambda size: 0.04 * size.m, hints=lambda: hints(y))
    V = far.basis
    centred = X - X.mean(axis=0)
    expected = 1 - np.square(centred @ V).sum() / np.square(centred).sum()
    assert far.left_out() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e45])
def test_components_do_not_depend_on_the_scale(scale):
    X, y = wide_rows(400)
    options = {"cost": lambda size: 0.04 * size.m, "hints": lambda: hints(y)}
    P, Q = (represent(Linear(), other, **options).basis for other in (X, scale * X))
    np.testing.assert_allclose(np.linalg.svd(P.T @ Q)[1], 1, atol=1e-3)


def test_rows_that_are_equal_have_components():
    X = np.ones((400, 300))
    y = np.arange(400) % 2
    assert represent(Linear(), X, cost=lambda size: 0.04 * size.m, hints=lambda: hints(y)).basis.shape == (300, 125)


def test_rows_that_are_equal_but_for_a_few_have_components():
    """The sampled rows and the like pairs are all zero: only unlike pairs show a difference."""
    X = np.zeros((6000, 300))
    apart = np.setdiff1d(np.arange(6000), rows.draw(6000, directions.SAMPLED, 0))[:8]
    X[apart] = np.random.default_rng(0).normal(size=(8, 300))
    found = Contrast(np.array([[0, 1]]), apart.reshape(4, 2))
    V = represent(Linear(), X, cost=lambda size: 0.04 * size.m, hints=lambda: found).basis
    np.testing.assert_allclose(V.T @ V, np.eye(125), atol=1e-9)
    between = X[apart[::2]] - X[apart[1::2]]
    np.testing.assert_allclose(between @ V @ V.T, between, atol=1e-4)


def test_components_beyond_the_memory_budget_are_refused(monkeypatch):
    X, y = wide_rows(400)
    made = represent(Linear(), X, cost=lambda size: 0.04 * size.m, hints=lambda: hints(y))
    monkeypatch.setenv("METRICFORGE_MEMORY", "1MB")
    with pytest.raises(mf.errors.InputError, match="125 components of 300 features"):
        made.map  # noqa: B018


@pytest.mark.parametrize("dense", [1000, 50])
@pytest.mark.parametrize("kind", ["single", "sparse", "constant", "duplicates"])
@pytest.mark.parametrize("what", ["labels", "pairs", "groups", "triplets", "quadruplets", "targets"])
def test_every_kind_of_hint_and_rows(monkeypatch, what, kind, dense):
    monkeypatch.setattr(directions, "DENSE_WIDTH", dense)
    X, y = wide_rows(400)
    X = {
        "single": lambda: X.astype(np.float32),
        "sparse": lambda: sp.csr_array(np.where(abs(X) > 1, X, 0)),
        "constant": lambda: np.where(np.arange(300) < 150, X, 7.0),
        "duplicates": lambda: np.repeat(X[:100], 4, axis=0),
    }[kind]()
    hint = {
        "labels": lambda: mf.Labels(y),
        "pairs": lambda: mf.Pairs.from_labels(y, n_pairs=500),
        "groups": lambda: mf.Chunklets(np.arange(400) // 4),  # of equal rows, where rows are duplicates
        "triplets": lambda: mf.Triplets.from_labels(y),
        "quadruplets": lambda: mf.Quadruplets.from_labels(y),
        "targets": lambda: mf.Targets(y.astype(float)),
    }[what]()
    made = represent(Linear(), X, cost=lambda size: 0.04 * size.m, hints=lambda: contrast(hint, seed=0))
    np.testing.assert_allclose(made.basis.T @ made.basis, np.eye(125), atol=1e-9)
    assert np.isfinite(made.features).all()
    assert 0 <= made.left_out() < 1


def test_dask_and_sparse_rows_have_the_same_components():
    X, y = wide_rows()
    options = {"cost": lambda size: 0.04 * size.m, "hints": lambda: hints(y)}
    expected = represent(Linear(), X, **options)
    for other in (*(da.from_array(X, chunks=(size, -1)) for size in (130, 300, 700)), sp.csr_array(X)):
        made = represent(Linear(), other, **options)
        np.testing.assert_array_equal(made.basis, expected.basis)
        np.testing.assert_allclose(np.asarray(made.features), expected.features, atol=1e-8)
        assert made.left_out() == pytest.approx(expected.left_out(), rel=1e-6)


@pytest.fixture
def stranger(plugged):
    """A foreign method whose cost makes 300 columns too many."""
    solver = resolve("lfda", None).solver
    method = Method(constraint=mf.Labels, kernel=Linear(), solver=solver, cost=lambda size: 0.04 * size.m)
    with plugged(method={"stranger": method}):
        yield "stranger"


def test_a_foreign_method_profits_and_the_report_says_what_was_left_out(stranger, tmp_path):
    X, y = wide_rows()
    new = wide_rows(seed=1)[0]
    metric = mf.learn(X, y, method=stranger)
    report = metric.report
    assert (report.representation, report.rank, report.features) == ("components", 125, 300)
    assert 0 < report.energy_left_out < 0.5
    said = f'125 components of 300 features.*leave out {report.energy_left_out:.2g} of the variance.*rank="exact" keeps'
    assert any(re.search(said, note) for note in report.notes)
    Z = metric.transform(new)
    np.testing.assert_allclose(np.linalg.norm(Z[0] - Z[1:5], axis=1), metric.distance(new[:1], new[1:5])[0])
    M = metric.mahalanobis()
    assert M.shape == (300, 300)
    difference = new[0] - new[1]
    assert np.sqrt(difference @ M @ difference) == pytest.approx(metric.distance(new[:2])[0, 1])
    metric.save(tmp_path / "wide.metric")
    loaded = mf.load(tmp_path / "wide.metric")
    np.testing.assert_allclose(loaded.transform(new), Z)
    assert loaded.report.energy_left_out == report.energy_left_out


@pytest.mark.parametrize(("method", "keeps"), [("krca", True), ("llr", True), ("itml", False), ("lfda", False)])
def test_the_report_says_whether_distances_count_the_rest(method, keeps, monkeypatch):
    """krca and llr change the start kernel: outside the components it stays, and only `transform` leaves it out."""
    monkeypatch.setattr("metricforge.space.representation.BUDGET", 0.001)
    monkeypatch.setattr("metricforge.space.representation.LITTLE_MORE", 1.0)
    monkeypatch.setattr("metricforge.space.representation.EXCEEDED", 1e-3)
    X, y = wide_rows(400)
    hint = {"krca": mf.Chunklets(np.arange(400) // 4), "lfda": mf.Labels(y)}.get(method) or mf.Pairs.from_labels(y)
    metric = mf.learn(X, hint, method=method, kernel=Linear())
    (note,) = (note for note in metric.report.notes if "components of 300 features" in note)
    assert ("distance counts with the weight of the start kernel" in note) == keeps
    assert "status and certificate are about the problem on the components" in note
    Z, D = metric.transform(X[:9]), metric.distance(X[:9])
    between = np.linalg.norm(Z[:, None] - Z, axis=2)
    assert np.allclose(between, D) != keeps
    z = X[0] - X[1]
    assert np.sqrt(z @ metric.mahalanobis() @ z) == pytest.approx(D[0, 1])
    found = metric.neighbors(X[:9], k=3)
    np.testing.assert_array_equal(found[0], np.argsort(metric.distance(X[:9], X), axis=1)[:, :3])


def test_more_directions_than_components_are_named(stranger):
    X, y = wide_rows()
    notes = mf.learn(X, y, method=stranger, n_components=200).report.notes
    assert any("125 components of 300 features (fewer than n_components=200)" in note for note in notes)
    notes = mf.learn(X, y, method=stranger, n_components=20).report.notes
    assert not any("fewer than" in note for note in notes)


@pytest.mark.parametrize("kind", ["rows", "dask"])
def test_krca_on_components_is_updated(kind, monkeypatch, tmp_path):
    monkeypatch.setattr("metricforge.space.representation.BUDGET", 0.001)
    monkeypatch.setattr("metricforge.space.representation.LITTLE_MORE", 1.0)
    monkeypatch.setattr("metricforge.space.representation.EXCEEDED", 1e-3)
    X, _ = wide_rows(408)
    given = X[:400] if kind == "rows" else da.from_array(X[:400], chunks=(150, -1))
    metric = mf.learn(given, mf.Chunklets(np.arange(400) // 4), method="krca", kernel=Linear(), epsilon=0.01)
    assert metric.report.representation == "components"
    metric.save(tmp_path / "m.metric")
    updated = mf.load(tmp_path / "m.metric").update(X[400:], mf.Chunklets(np.arange(8) // 4), hold="epsilon")
    V = metric.kernel.map.mix
    whole = X @ V
    groups = whole.reshape(-1, 4, V.shape[1])
    inside = (groups - groups.mean(axis=1, keepdims=True)).reshape(408, -1)
    M = np.linalg.inv(inside.T @ inside / 408 + 0.01 * np.eye(V.shape[1]))
    z = X[0] - X[405]
    expected = (z @ V) @ M @ (z @ V) + (z @ z - (z @ V) @ (z @ V)) / 0.01
    assert updated.distance(X[:1], X[405:406])[0, 0] ** 2 == pytest.approx(expected, rel=1e-6)


def test_exact_keeps_all_features(stranger):
    X, y = wide_rows()
    report = mf.learn(X, y, method=stranger, rank="exact").report
    assert (report.representation, report.rank) == ("explicit", 300)
    assert "energy_left_out" not in report
    assert not any("components" in note for note in report.notes)


def test_the_same_metric_on_dask(stranger):
    X, y = wide_rows()
    expected = mf.learn(X, y, method=stranger)
    metric = mf.learn(da.from_array(X, chunks=(200, -1)), y, method=stranger)
    assert metric.report.representation == "components"
    assert metric.report.energy_left_out == pytest.approx(expected.report.energy_left_out, rel=1e-6)
    np.testing.assert_allclose(metric.distance(X[:9]), expected.distance(X[:9]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["nca", "mlkr"])
def test_a_start_on_all_features_holds_for_components(method, monkeypatch):
    monkeypatch.setattr("metricforge.space.representation.BUDGET", 0.01)
    monkeypatch.setattr("metricforge.space.representation.LITTLE_MORE", 1.0)
    monkeypatch.setattr("metricforge.space.representation.EXCEEDED", 1.0)
    X, y = wide_rows(400)
    hints = mf.Targets(y.astype(float)) if method == "mlkr" else y
    start = np.eye(300)[SIGNAL]
    metric = mf.learn(X, hints, method=method, kernel=Linear(), start=start, max_iter=1)
    assert metric.report.representation == "components"
    assert metric.transform(X).shape == (400, 4)
    with pytest.raises(mf.errors.InputError, match="start must have 300 columns"):
        mf.learn(X, hints, method=method, kernel=Linear(), start=start[:, :200])
