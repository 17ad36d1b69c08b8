"""The rule by which a number or a statement of a paper counts as reproduced, as not, or as undecided.

A number of ours is compared with the printed one by Welch's test, and a statement of the text by the margin with which
it holds.  All comparisons of a verdict share an error rate of `LEVEL` on each side (Bonferroni).

- worse: the shortfall exceeds what chance allows, and the grain of the measure;
- better: the gain does;
- no worse: neither does, and the comparison had a power of at least `POWER`;
- cannot tell: neither does, and the power was less.

Power is the probability of finding a shortfall of `SHARE` of the gain that the paper prints over its own baseline, of
two grains at least.  Where the paper prints no spread, ours stands for it.

A statement holds if its margin exceeds what chance allows, does not hold if the opposite margin would, and is undecided
otherwise; its power is that of finding a margin of this size with the opposite sign.  A statement with several parts
has the margin of its weakest part.  It holds only if all parts do, which needs no correction, but any part may make it
fail by chance: they share the error rate of the statement.

One worse comparison makes the verdict "not"; otherwise one undecided comparison makes it "cannot tell".  So
"reproduced" needs of each comparison that it had the power to fail, or that it is better than the paper by more than
chance allows.  It also needs the method to gain, on average, at least `SHARE` of what it gains in the paper, each over
its own baseline: where ours is so much better that what the paper reached is reached with less, nobody can tell whether
the method or the baseline did it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .printed import Measure, Printed

LEVEL = 0.025
"""The probability, on one side, that any comparison of a verdict errs if nothing differs."""
POWER = 0.8
"""The least power with which "no worse" is a finding."""
SHARE = 0.5
"""The share of the printed gain whose loss must be noticed."""
BETTER, NO_WORSE, WORSE, UNDECIDED = "better", "no worse", "worse", "cannot tell"
REPRODUCED, NOT, CANNOT_TELL = "reproduced", "not", "cannot tell"


@dataclass(frozen=True)
class Cell:
    """One of our numbers, and the corresponding one of the paper.

    Attributes
    ----------
    measure, row, column : str
    ours, std : float or None
        Mean and standard deviation over the repeats; no deviation for a single repeat.
    repeats : int
    paper, paper_std : float or None
    mark, paper_mark : bool
        Whether the column outperforms the others of its row at the 95 % level, in our results and in the paper.
    variant : str
        The variant of the paper's method; "" for baselines and for numbers that are not judged.
    timed : bool
        Whether the number is a time, which differs between runs.
    """

    measure: str
    row: str
    column: str
    ours: float | None
    std: float | None
    repeats: int
    paper: float | None = None
    paper_std: float | None = None
    mark: bool = False
    paper_mark: bool = False
    variant: str = ""
    timed: bool = False


@dataclass(frozen=True)
class Claim:
    """A statement of the paper about a table or figure, and whether it holds here.

    ``margin`` is by how much it holds (negative: fails) in our mean, ``error`` the standard error of that over
    ``repeats``; of a statement with several ``parts`` it is that of the weakest.  Without an error the statement is not
    subject to chance, and ``holds`` alone counts.  It belongs to the verdicts of its ``variants``; without any, to all.
    """

    says: str
    holds: bool
    ours: str
    margin: float | None = None
    error: float | None = None
    repeats: int = 1
    parts: int = 1
    variants: tuple[str, ...] = ()

    def about(self, variant: str) -> bool:
        """Return whether it belongs to the verdict of a variant."""
        return not self.variants or variant in self.variants


@dataclass(frozen=True)
class Judgement:
    """One comparison: its outcome and its power, None where chance plays no part."""

    outcome: str
    power: float | None


@dataclass(frozen=True)
class Verdict:
    """How one variant of the method compares with the paper.

    ``word`` is "reproduced", "not" or "cannot tell".  Of ``total`` numbers and claims ``worse`` are worse than the
    paper's, ``undecided`` may be, and ``better`` are better.  ``power`` is the least, ``median_power`` the median power
    of the comparisons; ``ours`` and ``paper`` are the means of the numbers compared, ``gain`` and ``paper_gain`` what
    these gain over the baselines of their tables.
    """

    variant: str
    word: str
    worse: int
    undecided: int
    better: int
    total: int
    power: float | None
    median_power: float | None
    ours: float | None
    paper: float | None
    gain: float | None = None
    paper_gain: float | None = None

    @property
    def gains_less(self) -> bool:
        """Whether our gain is below the share of the paper's that a reproduction needs."""
        return self.gain is not None and self.paper_gain is not None and self.gain < SHARE * self.paper_gain

    @property
    def good(self) -> int:
        """How many comparisons found nothing worse, with enough power to find it."""
        return self.total - self.worse - self.undecided


