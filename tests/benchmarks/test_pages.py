"""The pages of the benchmarks follow from their results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.run import HERE, Table, machine, page, readme

RESULTS = sorted((HERE / "results").glob("*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_page_follows_from_its_results(path: Path) -> None:
    content = json.loads(path.read_text())
    assert content["name"] == path.stem
    assert path.with_suffix(".md").read_text() == page(content), "python -m benchmarks.run --readme"
    assert f"load {content['load'][0]:.1f}" in content["machine"]


def test_the_readme_follows_from_the_pages() -> None:
    assert (HERE / "README.md").read_text() == readme()
    assert {path.stem for path in RESULTS} == {path.stem for path in (HERE / "results").glob("*.md")}


def content(load, **cells):
    about = {"notes": ["a note"], "load": load, "machine": machine(load), "command": "python -m benchmarks.run some"}
    return {"name": "some", "rows": [{"rows": 10, **cells}], **about}


@pytest.mark.parametrize(
    ("load", "cells", "shown", "note"),
    [
        ([0.3, 1.9], {"CPU s": 1.25, "fit, wall s": 7.5}, True, ""),
        ([0.3, 2.1], {"CPU s": 1.25, "fit, wall s": 7.5}, False, "- the load was above 2: wall times are left out"),
        ([3.0], {"fit, wall s": 7.5}, True, "- the load was above 2: wall times are those of a busy machine"),
        ([3.0], {"CPU s": 1.25}, False, ""),
    ],
)
def test_wall_times_of_a_busy_machine_are_not_shown_beside_cpu_times(load, cells, shown, note):
    text = page(content(load, **cells))
    assert ("7.5" in text) == ("wall s" in text) == shown
    assert ("1.25" in text) == ("CPU s" in cells)
    assert [line for line in text.splitlines() if "above 2" in line] == [note] * bool(note)


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two columns have the same name"):
        Table(["CPU s", "ratio", "CPU s"])
