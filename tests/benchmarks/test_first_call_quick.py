"""The quick part of the panel: the first call must gain on eight small sets what it gained when it was measured."""

from __future__ import annotations

import pytest

import metricforge as mf
from benchmarks.first_call_quick import means, quick_gains, shortfalls


def test_the_first_call_gains_what_was_measured():
    assert shortfalls(quick_gains()) == []


def test_a_broken_default_is_noticed():
    """Columns as they are, instead of divided by their range: the margin is crossed for every kind of pairs."""

    def broken(X, hints, seed):
        return mf.learn(X, hints, kernel=mf.kernels.RBF("median"))

    sets = ("wine", "wdbc", "heavy_tail", "many_classes")
    good = means(quick_gains(kinds=("P5",), names=sets))["P5"]
    bad = means(quick_gains(broken, kinds=("P5",), names=sets))["P5"]
    assert bad < good - 1.5
    with pytest.raises(AssertionError):
        assert shortfalls({"P5": dict.fromkeys(sets, bad)}) == []


def test_broken_weights_are_noticed():
    """krca with the weights of the paper, instead of those by all rows: the margin is crossed for groups."""

    def broken(X, hints, seed):
        return mf.learn(X, hints, method="krca")

    assert [text[:2] for text in shortfalls(quick_gains(broken, kinds=("C",)))] == ["C:"]
