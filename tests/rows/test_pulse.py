"""Signs of work in long passes over rows."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import metricforge as mf
from metricforge import neighbors
from metricforge import rows as _rows
from metricforge.kernels import RBF, Linear, Standardized
from metricforge.neighbors import partition
from metricforge.registry import hookimpl
from metricforge.rows import mapping
from metricforge.space import choose_landmarks


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances by a second whenever it is read."""
    now = iter(range(10**9))
    monkeypatch.setattr(mapping.time, "monotonic", lambda: float(next(now)))


def test_blocks_report_what_is_done(clock):
    heard = []
    with _rows.listening(lambda done, total: heard.append((done, total))):
        assert [b.stop for b in _rows.blocks(10, 1, 4)] == [4, 8, 10]
    assert heard == [(4, 10), (8, 10), (10, 10)]
    list(_rows.blocks(10, 1, 4))  # nobody listens any more
    assert len(heard) == 3


def test_signs_come_twice_a_second_at_the_most():
    heard = []
    with _rows.listening(lambda done, total: heard.append(done)):
        for _ in _rows.blocks(10_000, 1, 1):
            pass
    assert len(heard) <= 2


def test_a_long_pass_repeats_the_last_step_with_the_part_that_is_done(clock):
    events = []

    class Listener:
        @hookimpl
        def metricforge_step(self, event):
            events.append(event)

    mf.register(Listener(), name="listener of a test")
    X = np.random.default_rng(0).normal(size=(700, 3))
    mf.learn(X, X[:, 0] > 0, method="nca", kernel="linear", max_iter=3)
    during = [event for event in events if "pass" in event.info]
    assert during
    assert all(0 <= event.info["pass"] <= 1 for event in during)
    assert any(event.info["pass"] > 0 for event in during)
    assert {event.step for event in during} > {0}


def _landmarks(X):
    choose_landmarks(RBF(1.0), X, 40, seed=0)


def _in_cells(X):
    neighbors.search(X, 3, method="cells", seed=0)


def _other_classes(X):
    list(neighbors.other_classes_within(X, np.arange(len(X)) % 2, np.full(len(X), 0.1)))


def _wide(n):
    return np.random.default_rng(0).normal(size=(n, 3000))


def _signs(work):
    heard = []
    with _rows.listening(lambda done, total: heard.append(done / total)):
        found = work()
    assert all(0 <= share <= 1 for share in heard)
    return found, len(heard)


def test_scaling_wide_rows_gives_signs_and_the_same_numbers(clock):
    X = _wide(300)
    kernel = Standardized().resolve(X)
    scaled, signs = _signs(lambda: kernel.transform(X))
    assert signs >= 7  # 7 MB, a megabyte at a time
    assert np.array_equal(scaled, (X - kernel.mean) / kernel.spread)
    single = X.astype(np.float32)
    assert np.array_equal(kernel.transform(single), ((single - kernel.mean) / kernel.spread).astype(np.float32))


def test_pairs_of_wide_rows_are_compared_some_at_a_time(clock):
    Z, codes = _wide(100), np.arange(100) % 2
    (pairs,), signs = _signs(lambda: [zip(*neighbors.other_classes_within(Z, codes, np.full(100, 1e9)), strict=True)])
    i, j, squared = map(np.concatenate, pairs)
    assert len(i) == 5000
    assert signs >= 25  # 2,500 pairs of 48 kB, 4 MB at a time
    apart = Z[i] - Z[j]
    assert np.array_equal(squared, np.einsum("ij,ij->i", apart, apart))


def test_cells_of_wide_rows_are_found_some_at_a_time(clock, monkeypatch):
    X = _wide(400)
    cells = partition.learn_cells(X, 8, 0)
    found, few = _signs(lambda: cells.nearest(X, 3))
    monkeypatch.setattr(partition, "BLOCK_BYTES", 2**20)
    again, more = _signs(lambda: cells.nearest(X, 3))
    assert np.array_equal(found, again)
    assert more >= few + 8


def test_landmarks_are_chosen_among_all_rows_without_a_copy(clock):
    X = _wide(300)
    tracemalloc.start()
    _, signs = _signs(lambda: choose_landmarks(Linear(), X, 5, seed=0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert signs >= 2  # also before the first landmarks are drawn
    assert peak < X.nbytes / 2


@pytest.mark.parametrize(
    ("work", "least"),
    [
        (lambda X: neighbors.search(X, 3, method="exact"), 10),
        (_in_cells, 40),
        (_other_classes, 10),
        (_landmarks, 9),
    ],
)
def test_searches_and_the_choice_of_landmarks_give_signs(clock, work, least):
    heard = []
    with _rows.listening(lambda done, total: heard.append(done / total)):
        work(np.random.default_rng(0).normal(size=(5000, 3)))
    assert len(heard) >= least  # fewer where only the blocks inside do
    assert all(0 <= share <= 1 for share in heard)
