"""Features that idealized's paper may have learned from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from metricforge_papers import defaults, idealized, prepared
from metricforge_papers.experiment import Run
from metricforge_papers.printed import printed
from metricforge_papers.result import Result
from metricforge_papers.verdict import Cell
from sklearn.metrics import rand_score

import metricforge as mf

RESULTS = Path(__file__).parents[3] / "docs" / "results"


@pytest.mark.parametrize(
    ("row", "wrong", "rows"),
    [("colon, linear", 8, 62), ("colon, rbf", 6, 62), ("lymphoma, linear", 11, 96), ("lymphoma, rbf", 11, 96)],
)
def test_the_papers_errors_of_k_means_are_whole_numbers_of_rows(row, wrong, rows):
    error = 100 * wrong * (rows - wrong) / (rows * (rows - 1) / 2)
    assert round(error, 2) == printed("idealized", "table3").measures["clustering error %"].mean(row, "Euclidean")


@pytest.mark.parametrize(("name", "train", "least"), [("colon", 50, 10), ("lymphoma", 60, 8)])
def test_the_steps_find_what_the_paper_prints_before_learning(data_folder, name, train, least):
    X, y = mf.datasets.load(name)
    found = prepared.before_learning(prepared.prepare(X, prepared.FOUND[name]), y, train, range(50))
    aim = prepared.aims(name)
    assert prepared.hits(found, aim) == least
    for kernel in prepared.KERNELS:
        at = f"{prepared.CLUSTERS}, {kernel}"
        assert [round(found[at][0], 2)] == aim[at]
    raw = prepared.before_learning(X, y, train, range(50))
    assert prepared.hits(raw, aim) <= 1


def test_the_start_is_not_that_of_soybean(data_folder):
    X, y = mf.datasets.load("soybean_small")
    assert rand_score(y, prepared.class_means(X, y)) == 1
    assert printed("idealized", "table3").measures["clustering error %"].mean("soybean, linear", "Euclidean") == 16.37


def test_sequences_of_steps(rng):
    X = np.exp(rng.normal(size=(8, 5)))
    steps = prepared.sequences(X)
    assert len(steps) == len(set(steps)) == 30
    assert len(prepared.sequences(X - 2)) == 15
    np.testing.assert_array_equal(prepared.prepare(X, prepared.RAW), X)
    Z = prepared.prepare(X, "logarithms, rows, columns")
    np.testing.assert_allclose(Z, prepared.standardised(prepared.rows_standardised(np.log(X))))


def test_what_counts_as_found():
    aim = {"1-NN error %, linear": [10.0, 30.0], "k-means error %, linear": [22.85]}
    found = {"1-NN error %, linear": [8.0, 11.0, 10.0, 12.0], "k-means error %, linear": [22.845]}
    assert prepared.hits(found, aim) == 2
    assert prepared.hits({**found, "k-means error %, linear": [22.0]}, aim) == 1


@pytest.mark.parametrize("name", ["table2", "table3"])
def test_the_published_tables_have_them(name):
    result = Result.from_dict(json.loads((RESULTS / f"idealized-{name}.json").read_text()))
    columns = {cell.column for cell in result.cells}
    assert {f"Euclidean, {idealized.AS_FOUND}", f"learned, {idealized.AS_FOUND}", idealized.OURS_FOUND} <= columns
    if name == "table2":
        assert "“logarithms, rows, columns” find 10 of 10" in prepared.sentence(result.cells)


@pytest.mark.parametrize("name", ["table2", "table3"])
def test_its_default_names_the_method_and_nothing_else(name, monkeypatch, rng):
    """Colon is drawn here, in a table of one set; the last fit before each number is the one that it comes from."""
    X, y = np.exp(rng.normal(size=(62, 6))), np.repeat([0, 1], (22, 40))
    fits, seen = [], []
    learn = defaults.learn

    def listening(X, hints, **options):
        fits.append(set(options))
        return learn(X, hints, **options)

    class Listening(Run):
        def add(self, measure, row, column, value):
            seen.append((column, fits[-1]))
            super().add(measure, row, column, value)

    monkeypatch.setattr(defaults, "learn", listening)
    monkeypatch.setattr(idealized, "learn", listening)
    monkeypatch.setattr(idealized, "jobs", lambda run: [("colon", "linear", 0)])
    monkeypatch.setattr(idealized.datasets, "load", lambda name, **_: mf.datasets.Dataset(name, X, y, "", ""))
    getattr(idealized, name)(Listening("idealized", name, 1, quick=True))
    ours = [options for column, options in seen if column == idealized.OURS_FOUND]
    assert ours
    assert all(options == {"method", "seed"} for options in ours)


def test_gains_are_over_the_baseline_of_the_same_features():
    def cell(column, ours, variant=""):
        return Cell("error %", "colon, linear", column, ours, 1.0, 50, 17.08, variant=variant)

    cells = (
        cell("Euclidean", 20.0),
        cell("learned", 19.0, "tuning"),
        cell("Euclidean, as found", 28.0),
        cell("learned, as found", 21.0, "tuning, as found"),
        cell("learned, our default, as found", 22.0, "our default, as found"),
    )
    result = Result("idealized", "table2", 50, 0, "command", "protocol", cells)
    gains = {v.variant: v.gain for v in result.verdicts()}
    assert gains == {"tuning": 1, "tuning, as found": 7, "our default, as found": 6}