def verdict(
    variant: str,
    cells: Sequence[Cell],
    claims: Sequence[Claim],
    printed: Printed,
    gains: tuple[float | None, float | None] = (None, None),
) -> Verdict:
    """Judge the numbers of one variant together with the statements; ``gains`` are ours and the paper's."""
    family = max(1, len(cells) + len(claims))
    found = [
        *(judge_cell(cell, printed.measures[cell.measure], printed.repeats, family) for cell in cells),
        *(judge_claim(claim, family) for claim in claims),
    ]
    worse, undecided, better = (sum(j.outcome == o for j in found) for o in (WORSE, UNDECIDED, BETTER))
    word = NOT if worse else CANNOT_TELL if undecided else REPRODUCED
    powers = sorted(j.power for j in found if j.power is not None)
    middle = (powers[len(powers) // 2] + powers[(len(powers) - 1) // 2]) / 2 if powers else None
    ours = [cell.ours for cell in cells if cell.ours is not None]
    theirs = [cell.paper for cell in cells if cell.ours is not None and cell.paper is not None]
    means = (math.fsum(ours) / len(ours), math.fsum(theirs) / len(theirs)) if ours else (None, None)
    least = powers[0] if powers else None
    whole = Verdict(variant, word, worse, undecided, better, len(found), least, middle, *means)
    whole = replace(whole, gain=gains[0], paper_gain=gains[1])
    return replace(whole, word=CANNOT_TELL) if word == REPRODUCED and whole.gains_less else whole


def judge_cell(cell: Cell, measure: Measure, paper_repeats: int | None, family: int = 1) -> Judgement:
    """Compare a number with the printed one; ``family`` is the number of comparisons of the verdict."""
    if cell.ours is None or cell.paper is None:
        return Judgement(WORSE, None)
    gain = cell.ours - cell.paper if measure.better == "higher" else cell.paper - cell.ours
    # a spread that was not printed, or not measured, is taken to be that of the other side
    ours = cell.std if cell.std is not None else cell.paper_std
    if ours is None:
        return Judgement(UNDECIDED, 0.0)
    theirs = cell.paper_std if cell.paper_std is not None else ours
    own, other = ours**2 / cell.repeats, theirs**2 / (paper_repeats or cell.repeats)
    spread = own**2 / max(1, cell.repeats - 1) + other**2 / max(1, (paper_repeats or cell.repeats) - 1)
    freedom = (own + other) ** 2 / spread if spread > 0 else math.inf
    material = max(SHARE * measure.effect(cell.row, cell.column.split(", ")[0]), 2 * measure.grain)
    return _judged(gain, math.sqrt(own + other), freedom, material, measure.grain, family)


def judge_claim(claim: Claim, family: int = 1) -> Judgement:
    """Compare the margin of a statement with its error; a statement that may fail by chance is undecided."""
    if claim.margin is None or claim.error is None:
        return Judgement(NO_WORSE if claim.holds else WORSE, None)
    looks = family * claim.parts if claim.margin < 0 else family  # the weakest of several is below 0 by chance too
    found = _judged(claim.margin, claim.error, max(1, claim.repeats - 1), abs(claim.margin), 0.0, looks)
    if found.outcome in (BETTER, WORSE):
        return Judgement(NO_WORSE if found.outcome == BETTER else WORSE, found.power)
    return Judgement(UNDECIDED, found.power)


def _judged(gain: float, error: float, freedom: float, material: float, grain: float, family: int) -> Judgement:
    """Judge a gain with its standard error and degrees of freedom; see the module."""
    from scipy.stats import nct, norm, t

    if error == 0:
        outcome = NO_WORSE if abs(gain) <= grain else BETTER if gain > 0 else WORSE
        return Judgement(outcome, 1.0 if material > grain else 0.0)
    # beyond 1000 degrees of freedom t is normal to three digits, and the non-central t overflows
    normal = freedom > 1000
    sure = float(norm.isf(LEVEL / family) if normal else t.isf(LEVEL / family, freedom))
    threshold = max(sure, grain / error)
    shift = material / error
    power = float(norm.sf(threshold - shift) if normal else nct.sf(threshold, freedom, min(shift, 35.0)))
    if shift > threshold + 30 or math.isnan(power):
        power = float(norm.sf(threshold - shift))
    if abs(gain) > threshold * error:
        return Judgement(BETTER if gain > 0 else WORSE, power)
    return Judgement(NO_WORSE if power >= POWER else UNDECIDED, power)
