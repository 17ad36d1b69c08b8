"""``metricforge classify``, ``cluster`` and ``match``."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from metricforge_cases.shell import learn, run

import metricforge as mf
from metricforge.tables import read
from metricforge.tasks import calibrate, candidates, classify, constrained_kmeans


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_classify_by_the_training_rows(here, capsys):
    learn("--kernel", "linear", "-o", "toy.metric")
    X, metric = np.load("toy.npy"), mf.load("toy.metric")
    y = metric.origin.labels_of(np.arange(100))
    found = classify(metric, y, X, k=3)
    capsys.readouterr()
    assert run("classify", "toy.metric", "toy.csv", "-k", "3") == 0
    lines = table(capsys.readouterr().out)
    assert list(lines[0]) == ["row", "nearest", "p(blue)", "p(red)", "class"]
    assert [line["class"] for line in lines] == found.labels.tolist()
    shares = [[float(line[f"p({c})"]) for c in ("blue", "red")] for line in lines]
    np.testing.assert_allclose(shares, found.probabilities)
    assert run("classify", "toy.metric", "toy.csv", "-k", "3", "-o", "c.npy") == 0
    np.testing.assert_allclose(np.load("c.npy")[:, 2:], found.probabilities)
    capsys.readouterr()
    assert run("classify", "toy.metric", "toy.csv", "--radius", "1e-12", "--json") == 0
    assert set(json.loads(capsys.readouterr().out)["class"]) == set(y.tolist())  # each row is its own nearest
    np.save("far.npy", X + 1e3)
    assert run("classify", "toy.metric", "far.npy", "--radius", "1", "--json") == 0
    assert set(json.loads(capsys.readouterr().out)["class"]) == {"none of these"}


def test_labels_of_the_rows_that_vote_may_be_a_file(here, capsys):
    X, y = np.load("toy.npy"), np.arange(100) % 2
    mf.learn(X, y, method="euclidean").save("plain.metric")
    np.save("votes.npy", y)
    capsys.readouterr()
    assert run("classify", "plain.metric", "toy.npy", "--among", "toy.npy", "--label", "votes.npy", "-k", "1") == 0
    assert [int(line["class"]) for line in table(capsys.readouterr().out)] == y.tolist()
    assert run("classify", "plain.metric", "toy.npy", "--among", "toy.npy", "--label", "kind") == 2
    assert "has no column 'kind'" in capsys.readouterr().err


def test_the_learned_radius_says_none_of_these(here, capsys):
    assert run("learn", "toy.csv", "--label", "class", "--drop", "group", "--method", "kcr", "-o", "k.metric") == 0
    radius = mf.load("k.metric").report.radius
    np.save("far.npy", np.load("toy.npy")[:5] + 1e3)
    capsys.readouterr()
    assert run("classify", "k.metric", "far.npy", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    distance = mf.load("k.metric").neighbors(np.load("far.npy"), 1)[1][:, 0]
    assert [c == "none of these" for c in told["class"]] == (distance > radius).tolist()
    assert run("classify", "k.metric", "far.npy", "--radius", "none", "--json") == 0
    assert "none of these" not in json.loads(capsys.readouterr().out)["class"]


def test_classify_by_the_kernel_rule(here, capsys):
    learned = run("learn", "toy.csv", "--label", "class", "--drop", "group", "--method", "kcr", "-o", "k.metric")
    assert learned == 0
    X, metric = np.load("toy.npy"), mf.load("k.metric")
    y = metric.origin.labels_of(np.arange(100))
    Z = metric.transform(X)
    D = np.sqrt(((Z[:, None] - Z[None]) ** 2).sum(axis=2))
    radius = 0.5 * np.median(D)
    weights = np.exp(-((D / radius) ** 2))
    votes = np.column_stack([weights[:, y == c].sum(axis=1) for c in ("blue", "red")])
    capsys.readouterr()
    words = ["classify", "k.metric", "toy.csv", "--rule", "kernel", "--json"]
    assert run(*words, "--radius", str(radius), "--window", "gaussian") == 0
    told = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(told["probabilities"], votes / votes.sum(axis=1, keepdims=True), atol=1e-6)
    np.save("far.npy", X[:5] + 1e3)
    assert run("classify", "k.metric", "far.npy", "--rule", "kernel", "--radius", str(radius), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    beyond = metric.neighbors(X[:5] + 1e3, 1)[1][:, 0] > radius
    assert [c == "none of these" for c in told["class"]] == beyond.tolist()
    assert run(*words) == 0  # with the radius that was learned
    told = json.loads(capsys.readouterr().out)["class"]
    expected = mf.tasks.KernelRule(metric).fit(X, y).predict(X)
    assert told == expected.tolist()
    learn("--kernel", "linear", "-o", "toy.metric")
    for wrong, message in (
        (["k.metric", "toy.csv", "--window", "gaussian"], "--window belongs to --rule kernel"),
        (["toy.metric", "toy.csv", "--rule", "kernel"], "learned none: give --radius NUMBER"),
    ):
        assert run("classify", *wrong) == 2
        assert message in capsys.readouterr().err


def test_a_radius_of_zero_that_was_learned_leaves_nothing_out(here, capsys):
    run("learn", "toy.csv", "--label", "class", "--drop", "group", "--method", "kcr", "-o", "k.metric")
    mf.load("k.metric").with_facts(radius=0.0).save("zero.metric")
    np.save("near.npy", np.load("toy.npy")[:20] + 0.01)
    for rule in ("neighbors", "kernel"):
        capsys.readouterr()
        assert run("classify", "zero.metric", "near.npy", "--rule", rule, "--json") == 0
        assert "none of these" not in json.loads(capsys.readouterr().out)["class"]


def test_other_rows_may_vote(here, capsys):
    learn("--kernel", "linear", "-o", "toy.metric")
    capsys.readouterr()
    assert run("classify", "toy.metric", "bare.csv", "--among", "toy.csv", "--label", "group", "-k", "1", "--json") == 0
    _, y = mf.datasets.load("toy")
    assert json.loads(capsys.readouterr().out)["class"] == y.tolist()


def test_cluster_with_and_without_a_number(here, capsys):
    learn("--kernel", "linear", "-o", "toy.metric")
    metric = mf.load("toy.metric")
    Z = metric.transform(np.load("toy.npy"))
    capsys.readouterr()
    assert run("cluster", "toy.metric", "toy.csv", "-k", "3", "--json") == 0
    assert json.loads(capsys.readouterr().out)["clusters"] == constrained_kmeans(Z, 3).labels.tolist()
    assert run("cluster", "toy.metric", "toy.csv", "-o", "c.csv") == 0
    out = capsys.readouterr().out
    assert "silhouette" in out
    np.testing.assert_array_equal(read("c.csv").rows[:, 0], np.arange(100))
    assert run("cluster", "toy.metric", "bare.csv", "-k", "2", "--pairs", "pairs.csv", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    i, j, similar = np.loadtxt("pairs.csv", delimiter=",", skiprows=1, dtype=int).T
    labels = np.array(told["clusters"])
    assert (labels[i] == labels[j])[similar == 1].all()
    assert np.count_nonzero((labels[i] == labels[j]) & (similar != 1)) == told["violated"]


@pytest.fixture
def records(tmp_path, monkeypatch):
    """Records of mixed columns, each written twice, with pairs to learn from and pairs to calibrate on."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    size, place = rng.normal(size=(80, 3)), rng.integers(4, size=80)
    lines = []
    for copy in range(2):
        for r in range(80):
            cells = [f"{v + 0.1 * copy * rng.normal():.4f}" for v in size[r]]
            lines.append(f"r{copy * 80 + r},{','.join(cells)},town {place[r]}")
    (tmp_path / "records.csv").write_text("\n".join(["id,a,b,c,town", *lines]) + "\n")
    wrong = rng.integers(80, size=(200, 2))
    wrong = wrong[wrong[:, 0] != wrong[:, 1]]
    right = np.column_stack([np.arange(80), 80 + np.arange(80)])
    for name, same, other in (("old.csv", right[:40], wrong[:80]), ("new.csv", right[40:], wrong[80:])):
        text = "".join(f"{i},{j},{s}\n" for part, s in ((same, 1), (other, 0)) for i, j in part)
        (tmp_path / name).write_text("i,j,similar\n" + text)
    return right


