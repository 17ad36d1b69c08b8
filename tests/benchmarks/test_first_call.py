"""The panel `first-call`: scores by another route, truthful hints, and a table that compares like with like."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

import metricforge as mf
from benchmarks.first_call_gain import BASELINES, Store, baseline, cell_gain, evaluate, metric_scores
from benchmarks.first_call_quick import bits, many_classes
from benchmarks.first_call_scores import voted
from benchmarks.first_call_sets import CHOSEN, HELD_OUT, SETS, USED, cleaned, gauss_corr, table_of
from benchmarks.first_call_splits import KINDS, split_of
from benchmarks.first_call_table import Column, Earlier, found_of, lead_of
from benchmarks.first_call_table import table_of as table_of_panel


@pytest.fixture(scope="module")
def parts():
    X, y = gauss_corr(160, classes=2)  # with two classes five votes have no tie
    return split_of(X, y, "gauss_corr", 0)


def by_sklearn(parts, A, B):
    """Return 1-NN error, 5-NN error and triplet accuracy of coordinates, in per cent."""
    errors = [1 - KNeighborsClassifier(k).fit(A, parts.y).score(B, parts.y_held_out) for k in (1, 5)]
    D = pairwise_distances(B)
    i, j, k = parts.triplets.T
    return [100 * value for value in (*errors, np.mean(D[i, j] < D[i, k]))]


def test_scores_of_standardised_rows_agree_with_scikit_learn(parts):
    scaler = StandardScaler().fit(parts.X)
    expected = by_sklearn(parts, scaler.transform(parts.X), scaler.transform(parts.X_held_out))
    found = baseline("standardised", parts)
    np.testing.assert_allclose([found[name] for name in ("one", "five", "triplets")], expected, atol=1e-9)


def test_scores_of_a_learned_metric_agree_with_scikit_learn_on_its_coordinates(parts):
    metric = mf.learn(parts.X, parts.hints("C"), method="krca", kernel="linear")
    expected = by_sklearn(parts, metric.transform(parts.X), metric.transform(parts.X_held_out))
    found = metric_scores(metric, parts)
    np.testing.assert_allclose([found[name] for name in ("one", "five", "triplets")], expected, atol=1e-9)


def test_a_tie_of_votes_goes_to_the_nearest_of_the_tied():
    np.testing.assert_array_equal(voted(np.array([[3, 1, 1, 2, 2], [0, 2, 2, 2, 0], [4, 3, 2, 1, 0]])), [1, 2, 4])


def test_gain_is_the_mean_of_three_differences():
    base = {"one": 20.0, "five": 10.0, "triplets": 60.0}
    assert cell_gain({"one": 17.0, "five": 11.0, "triplets": 67.0}, base) == pytest.approx(3.0)


@pytest.mark.parametrize("make", [many_classes, bits])
def test_hints_are_true_and_splits_share_no_row(make):
    X, y = cleaned(*make())
    parts = split_of(X, y, "made", 1)
    assert not {row.tobytes() for row in parts.X} & {row.tobytes() for row in parts.X_held_out}
    y = parts.y
    for kind in ("P5", "P1"):
        found = parts.relations(kind)
        assert (y[found["similar"][:, 0]] == y[found["similar"][:, 1]]).all()
        assert (found["similar"][:, 0] != found["similar"][:, 1]).all()
        assert (y[found["dissimilar"][:, 0]] != y[found["dissimilar"][:, 1]]).all()
        assert len(found["similar"]) + len(found["dissimilar"]) == int(kind[1:]) * len(y)
    for triplets, labels in ((parts.relations("T")["triplets"], y), (parts.triplets, parts.y_held_out)):
        i, j, k = triplets.T
        assert (labels[i] == labels[j]).all()
        assert (i != j).all()
        assert (labels[i] != labels[k]).all()
    groups = parts.relations("C")["groups"]
    for group in range(groups.max() + 1):
        members = groups == group
        assert members.sum() >= 2
        assert len(np.unique(y[members])) == 1
    assert np.mean(groups >= 0) == pytest.approx(0.3, abs=0.05)


def test_the_same_name_and_number_give_the_same_split():
    X, y = cleaned(*bits())
    assert split_of(X, y, "made", 1).digest == split_of(X, y, "made", 1).digest
    assert split_of(X, y, "made", 1).digest != split_of(X, y, "made", 2).digest


def test_no_set_on_which_something_was_chosen_is_held_out():
    assert not set(HELD_OUT) & USED
    assert len(HELD_OUT) + len(CHOSEN) == len(SETS) >= 24
    assert len(HELD_OUT) >= 12


def test_cells_that_are_not_numbers_become_columns():
    X, y = table_of(["1.5, red, a", "2.5, blue, b", "3.5, green, a", "4.5, red, b"])
    np.testing.assert_array_equal(X, [[1.5, 0, 0, 1], [2.5, 1, 0, 0], [3.5, 0, 1, 0], [4.5, 0, 0, 1]])
    np.testing.assert_array_equal(y, ["a", "b", "a", "b"])


def test_a_failed_fit_is_a_result(parts):
    def failing(X, hints, seed):
        raise ValueError("no such option")

    assert evaluate(failing, parts, "L", None)["error"] == "ValueError: no such option"


# ---------------------------------------------------------------------------------------------------------------- table

SCORES = {"triplets": 70.0, "ari": 10.0, "seconds": 0.1, "error": ""}


def filled(monkeypatch, **errors):
    """Return a store with (1-NN and 5-NN error of the splits of each set) by column, without any rows."""
    monkeypatch.setattr("benchmarks.first_call_table.digest", lambda name, number: "same")
    store = Store(None)
    for column, sets in errors.items():
        kind = "" if column in BASELINES else "L"
        for name, values in sets.items():
            for number, value in enumerate(values):
                cell = {"error": "not finished", "seconds": 60.0} if value is None else {**SCORES, "one": value}
                store.put({**cell, "five": value}, column, name, kind, str(number), "same")
    return store


def test_a_set_counts_with_the_splits_that_it_has(monkeypatch):
    sets = {"wine": [9.0, 9.0, 6.0], "heart": [9.0, 9.0], "glass": [9.0, None]}
    store = filled(monkeypatch, standardised={name: [12.0] * 3 for name in sets}, other=sets)
    found = found_of(Column("other", store), ["wine", "heart", "glass", "sonar"], "L", 5, store)
    assert found.splits == "2–3"
    assert found.failures == {"glass": "not finished"}
    assert found.by_set == pytest.approx({"wine": 8 / 3, "heart": 2.0})  # two thirds of four and of three points


def test_a_lead_is_measured_on_the_sets_and_splits_of_both(monkeypatch):
    names = ["wine", "heart", "glass"]
    store = filled(
        monkeypatch,
        standardised={"wine": [12.0, 12.0], "heart": [12.0, 12.0], "glass": [12.0, 12.0]},
        first={"wine": [3.0, 12.0], "heart": [6.0, 12.0], "glass": [99.0, 99.0]},
        other={"wine": [6.0], "heart": [12.0]},
    )
    first, other = (found_of(Column(name, store), names, "L", 5, store) for name in ("first", "other"))
    lead = lead_of(first, other, store)
    assert lead is not None
    assert lead.sets == 2
    assert lead.first == pytest.approx(5.0)  # two thirds of 9 and 6: the second split and glass do not count
    assert lead.ahead == pytest.approx(3.0)
    assert lead.error == pytest.approx(1.0)


def test_a_store_reads_what_a_stopped_run_left(tmp_path: Path):
    path = tmp_path / "cells.jsonl"
    Store(path).put({"one": 1.0, "error": ""}, "a", "b")
    with path.open("a") as out:
        out.write(json.dumps({"key": ["c"], "one": 2.0})[:12])
    assert Store(path).cells == {("a", "b"): {"one": 1.0, "error": ""}}


def test_every_kind_of_hint_reaches_the_learner(parts):
    assert [type(parts.hints(kind)).__name__ for kind in KINDS] == ["Labels", "Pairs", "Pairs", "Triplets", "Chunklets"]


def test_peers_of_an_earlier_table_are_compared_on_its_sets_and_splits(monkeypatch, tmp_path):
    names = ["wine", "heart", "glass"]
    ours = {"wine": [9.0, 3.0], "heart": [9.0, 3.0], "glass": [9.0, 3.0]}
    store = filled(monkeypatch, standardised={name: [12.0] * 2 for name in names}, ours=ours)
    first = Column("ours", store)
    plain = table_of_panel(names, ["L"], 2, first, [], store, 60)
    row = dict.fromkeys(plain.columns, "") | {"half": "chosen", "hints": "L", "metric": "peer", "splits": "1"}
    gains = {"peer": {"L": {"wine": 1.0, "heart": 0.0}}}
    path = tmp_path / "earlier.json"
    path.write_text(json.dumps({"rows": [row, row | {"metric": "other"}], "details": {"gains": gains}}))
    table = table_of_panel(names, ["L"], 2, first, [], store, 60, Earlier.of(path, ["peer", "ours"]))
    assert len(table.rows) == len(plain.rows) + 1  # "other" is not asked for
    found = dict(zip(table.columns, table.rows[-1], strict=True))
    assert (found["metric"], found["splits"]) == ("peer", "1, earlier")
    assert found["mf.learn there"] == "+2.0 (2)"  # the first split only
    assert found["mf.learn ahead by"] == "+1.5 ± 0.5"
    assert table.details["gains"]["peer"] == gains["peer"]
