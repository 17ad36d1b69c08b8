"""``metricforge compare``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from metricforge_cases.shell import run

import metricforge as mf


@pytest.mark.usefixtures("here")
def test_it_prints_what_python_gives_and_draws_it(capsys, monkeypatch):
    compared = mf.compare

    def two(X, hint, **options):
        return compared(X, hint, candidates=["krca", "lpdesign"], **options)

    monkeypatch.setattr("metricforge.cli.compare.compare", two)
    words = ["compare", "toy.csv", "--label", "class", "--drop", "group", "--seed", "1"]
    assert run(*words, "--report", "c.html", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    X, y = mf.datasets.load("toy")
    labels = mf.Labels(np.array(["red", "blue"])[y])
    same = compared(X, labels, candidates=["krca", "lpdesign"], seed=1)
    assert told["best"] == same.best
    assert [one["score"] for one in told["candidates"]] == pytest.approx([one.mean for one in same.scores])
    page = Path("c.html").read_text()
    assert "data:image/png" in page
    assert f"{100 * same.scores[0].mean:.1f} ± " in page
    assert run(*words) == 0
    out = capsys.readouterr().out
    assert "candidate" in out
    assert "in 2 classes (the largest 50.0 %)" in out
    assert f"  {100 * np.mean(same.scores[0].balanced):.1f}  " in out.splitlines()[3]
    assert f"best: {same.best}" in out


@pytest.mark.usefixtures("here")
def test_many_rows_are_sampled_and_the_shell_says_so(capsys, monkeypatch):
    compared, seen = mf.compare, []

    def one(X, hint, **options):
        seen.append((X, hint))
        return compared(X, hint, candidates=["krca"], **options)

    monkeypatch.setattr("metricforge.cli.compare.compare", one)
    words = ["compare", "toy.csv", "--label", "class", "--drop", "group"]
    n = len(mf.datasets.load("toy").X)
    assert run(*words, "--sample", "30") == 0
    assert "; compared on 30 of the rows, drawn at random (--sample 0 takes all)" in capsys.readouterr().out
    assert run(*words, "--sample", "0") == 0
    assert "compared on" not in capsys.readouterr().out
    assert run(*words) == 0
    assert [(len(X), hint.n) for X, hint in seen] == [(30, 30), (n, n), (n, n)]
    assert run(*words, "--sample", "-1") == 2
    assert "--sample" in capsys.readouterr().err