@pytest.mark.usefixtures("records")
def test_match_warns_where_different_pairs_are_all_far_apart(caplog, capsys):
    assert run("learn", "records.csv", "--pairs", "old.csv", "--id", "id", "--method", "krca", "-o", "m.metric") == 0
    words = ["match", "m.metric", "records.csv", "--pairs", "new.csv", "--confidence", "0", "--json"]
    assert run(*words) == 0
    assert "as near as the candidates" not in caplog.text
    capsys.readouterr()
    assert run(*words, "-k", "1") == 0
    coverage = json.loads(capsys.readouterr().out)["coverage"]
    assert coverage < 0.1
    assert f"only {100 * coverage:.0f} % of the pairs given as different are as near as the candidates" in caplog.text


def test_match_lists_the_records_that_are_the_same(records, capsys):
    assert run("learn", "records.csv", "--pairs", "old.csv", "--id", "id", "--method", "krca", "-o", "m.metric") == 0
    capsys.readouterr()
    assert run("match", "m.metric", "records.csv", "--pairs", "new.csv", "--id", "id", "--precision", "0.9") == 0
    lines = table(capsys.readouterr().out)
    assert list(lines[0]) == ["i", "j", "distance", "probability", "id_i", "id_j"]
    found = {(int(line["i"]), int(line["j"])) for line in lines}
    truth = {tuple(pair) for pair in records.tolist()}
    assert len(found & truth) >= 0.9 * len(truth)
    assert all(line["id_i"] == f"r{line['i']}" for line in lines)
    assert [float(line["distance"]) for line in lines] == sorted(float(line["distance"]) for line in lines)
    assert run("match", "m.metric", "records.csv", "--pairs", "new.csv", "-o", "m.csv") == 2  # 40 pairs are too few
    assert "judge more pairs (at least 59" in capsys.readouterr().err
    assert run("match", "m.metric", "records.csv", "--pairs", "new.csv", "--confidence", "0.8", "-o", "m.csv") == 0
    assert "of the pairs given as the same" in capsys.readouterr().out
    assert run("match", "m.metric", "records.csv", "--pairs", "new.csv", "--confidence", "0", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    metric = mf.load("m.metric")
    i, j, s = np.loadtxt("new.csv", delimiter=",", skiprows=1, dtype=int).T
    given = np.column_stack([i, j])
    known = calibrate(metric, metric.rows, mf.Pairs(given[s == 1], given[s == 0], n=160))
    limit = known.threshold(0.95, confidence=None)
    pairs, distances = candidates(metric, k=10)
    assert told["threshold"] == limit
    assert told["pairs"] == pairs[distances <= limit].tolist()
