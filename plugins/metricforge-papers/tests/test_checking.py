from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from metricforge_papers import checking, pages
from metricforge_papers.entries import ENTRIES
from metricforge_papers.result import Result

from metricforge.cli import program as cli

ROOT = Path(__file__).parents[3]


@pytest.fixture
def copy(tmp_path):
    """The published results, as in the project."""
    shutil.copytree(ROOT / "docs" / "results", tmp_path / "docs" / "results")
    return tmp_path


def check(folder, *more):
    return cli.main(["reproduce", "--check", "--out", str(folder / "docs" / "results"), *more])


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_consistent_project_passes(copy, capsys):
    summary = copy / "docs" / "results" / "summary.md"
    before = summary.read_text()
    assert check(copy) == 0
    assert "every page and verdict follows" in capsys.readouterr().out
    assert check(copy, "--fix") == 0
    assert summary.read_text() == before


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("docs/results/krca-table1.md", "Repeats", "Repeat", "krca-table1: its page does not follow"),
        ("docs/results/krca-table1.json", '"word": "', '"word": "x', "krca-table1: its verdicts do not follow"),
        ("docs/results/summary.md", "power", "strength", "summary.md does not follow"),
        ("docs/results/data.md", "178 (178)", "179 (178)", "data.md does not follow"),
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


def test_bad_calls(tmp_path, capsys):
    assert cli.main(["reproduce", "--check", "--out", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert cli.main(["reproduce", "--fix"]) == 2
    assert "--fix needs --check" in capsys.readouterr().err
