from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from metricforge_papers import figures

from metricforge.shell import main as cli

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture
def copy(tmp_path):
    """README, published results and those of the benchmarks, as in the project."""
    shutil.copy(ROOT / "README.md", tmp_path)
    shutil.copytree(ROOT / "docs" / "results", tmp_path / "docs" / "results")
    shutil.copytree(RESULTS, tmp_path / "benchmarks" / "results")
    return tmp_path


@pytest.mark.parametrize("figure", figures.FIGURES, ids=lambda figure: figure.name)
def test_every_figure_of_the_readme_follows_from_its_file(figure):
    assert figure.line(ROOT) in figures.measured((ROOT / "README.md").read_text()), (
        "metricforge reproduce --check --fix"
    )


def test_every_row_of_the_readme_has_a_figure():
    assert len(figures.measured((ROOT / "README.md").read_text())) == len(figures.FIGURES)


def check(folder, *more):
    return cli.main(["reproduce", "--check", "--out", str(folder / "docs" / "results"), *more])


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_consistent_project_passes(copy, capsys):
    before = (copy / "README.md").read_text()
    assert check(copy) == 0
    assert "every page, verdict and figure follows" in capsys.readouterr().out
    assert check(copy, "--fix") == 0
    assert (copy / "README.md").read_text() == before


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("docs/results/krca-table1.md", "Repeats", "Repeat", "krca-table1: its page does not follow"),
        ("docs/results/krca-table1.json", '"word": "', '"word": "x', "krca-table1: its verdicts do not follow"),
        ("docs/results/summary.md", "power", "strength", "summary.md does not follow"),
        ("README.md", "times as fast as scikit-learn", "times faster than scikit-learn", "README.md lacks"),
    ],
)
def test_what_does_not_follow_is_found_and_rewritten(copy, capsys, name, old, new, message):
    change(copy / name, old, new)
    assert check(copy) == 2
    assert message in capsys.readouterr().err
    assert check(copy, "--fix") == 0
    assert check(copy) == 0


def test_a_new_benchmark_result_needs_its_row_only(copy, capsys):
    path = copy / "benchmarks" / "results" / "krca-append.json"
    content = json.loads(path.read_text())
    for row in content["rows"]:
        row["mf.learn ÷ metric.update"] = 7.0
    path.write_text(json.dumps(content))
    assert check(copy) == 2
    assert "README.md lacks: | `krca`, `metric.update`" in capsys.readouterr().err
    assert check(copy, "--fix") == 0
    assert "7 to 7 times as fast in CPU time as `mf.learn` on all rows" in (copy / "README.md").read_text()


def test_bad_calls(tmp_path, capsys):
    assert cli.main(["reproduce", "--check", "--out", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert cli.main(["reproduce", "--fix"]) == 2
    assert "--fix needs --check" in capsys.readouterr().err
