"""The settings of ``metricforge learn`` in a file, and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from metricforge_cases.shell import run

import metricforge as mf
from metricforge.cli import program as cli


def test_a_run_file_is_seen_from_its_folder_and_the_command_line_wins(here, monkeypatch):
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    assert run("learn", "--config", "../run.toml") == 0
    assert mf.load(here / "run.metric").report.epsilon == 0.5
    assert run("learn", "--config", "../run.toml", "--option", "epsilon=0.125", "-o", "mine.metric") == 0
    assert mf.load("mine.metric").report.epsilon == 0.125
    assert run("learn", "--config", "../run.toml", "--groups", "group", "--drop", "class", "-o", "g.metric") == 0
    assert mf.load("g.metric").report.converted == ()


@pytest.mark.parametrize(
    "written", ['option = ["epsilon=0.25"]', 'option = "epsilon=0.25"', "[option]\nepsilon = 0.25"]
)
def test_a_run_file_may_write_options_as_they_are_typed(here, written):
    Path("mine.toml").write_text(f'data = "toy.csv"\nlabel = "class"\ndrop = ["group"]\nmethod = "krca"\n{written}\n')
    assert run("learn", "--config", "mine.toml", "-o", "a.metric") == 0
    assert mf.load("a.metric").report.epsilon == 0.25


def test_settings_nested_without_end_are_one_sentence(tmp_path, capsys):
    (tmp_path / "run.toml").write_text("rank = " + "[" * 5000)
    assert cli.main(["learn", "--config", str(tmp_path / "run.toml")]) == 2
    assert "nested too deeply" in capsys.readouterr().err


@pytest.mark.parametrize(
    "typed", [["--missing-values", "-200,none"], ["--missing-values=-200", "--missing-values", "none"]]
)
def test_marks_of_missing_cells_are_remembered_by_the_metric(typed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cells = [(i % 7, i if i % 5 else -200, "uv"[i % 2] if i % 6 else "none", "ab"[i % 2]) for i in range(40)]
    lines = [",".join(map(str, row)) for row in cells]
    (tmp_path / "t.csv").write_text("\n".join(["x,y,z,kind", *lines]) + "\n")
    words = ["learn", "t.csv", "--label", "kind", "--method", "krca", "--kernel", "linear", "--folds", "0"]
    assert run(*words, *typed) == 0
    assert "note: all columns: a cell that holds -200 or none is missing\n" in capsys.readouterr().out
    metric = mf.load("t.metric")
    assert metric.rows.min() == 0
    assert metric.columns == ("x", "y", "z=u", "z=v")
    assert run("info", "t.metric") == 0
    assert "all columns: a cell that holds -200 or none is missing" in capsys.readouterr().out
    (tmp_path / "later.csv").write_text("x,y,z\n1,-200,none\n")
    (tmp_path / "filled.csv").write_text(f"x,y,z\n1,{np.median([i for i in range(40) if i % 5]):g},v\n")
    assert run("distance", "t.metric", "later.csv", "filled.csv", "--json") == 0
    near = json.loads(capsys.readouterr().out)["distances"][0][0]
    assert near == pytest.approx(0, abs=1e-9)

    (tmp_path / "run.toml").write_text(
        'data = "t.csv"\nlabel = "kind"\nmethod = "krca"\nkernel = "linear"\nfolds = 0\n'
        'missing-values = [-200, "none"]\nout = "again.metric"\n'
    )
    assert run("learn", "--config", "run.toml") == 0
    np.testing.assert_array_equal(mf.load("again.metric").rows, metric.rows)
