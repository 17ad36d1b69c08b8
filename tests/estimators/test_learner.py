"""scikit-learn: pipelines, grids, cross-validation, metadata routing, cloning, its own checks."""

from __future__ import annotations

import pickle

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import metricforge as mf
from metricforge.errors import InputError, UnknownNameError
from metricforge.kernels import RBF, Linear, Polynomial, Precomputed, Spectrum

KINDS = (mf.Labels, mf.Pairs, mf.Chunklets, mf.Triplets)

METHODS = [entry.name for entry in mf.methods()]


@parametrize_with_checks([mf.MetricLearner(), *(mf.MetricLearner(name) for name in METHODS)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")  # array API input, which is not switched on
@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("fit", [mf.MetricLearner("krca").fit, mf.learn])
def test_text_in_a_frame_is_named_by_its_column(frame, fit):
    long = "a very long name of a place that nobody wants to read in full"
    for columns, said in (
        ({"city": ["Wien", "Graz", "Graz", "Wels"]}, "column 'city' does not, first 'Wien' in row 0"),
        ({"city": list("1234"), "zip": ["1", "2", "x", "3"]}, "column 'zip' does not, first 'x' in row 2"),
        ({"city": list("abcd"), "zip": [long] * 4}, "columns 'city', 'zip' do not, first 'a' in row 0"),
        ({"zip": [long] * 4}, "column 'zip' does not, first 'a very long name"),
    ):
        rows = frame({"a": [1.0, 2.0, 3.0, 4.0], **columns})
        with pytest.raises(InputError, match="X must hold numbers") as caught:
            fit(rows, [0, 1, 0, 1])
        assert said in str(caught.value)
        assert long not in str(caught.value)


SEEN = []


class Watching(mf.MetricLearner):
    """Remembers what every fold received."""

    def fit(self, X, y=None, *, constraints=None):
        SEEN.append((np.asarray(X), constraints))
        return super().fit(X, y, constraints=constraints)


def relations(constraint):
    """The relations of a constraint as sets of row numbers, whatever its kind."""
    if isinstance(constraint, mf.Pairs):
        return [*constraint.similar.tolist(), *constraint.dissimilar.tolist()]
    if isinstance(constraint, mf.Triplets):
        return constraint.triples.tolist()
    return [np.flatnonzero(constraint.codes == c).tolist() for c in range(constraint.codes.max() + 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_fold_receives_only_the_relations_inside_its_rows(kind, wine, routing):
    X, y = wine
    # the row number rides along as a feature, so what a fold saw can be traced back
    X = np.column_stack([X, np.arange(len(X))])
    hints = kind.from_labels(y, components=0.6, seed=1)
    assert len(hints) == len(X)
    pipe = make_pipeline(Watching("euclidean"), KNeighborsClassifier(3))
    SEEN.clear()
    folds = KFold(4, shuffle=True, random_state=0)
    cross_validate(pipe, X, y, cv=folds, params={"constraints": hints})
    assert len(SEEN) == 4
    for (rows, received), (train, _) in zip(SEEN, folds.split(X), strict=True):
        origin = rows[:, -1].astype(int)
        np.testing.assert_array_equal(origin, train)
        assert len(received) == len(train)
        inside = set(train.tolist())
        if kind in (mf.Pairs, mf.Triplets):
            expected = [tuple(r) for r in relations(hints) if set(r) <= inside]
            found = [tuple(origin[r].tolist()) for r in relations(received)]
            assert sorted(map(sorted, found)) == sorted(map(sorted, expected))
            assert received.dropped == hints.size - len(expected) > 0
        else:
            for group in relations(received):
                assert len(np.unique(hints.codes[origin[group]])) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_side_information_goes_through_pipelines_grids_and_splits(kind, wine, routing):
    X, y = wine
    hints = kind.from_labels(y, components=0.6, seed=1)
    pipe = make_pipeline(StandardScaler(), mf.MetricLearner("euclidean", kernel=RBF(0.1)), KNeighborsClassifier())
    scores = cross_val_score(pipe, X, y, params={"constraints": hints}, cv=3)
    assert scores.mean() > 0.8
    grid = GridSearchCV(pipe, {"metriclearner__kernel__gamma": [0.01, 0.1]}, cv=3, error_score="raise")
    grid.fit(X, y, constraints=hints)
    assert grid.best_params_["metriclearner__kernel__gamma"] in (0.01, 0.1)
    A, B, ya, _, ha, hb = train_test_split(X, y, hints, random_state=0)
    assert (len(ha), len(hb)) == (len(A), len(B))
    learner = pipe.fit(A, ya, constraints=ha)[1]
    assert learner.metric_.report.dropped == ha.dropped
    assert learner.metric_.report.relations == ha.size


def test_labels_need_no_routing(wine):
    X, y = wine
    pipe = make_pipeline(StandardScaler(), mf.MetricLearner("euclidean"), KNeighborsClassifier())
    assert cross_val_score(pipe, X, y, cv=3).mean() > 0.9


def test_constraints_win_over_y(wine):
    X, y = wine
    pairs = mf.Pairs([(0, 1)], [(0, 100)], n=len(X))
    assert mf.MetricLearner("euclidean").fit(X, y, constraints=pairs).metric_.report.relations == 2


# ----------------------------------------------------------------------------------------------------------- parameters


def test_parameters_of_kernel_and_solver_show_and_can_be_set():
    learner = mf.MetricLearner("euclidean", kernel=RBF(0.5, base=Polynomial(2)))
    params = learner.get_params()
    assert params["kernel__gamma"] == 0.5
    assert params["kernel__base__degree"] == 2
    copy = clone(learner).set_params(kernel__gamma=2.0, kernel__base__degree=3)
    assert copy.kernel == RBF(2.0, base=Polynomial(3))
    assert learner.kernel == RBF(0.5, base=Polynomial(2))  # frozen components: nothing is shared by accident
    own = {"method", "kernel", "solver", "rank", "selection", "candidates", "n_components", "random_state"}
    assert learner.get_params(deep=False).keys() == own


def test_a_kernel_in_the_same_call_comes_first():
    learner = mf.MetricLearner("euclidean").set_params(kernel__gamma=3.0, kernel=RBF(1.0))
    assert learner.kernel == RBF(3.0)
    assert mf.MetricLearner("euclidean", kernel="rbf").set_params(kernel__gamma=3.0).kernel == RBF(3.0)


@pytest.mark.parametrize("name", METHODS)
def test_resolved_components_show_for_every_method(name):
    params = mf.MetricLearner(name).get_params()
    from dataclasses import fields

    from metricforge.resolve import find_method

    for part in ("kernel", "solver"):
        for field in fields(getattr(find_method(name), part)):
            assert f"{part}__{field.name}" in params


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"kernal": 1}, ["kernal", "did you mean 'kernel'"]),
        ({"kernel__gama": 1.0}, ["kernel__gama", "RBF has no 'gama'", "did you mean 'gamma'"]),
        ({"metric__x": 1}, ["metric__x", "kernel"]),
    ],
)
def test_unknown_parameters(params, words):
    with pytest.raises(UnknownNameError) as caught:
        mf.MetricLearner("euclidean", kernel=RBF(1.0)).set_params(**params)
    for word in words:
        assert word in str(caught.value)


