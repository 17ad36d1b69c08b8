from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from metricforge_papers import checking, figures, pages
from metricforge_papers.entries import ENTRIES
from metricforge_papers.result import Result

from benchmarks.run import BUSY
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
        ("docs/results/data.md", "178 (178)", "179 (178)", "data.md does not follow"),
        ("README.md", "times as fast as scikit-learn", "times faster than scikit-learn", "README.md lacks"),
        ("README.md", "falls from 24.7 %", "falls from 34.7 %", "README.md lacks: What `make demo` draws"),
    ],
)
def test_what_does_not_follow_is_found_and_rewritten(copy, capsys, name, old, new, message):
    change(copy / name, old, new)
    assert check(copy) == 2
    assert message in capsys.readouterr().err
    assert check(copy, "--fix") == 0
    assert check(copy) == 0


def digit(text, at):
    """The text with the first digit after a position raised by one."""
    found = re.compile(r"\d").search(text, at)
    return text[: found.start()] + str((int(found[0]) + 1) % 10) + text[found.end() :]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: f"{e.paper}-{e.name}")
def test_one_changed_number_is_found(entry, tmp_path):
    name = f"{entry.paper}-{entry.name}"
    for path in (ROOT / "docs" / "results").glob(f"{name}.*"):
        shutil.copy(path, tmp_path)
    page, data = (tmp_path / f"{name}.{ending}" for ending in ("md", "json"))

    def found():
        return [problem for problem in checking.problems(tmp_path) if problem.startswith(f"{name}: ")]

    assert not found()
    text = page.read_text()
    for at in range(text.index("| ---"), len(text), max(1, len(text) // 4)):  # some numbers of the tables and below
        page.write_text(digit(text, at) if re.search(r"\d", text[at:]) else text + "1")
        assert found() == [f"{name}: its page does not follow from its JSON"]
    page.write_text(text)
    content = json.loads(data.read_text())
    cell = max(content["cells"], key=lambda cell: (bool(cell["variant"]), abs(cell["ours"] or 0)))
    cell["ours"] *= 1.5
    data.write_text(json.dumps(content))
    assert found()


WORDS = ("reproduced", "not", "cannot tell")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: f"{e.paper}-{e.name}")
def test_another_verdict_is_found(entry, tmp_path):
    """Each verdict is given another word, count or power in the JSON, another word in the page, and in both."""
    name = f"{entry.paper}-{entry.name}"
    for path in (ROOT / "docs" / "results").glob(f"{name}.*"):
        shutil.copy(path, tmp_path)
    page, data = (tmp_path / f"{name}.{ending}" for ending in ("md", "json"))
    text, content = page.read_text(), json.loads(data.read_text())
    by_rule = f"{name}: its verdicts do not follow from the rule"
    by_page = f"{name}: its page does not follow from its JSON"

    def found():
        return [problem for problem in checking.problems(tmp_path) if problem.startswith(f"{name}: ")]

    assert content["verdicts"]
    for at, stored in enumerate(content["verdicts"]):
        known = Result.from_dict(content).verdicts()[at]
        word = WORDS[WORDS.index(stored["word"]) - 1]
        changes = {"word": word, "total": stored["total"] + 1, "power": (stored["power"] or 0.0) + 0.01}
        for key, value in changes.items():  # the counts and the power count as well as the word
            other = json.loads(json.dumps(content))
            other["verdicts"][at][key] = value
            data.write_text(json.dumps(other))
            assert found() == [by_rule], key
        changed = text.replace(sentence(known), sentence(replace(known, word=word)))
        assert changed != text
        page.write_text(changed)
        assert found() == [by_rule, by_page]
        data.write_text(json.dumps(content))
        assert found() == [by_page]
        page.write_text(text)
    assert not found()


def sentence(verdict):
    text = pages.verdict_sentence(verdict)
    return f"**{text[:1].upper()}{text[1:]}.**"


@pytest.mark.parametrize("word", WORDS)
def test_another_verdict_in_the_summary_is_found(word, copy):
    folder = copy / "docs" / "results"
    text = (folder / "summary.md").read_text()
    start = re.search(rf"(?:\| |<br>)({word}) \(", text).start(1)
    other = next(w for w in WORDS if w != word)
    (folder / "summary.md").write_text(f"{text[:start]}{other}{text[start + len(word) :]}")
    assert checking.problems(folder) == ["summary.md does not follow from the results"]


def test_the_readme_has_no_figure_elsewhere():
    """What is measured stands in the table or in the paragraph, where it is compared with its file."""
    text = (ROOT / "README.md").read_text()
    for part in [*figures.measured(text), figures.paragraph(ROOT), *re.findall(r"```.*?```", text, re.DOTALL)]:
        assert part in text
        text = text.replace(part, "")
    units = r"%|×|times|points|seconds|minutes|CPU|ms|s|[KMG]B"
    assert re.findall(rf"[\d.,]+ ?(?:{units})\b.{{0,20}}", text) == []


def test_every_number_of_the_readmes_figures_is_compared(copy):
    """Raise each digit of the rows and of the paragraph by one: all are found."""
    readme = copy / "README.md"
    text = readme.read_text()
    parts = [*figures.measured(text), figures.paragraph(copy)]
    for part in parts:
        start = text.index(part)
        for found in re.finditer(r"\d", part):
            assert figures.wrong(digit(text, start + found.start()), copy), (part, found)
    assert not figures.wrong(text, copy)


def test_the_wine_of_the_readme_is_that_of_the_demonstration():
    from benchmarks import wine

    stored = json.loads((RESULTS / "wine.json").read_text())["rows"]
    assert [dict(zip(wine.COLUMNS, row, strict=True)) for row in wine.run().rows] == stored


CELLS = {
    # file: the columns that a row of the README, or its paragraph, reads in it
    "first-call": {"gain", "half", "hints", "metric", "mf.learn ahead by", "sets"},
    "idealized-solvers": {"N", "solver", "CPU s"},
    "kcr-scale": {"set", "landmarks", "validated %", "raw 3-NN %", "CPU s"},
    "krca-append": {"mf.learn ÷ metric.update", "mf.learn ÷ metric.update by default"},
    "krca-scale": {"rows", "CPU seconds", "peak, GB"},
    "lpdesign-lp": {"n", "solver", "ratio (CPU)"},
    "lpdesign-figure3": {"measure", "row", "column", "ours", "std", "repeats"},
    "simplenpkl-million": {"rows", "eigensolver", "all, CPU s", "peak GB"},
    "classics": {"rows", "method", "peer", "ratio", "ratio of whole", "peer objective", "our objective"},
    "simplenpkl-eigen": {"data", "r", "eigensolver", "CPU s", "× ARPACK with checks"},
    "knn": {"data", "search", "CPU s"},
    "gram": {"kernel", "d", "scikit-learn / ours"},
    "million": {"method", "together GB"},
    "dask": {"pass", "one worker / NumPy", "one worker / two workers"},
    "out-of-core": {"method", "file GB", "restarted"},
    "wine": {"rows held out", "wrong", "1-NN error %", "standard error", "ARI of k-means"},
}
BY_THE_CLOCK = {"gram": {"scikit-learn / ours"}, "dask": {"one worker / NumPy", "one worker / two workers"}}
"""Columns among these that depend on the load; the other times are CPU times."""


class Watched(dict):
    """A row of a results file that notes which of its cells are read."""

    def __init__(self, row, read):
        super().__init__(row)
        self.read = read

    def __getitem__(self, key):
        self.read.add(key)
        return super().__getitem__(key)


@pytest.mark.parametrize(
    "figure", [f for f in (*figures.FIGURES, figures.PARAGRAPH) if isinstance(f, figures.Figure)], ids=lambda f: f.name
)
def test_the_cells_of_every_figure(figure):
    """Each figure reads the cells named here; none that depends on the load comes from a run at a load above 2."""
    folder, rows = (ROOT / "docs" / "results", "cells") if figure.paper else (RESULTS, "rows")
    content = json.loads((folder / f"{figure.name}.json").read_text())
    read = set()
    figure.say([Watched(row, read) for row in content[rows]])
    assert read == CELLS[figure.name]
    clock = read & BY_THE_CLOCK.get(figure.name, set())
    assert not clock or max(content["load"]) <= BUSY
    assert not [column for column in read - clock if re.search(r"\bwall\b|(?<!CPU) s$|(?<!CPU) seconds$", column)]


def test_all_files_of_the_readme_are_named():
    names = {f.name for f in (*figures.FIGURES, figures.PARAGRAPH) if isinstance(f, figures.Figure)}
    assert names == set(CELLS)


def test_a_new_benchmark_result_needs_its_row_only(copy, capsys):
    path = copy / "benchmarks" / "results" / "krca-append.json"
    content = json.loads(path.read_text())
    for row in content["rows"]:
        row["mf.learn ÷ metric.update by default"] = 7.0
    path.write_text(json.dumps(content))
    assert check(copy) == 2
    assert "README.md lacks: | `krca`, `metric.update`" in capsys.readouterr().err
    assert check(copy, "--fix") == 0
    assert "7 to 7 times as fast in CPU time as `mf.learn` on all rows by default" in (copy / "README.md").read_text()


def test_bad_calls(tmp_path, capsys):
    assert cli.main(["reproduce", "--check", "--out", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert cli.main(["reproduce", "--fix"]) == 2
    assert "--fix needs --check" in capsys.readouterr().err
