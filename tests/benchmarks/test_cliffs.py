"""The benchmark `cliffs`: every row exists, a stopped run continues, and a part of a sweep says that it is one."""

from __future__ import annotations

import ast

import pytest

from benchmarks.cliffs import HERE, ROWS, errors, measured
from benchmarks.cliffs import run as cliffs
from benchmarks.cliffs.measurements import Measurements
from benchmarks.cliffs.sweep import points


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.file}.{row.function}")
def test_every_row_has_a_function_and_limits_can_be_lifted(row):
    tree = ast.parse((HERE / f"{row.file}.py").read_text())
    assert row.function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if row.against == "full":
        from benchmarks.cliffs.rows_limits import FULL

        assert row.function.split("_")[0] in FULL


def test_a_measurement_that_was_stopped_is_made_again_with_more_time(tmp_path, monkeypatch):
    limits = []

    def one_split(row, split, limit, tree, side):
        limits.append(limit)
        return {"stopped": f"over {limit} s", "limit": limit} if limit < 100 else {"seconds": 90.0}

    monkeypatch.setattr("benchmarks.cliffs.one_split", one_split)
    file = tmp_path / "measurements.jsonl"
    for limit in (50, 50, 200, 50):
        found = measured(Measurements(file), ROWS[0], range(2), limit, None, "before")
    assert limits == [50, 200, 200]
    assert found == [{"seconds": 90.0}, {"seconds": 90.0}]


def test_a_part_of_a_sweep_says_so(tmp_path):
    kept = Measurements(tmp_path / "measurements.jsonl")
    whole = points(1.5)
    for n, d in whole[:3]:
        point = {
            "n": n,
            "d": d,
            "status": "optimal",
            "seconds": 1.0,
            "forecast": 0.4 if d == 4 else 2.0,
            "silence": 3.0,
        }
        kept.add(["sweep", "lfda", n, d], point)
    file = str(kept.path)
    table = cliffs(rows="none", now_only=True, sweep=True, show=True, methods="lfda,krca", measurements=file, points=2)
    notes = [note for note in table.notes if note.startswith("sweep")]
    assert f"lfda: 3 of {len(whole)} points" in notes[0]
    assert "krca: not run" in notes[1]
    assert f"3 of {2 * len(whole)} points of the grid were measured, in 3 CPU s; 2 above" in notes[2]
    assert "3 without progress for more than 2 s" in notes[2]


def test_differences_are_those_of_splits_that_both_ran():
    old = [{"error": 0.10}, {"error": 0.20}, {"stopped": "over 60 s"}]
    new = [{"error": 0.11}, {"error": 0.23}, {"error": 0.5}]
    assert errors(old, new) == ("15.00", "28.00", "+2.00 ± 1.00")
