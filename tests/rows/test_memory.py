"""The memory budget: where it comes from, and the error when it is exceeded."""

from __future__ import annotations

from contextvars import copy_context

import numpy as np
import pytest
from scipy import sparse

from metricforge.errors import InputError, MemoryBudgetError
from metricforge.rows import bytes_of, memory


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2GB", 2 * 10**9), ("1.5 GiB", 3 * 2**29), ("12", 12), ("3kb", 3000), (" 7 B ", 7), ("1MiB", 2**20), ("0", 0)],
)
def test_amounts_of_memory(text, expected):
    assert memory.parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["much", "GB", "1XB", "-1GB", "1e400", "nan", "2 3"])
def test_wrong_amounts_of_memory(text, monkeypatch):
    monkeypatch.setenv("METRICFORGE_MEMORY", text)
    with pytest.raises(InputError, match=r"METRICFORGE_MEMORY=.* is not an amount of memory; write for instance 2GB"):
        memory.memory_budget()


def test_the_budget_is_the_environments_or_half_of_what_is_free(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 1001)
    monkeypatch.delenv("METRICFORGE_MEMORY", raising=False)
    assert memory.memory_budget() == 500
    monkeypatch.setenv("METRICFORGE_MEMORY", "3MB")
    assert memory.memory_budget() == 3 * 10**6


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 MB"), (1500, "0.0015 MB"), (99_000_000, "99 MB"), (10**8, "100 MB"), (2**34, "17.2 GB")]
)
def test_sizes_as_text(size, text):
    assert memory.show_bytes(size) == text


def test_a_request_above_the_budget_says_what_it_needs_and_how_to_need_less(monkeypatch):
    monkeypatch.setenv("METRICFORGE_MEMORY", "10MB")
    memory.check_memory(10 * 10**6, "a table", "drop rows")
    with pytest.raises(
        MemoryBudgetError,
        match=r"^a table would take 200 MB, and the memory budget is 10 MB; drop rows, or raise the budget with the "
        r"environment variable METRICFORGE_MEMORY$",
    ):
        memory.check_memory(2 * 10**8, "a table", "drop rows")


def test_the_check_is_importable_from_space():
    from metricforge import rows, space

    assert space.check_memory is rows.check_memory is memory.check_memory


def test_what_a_caller_holds_counts_until_its_context_ends(monkeypatch):
    monkeypatch.setenv("METRICFORGE_MEMORY", "100MB")

    def command():
        memory.hold(bytes_of(np.zeros((1000, 4000))))
        memory.hold(bytes_of(sparse.csr_array(np.eye(10))) + bytes_of(["a", "b"]) + bytes_of(None))
        assert 67_999_000 < memory.memory_budget() < 68_000_000
        with pytest.raises(MemoryBudgetError, match=r"the memory budget is 100 MB less 32 MB that are in use"):
            memory.check_memory(70_000_000, "a matrix", "use a smaller one")

    copy_context().run(command)
    assert memory.memory_budget() == 100_000_000
    memory.check_memory(70_000_000, "a matrix", "use a smaller one")
