"""Sessions: what is asked, what follows from the answers, and how far they reach against random pairs."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from metricforge_ask import scores
from metricforge_ask.answers import Answer
from metricforge_ask.groups import Nearness, Placement, View
from metricforge_ask.scores import wilson
from metricforge_ask.server import Desk, cards_of
from metricforge_ask.triplets import learn_factor
from metricforge_cases.asking import X, Y, drive, reply
from scipy import sparse

import metricforge as mf
from metricforge.errors import InputError


def share_right(metric, A, y, seed=1):
    """The share of triplets (i like j, unlike k) that a metric orders rightly."""
    Z, rng = metric.transform(A), np.random.default_rng(seed)
    i, j, k = rng.integers(len(A), size=(3, 20_000))
    kept = (y[i] == y[j]) & (i != j) & (y[i] != y[k])
    near, far = (((Z[i] - Z[other]) ** 2).sum(axis=1)[kept] for other in (j, k))
    return (near < far).mean()


def test_answers_about_groups_are_worth_more_than_twice_as_many_random_pairs():
    scores = {"groups": [], "random": []}
    for seed in range(3):
        rows, y = mf.datasets.load("wine")
        order = np.random.default_rng(seed).permutation(len(y))
        A, ya, B, yb = rows[order[:106]], y[order[:106]], rows[order[106:]], y[order[106:]]
        for rule, count in (("groups", 50), ("random", 100)):
            session = drive(mf.ask.Session(A, rule=rule, held_out=0, seed=seed), count, ya)
            scores[rule].append(share_right(session.metric(method="llr"), B, yb))
    assert np.mean(scores["groups"]) > np.mean(scores["random"])


def test_right_answers_give_the_classes():
    session = drive(mf.ask.Session(X), 80)
    groups = session.groups()
    placed = groups >= 0
    assert placed.sum() >= 30
    assert len(set(zip(groups[placed].tolist(), Y[placed].tolist(), strict=True))) == 3
    known = session.progress()
    assert known.placed == placed.sum()
    assert sum(known.groups) == known.placed
    assert known.held_out > 0
    assert known.interval[0] <= known.foretold <= known.interval[1]


def test_a_lineup_places_a_row_with_one_answer():
    pairs = drive(mf.ask.Session(X, held_out=0), 30).progress().placed
    session = mf.ask.Session(X, held_out=0, lineup=True)
    kinds = set()
    for _ in range(30):
        question = session.next()
        kinds.add(question.kind)
        assert len(question.rows) <= 7
        reply(session, question)
    assert kinds == {"pair", "lineup"}
    assert session.progress().placed > pairs


def test_a_wrong_answer_is_confined_to_its_row():
    rng = np.random.default_rng(0)
    session = mf.ask.Session(X, held_out=0)
    for _ in range(90):
        question = session.next()
        if question is None:
            break
        right = Y[question.rows[0]] == Y[question.rows[1]]
        session.answer(question, "alike" if right ^ (rng.random() < 0.05) else "unlike")
    groups = session.groups()
    placed = groups >= 0
    majority = {g: np.bincount(Y[groups == g]).argmax() for g in set(groups[placed].tolist())}
    wrong = np.mean([majority[g] != c for g, c in zip(groups[placed].tolist(), Y[placed].tolist(), strict=True)])
    assert wrong < 0.15


def pair(row, other, answer, by="eva", why="consolidate"):
    return Answer(1, by, "pair", (str(row), str(other)), answer, why, joins=True)


def placed(*answers):
    state = Placement.of(answers, {str(row): row for row in range(10)})
    assert all(state.group[row] == g for g, members in enumerate(state.members) for row in members)
    return state


CONTRADICTED = [pair(3, 5, "alike"), pair(4, 5, "alike"), pair(3, 5, "unlike", "tom", "overlap")]


def test_a_row_with_a_contradiction_leaves_its_group_and_is_placed_again():
    state = placed(*CONTRADICTED)
    assert state.members == [[5, 4]]
    assert state.contradictions == [(3, 5)]
    assert placed(*CONTRADICTED, pair(3, 4, "alike")).members == [[5, 4, 3]]
    opens = replace(pair(3, 4, "unlike"), opens=True)
    assert placed(*CONTRADICTED, opens).members == [[5, 4], [3]]


def test_the_first_row_of_a_group_stays_in_it_whatever_its_number():
    found = placed(pair(5, 3, "alike"), pair(4, 3, "alike"), pair(3, 5, "unlike", "tom", "overlap"))
    assert found.members == [[3, 4]]


def test_a_majority_ends_a_contradiction():
    again = [pair(3, 5, "alike", "ann", "overlap")]
    assert placed(*CONTRADICTED, *again).members == [[5, 4, 3]]
    assert placed(*CONTRADICTED, *again).contradictions == []
    assert placed(*CONTRADICTED, pair(3, 5, "unlike", "ann", "overlap")).members == [[5, 4]]
    elsewhere = replace(pair(3, 4, "unlike"), opens=True)
    assert placed(*CONTRADICTED, elsewhere, *again).members == [[5, 4], [3]]


def test_rows_with_contradictions_are_asked_about_until_all_are_placed(tmp_path):
    eva, tom = (mf.ask.Session(X[:12], tmp_path / "a.jsonl", by=name, held_out=0) for name in ("eva", "tom"))
    drive(eva, 12)
    for i, j in eva.hints().similar[:2].tolist():
        for _ in range(2):  # so that answers to both are there
            tom.answer(mf.ask.Question("pair", (i, j), "overlap"), "unlike")
            eva.answer(mf.ask.Question("pair", (i, j), "overlap"), "alike")
    drive(eva, 200)
    assert (eva.groups() >= 0).all()


def test_an_answer_replays_the_file_once(tmp_path, monkeypatch):
    desk = Desk(session := mf.ask.Session(X, tmp_path / "a.jsonl"), cards_of(session))
    drive(session, 6)
    replayed = []
    monkeypatch.setattr(Placement, "_settle", lambda state, settle=Placement._settle: replayed.append(settle(state)))
    for _ in range(3):  # fewer than let the metric of the loop be learned again
        desk.answer(desk.state()["question"]["id"], "skip")
    assert len(replayed) <= 3


def test_skips_give_no_information_and_the_pair_is_not_repeated():
    session = mf.ask.Session(X, held_out=0)
    seen = set()
    for _ in range(12):
        question = session.next()
        assert frozenset(question.rows) not in seen
        seen.add(frozenset(question.rows))
        session.answer(question, "skip")
    assert session.progress().answers == 12
    assert session.progress().placed == 0


def test_questions_end_when_every_row_is_placed():
    session = mf.ask.Session(X[:8], held_out=0)
    for _ in range(200):
        question = session.next()
        if question is None:
            break
        reply(session, question)
    assert session.next() is None
    assert (session.groups() >= 0).all()


def test_the_same_seed_gives_the_same_questions():
    one, two = (drive(mf.ask.Session(X, seed=3), 20) for _ in range(2))
    assert one.next() == two.next()
    assert drive(mf.ask.Session(X, seed=4), 20).groups().tolist() != one.groups().tolist()


def test_triplets_predict_the_person(monkeypatch):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(120, 4))
    weights = np.array([3.0, 1.0, 0.1, 0.1])  # the person's own metric

    def answer(session, question):
        i, j, k = question.rows
        near, far = (((A[i] - A[other]) ** 2 * weights).sum() for other in (j, k))
        session.answer(question, "first" if near < far else "second")

    session = mf.ask.Session(A, rule="triplets", held_out=0.3, seed=1)
    for _ in range(150):
        answer(session, session.next())
    known = session.progress()
    assert known.held_out > 20
    assert known.foretold > 0.85


def test_the_gradient_of_the_triplet_loss():
    from scipy.optimize import check_grad

    rng = np.random.default_rng(0)
    E, T = rng.normal(size=(30, 3)), rng.integers(30, size=(20, 3))
    found = learn_factor(E, T)
    near, far = E[T[:, 0]] - E[T[:, 1]], E[T[:, 0]] - E[T[:, 2]]

    def loss(x):
        L = x.reshape(3, 3)
        margin = ((far @ L.T) ** 2).sum(1) - ((near @ L.T) ** 2).sum(1)
        return np.logaddexp(0, -margin).sum() + ((L - np.eye(3)) ** 2).sum()

    def slope(x):
        h = 1e-6
        return np.array([(loss(x + h * e) - loss(x - h * e)) / (2 * h) for e in np.eye(9)])

    assert check_grad(loss, slope, found.ravel()) < 1e-4
    assert np.abs(slope(found.ravel())).max() < 2e-3  # stationary


@pytest.mark.parametrize("rows", ["sparse", "strings", "wide"])
def test_other_rows(rows):
    rng = np.random.default_rng(0)
    data = {
        "sparse": sparse.csr_matrix(np.where(rng.random((40, 20)) < 0.3, 1.0, 0.0) + (np.arange(20) == Y[:, None])),
        "strings": ["".join(rng.choice(list("ACD" if c == 0 else "EFG" if c == 1 else "HIK"), 20)) for c in Y],
        "wide": np.hstack([X, rng.normal(size=(40, 400))]),
    }[rows]
    session = drive(mf.ask.Session(data), 25)
    assert session.hints().size > 0


@pytest.mark.parametrize("n", [20_000, 200_000])
def test_a_question_about_many_rows_is_quick(n):
    rng = np.random.default_rng(0)
    y = rng.integers(6, size=n)
    A = rng.normal(size=(n, 64)) + 3 * np.eye(6, 64)[y]
    session = drive(mf.ask.Session(A), 60, y)
    started = time.process_time()
    drive(session, 10, y)
    assert (time.process_time() - started) / 10 < 0.3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mf.ask.Session(X[:3]), "X has 3 rows"),
        (lambda: mf.ask.Session(X, rule="guess"), "rule"),
        (lambda: mf.ask.Session(X, ids=["a"]), "ids has 1 names for the 40 rows"),
        (lambda: mf.ask.Session(X, ids=["a"] * 40), "'a' occurs twice"),
        (lambda: mf.ask.Session(X, ids=-1), "ids must be a list, got -1"),
        (lambda: mf.ask.Session(X, ids=np.eye(40)), "ids must be 1-d"),
        (lambda: mf.ask.Session(X, columns="abc"), "columns must be a list"),
        (lambda: mf.ask.Session(X, held_out="x"), "held_out must be a number"),
        (lambda: mf.ask.Session(X, held_out=0.9), "held_out must be a number of at least 0 and at most 0.5"),
        (lambda: mf.ask.Session(X).answer(mf.ask.Question("pair", (0, 1), "explore"), "yes"), "answer must be 'alike'"),
        (lambda: mf.ask.Session(X).answer(mf.ask.Question("lineup", (0, 1, 2), "explore"), 3), "must be 1 to 2"),
        (lambda: mf.ask.Cards({"a": [1]}, text="b"), "text='b' is no column"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_wilson_intervals_against_scipy():
    from scipy.stats import binomtest

    for right, total in ((0, 5), (3, 7), (40, 40)):
        found = binomtest(right, total).proportion_ci(method="wilson")
        assert wilson(right, total) == pytest.approx((found.low, found.high), abs=2e-4)


def test_uncertain_rows_are_asked_about_when_wanted():
    session = mf.ask.Session(X, select="uncertain", held_out=0)
    drive(session, 40)
    groups = session.groups()
    assert all(len(set(Y[groups == g])) == 1 for g in set(groups[groups >= 0]))
    view = View(np.arange(5), np.array([[0.0], [0.1], [10.0], [10.1], [5.0]]))
    state = Placement(group={0: 0, 1: 0, 2: 1, 3: 1}, members=[[0, 1], [2, 3]])
    near = Nearness.of(View(np.arange(6), np.append(view.E, [[0.2]], axis=0)), state)
    assert near.most_uncertain(np.array([4, 5])) == 4  # in the middle between the groups


def test_stopping_is_not_advised_while_the_metric_moves(monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 3))
    y = np.arange(400) % 3
    rows[:, 0] += 6 * y
    session = mf.ask.Session(rows, held_out=0)
    drive(session, 180, y)
    assert "hardly moves" in session.progress().enough
    monkeypatch.setattr(scores, "MOVED", 0.0)
    assert session.progress().enough == ""
