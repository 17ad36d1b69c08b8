"""The pages of the benchmarks follow from their results."""

from __future__ import annotations

import pytest

from benchmarks.run import Table, machine, page


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
