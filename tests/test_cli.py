from __future__ import annotations

import subprocess
import sys

import pytest

import metricforge as mf
from metricforge import cli


def test_demo_prints_scores_and_draws(tmp_path, capsys):
    assert cli.main(["demo", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for entry in mf.methods():
        assert entry.name in out
    picture = (tmp_path / "wine.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(picture) > 20_000
    assert str(tmp_path / "wine.png") in out


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "metricforge", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"metricforge {mf.__version__}\n"


def test_wrong_commands_exit_with_two(capsys):
    for argv in ([], ["dmeo"], ["demo", "--nothing"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(argv)
        assert caught.value.code == 2
    assert "usage: metricforge" in capsys.readouterr().err


def test_bad_input_is_one_sentence_and_exit_code_two(monkeypatch, capsys):
    monkeypatch.setattr(cli, "demo", lambda out: mf.learn([[1.0]], None))
    assert cli.main(["demo"]) == 2
    assert capsys.readouterr().err.startswith("metricforge: constraints is missing")
