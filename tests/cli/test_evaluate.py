"""``metricforge evaluate``, ``info`` and what ``learn`` prints about rows held out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from metricforge_cases.shell import run
from sklearn.metrics import balanced_accuracy_score

import metricforge as mf
from metricforge.tasks import classify, held_out

HINT = ("--label", "class", "--method", "krca", "--kernel", "linear", "--option", "epsilon=0")


@pytest.fixture
def wines(tmp_path, monkeypatch):
    """Wine in two files, one to learn from and one that comes later."""
    monkeypatch.chdir(tmp_path)
    X, y = mf.datasets.load("wine")
    order = np.random.default_rng(0).permutation(len(X))
    head = ",".join([*(f"x{c}" for c in range(13)), "class"])
    for name, rows in (("old.csv", order[:120]), ("new.csv", order[120:])):
        lines = [",".join(map(repr, [*X[r].tolist(), f"grower {y[r]}"])).replace("'", "") for r in rows]
        (tmp_path / name).write_text("\n".join([head, *lines]) + "\n")
    return X[order], np.array([f"grower {label}" for label in y])[order]


def test_learn_scores_rows_that_it_held_out(wines, capsys):
    assert run("learn", "old.csv", *HINT, "--report", "r.html") == 0
    out = capsys.readouterr().out
    X, y = wines

    def fit(A, part):
        return mf.learn(A, part, method="krca", kernel="linear", epsilon=0.0)

    score, balanced = held_out(X[:120], mf.Labels(y[:120]), fit)
    assert "on rows held out, 5 folds" in out
    assert f"{100 * score.before:.1f} ± {100 * score.error[0]:.1f} %" in out
    assert f"{100 * score.after:.1f} ± {100 * score.error[1]:.1f} %" in out
    assert re.search(rf"^balanced accuracy.* {100 * balanced.after:.1f} ± ", out, re.M)
    assert "on the rows learned from" not in out
    assert mf.load("old.metric").report.held_out_scores == (score.as_dict(), balanced.as_dict())
    page = Path("r.html").read_text().replace("\u00a0", " ")
    assert f"{100 * score.after:.1f} ± {100 * score.error[1]:.1f} %" in page
    assert "on rows held out (5 folds)" in page
    assert run("learn", "old.csv", *HINT, "--folds", "0", "-o", "none.metric", "--report", "r.html") == 0
    assert "on the rows learned from" in capsys.readouterr().out
    assert "on the rows learned from" in Path("r.html").read_text()
    assert run("learn", "old.csv", *HINT, "--folds", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["held_out"][0]["folds"] == 2


def test_evaluate_on_a_later_file(wines, capsys):
    assert run("learn", "old.csv", *HINT) == 0
    capsys.readouterr()
    assert run("evaluate", "old.metric", "new.csv", "--label", "class", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    X, y = wines
    metric = mf.load("old.metric")
    right = [line for line in told["scores"] if line["what"].startswith("rows classified right")]
    for line, k in zip(right, (1, 5), strict=True):
        assert line["after"] == np.mean(classify(metric, y[:120], X[120:], k=k).labels == y[120:])
        assert line["after"] > line["before"]
    fair = [
        line["after"] for line in told["scores"] if line["what"].startswith("balanced accuracy of the nearest training")
    ]
    guesses = metric.neighbors(X[120:], k=1)[0][:, 0]
    assert fair == [pytest.approx(balanced_accuracy_score(y[120:], y[:120][guesses]))]
    assert told["notes"] == []
    assert run("evaluate", "old.metric", "old.csv", "--label", "class") == 0
    out = capsys.readouterr().out
    assert "note: these are the rows that the metric was learned from" in out
    assert "±" in out
    pairs = mf.Pairs.from_labels(y[120:], n_pairs=60, seed=0)
    signed = [(*p, 1) for p in pairs.similar] + [(*p, 0) for p in pairs.dissimilar]
    Path("pairs.csv").write_text("i,j,similar\n" + "".join(f"{i},{j},{s}\n" for i, j, s in signed))
    assert run("evaluate", "old.metric", "new.csv", "--pairs", "pairs.csv", "--json") == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert len(scores) == 6  # two sides of pairs, and four scores of a ranking


@pytest.mark.parametrize("by", ["distance", "kernel"])
def test_evaluate_prints_the_scores_of_rankings(wines, capsys, by):
    X, y = wines
    assert run("learn", "old.csv", *HINT) == 0
    triplets = mf.Triplets.from_labels(y[120:], n_triplets=40, seed=0)
    Path("t.csv").write_text("i,j,k\n" + "".join(f"{i},{j},{k}\n" for i, j, k in triplets.triples))
    capsys.readouterr()
    assert run("evaluate", "old.metric", "new.csv", "--triplets", "t.csv", "--by", by, "--json") == 0
    told = {line["what"].split()[0]: line for line in json.loads(capsys.readouterr().out)["scores"]}
    metric = mf.load("old.metric")
    queries = sorted({int(i) for i in triplets.triples[:, 0]})
    relevant = [sorted({int(j) for i, j, _ in triplets.triples if i == q}) for q in queries]
    for side, scorer in (("before", metric.start), ("after", metric)):
        expected = mf.tasks.retrieval_scores(scorer, X[120:], queries, relevant, k=10, by=by)
        assert told["nDCG@10"][side] == pytest.approx(expected.ndcg)
        assert told["MRR@10"][side] == pytest.approx(expected.mrr)
    assert by in told["recall@10"]["what"]
    assert run("evaluate", "old.metric", "new.csv", "--triplets", "t.csv", "--by", by) == 0
    assert "nDCG@10" in capsys.readouterr().out


def test_info_says_what_a_file_holds(wines, capsys):
    assert run("learn", "old.csv", *HINT) == 0
    capsys.readouterr()
    assert run("info", "old.metric") == 0
    out = capsys.readouterr().out
    for said in (
        "krca",
        "optimal",
        "residual",
        "120",
        "class (3 classes)",
        "numbers as they are",
        "held out",
        "format",
    ):
        assert said in out
    assert run("info", "old.metric", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["method"], told["rows"], told["features"], told["format"]) == ("krca", 120, 13, 3)
    assert told["held_out"][0]["folds"] == 5
    mf.learn(*[part[:50] for part in wines], method="krca").save("python.metric")
    assert run("info", "python.metric", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["format"], told["columns"], told["held_out"]) == (2, [], [])


def test_too_few_hints_to_hold_some_out_are_said(wines, capsys):
    Path("pairs.csv").write_text("i,j,similar\n0,1,1\n")
    assert run("learn", "old.csv", "--pairs", "pairs.csv", "--drop", "class", "--method", "krca") == 0
    out = capsys.readouterr().out
    assert "note: no rows were held out: there are too few hints to learn from the others" in out
    assert "on the rows learned from" in out


def test_of_many_rows_some_are_classified(wines, capsys, monkeypatch):
    from metricforge.cli import evaluate

    assert run("learn", "old.csv", *HINT, "-o", "w.metric") == 0
    monkeypatch.setattr(evaluate, "CLASSIFIED", 30)
    capsys.readouterr()
    assert run("evaluate", "w.metric", "old.csv", "--label", "class", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert "30 rows, drawn at random, were classified" in told["notes"][0]
    assert told["scores"][0]["after"] == 1.0  # each row is its own nearest