def test_open_method_and_kernel_cannot_be_tuned():
    with pytest.raises(InputError, match=r"kernel__gamma cannot be set.*name a method or give a kernel"):
        mf.MetricLearner().set_params(kernel__gamma=1.0)


def test_a_method_can_be_searched_over(wine):
    X, y = wine
    pipe = make_pipeline(mf.MetricLearner(), KNeighborsClassifier())
    grid = GridSearchCV(
        pipe, {"metriclearner__method": ["euclidean"], "metriclearner__kernel": [Linear(), RBF(0.1)]}, cv=2
    )
    grid.fit(X, y)
    assert grid.cv_results_["mean_test_score"].min() > 0.8


# ----------------------------------------------------------------------------------------------------------------- rows


def test_frames_and_their_names(wine):
    X, y = wine
    names = [f"column {i}" for i in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names)
    learner = mf.MetricLearner("euclidean", kernel="linear").set_output(transform="pandas").fit(frame, y)
    out = learner.transform(frame)
    assert isinstance(out, pd.DataFrame)
    assert out.columns[0] == "metriclearner0"
    np.testing.assert_allclose(out.to_numpy(), X)
    assert learner.feature_names_in_.tolist() == names
    polars = (
        mf.MetricLearner("euclidean", kernel="linear")
        .set_output(transform="polars")
        .fit(pl.DataFrame(X), y)
        .transform(pl.DataFrame(X))
    )
    assert isinstance(polars, pl.DataFrame)
    np.testing.assert_allclose(polars.to_numpy(), X)


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csr_array, sp.csc_array, lambda A: A.tolist()])
def test_containers(form, wine):
    X, y = wine
    learner = mf.MetricLearner("euclidean", kernel=RBF(0.1), random_state=0).fit(form(X), y)
    expected = mf.MetricLearner("euclidean", kernel=RBF(0.1), random_state=0).fit(X, y).transform(X)
    np.testing.assert_allclose(learner.transform(form(X)), expected, atol=1e-6)


