from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from metricforge_papers import pages
from metricforge_papers.printed import Measure, Printed
from metricforge_papers.result import Result
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


@pytest.mark.parametrize(
    ("gains", "word"),
    [
        ((20.0, 20.0), "reproduced"),
        ((10.0, 20.0), "reproduced"),
        ((9.0, 20.0), "cannot tell"),
        ((None, None), "reproduced"),
    ],
)
def test_what_is_reached_with_less_than_half_of_the_gain_cannot_be_told(gains, word):
    found = verdict("ours", [cell(80.0), cell(82.0)], (), PRINTED, gains)
    assert found.word == word
    assert (found.gain, found.paper_gain) == gains
    # what is worse stays worse
    assert verdict("ours", [cell(70.0)], (), PRINTED, gains).word == "not"


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


# ------------------------------------------------------------------------------- verdicts on tables that are generated

ROWS, REPEATS, TABLES = 8, 30, 200
FINE = replace(MEASURE, grain=0.0, values={f"set {i}": {"start": 60.0, "learned": 80.0} for i in range(ROWS)})
GENERATED = Printed("Table", "About.", repeats=REPEATS, measures={"score": FINE})


def words(rng, std, shortfalls, claims=()):
    """The verdicts on tables of normal numbers, ours short of the paper by so much in each row, and their median power.

    The paper's table is drawn once for each of ours: what it prints is subject to chance too.
    """
    found = []
    for _ in range(TABLES):
        cells = []
        for i, shortfall in enumerate(shortfalls):
            a, b = rng.normal(80 - shortfall, std, REPEATS), rng.normal(80, std, REPEATS)
            spread = a.std(ddof=1), REPEATS, b.mean(), b.std(ddof=1)
            cells.append(Cell("score", f"set {i}", "learned", a.mean(), *spread, variant="ours"))
        found.append(verdict("ours", cells, claims, GENERATED))
    return [v.word for v in found], np.median([v.median_power for v in found])


def share(word, found):
    return np.mean([w == word for w in found])


@pytest.mark.parametrize("std", [8.0, 11.0, 16.0])
def test_a_verdict_is_not_as_often_as_its_power_says_where_one_number_lost_half_of_the_gain(std, rng):
    found, power = words(rng, std, [10.0] + [0.0] * (ROWS - 1))
    # three standard errors of the simulation; the other rows err at most at the level
    assert power - 0.1 < share("not", found) < power + LEVEL + 0.1
    assert (power > POWER) == (std == 8.0)


@pytest.mark.parametrize("std", [4.0, 8.0, 16.0])
def test_a_verdict_is_seldom_not_where_nothing_differs(std, rng):
    found, power = words(rng, std, [0.0] * ROWS)
    assert share("not", found) <= LEVEL + 0.035
    # whether the rest is reproduced or undecided depends on the power alone
    assert share("reproduced" if power > POWER else "cannot tell", found) > 0.85


def test_losses_everywhere_and_gains_everywhere(rng):
    assert share("not", words(rng, 8.0, [10.0] * ROWS)[0]) > 0.99
    better, power = words(rng, 16.0, [-30.0] * ROWS)
    assert power < POWER
    assert share("reproduced", better) > 0.9  # a number that is better needs no power to be worse


@pytest.mark.parametrize(("truth", "parts"), [(-1.0, 1), (-1.0, 5), (0.0, 1), (0.0, 5), (1.0, 5)])
def test_statements_of_several_parts_fail_and_hold_as_seldom_as_they_should(truth, parts, rng):
    outcomes, powers = [], []
    for samples in rng.normal(size=(400, parts, 20)):
        samples[0] += truth
        found = judge_claim(Claim("", True, "", **least(*(margin(s, np.zeros(20)) for s in samples))))
        outcomes.append(found.outcome)
        powers.append(found.power)
    assert least(margin(np.ones(3), np.zeros(3)), least(margin(np.ones(3), np.zeros(3))))["parts"] == 2
    if truth < 0:
        assert share("worse", outcomes) > 0.85
        assert share("no worse", outcomes) == 0
    else:
        assert share("worse", outcomes) <= LEVEL + 0.025
        assert share("no worse", outcomes) <= LEVEL + 0.025  # where a part does not hold, the whole does not


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


# ------------------------------------------------------------------------------------------------- what is published

RESULTS = Path(__file__).parents[3] / "docs" / "results"


@pytest.mark.parametrize("result", pages.read(RESULTS), ids=pages.stem)
def test_published_numbers_have_the_papers_repeats_or_the_power(result):
    theirs = result.printed.repeats
    for found in result.verdicts():
        cells = [c for c in result.cells if c.variant == found.variant and found.variant and c.paper is not None]
        judged = [judge_cell(c, result.printed.measures[c.measure], theirs, found.total) for c in cells]
        assert all(j.power >= POWER for j in judged if j.outcome == "no worse")
        assert theirs is None or all(c.repeats >= theirs for c in cells) or min(j.power for j in judged) >= POWER
        assert found.word != "reproduced" or not found.gains_less


def test_a_statement_belongs_to_its_variants():
    """Figure 2 of simplenpkl: what was found with our settings says nothing about the paper's."""
    path = Path(__file__).parents[3] / "docs" / "results" / "simplenpkl-figure2.json"
    result = Result.from_dict(json.loads(path.read_text()))
    assert {claim.variants for claim in result.claims} == {
        ("the paper's setting",),
        ("our other settings", "our default"),
    }
    totals = {v.variant: v.total for v in result.verdicts()}
    assert totals == {"the paper's setting": 3, "our other settings": 3, "our default": 3}
    without = replace(result, claims=tuple(replace(claim, variants=()) for claim in result.claims))
    assert {v.total for v in without.verdicts()} == {5}
    assert Result.from_dict(json.loads(json.dumps(result.as_dict()))).claims == result.claims
