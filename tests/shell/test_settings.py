"""The settings of ``metricforge learn`` in a file, and on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from metricforge_cases.shell import run

import metricforge as mf
from metricforge import cli


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