def test_single_precision_is_preserved(wine):
    X, y = wine
    learner = mf.MetricLearner("euclidean", kernel=RBF(0.1), random_state=0).fit(X.astype(np.float32), y)
    out = learner.transform(X.astype(np.float32))
    assert out.dtype == np.float32
    double = mf.MetricLearner("euclidean", kernel=RBF(0.1), random_state=0).fit(X, y).transform(X)
    np.testing.assert_allclose(out @ out.T, double @ double.T, atol=1e-5)


def test_dask_rows(wine):
    X, y = wine
    lazy = da.from_array(X, chunks=(50, -1))
    learner = mf.MetricLearner("euclidean", kernel=RBF("median"), random_state=0).fit(lazy, y)
    out = learner.transform(lazy)
    assert isinstance(out, da.Array)
    memory = mf.MetricLearner("euclidean", kernel=RBF("median"), random_state=0).fit(X, y)
    np.testing.assert_allclose(out.compute(), memory.transform(X), atol=1e-9)


def test_strings_need_no_kernel():
    texts, y = ["banana band", "bandana", "banana", "cherry", "cherry pie", "merry cherry"], [0, 0, 0, 1, 1, 1]
    for given in (texts, np.array(texts)):
        learner = mf.MetricLearner("krca").fit(given, y)
        assert learner.metric_.start == Spectrum(3).normalized()
        assert learner.transform(["bandana pie"]).shape[0] == 1
    assert learner.fit(np.eye(6), y).n_features_in_ == 6


def test_strings_through_a_pipeline(rng):
    y = np.arange(40) % 2
    S = np.array(["".join(rng.choice(list("ACD" if c else "ACE"), size=20)) for c in y], dtype=object)
    pipe = make_pipeline(mf.MetricLearner("euclidean", kernel=Spectrum(2).normalized()), KNeighborsClassifier(3))
    assert cross_val_score(pipe, S, y, cv=4).mean() > 0.9
    tags = pipe[0].__sklearn_tags__()
    assert tags.input_tags.string
    assert not tags.input_tags.two_d_array


def test_precomputed_kernels_are_sliced_both_ways(wine):
    X, y = wine
    K = RBF(0.1)(X)
    pipe = make_pipeline(mf.MetricLearner("euclidean", kernel=Precomputed()), KNeighborsClassifier(3))
    direct = make_pipeline(mf.MetricLearner("euclidean", kernel=RBF(0.1)), KNeighborsClassifier(3))
    assert pipe[0].__sklearn_tags__().input_tags.pairwise
    folds = KFold(3, shuffle=True, random_state=0)
    np.testing.assert_array_equal(cross_val_score(pipe, K, y, cv=folds), cross_val_score(direct, X, y, cv=folds))


# --------------------------------------------------------------------------------------------------------------- faults


def test_a_failed_fit_leaves_the_old_one_intact(wine):
    X, y = wine
    learner = mf.MetricLearner("euclidean", kernel=RBF("median"), random_state=0).fit(X, y)
    before, out = dict(learner.__dict__), learner.transform(X)
    bad = X.copy()
    bad[3, 3] = np.nan
    for rows, labels in ((bad, y), (X[:, :5], None), (X[:, :5], y[:-1]), (np.ones((5, 2)), np.arange(5))):
        with pytest.raises(ValueError, match=r"NaN|requires y|inconsistent|identical"):
            learner.fit(rows, labels)
        assert learner.__dict__ == before
    np.testing.assert_array_equal(learner.transform(X), out)
    assert learner.n_features_in_ == 13


def test_an_interrupted_fit_leaves_the_old_one_intact(wine, monkeypatch):
    X, y = wine
    learner = mf.MetricLearner("euclidean").fit(X, y)
    before = dict(learner.__dict__)

    def interrupt(self, problem):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(learner.metric_.solver), "_solve", interrupt)
    with pytest.raises(KeyboardInterrupt):
        learner.fit(X[:, :4], y)
    assert learner.__dict__ == before


def test_fitted_learners_pickle(wine):
    X, y = wine
    learner = mf.MetricLearner("euclidean", kernel=RBF("median"), random_state=0).fit(X, y)
    copy = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(copy.transform(X), learner.transform(X))


