from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from metricforge_papers.printed import Measure, Printed
from metricforge_papers.scores import least, margin, middle
from metricforge_papers.verdict import LEVEL, POWER, Cell, Claim, judge_cell, judge_claim, verdict

MEASURE = Measure("higher", 1.0, 1, {"set": {"start": 60.0, "learned": 80.0}}, baseline="start")
"""The paper gains 20 points, so a loss of 10 must be noticed."""
PRINTED = Printed("Table", "About.", repeats=50, measures={"score": MEASURE})


def cell(ours, std=2.0, repeats=50, **more):
    return Cell("score", "set", "learned", ours, std, repeats, 80.0, variant="ours", **more)


def outcome(found, family=1):
    return judge_cell(found, MEASURE, 50, family).outcome


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (cell(80.0), "no worse"),
        (cell(79.2), "no worse"),  # within the grain
        (cell(78.0), "worse"),
        (cell(82.0), "better"),
        (cell(78.0, std=20.0), "cannot tell"),  # a loss of 10 would be seen in every second try
        (cell(60.0, std=20.0), "worse"),
        (cell(80.0, std=None, repeats=1), "cannot tell"),  # no spread on either side
        (cell(None), "worse"),
    ],
)
def test_outcomes(found, expected):
    assert outcome(found) == expected


def test_lower_is_better_for_errors():
    errors = replace(MEASURE, better="lower", values={"set": {"start": 60.0, "learned": 40.0}})
    found = replace(cell(45.0), paper=40.0)
    assert judge_cell(found, errors, 50).outcome == "worse"
    assert judge_cell(replace(found, ours=35.0), errors, 50).outcome == "better"


def test_the_baseline_may_be_a_row():
    rows = Measure("higher", 0.0, 1, {"none": {"learned": 60.0}, "some": {"learned": 80.0}}, baseline="none")
    assert rows.effect("some", "learned") == 20
    assert MEASURE.effect("set", "learned") == 20
    assert MEASURE.effect("set", "unknown") == 0


@pytest.mark.parametrize("family", [1, 10])
@pytest.mark.parametrize(("std", "repeats"), [(20.0, 50), (12.0, 10), (6.0, 5)])
def test_power_is_the_rate_at_which_a_loss_is_found(std, repeats, family, rng):
    power = judge_cell(cell(80.0, std, repeats, paper_std=std), MEASURE, repeats, family).power
    ours, theirs = rng.normal(70, std, size=(1500, repeats)), rng.normal(80, std, size=(1500, repeats))
    found = [outcome_of(a, b, repeats, family) == "worse" for a, b in zip(ours, theirs, strict=True)]
    assert np.mean(found) == pytest.approx(power, abs=0.06)  # Welch is approximate


def outcome_of(a, b, repeats, family):
    found = Cell("score", "set", "learned", a.mean(), a.std(ddof=1), repeats, b.mean(), b.std(ddof=1))
    return judge_cell(found, MEASURE, repeats, family).outcome


def test_chance_alone_seldom_fails_a_family(rng):
    draws = rng.normal(80, 5, size=(150, 10, 2, 20))
    fine = replace(MEASURE, grain=0.0)
    failed = [
        any(
            judge_cell(
                Cell("score", "set", "learned", a.mean(), a.std(ddof=1), 20, b.mean(), b.std(ddof=1)), fine, 20, 10
            ).outcome
            == "worse"
            for a, b in tables
        )
        for tables in draws
    ]
    assert np.mean(failed) <= LEVEL + 0.03


@pytest.mark.parametrize(
    ("cells", "word"),
    [
        ([cell(80.0), cell(82.0)], "reproduced"),
        ([cell(80.0), cell(78.0, std=20.0)], "cannot tell"),
        ([cell(82.0), cell(70.0)], "not"),
        ([cell(70.0), cell(78.0, std=20.0)], "not"),
    ],
)
def test_words(cells, word):
    found = verdict("ours", cells, (), PRINTED)
    assert found.word == word
    assert found.total == found.good + found.worse + found.undecided == 2
    assert found.ours == pytest.approx(np.mean([c.ours for c in cells]))
    assert found.paper == 80


def test_statements():
    sure, unsure, fails = (Claim("", m > 0, "", m, 1.0, 50) for m in (5.0, 1.0, -5.0))
    assert [judge_claim(claim).outcome for claim in (sure, unsure, fails)] == ["no worse", "cannot tell", "worse"]
    assert judge_claim(unsure).power < POWER < judge_claim(sure).power
    # one that chance has no part in
    assert judge_claim(Claim("", True, "")).outcome == "no worse"
    assert judge_claim(Claim("", False, "")).outcome == "worse"
    assert judge_claim(Claim("", True, "", 0.5, 0.0, 5)).outcome == "no worse"
    assert verdict("", (), (sure, unsure), PRINTED).word == "cannot tell"
    assert verdict("", (), (sure, fails), PRINTED).word == "not"
    assert verdict("", (), (Claim("", True, ""),), PRINTED).power is None


def test_margins():
    a, b = np.array([3.0, 4.0, 5.0, 7.0]), np.array([1.0, 2.0, 2.0, 4.0])
    paired = margin(a, b)
    assert paired == {"margin": 2.5, "error": pytest.approx((a - b).std(ddof=1) / 2), "repeats": 4}
    apart = margin(a, b[:3], by=1.0)
    assert apart["margin"] == pytest.approx(a.mean() - b[:3].mean() - 1)
    assert apart["error"] == pytest.approx(np.sqrt(a.var(ddof=1) / 4 + b[:3].var(ddof=1) / 3))
    assert margin([1.0], [0.0])["error"] is None
    three = [{"margin": m, "error": 1.0, "repeats": 5} for m in (3.0, -1.0, 2.0)]
    assert least(*three)["margin"] == -1
    assert middle(three)["margin"] == 2
