"""The displays: what they draw, against another way to the same numbers, and scikit-learn's convention."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError

import metricforge as mf
from metricforge import plotting
from metricforge.errors import InputError
from metricforge.plotting import ConvergenceDisplay, KernelDisplay, MapDisplay, RelationsDisplay, WeightsDisplay


@pytest.fixture(scope="module")
def learned():
    X, y = mf.datasets.load("wine")
    return mf.learn(X, y, method="krca", kernel="linear", epsilon=0.0), X, y


def axes():
    return Figure().subplots()


def test_the_map_is_the_principal_plane_of_the_embedding(learned):
    metric, X, y = learned
    shown = MapDisplay.from_metric(metric, X, y)
    E = metric.transform(X)
    U, s, _ = np.linalg.svd(E - E.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(np.abs(shown.points), np.abs((U * s)[:, :2]), atol=1e-8 * s[0])
    assert shown.share == pytest.approx((s[:2] ** 2).sum() / (s**2).sum())
    assert [len(c.get_offsets()) for c in shown.ax_.collections] == np.bincount(y).tolist()


def test_the_kernel_matrix_is_cosines_of_the_embedding_by_class(learned):
    metric, X, y = learned
    shown = KernelDisplay.from_metric(metric, X, y)
    order = np.argsort(y, kind="stable")
    E = metric.transform(X)[order]
    E = E - E.mean(axis=0)
    E /= np.linalg.norm(E, axis=1)[:, None]
    np.testing.assert_allclose(shown.K, E @ E.T, atol=1e-8)
    assert shown.codes.tolist() == sorted(y)
    assert len(shown.ax_.lines) == 4  # two borders, both ways


def test_samples_are_the_same_before_and_after_and_from_dask(learned):
    metric, X, y = learned
    one, other = (KernelDisplay.from_metric(m, X, y, sample=40, seed=5) for m in (metric, mf.kernels.Linear()))
    assert one.K.shape == other.K.shape == (40, 40)
    assert one.codes.tolist() == other.codes.tolist()
    lazy = KernelDisplay.from_metric(metric, da.from_array(X, chunks=(50, -1)), y, sample=40, seed=5)
    np.testing.assert_allclose(lazy.K, one.K, atol=1e-12)


def test_the_weights_of_a_linear_metric_are_its_diagonal_times_variances(learned):
    metric, X, _ = learned
    R = metric.transform(np.eye(13)) - metric.transform(np.zeros((1, 13)))
    expected = (R**2).sum(axis=1) * X.var(axis=0)
    np.testing.assert_allclose(plotting.feature_weights(metric), expected / expected.sum(), rtol=1e-8)


def test_the_weights_a_method_tells_are_shown_heaviest_first():
    X, y = mf.datasets.load("toy")
    metric = mf.learn(X, y, method="lpdesign")
    shown = WeightsDisplay.from_metric(metric, [f"f{i}" for i in range(11)], most=3)
    np.testing.assert_allclose(shown.weights, metric.report.features / metric.report.features.sum())
    assert shown.ax_.get_yticklabels()[0].get_text() == "f0"
    assert len(shown.ax_.patches) == 3


def test_convergence_draws_the_trace_and_names_the_last_gap():
    X, y = mf.datasets.load("toy")
    metric = mf.learn(X, y, method="lpdesign")
    shown = ConvergenceDisplay.from_metric(metric)
    np.testing.assert_array_equal(shown.gap, [gap for _, gap in metric.report.trace])
    assert shown.ax_.get_yscale() == "log"
    assert shown.ax_.texts[0].get_text() == f"{metric.report.trace[-1][1]:.2g}"
    exact = ConvergenceDisplay(np.array([2.0, 1.0]), np.array([1.0, 0.0])).plot()
    assert (exact.ax_.lines[0].get_ydata() > 0).all()


def test_relations_draw_a_bar_for_each_kind_before_and_after(learned):
    metric, X, y = learned
    shown = RelationsDisplay.from_metric(metric, X, mf.Labels(y), before=mf.kernels.Linear())
    assert len(shown.after) == len(shown.before) == 4
    assert [round(b.get_width(), 6) for b in shown.ax_.patches] == [
        round(100 * h.share, 6) for h in (*shown.before, *shown.after)
    ]


@pytest.mark.parametrize("display", [KernelDisplay, MapDisplay])
def test_the_convention_of_scikit_learn(display, learned):
    _, X, y = learned
    estimator = mf.MetricLearner("krca").fit(X, y)
    ax = axes()
    shown = display.from_estimator(estimator, X, y, ax=ax)
    assert shown.ax_ is ax
    assert shown.figure_ is ax.figure
    again = shown.plot()  # new axes of its own
    assert again is shown
    assert shown.ax_ is not ax
    with pytest.raises(NotFittedError):
        display.from_estimator(mf.MetricLearner("krca"), X, y)


def test_the_other_displays_from_an_estimator():
    X, y = mf.datasets.load("toy")
    estimator = mf.MetricLearner("lpdesign").fit(X, y)
    for shown in (
        ConvergenceDisplay.from_estimator(estimator, ax=axes()),
        WeightsDisplay.from_estimator(estimator, ax=axes()),
        RelationsDisplay.from_estimator(estimator, X, mf.Labels(y), ax=axes()),
    ):
        assert shown.figure_ is shown.ax_.figure
        assert plotting.png(shown.figure_)[:4] == b"\x89PNG"


def test_odd_labels_many_classes_and_few_rows():
    X = np.random.default_rng(0).normal(size=(60, 2))
    names = np.array([f"_{i % 30} $x$ {'very ' * 20}" for i in range(60)])
    plotting.png(MapDisplay.from_metric(mf.kernels.Linear(), X, names).figure_)
    assert MapDisplay.from_metric(mf.kernels.Linear(), X, names).ax_.get_legend() is None
    few = MapDisplay.from_metric(mf.kernels.Linear(), X[:5], ["_a", "$b", "日本", None, None])
    assert [t.get_text() for t in few.ax_.get_legend().get_texts()] == [r"\$b", " _a", "日本"]
    plotting.png(few.figure_)
    assert MapDisplay.from_metric(mf.kernels.Linear(), X[:1]).points.shape == (1, 2)
    constant = KernelDisplay.from_metric(mf.kernels.Linear(), np.ones((3, 2)))
    assert np.isfinite(constant.K).all()


def test_what_cannot_be_drawn_says_so(learned, monkeypatch):
    metric, X, y = learned
    with pytest.raises(InputError, match="X is missing"):
        MapDisplay.from_metric(metric.kernel)
    with pytest.raises(InputError, match="y has 3 labels for the 178 rows"):
        MapDisplay.from_metric(metric, X, y[:3])
    with pytest.raises(InputError, match="no trace"):
        ConvergenceDisplay.from_metric(mf.learn(X, y, method="euclidean"))
    with pytest.raises(InputError, match="no weights"):
        WeightsDisplay.from_metric(mf.learn(X, y, method="krca"))
    with pytest.raises(InputError, match="names holds 1 names for 13 features"):
        WeightsDisplay.from_metric(metric, ["a"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'metricforge\[plot\]'"):
        MapDisplay.from_metric(metric, X, y)


# ----------------------------------------------------------------------------------- kinds that the core does not know


def test_relations_of_a_new_kind_are_drawn(learned, comparisons):
    metric, X, y = learned
    hint = comparisons(y)
    shown = RelationsDisplay.from_metric(metric, X, hint, before=mf.kernels.Linear())
    a, b, c, d = hint.quadruples.T
    E = metric.transform(X)
    share = np.mean(np.linalg.norm(E[a] - E[b], axis=1) < np.linalg.norm(E[c] - E[d], axis=1))
    assert shown.after[0].share == pytest.approx(share)
    assert len(shown.ax_.patches) == 2
    assert shown.ax_.get_yticklabels()[0].get_text().replace("\n", " ") == shown.after[0].condition


def test_the_lines_of_a_new_kind_are_drawn_in_the_map(learned, comparisons):
    metric, X, y = learned
    hint = comparisons(y, size=20)
    shown = MapDisplay.from_metric(metric, X, y, constraint=hint)
    assert [t.get_text() for t in shown.ax_.get_legend().get_texts()] == ["nearer pair", "farther pair"]
    solid, dashed = (c.get_segments() for c in shown.ax_.collections[-2:])
    np.testing.assert_allclose(solid, shown.points[hint.quadruples[:, :2]])
    np.testing.assert_allclose(dashed, shown.points[hint.quadruples[:, 2:]])


def test_pairs_is_an_older_name_of_the_constraint_of_a_map(learned):
    metric, X, _ = learned
    pairs = mf.Pairs([(0, 1)], [(2, 3)], n=len(X))
    assert MapDisplay.from_metric(metric, X, pairs=pairs).constraint == pairs


def test_a_kind_that_counts_nothing_says_what_to_define(learned, comparisons, monkeypatch):
    metric, X, y = learned
    hint = comparisons(y)
    monkeypatch.setattr(type(hint), "satisfied", mf.Constraint.satisfied)
    with pytest.raises(InputError, match=r"no relation of 60 comparisons can be counted; .* Comparisons\.satisfied"):
        RelationsDisplay.from_metric(metric, X, hint)
