"""method="auto": the first choice, its check on held-out relations, the fallback to the start; candidates; compare."""

from __future__ import annotations

import re
from dataclasses import dataclass

import dask.array as da
import numpy as np
import pytest

import metricforge as mf
from metricforge import auto, evaluation
from metricforge.constraints import Constraint
from metricforge.errors import InputError, UnknownNameError
from metricforge.solver import Solution, Status

RNG = np.random.default_rng(0)
Y = np.arange(90) % 3
X = np.column_stack([RNG.normal(size=(90, 3)) + 2 * np.eye(3)[Y], RNG.normal(size=(90, 3)) * 40])
HINTS = {
    "labels": mf.Labels(Y),
    "pairs": mf.Pairs.from_labels(Y, n_pairs=250, seed=0),
    "triplets": mf.Triplets.from_labels(Y, n_triplets=300, seed=0),
}


@dataclass(frozen=True)
class Worse(mf.Solver):
    """Keeps the column that knows nothing."""

    accepts = (Constraint,)
    column: int = 5

    def _solve(self, problem):
        kernel = mf.kernels.Weak(mf.kernels.Linear(), feature=self.column)
        return Solution(kernel, Status.OPTIMAL, 0.0, certificate=mf.Certificate("nothing", 0.0))


@dataclass(frozen=True)
class Failing(mf.Solver):
    """Never learns."""

    accepts = (Constraint,)

    def _solve(self, problem):
        raise InputError("this method never learns")


@pytest.mark.parametrize("kind", HINTS)
def test_the_choice_is_checked_and_said_in_one_line(kind):
    report = mf.learn(X, HINTS[kind]).report
    assert report.choice.startswith(f"chosen: {report.method} (")
    assert report.choice.endswith("; 2 folds over rows)")
    chosen, start = report.candidates[report.method], report.candidates["start"]
    assert chosen["score"] > start["score"]
    assert f"{100 * chosen['score']:.1f} ± {100 * chosen['error']:.1f} %" in report.choice
    assert f"the start {100 * start['score']:.1f} ±" in report.choice
    assert "\n" not in report.choice


@pytest.mark.parametrize("kind", HINTS)
def test_the_same_seed_gives_the_same_choice_and_metric(kind):
    one, two = (mf.learn(X, HINTS[kind], seed=5) for _ in range(2))
    assert one.report.choice == two.report.choice
    np.testing.assert_array_equal(one.distance(X), two.distance(X))


@pytest.mark.parametrize("kind", HINTS)
def test_a_first_choice_that_does_not_help_gives_the_start(kind, plugged):
    method = mf.Method(type(HINTS[kind]), mf.kernels.Linear(), Worse(), order=0)
    with plugged(method={"worse": method}):
        metric = mf.learn(X, HINTS[kind])
        assert metric.report.choice.startswith("kept the start (")
        assert "worse gained -" in metric.report.choice
        assert metric.report.method == "euclidean"
        assert metric.start.by == "range"
        np.testing.assert_allclose(metric.distance(X), mf.learn(X, Y, method="euclidean").distance(X))
        assert mf.learn(X, HINTS[kind], selection="off").report.method == "worse"
        own = mf.learn(X, HINTS[kind], kernel=mf.kernels.Standardized())
        assert own.kernel == mf.kernels.Standardized().resolve(X)  # the start is the kernel of the call


def test_a_first_choice_that_fails_gives_way_to_the_next(plugged):
    method = mf.Method(mf.Pairs, mf.kernels.Linear(), Failing(), order=0)
    with plugged(method={"failing": method}):
        report = mf.learn(X, HINTS["pairs"]).report
        assert report.method == "simplenpkl"
        assert "failing could not learn: this method never learns" in report.notes


def test_an_error_of_every_method_is_that_of_the_first():
    with pytest.raises(InputError, match="share"):
        mf.learn(X, np.arange(90))


def test_a_gram_matrix_is_not_checked_and_that_is_said():
    report = mf.learn(X @ X.T, HINTS["labels"], kernel="precomputed").report
    assert report.method == "kcr"
    assert report.choice == "kcr, the first choice for these rows; not checked, because the rows are no vectors"


@pytest.mark.parametrize("kind", HINTS)
@pytest.mark.parametrize("place", ["memory", "dask"])
def test_many_rows_are_checked_on_some_of_them(kind, place, plugged, monkeypatch):
    monkeypatch.setattr(auto, "MOST_ROWS", 60)
    rows = X if place == "memory" else da.from_array(X, chunks=(30, -1))
    method = mf.Method(type(HINTS[kind]), mf.kernels.Linear(), Worse(), order=0)
    with plugged(method={"worse": method}):
        report = mf.learn(rows, HINTS[kind]).report
    assert (report.method, report.n) == ("euclidean", 90)
    assert report.choice.startswith("kept the start (")
    assert re.search(r" points \(2 folds over rows, of which \d\d of 90 were drawn\)$", report.choice)


