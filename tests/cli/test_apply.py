"""``metricforge transform``, ``neighbors`` and ``distance``: a saved metric on the rows of a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from metricforge_cases.shell import learn, run

import metricforge as mf
from metricforge.tables import read


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
    found = read("n.csv", extra=["label"])
    assert found.names == ("row", "place", "neighbor", "distance")
    indices, distances = metric.neighbors(X, k=3)
    np.testing.assert_array_equal(found.rows[:, 2].reshape(-1, 3), indices)
    np.testing.assert_array_equal(found.rows[:, 3].reshape(-1, 3), distances)
    _, y = mf.datasets.load("toy")
    labels = np.array(["red", "blue"])[y]
    np.testing.assert_array_equal(found.extra["label"].reshape(-1, 3), labels[indices])
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


def test_the_row_itself_can_be_left_out_and_identifiers_are_shown(here, capsys):
    first, *lines = (here / "toy.csv").read_text().splitlines()
    (here / "named.csv").write_text("\n".join([f"name,{first}", *(f"r{i},{line}" for i, line in enumerate(lines))]))
    (here / "later.csv").write_text("\n".join([f"name,{first}", f"r7,{lines[7]}", f"new,{lines[8]}"]))
    learn_words = ["--label", "class", "--drop", "group", "--method", "krca", "--id", "name", "-o", "n.metric"]
    assert run("learn", "named.csv", *learn_words) == 0
    X, metric = np.load("toy.npy"), mf.load("n.metric")
    indices, distances = metric.neighbors(X, k=3)
    assert (indices[:, 0] == np.arange(100)).all()
    capsys.readouterr()
    for words in ([], ["--id", "name"]):
        assert run("neighbors", "n.metric", "named.csv", "-k", "2", "--exclude-self", "--json", *words) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["indices"] == indices[:, 1:].tolist()
        assert told["distances"] == distances[:, 1:].tolist()
        assert told["neighbor_id"] == [[f"r{i}" for i in row] for row in indices[:, 1:]]
    assert run("neighbors", "n.metric", "later.csv", "-k", "1", "--exclude-self", "--id", "name") == 0
    head, known, new = capsys.readouterr().out.splitlines()
    assert head == "row,place,neighbor,distance,id,label,neighbor_id"
    assert known.startswith(f"0,1,{indices[7, 1]},")
    assert known.endswith(f",r7,{lines[indices[7, 1]].split(',')[-2]},r{indices[7, 1]}")
    assert new.startswith("1,1,8,0,new,")


def test_rows_with_missing_cells_keep_their_numbers(here, capsys, caplog):
    lines = (here / "toy.csv").read_text().splitlines()
    lines[3] = "," + lines[3].partition(",")[2]
    (here / "hole.csv").write_text("\n".join(lines) + "\n")
    words = ["hole.csv", "--label", "class", "--drop", "group", "--method", "krca", "-o", "h.metric"]
    assert run("learn", *words, "--missing", "drop") == 0
    assert "note: 1 row with a missing cell dropped, 99 left\n" in capsys.readouterr().out
    assert run("neighbors", "h.metric", "hole.csv", "-k", "1", "--json") == 0
    assert np.ravel(json.loads(capsys.readouterr().out)["indices"]).tolist() == [0, 1, *range(3, 100)]
    assert caplog.messages == ["hole.csv: 1 row with a missing cell dropped, 99 left"]
    assert run("transform", "h.metric", "hole.csv", "-o", "e.csv") == 0
    assert read("e.csv", extra=["row"]).extra["row"].tolist() == [0, 1, *range(3, 100)]
    capsys.readouterr()
    pairs = ["hole.csv", "--pairs", "pairs.csv", "--drop", "group,class", "--missing", "drop", "-o", "p.metric"]
    assert run("learn", *pairs, "--json") == 0
    report = json.loads(capsys.readouterr().out)["report"]
    i, j = np.loadtxt("pairs.csv", delimiter=",", skiprows=1, dtype=int)[:, :2].T
    assert report["n"] == 99
    assert report["dropped"] >= np.count_nonzero((i == 2) | (j == 2))


def test_identifiers_that_repeat(here, capsys):
    X = np.load("toy.npy")[:40]
    header = ",".join(["name", *(f"x{c}" for c in range(X.shape[1])), "class"])
    lines = [f"n{i // 2},{','.join(map(str, row))},{i % 2}" for i, row in enumerate(X)]
    for file, part in (("pairs.csv", lines), ("part.csv", lines[:10])):
        Path(file).write_text("\n".join([header, *part]) + "\n")
    words = ["pairs.csv", "--label", "class", "--id", "name", "--method", "krca", "-o", "p.metric"]
    assert run("learn", *words, "--folds", "0") == 0
    capsys.readouterr()
    found = ["neighbors", "p.metric", "pairs.csv", "-k", "1", "--exclude-self", "--id", "name", "--json"]
    assert run(*found) == 0
    indices = np.array(json.loads(capsys.readouterr().out)["indices"])[:, 0]
    assert (indices != np.arange(40)).all()
    found[2] = "part.csv"
    assert run(*found) == 2
    assert "'n0' names several training rows" in capsys.readouterr().err


def test_neighbours_report_progress_from_the_start(here, plugged):
    learn("--kernel", "linear", "-o", "toy.metric")
    events = []
    with plugged(step=events.append):
        assert run("neighbors", "toy.metric", "toy.csv", "-k", "3", "-o", "n.csv") == 0
    n = len(np.load("toy.npy"))
    assert events[0].task == f"neighbors of {n} rows among {n}"
    assert events[-1].done
