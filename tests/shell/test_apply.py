"""``metricforge transform``, ``neighbors`` and ``distance``: a saved metric on the rows of a file."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from metricforge_cases.shell import learn, run

import metricforge as mf
from metricforge.files import read


def test_a_metric_without_rows_says_where_to_search(here, capsys):
    metric = mf.load("python.metric")
    replace(metric, rows=None).save("bare.metric")
    assert run("neighbors", "bare.metric", "toy.npy") == 2
    assert "name their file with --among FILE" in capsys.readouterr().err
    assert run("neighbors", "bare.metric", "toy.npy", "-k", "1", "--among", "toy.npy", "-o", "n.npy") == 0
    np.testing.assert_array_equal(np.load("n.npy")[:, 2], np.arange(100))


def test_a_saved_metric_on_new_rows_gives_what_python_gives(here, capsys):
    learn("--kernel", "linear", "-o", "toy.metric")
    metric, X = mf.load("toy.metric"), np.load("toy.npy")
    capsys.readouterr()

    assert run("transform", "toy.metric", "toy.csv", "-o", "e.csv") == 0  # the label columns do no harm
    np.testing.assert_array_equal(read("e.csv").rows, metric.transform(X))
    assert run("transform", "toy.metric", "bare.csv", "-o", "e.npy") == 0
    np.testing.assert_array_equal(np.load("e.npy"), metric.transform(X))

    capsys.readouterr()
    assert run("neighbors", "toy.metric", "toy.csv", "-k", "3") == 0
    (here / "n.csv").write_text(capsys.readouterr().out)
    found = read("n.csv")
    assert found.names == ("row", "place", "neighbor", "distance")
    indices, distances = metric.neighbors(X, k=3)
    np.testing.assert_array_equal(found.rows[:, 2].reshape(-1, 3), indices)
    np.testing.assert_array_equal(found.rows[:, 3].reshape(-1, 3), distances)
    assert run("neighbors", "toy.metric", "toy.csv", "-k", "3", "--json") == 0
    assert json.loads(capsys.readouterr().out)["indices"] == indices.tolist()

    assert run("distance", "toy.metric", "toy.csv", "bare.csv", "-o", "d.npy") == 0
    np.testing.assert_array_equal(np.load("d.npy"), metric.distance(X, X))
    capsys.readouterr()
    assert run("distance", "toy.metric", "toy.csv", "toy.npy", "--paired", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"distances": metric.paired_distance(X, X).tolist()}
    assert run("distance", "toy.metric", "toy.csv") == 0
    assert capsys.readouterr().out.startswith("0,1,2,3")


def test_a_metric_saved_in_python_takes_the_columns_as_they_come(here, capsys):
    assert run("transform", "python.metric", "bare.csv", "-o", "e.npy", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"written": "e.npy", "shape": [100, 11]}