def test_rows_that_are_drawn_are_learned_from_at_the_rank_of_all_rows(monkeypatch):
    monkeypatch.setattr(auto, "MOST_ROWS", 300)
    rng = np.random.default_rng(0)
    y = np.arange(6000) % 3
    seen, solve = [], evaluation.solve
    monkeypatch.setattr(evaluation, "solve", lambda *args, **options: seen.append(solve(*args, **options)) or seen[-1])
    metric = mf.learn(rng.normal(size=(6000, 4)) + 3 * np.eye(3, 4)[y], y, candidates=["kcr"])
    assert metric.report.representation == "landmarks"
    assert [one.space.rank for one in seen] == 2 * [metric.report.rank]
    assert all(one.space.n == 200 for one in seen)


def test_strings_are_checked_as_vectors_are():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    # a class is a word of its own among noise; groups of noise teach nothing that helps
    texts = ["".join(rng.choice(list("abcdefgh"), 12)) + ("xyx", "yzy", "zxz")[c] for c in y]
    report = mf.learn(texts, y).report
    assert report.choice.startswith("chosen: kcr (mean accuracy of 1-NN, 5-NN and triplets on held-out rows")
    noise = mf.Chunklets(rng.permutation(np.repeat(np.arange(20), 3)))
    kept = mf.learn(texts, noise)
    assert kept.report.choice.startswith("kept the start")
    assert kept.start == mf.kernels.Spectrum(3).normalized()
    assert "not checked" in mf.learn(texts, noise, selection="off").report.choice
    assert mf.compare(texts, y, candidates=["krca"]).best in ("krca", "start")


def test_few_pairs_compare_the_first_choice_with_its_rival_and_not_with_the_start():
    report = mf.learn(X, mf.Pairs.from_labels(Y, n_pairs=40, seed=0)).report
    rival = "krca-weighted"
    assert list(report.candidates) == ["simplenpkl", rival]
    scores = {name: one["score"] for name, one in report.candidates.items()}
    best = max(scores, key=scores.get)
    assert report.choice.startswith(f"chosen: {best} (held-out pairs ranked right {100 * scores[best]:.1f} ±")
    assert all(name in report.choice for name in scores)


def test_few_relations_and_no_rival_leave_the_first_choice_unchecked(plugged):
    use = mf.Use(mf.Labels, 0, check_from=5)
    method = mf.Method(mf.Labels, mf.kernels.Linear(), Worse(), uses=(use,))
    with plugged(method={"worse": method}):
        assert mf.learn(X, Y).report.choice == (
            "worse, the first choice for these rows; not checked, because there are fewer than 5 relations for each row"
        )


def test_uses_have_limits(plugged):
    solver = Worse()
    within = mf.Use(mf.Labels, 0, most_rows=90, takes=("vectors",), dask=False, when=lambda c: len(c.classes) == 3)
    method = mf.Method(mf.Pairs, mf.kernels.Linear(), solver, uses=(within,))
    with plugged(method={"limited": method}):
        assert mf.learn(X, Y, selection="off").report.method == "limited"
        assert mf.learn(np.vstack([X, X[:3]]), np.append(Y, Y[:3]), selection="off").report.method == "simplenpkl"
        assert mf.learn(da.from_array(X, chunks=(30, -1)), Y).report.method == "kcr"
        assert mf.learn(X, Y % 2, selection="off").report.method == "simplenpkl"


def test_similar_pairs_only_are_groups():
    assert mf.learn(X, mf.Pairs(HINTS["pairs"].similar, n=90), selection="off").report.method == "krca-weighted"


def test_options_choose_the_method_that_has_them():
    report = mf.learn(X, HINTS["pairs"], nu=0.3).report
    assert report.method == "idealized"
    assert report.notes[0] == "method 'idealized' was chosen, because nu is among its options"
    assert "choice" not in report
    assert mf.learn(X, HINTS["pairs"], C=2.0).report.notes[:1] != report.notes[:1]
    with pytest.raises(UnknownNameError, match="option 'nuu' is unknown to every method; did you mean 'nu'"):
        mf.learn(X, HINTS["pairs"], nuu=0.3)
    with pytest.raises(UnknownNameError, match=r"belong to different methods \(.*epsilon belongs to .*\); name one"):
        mf.learn(X, HINTS["pairs"], nu=0.3, epsilon=0.1)


