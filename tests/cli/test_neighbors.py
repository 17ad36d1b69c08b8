"""Neighbours in the shell: among many rows approximately, with a line that says so, and by what the method ranks."""

from __future__ import annotations

import json

import numpy as np
import pytest
from metricforge_cases.shell import run

import metricforge as mf
from metricforge.cli import neighbors as searching


@pytest.fixture
def many(tmp_path, monkeypatch):
    """A table of rows, and a metric learned from it, in the current folder."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    n = 6000
    X = rng.normal(size=(n, 9))
    y = (X[:, 0] > 0).astype(int)
    lines = [
        ",".join(f"{v:.4f}" for v in row) + f",{'ab'[c]},r{i}" for i, (row, c) in enumerate(zip(X, y, strict=True))
    ]
    header = ",".join([*(f"x{c}" for c in range(9)), "kind", "name"])
    (tmp_path / "t.csv").write_text("\n".join([header, *lines]) + "\n")
    words = ["--label", "kind", "--id", "name", "--method", "krca", "--kernel", "linear", "--folds", "0"]
    assert run("learn", "t.csv", *words, "-o", "t.metric") == 0


@pytest.fixture
def told(capsys, caplog):
    """Run a command; return its JSON and what it logs."""

    def run_it(*words):
        capsys.readouterr()
        caplog.clear()
        assert run(*words, "--json") == 0
        return json.loads(capsys.readouterr().out), caplog.text

    return run_it


@pytest.mark.usefixtures("many")
def test_few_rows_are_compared_with_all(told):
    found, said = told("neighbors", "t.metric", "t.csv", "-k", "3", "--id", "name", "--exclude-self")
    assert found["recall"] == 1
    assert "approximate" not in said
    metric = mf.load("t.metric")
    expected = metric.neighbors(metric.rows, 4)[0][:, 1:]
    np.testing.assert_array_equal(found["indices"], expected)


@pytest.mark.usefixtures("many")
def test_many_rows_are_searched_by_cells_and_the_shell_says_so(told, monkeypatch):
    exact, _ = told("neighbors", "t.metric", "t.csv", "-k", "5", "--id", "name", "--exclude-self")
    monkeypatch.setattr("metricforge.neighbors.api.CELLS_SECONDS", 0.0)
    words = ["neighbors", "t.metric", "t.csv", "-k", "5", "--id", "name", "--exclude-self"]
    found, said = told(*words, "--recall", "0.8")
    assert 0.75 < found["recall"] < 1
    percent = f"{100 * found['recall']:.0f} %"
    assert f"approximate: about {percent} of the nearest rows were found; --recall 1 compares every pair" in said
    same = [len(set(a) & set(b)) / 5 for a, b in zip(found["indices"], exact["indices"], strict=True)]
    assert np.mean(same) == pytest.approx(found["recall"], abs=0.06)
    assert all(i not in row for i, row in enumerate(found["indices"]))
    again, said = told(*words, "--recall", "1")
    assert again == exact
    assert "approximate" not in said


@pytest.mark.usefixtures("many")
def test_classes_by_cells_are_nearly_those_by_all_pairs(told, monkeypatch):
    exact, _ = told("classify", "t.metric", "t.csv")
    monkeypatch.setattr("metricforge.neighbors.api.CELLS_SECONDS", 0.0)
    found, said = told("classify", "t.metric", "t.csv", "--recall", "0.8")
    assert "approximate: about 8" in said
    assert np.mean(np.array(found["class"]) == np.array(exact["class"])) > 0.97


def test_an_embedding_that_is_not_exact_only_proposes_candidates(monkeypatch):
    X, y = mf.datasets.load("wine")
    metric = mf.learn(X, y, method="krca", kernel=mf.kernels.Laplacian(1e-3), rank=40)
    args = type("Typed", (), {"recall": 0.95, "scheduler": None})
    assert not metric.embedding_is_exact
    assert searching.search_for(metric, X, args) == "auto"
    monkeypatch.setattr(searching, "EXACT_NEIGHBORS", 100)
    method = searching.search_for(metric, X, args)
    assert isinstance(method, searching.CommandSearch)
    found = metric.neighbors(X, 3, method=method)
    np.testing.assert_allclose(found[1][:, 1:], metric.neighbors(X, 3)[1][:, 1:], rtol=0.2)
    args.recall = 1.5
    with pytest.raises(mf.errors.InputError, match="--recall"):
        searching.search_for(metric, X, args)


def test_rows_are_ranked_by_what_the_method_learned(tmp_path, monkeypatch, told):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 4)) * rng.uniform(0.2, 3, size=(40, 1))  # rows of unequal length
    triplets = mf.Triplets.from_labels((X[:, 0] > 0).astype(int), n_triplets=200, seed=0)
    np.save("X.npy", X)
    np.savetxt("t.csv", triplets.triples, fmt="%d", delimiter=",", header="i,j,k", comments="")
    metric = mf.learn(X, triplets, method="relevance")
    metric.save("r.metric")
    assert metric.report.ranks_by == "kernel"
    assert mf.load("r.metric").report.ranks_by == "kernel"
    found, _ = told("neighbors", "r.metric", "X.npy", "-k", "3")
    indices, values = metric.neighbors(X, 3, by="kernel")
    np.testing.assert_array_equal(found["indices"], indices)
    np.testing.assert_allclose(found["kernel"], values)
    near, _ = told("neighbors", "r.metric", "X.npy", "-k", "3", "--by", "distance")
    np.testing.assert_array_equal(near["indices"], metric.neighbors(X, 3)[0])
    assert near["indices"] != found["indices"]
    scores, _ = told("evaluate", "r.metric", "X.npy", "--triplets", "t.csv")
    assert any("ranked by kernel" in line["what"] for line in scores["scores"])
    index, _ = told("index", "r.metric", "X.npy", "-k", "3", "--recall", "1", "--folder", "r.index")
    np.testing.assert_array_equal(index["indices"], indices)
    assert told("info", "r.metric")[0]["ranks rows by"] == "kernel"
    euclidean = mf.learn(X, triplets, method="euclidean")
    assert euclidean.report.ranks_by == "distance"
    with pytest.raises(mf.errors.InputError, match="ranks_by='score' is unknown"):
        mf.Method(constraint=mf.Triplets, kernel=mf.kernels.Linear(), solver=euclidean.solver, ranks_by="score")
