"""``metricforge learn``: hints, methods, kernels, and what it says about the table."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from metricforge_cases.shell import learn, run

import metricforge as mf
from metricforge.cli import program as cli
from metricforge.constraints import Satisfied
from metricforge.rows import checking


def test_learn_from_labels_says_what_changed_and_saves(here, capsys):
    typed = ["learn", "toy.csv", "--label", "class", "--drop", "group", "--method", "auto", "--kernel", "linear"]
    assert run(*typed, "-o", "toy.metric", "--report", "report.html") == 0
    out, err = capsys.readouterr()
    assert "100 labels in 2 classes (the largest 50.0 %) over 100 rows of 11 features" in out
    assert "rows whose nearest other row is of their class" in out
    assert "metricforge neighbors toy.metric toy.csv" in out
    assert "\r" not in err  # no progress bar outside a terminal
    metric = mf.load("toy.metric")
    assert metric.report.choice in out
    assert metric.report.columns == tuple(f"f{i}" for i in range(11))
    page = (here / "report.html").read_text()
    assert "metricforge learn toy.csv --label class" in page
    assert "toy.csv" in page


def test_rows_are_checked_relations_counted_and_the_width_resolved_once(here, monkeypatch, capsys):
    """More rows than a picture shows, so that a check of all rows is told from one of a sample."""
    n = 1200
    X = np.random.default_rng(0).normal(size=(n, 3))
    lines = [",".join(map(str, row)) + f",{int(row[0] > 0)}" for row in X]
    (here / "many.csv").write_text("\n".join(["a,b,c,class", *lines]))
    calls: list[str] = []

    def counted(owner, name, label, when=lambda *_: True):
        original = getattr(owner, name)

        def call(*args, **options):
            if when(*args):
                calls.append(label if isinstance(label, str) else label(*args))
            return original(*args, **options)

        monkeypatch.setattr(owner, name, call)

    counted(checking, "_check_finite", "rows checked", lambda rows, *_: len(rows) == n)

    def under(_, distances):
        start = isinstance(distances.kernel, mf.kernels.RBF)
        return "relations counted under the start" if start else "relations counted under the learned metric"

    counted(mf.Labels, "satisfied", under)
    counted(mf.kernels.RBF, "resolve", "width resolved", lambda kernel, *_: isinstance(kernel.gamma, str))
    typed = ["learn", "many.csv", "--label", "class", "--method", "krca", "--kernel", "rbf", "--folds", "0"]
    assert run(*typed, "-o", "many.metric", "--report", "many.html") == 0
    capsys.readouterr()
    # two metrics, each of which satisfies relations of its own
    relations = ["relations counted under the learned metric", "relations counted under the start"]
    assert sorted(calls) == [*relations, "rows checked", "width resolved"]


@pytest.mark.parametrize(
    ("words", "method"),
    [
        (["toy.csv", "--label", "class", "--drop", "group"], None),
        (["toy.csv", "--groups", "group", "--drop", "class"], "krca-weighted"),
        (["bare.csv", "--pairs", "pairs.csv"], None),
        (["bare.csv", "--triplets", "t.csv"], None),
        (["toy.npy", "--label", "labels.csv"], None),
        (["p.fasta", "--label", "description", "--method", "krca"], "krca"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_every_kind_of_hint_and_the_same_answer_as_python(here, capsys, words, method):
    assert run("learn", *words, "-o", "x.metric", "--json", "--seed", "3") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["metric"] == "x.metric"
    assert told["report"]["seed"] == 3
    assert method in (None, told["report"]["method"])
    assert all(0 <= h["before"] <= 1 and 0 <= h["after"] <= 1 for h in told["held"])
    metric = mf.load("x.metric")
    if "t.csv" in words:
        triplets = mf.Triplets(np.loadtxt("t.csv", delimiter=",", skiprows=1, dtype=int), n=100)
        same = mf.learn(np.load("toy.npy"), triplets, seed=3)
        np.testing.assert_allclose(metric.distance(np.load("toy.npy")), same.distance(np.load("toy.npy")), atol=1e-10)


def test_options_kernels_rank_and_the_default_name(here):
    learn("--kernel", "rbf(gamma=0.01)", "--option", "epsilon=0.25", "--rank", "20")
    report = mf.load("toy.metric").report
    assert report.epsilon == 0.25
    assert report.kernel == repr(mf.kernels.RBF(0.01))
    assert report["rank"] == 20


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("kcr", r"optimal: duality gap [\d.]+, relative 0\.0\d+; \d+ iterations, "),
        ("krca", r"optimal: residual of the optimality conditions \d.*e-\d\d; 1 iteration, "),
        ("euclidean", r"optimal: nothing is optimised; 0 iterations, "),
    ],
)
def test_the_certificate_is_described_by_its_kind(here, capsys, method, said):
    assert run("learn", "toy.csv", "--label", "class", "--drop", "group", "--method", method, "-o", "x.metric") == 0
    assert re.search(said, capsys.readouterr().out)
    assert run("learn", "toy.csv", "--label", "class", "--drop", "group", "--method", method, "--json") == 0
    told = json.loads(capsys.readouterr().out)["report"]
    assert (told["gap"], told["certificate"]) == tuple(mf.load("toy.metric").report[n] for n in ("gap", "certificate"))


def test_what_to_try_is_said_where_less_holds_than_before(here, capsys, monkeypatch):
    def shares(*values):
        counts = iter(values)

        def count(*_, **__):
            # with labels, three entries of which the first decides; with pairs, two that both decide
            found = next(counts)
            return [Satisfied(str(p), h, 100, decisive=p == 0 or len(found) == 2) for p, h in enumerate(found)]

        monkeypatch.setattr("metricforge.cli.learn.counted", count)

    tries = "try another --method ("
    scaled = "try --standardize if columns are on different scales, or another --method ("
    for values, hint, said in (
        ([(80, 50, 50), (79, 60, 60)], ["--label", "class", "--drop", "group"], tries),
        ([(80, 50, 50), (79, 60, 60)], ["--label", "class", "--drop", "group", "--kernel", "rbf"], scaled),
        ([(80, 50, 50), (80, 40, 40)], ["--label", "class", "--drop", "group"], ""),
        (
            [(80, 50, 50), (79, 60, 60)],
            ["--label", "class", "--drop", "group", "--standardize"],
            "try another --method (",
        ),
        ([(50, 50), (60, 45)], ["--pairs", "pairs.csv", "--drop", "class"], ""),
        ([(50, 50), (60, 35)], ["--pairs", "pairs.csv", "--drop", "class"], tries),
    ):
        shares(*values)
        assert run("learn", "toy.csv", *hint, "--method", "krca", "--folds", "0", "-o", "x.metric") == 0
        out = capsys.readouterr().out
        assert ("less holds after learning than before" in out) == bool(said)
        assert said in out
        assert ("or an --option of krca (epsilon" in out) == bool(said)


def test_constant_columns_are_called_by_their_names(here, capsys):
    Path("flat.csv").write_text("class,a,flat,b,7\nx,1,5,2,0\ny,2,5,1,0\nx,3,5,4,0\ny,4,5,3,0\n")
    assert run("learn", "flat.csv", "--label", "class", "--method", "krca", "--kernel", "linear") == 0
    assert "note: 2 feature(s) are constant and carry no information ('flat', '7')\n" in capsys.readouterr().out


def test_kernels_that_only_a_fit_makes_are_not_offered(here, capsys):
    assert run("learn", "toy.csv", "--label", "class", "--kernel", "zzz") == 2
    known = capsys.readouterr().err.partition("'zzz' is unknown; known: ")[2].strip().split(", ")
    assert {"linear", "rbf", "spectrum", "weak", "mixture"} <= set(known)
    assert not {"learned", "projected", "unprojected", "krca-exact", "krca-features", "simplenpkl-ridge"} & set(known)


def test_a_column_that_drowns_the_others_is_pointed_out(here, capsys):
    assert run("datasets", "wine", "-o", "wine.csv") == 0
    for words, said in (
        ([], False),
        (["--kernel", "rbf"], True),
        (["--method", "lpdesign"], False),
        (["--method", "krca", "--kernel", "linear", "--option", "epsilon=0"], False),
    ):
        capsys.readouterr()
        assert run("learn", "wine.csv", "--label", "class", *words) == 0
        assert ("note: column 'x13' spreads" in capsys.readouterr().out) == said


def test_the_next_command_can_be_pasted(here, capsys):
    (here / "toy.csv").rename(here / "my toys; (1).csv")
    assert run("learn", "my toys; (1).csv", "--label", "class", "--drop", "group", "--method", "krca") == 0
    command = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("next:"))
    words = shlex.split(command)[1:]
    assert words == ["metricforge", "neighbors", "my toys; (1).metric", "my toys; (1).csv", "-k", "5"]
    assert run(*words[1:]) == 0


def test_a_column_that_numbers_the_rows_is_pointed_out(here, capsys):
    first, *lines = (here / "toy.csv").read_text().splitlines()
    order = sorted(range(len(lines)), key=lambda r: lines[r].rsplit(",", 2)[1])
    numbered = [f"{place},{lines[r]}" for place, r in enumerate(order, 1)]
    (here / "sorted.csv").write_text("\n".join([f"row id,{first}", *numbered]) + "\n")
    words = ["learn", "sorted.csv", "--label", "class", "--drop", "group", "--method", "krca"]
    assert run(*words) == 0
    out = capsys.readouterr().out
    assert "\nnote: column 'row id' numbers the rows, and the metric uses it like any other feature; " in out
    assert "leave it out with --drop 'row id'\n" in out
    assert run(*words, "--json") == 0
    assert "'row id' numbers the rows" in json.loads(capsys.readouterr().out)["notes"][0]
    assert run(*words, "--drop", "row id") == 0
    assert "numbers the rows" not in capsys.readouterr().out


def test_standardized_columns(here):
    X, y = mf.datasets.load("wine")
    np.savetxt("wine.csv", np.c_[X, y], delimiter=",", header=",".join("abcdefghijklmn"), comments="", fmt="%.17g")
    assert cli.main(["learn", "wine.csv", "--label", "n", "--method", "krca", "--standardize", "-o", "a.metric"]) == 0
    Path("run.toml").write_text('data = "wine.csv"\nlabel = "n"\nmethod = "krca"\nstandardize = true\n')
    assert cli.main(["learn", "--config", "run.toml", "-o", "b.metric"]) == 0
    wanted = mf.learn(X, y, method="krca", kernel=mf.kernels.Standardized()).distance(X[:9])
    for name in ("a.metric", "b.metric"):
        np.testing.assert_allclose(mf.load(name).distance(X[:9]), wanted)


def test_a_report_without_matplotlib_has_no_pictures_and_says_how_to_have_them(here, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run("learn", "toy.csv", "--label", "class", "--drop", "group", "--report", "r.html") == 0
    assert "note: the report has no pictures: pictures need matplotlib" in capsys.readouterr().out
    page = (here / "r.html").read_text()
    assert "pip install &#39;metricforge[plot]&#39;" in page
    assert "Satisfied relations" in page
    assert "<img" not in page
    assert (here / "toy.metric").exists()


@pytest.mark.usefixtures("here")
def test_a_report_may_have_a_name_that_is_no_text():
    name = os.fsdecode(b"r\xff.html")
    assert run("learn", "toy.csv", "--label", "class", "--drop", "group", "--method", "llr", "--report", name) == 0
    assert Path(name).stat().st_size > 1000