def test_the_best_candidate_is_taken():
    metric = mf.learn(X, Y, candidates=["krca", {"method": "kcr", "lam": 1e6}, "simplenpkl"], seed=1)
    scores = {name: one["score"] for name, one in metric.report.candidates.items()}
    assert set(scores) == {"krca", "kcr(lam=1000000.0)", "simplenpkl", "start"}
    assert scores[metric.report.method] == max(scores.values())
    learner = mf.MetricLearner(candidates=["krca", "llr"], random_state=0).fit(X, Y)
    assert learner.metric_.report.method in ("krca", "llr", "euclidean")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": []}, "list of one or more methods"),
        ({"candidates": "krca"}, "list of one or more methods"),
        ({"candidates": [3]}, "candidates must be names of methods or dicts with one, got 3"),
        ({"candidates": ["krka"]}, "did you mean 'krca'"),
        ({"candidates": ["krca"], "method": "llr"}, "candidates are for method='auto'"),
        ({"candidates": ["krca"], "nu": 0.3}, "candidates are for method='auto'"),
        ({"selection": "on"}, "selection='on' is unknown"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(InputError, match=message):
        mf.learn(X, Y, **options)


def test_relations_are_capped_and_rows_are_not(monkeypatch):
    monkeypatch.setattr(evaluation, "MOST_RELATIONS", 100)
    seen = []
    solve = evaluation.solve

    def watched(plan, rows, relations, **options):
        seen.append((len(rows), relations.given.size))
        return solve(plan, rows, relations, **options)

    monkeypatch.setattr(evaluation, "solve", watched)
    metric = mf.learn(X, HINTS["pairs"])
    assert metric.report.relations == HINTS["pairs"].size
    assert all(40 <= rows <= 75 and size <= 100 for rows, size in seen)
    assert len(seen) == 2  # two folds of the candidate; the start needs no solver


def test_updates_do_not_start_from_the_start():
    groups = mf.Chunklets.from_labels(Y, components=0.6)
    learner = mf.MetricLearner(random_state=0).partial_fit(X, constraints=groups)
    assert learner.partial_fit(X + 0.1, constraints=groups).metric_.report.method == "krca-weighted"


# -------------------------------------------------------------------------------------------------------------- compare


def test_compare_scores_every_method_and_setting_beside_the_start():
    table = mf.compare(X, HINTS["pairs"], candidates=["simplenpkl", "llr", {"method": "krca", "epsilon": 0.5}])
    names = [one.name for one in table.scores]
    assert set(names) == {"simplenpkl", "llr", "krca(epsilon=0.5)", "start"}
    assert [one.mean for one in table.scores] == sorted((one.mean for one in table.scores), reverse=True)
    assert table.best == names[0]
    assert table.fit().report.method == table.best.partition("(")[0]
    krca = table.fit("krca(epsilon=0.5)")
    assert (krca.report.method, krca.solver.epsilon) == ("krca", 0.5)
    assert table.fit("start").report.method == "euclidean"
    frame = table.to_frame()
    assert list(frame.columns) == ["name", "score", "error", "seconds", "certificate", "failure"]
    assert len(frame) == 4
    lines = str(table).splitlines()
    assert len(lines) == 6
    assert lines[1].startswith(table.best)
    assert lines[-1] == "score: held-out pairs ranked right, mean and standard error of 3 folds over rows"
    assert [t.get_text() for t in table.plot().get_yticklabels()] == names[::-1]
    with pytest.raises(UnknownNameError, match="name='lrr' is not a candidate; did you mean 'llr'"):
        table.fit("lrr")


def test_compare_is_the_protocol_by_hand():
    (one, start) = sorted(mf.compare(X, HINTS["pairs"], candidates=["llr"], seed=2).scores, key=lambda s: s.name)
    for scored, method in ((one, "llr"), (start, "euclidean")):
        by_hand = [
            held_out.score(
                mf.constraints.Distances(mf.learn(X[rows], HINTS["pairs"][rows], method=method, seed=2).kernel, X, 2)
            )
            for rows, held_out in HINTS["pairs"].folds(3, 2)
        ]
        np.testing.assert_allclose(scored.scores, by_hand)


def test_compare_takes_all_methods_that_can_learn_from_the_hints_by_default():
    few = mf.Triplets(HINTS["triplets"].triples[:150], n=90)
    table = mf.compare(X, few, folds=2)
    names = {one.name.partition("(")[0] for one in table.scores}
    assert {"simplenpkl", "lpdesign", "idealized", "krca", "llr", "start"} <= names
    assert not any(one.failure for one in table.scores if one.name == "start")


def test_a_candidate_that_fails_says_why(plugged):
    method = mf.Method(mf.Labels, mf.kernels.Linear(), Failing(), order=None)
    with plugged(method={"failing": method}):
        table = mf.compare(X, Y, candidates=["failing", "krca"])
        assert table.scores[-1].failure == "InputError: this method never learns"
        assert "this method never learns" in str(table)
        assert (table.records()[-1]["score"], table.records()[-1]["error"]) == (None, None)  # NaN is no JSON
        assert table.best in ("krca", "start")
        with pytest.raises(InputError, match="never learns"):
            mf.learn(X, Y, candidates=["failing"])


def test_compare_refuses_what_it_cannot_split():
    with pytest.raises(InputError, match="dask array"):
        mf.compare(da.from_array(X, chunks=(30, -1)), Y, candidates=["krca"])
    with pytest.raises(InputError, match="precomputed"):
        mf.compare(X @ X.T, Y, kernel="precomputed", candidates=["krca"])
    with pytest.raises(InputError, match="is there twice"):
        mf.compare(X, Y, candidates=["krca", "krca"])