def test_random_state_follows_scikit_learn(wine):
    X, y = wine

    def out(state):
        return mf.MetricLearner("euclidean", kernel=RBF(0.1), rank=20, random_state=state).fit(X, y).transform(X)

    np.testing.assert_array_equal(out(1), out(1))
    assert not np.array_equal(out(1), out(2))
    assert not np.array_equal(out(np.random.RandomState(1)), out(2))


# --------------------------------------------------------------------------------------------------------- hard cases


def test_the_metric_keeps_the_names_of_columns(wine):
    X, y = wine
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(13)])
    learner = mf.MetricLearner("krca").fit(frame, y)
    assert learner.metric_.columns == learner.metric_.report.columns == tuple(frame.columns)
    assert learner.feature_names_in_.tolist() == list(frame.columns)
    assert learner.metric_.start is not None
    with pytest.raises(mf.errors.InputError, match="in that order"):
        learner.metric_.distance(frame[frame.columns[::-1]])
    updated = learner.partial_fit(frame, y).metric_
    assert updated.columns == tuple(frame.columns)
    assert mf.MetricLearner("krca").fit(X, y).metric_.columns == ()


def test_a_refit_on_other_rows_forgets_the_old_columns(wine):
    X, y = wine
    learner = mf.MetricLearner("euclidean").fit(pd.DataFrame(X, columns=[f"c{i}" for i in range(13)]), y)
    learner.fit(da.from_array(X[:, :3], chunks=(50, -1)), y)
    assert learner.n_features_in_ == 3
    assert not hasattr(learner, "feature_names_in_")
    assert learner.transform(X[:, :3]).shape == (178, 3)
    learner.set_params(kernel=Spectrum(2)).fit(["ABC", "ABD", "XYZ"], [0, 0, 1])
    assert not hasattr(learner, "n_features_in_")


def test_setting_parameters_is_all_or_nothing_and_in_any_order():
    learner = mf.MetricLearner("euclidean", kernel=RBF(1.0))
    with pytest.raises(InputError, match="gamma"):
        learner.set_params(rank=5, kernel__gamma=-1.0)
    assert learner.rank == "auto"
    learner.set_params(kernel__base__degree=3, kernel__base=Polynomial(2))
    assert learner.kernel == RBF(1.0, base=Polynomial(3))


def test_a_learner_with_an_unknown_method_can_be_shown():
    learner = mf.MetricLearner("no such method")
    assert "no such method" in repr(learner)
    assert learner._repr_html_()
    with pytest.raises(UnknownNameError):
        learner.fit([[1.0], [2.0]], [0, 1])


@pytest.mark.parametrize("rows", [[[1.0, 2.0], [3.0]], {"a": [1.0, 2.0]}, [[1.7e308], [-1.7e308]]])
def test_rows_that_scikit_learn_stumbles_over_are_input_errors_without_warnings(rows):
    with pytest.raises(InputError, match=r"^X "):
        mf.MetricLearner("krca").fit(rows, [0, 1])


def test_a_bad_random_state_and_repeated_column_names_are_input_errors(rng):
    X, y = rng.normal(size=(6, 2)), [0, 0, 0, 1, 1, 1]
    with pytest.raises(InputError, match=r"^random_state=-1: "):
        mf.MetricLearner("krca", random_state=-1).fit(X, y)
    twice = pd.DataFrame(X, columns=["a", "a"])
    with pytest.raises(InputError):
        mf.MetricLearner("euclidean").fit(X, y).transform(twice)


def test_score_is_that_of_the_hints_on_rows_not_learned_from(wine):

    from metricforge.constraints import Distances

    X, y = wine
    learner = mf.MetricLearner("krca", random_state=0).fit(X[::2], y[::2])
    wanted = mf.Labels(y[1::2]).score(Distances(learner.metric_.kernel, X[1::2], learner.metric_.seed))
    assert learner.score(X[1::2], y[1::2]) == wanted
    pairs = mf.Pairs.from_labels(y[1::2], n_pairs=50, seed=0)
    assert learner.score(X[1::2], constraints=pairs) == pairs.score(
        Distances(learner.metric_.kernel, X[1::2], learner.metric_.seed)
    )
    assert (cross_val_score(learner, X, y, cv=KFold(3, shuffle=True, random_state=0)) > 0.8).all()
    with pytest.raises(InputError, match="about 3 rows"):
        learner.score(X[::2], constraints=mf.Pairs([(0, 1)], n=3))


def test_an_option_of_the_method_is_named_where_it_was_set_without_its_place():
    learner = mf.MetricLearner("krca")
    with pytest.raises(InputError, match=r"Invalid parameter 'epsilon' for MetricLearner; write solver__epsilon"):
        learner.set_params(epsilon=0.1)
