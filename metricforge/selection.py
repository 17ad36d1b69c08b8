"""Choose a method by held-out relations: candidates, folds over rows, scores, and the fallback to the start.

A fold learns from the relations inside its training rows.  Every relation that touches a held-out row is scored, for
the candidate and for the start, the metric before learning.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from . import join
from . import rows as _rows
from .checks import nearest
from .constraints import Constraint, Distances
from .errors import ConvergenceWarning, InputError, SolverError
from .fitting import solve
from .kernels import Kernel, Linear
from .plans import Plan, Suited, baseline, method_names, resolve
from .problem import Certificate
from .space import explicit_map, explicit_width

FOLDS = 3
CHECKED = 2
"""Folds of `FOLDS` on which "auto" checks its choice: with its fit on all rows it then costs less than four fits."""
MOST_RELATIONS = 50_000
"""Relations that folds learn from and score.  Up to `MOST_ROWS` rows are not sampled: with fewer, other candidates
win."""
MOST_ROWS = 10_000
"""The largest number of rows on which candidates are compared.  Of more rows some are drawn, so that the comparison
costs about as much as the fit."""
SCORED_ROWS = 600
"""Labelled rows of either side that are compared: shares are then accurate to two percent, at a part of the cost of a
fit."""
START = "start"


@dataclass(frozen=True)
class Candidate:
    """A plan to be compared.

    Attributes
    ----------
    name : str
        The method, with the options that differ from its defaults: "name", "name(option=0.1)".
    plan : Plan
    rank : "exact", int or None
        None: the rank of the call.
    """

    name: str
    plan: Plan
    rank: str | int | None = None


@dataclass(frozen=True)
class Scored:
    """What a candidate scores on held-out relations.

    Attributes
    ----------
    name : str
    scores : tuple of float
        One per fold, in [0, 1]; empty if a fit failed.
    seconds : float
        CPU time of all folds.
    certificate : Certificate or None
        Of the fit of the last fold.
    failure : str
        Why a fit failed; "" if none did.
    balanced : tuple of float
        The balanced accuracy of the nearest row, one per fold, where it was asked for and the hints name classes.
    """

    name: str
    scores: tuple[float, ...] = ()
    seconds: float = 0.0
    certificate: Certificate | None = None
    failure: str = ""
    balanced: tuple[float, ...] = ()

    @property
    def mean(self) -> float:
        """The mean score; NaN if a fit failed."""
        return float(np.mean(self.scores)) if self.scores else float("nan")

    @property
    def error(self) -> float:
        """The standard error of the mean over folds."""
        return standard_error(self.scores)

    def gain(self, other: Scored) -> tuple[float, float]:
        """Return by how much the mean is above that of another candidate, and the standard error of that."""
        difference = np.subtract(self.scores, other.scores)
        return float(difference.mean()), standard_error(difference)


def standard_error(values: Any) -> float:
    """Return the standard error of a mean; 0 for fewer than two values."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


@dataclass(frozen=True)
class Choice:
    """A chosen candidate, and the fields of the report that say why."""

    candidate: Candidate
    fields: Mapping[str, Any] = field(default_factory=dict)


# ----------------------------------------------------------------------------------------------------------- candidates


def read_candidate(given: Any, kernel: Kernel | None = None) -> Candidate:
    """Return the candidate that a user means: the name of a method, or a dict with "method" and arguments of learn.

    ``kernel`` is that of the call, unless the candidate has its own.
    """
    if isinstance(given, str):
        given = {"method": given}
    if not isinstance(given, Mapping) or not isinstance(given.get("method"), str):
        raise InputError(
            f"candidates must be names of methods or dicts with one, got {given!r}; {nearest('', method_names())}"
        )
    options = {name: value for name, value in given.items() if name not in ("method", "kernel", "rank")}
    own = given.get("kernel", kernel)
    plan = resolve(given["method"], own, None, options)
    settings = {name: value for name, value in given.items() if name != "method"}
    return Candidate(label(given["method"], settings), plan, given.get("rank"))


def label(method: str, settings: Mapping[str, Any]) -> str:
    """Return the name of a candidate: "name", "name(kernel=standardized(rbf), option=0.1)"."""
    shown = ", ".join(f"{name}={_shown(value)}" for name, value in settings.items())
    return f"{method}({shown})" if shown else method


def _shown(value: Any) -> str:
    if isinstance(value, str) or not isinstance(value, Kernel):
        return str(value)
    inside = ", ".join(_shown(part) for _, part in value._kernel_fields())
    return type(value).__name__.lower() + (f"({inside})" if inside else "")


def suited_candidate(entry: Suited, kernel: Any, rank: str | int) -> Candidate:
    """Return the candidate that a method declares for this use; kernel and rank of the call come before its own."""
    given = {"kernel": kernel is not None, "rank": rank != "auto"}
    setting = {name: value for name, value in entry.use.setting.items() if not given.get(name, False)}
    return read_candidate({"method": entry.name, **setting}, kernel)


def start_candidate(kernel: Kernel | None) -> Candidate | None:
    """Return the metric before learning as a candidate, or None if no method for it is installed."""
    name = baseline()
    return None if name is None else Candidate(START, resolve(name, kernel))


# -------------------------------------------------------------------------------------------------------------- scoring


def score(
    candidates: Sequence[Candidate],
    rows: Any,
    constraint: Constraint,
    *,
    rank: str | int,
    seed: int,
    folds: int = FOLDS,
    most: int | None = None,
    step: Any = None,
    balanced: bool = False,
) -> list[Scored]:
    """Score every candidate on the same folds of checked rows, or on the first ``most`` of these.

    With ``balanced``, balanced accuracies are measured too.

    A candidate whose fit fails has no scores but a failure.

    Raises
    ------
    InputError
        If the relations cannot be split or scored.
    """
    constraint = constraint.sampled(MOST_RELATIONS, seed=seed)
    found: list[Scored] = [Scored(candidate.name) for candidate in candidates]
    used = folds if most is None else most
    for number, (training, held_out) in enumerate(islice(constraint.folds(folds, seed), used)):
        inside, part = constraint[training], _rows.take(rows, training)
        for position, candidate in enumerate(candidates):
            if step is not None:
                step(number * len(candidates) + position, used * len(candidates))
            if not found[position].failure:
                found[position] = _scored(
                    found[position], candidate, part, inside, rows, held_out, rank, seed, balanced
                )
    return found


def _scored(
    before: Scored,
    candidate: Candidate,
    part: Any,
    inside: Constraint,
    rows: Any,
    held_out: Constraint,
    rank: str | int,
    seed: int,
    balanced: bool,
) -> Scored:
    """Return the scores with one fold more."""
    started = time.process_time()
    try:
        relations = join.relations(inside, _rows.count(part), candidate.plan.solver.accepts, seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the fit on all rows will say so
            used = rank if candidate.rank is None else candidate.rank
            solved = solve(candidate.plan, part, relations, rank=used, seed=seed)
    except (InputError, SolverError) as error:
        spent = before.seconds + time.process_time() - started
        return replace(before, scores=(), seconds=spent, failure=f"{type(error).__name__}: {error}")
    distances = _distances(solved.solution.kernel, rows, seed)
    value = held_out.score(distances)
    parts = [part.share for part in held_out.satisfied(distances) if part.by_class] if balanced else []
    spent = before.seconds + time.process_time() - started
    certificate = solved.solution.certificate
    assert isinstance(certificate, Certificate)
    return replace(
        before,
        scores=(*before.scores, value),
        seconds=spent,
        certificate=certificate,
        balanced=(*before.balanced, *parts),
    )


def _distances(kernel: Kernel, rows: Any, seed: int) -> Distances:
    """Return the distances of a kernel; if it has an exact embedding, each row is embedded once for all relations."""
    try:
        own = kernel.embedding()
    except InputError:  # an indefinite kernel has distances, but no embedding
        return Distances(kernel, rows, seed, SCORED_ROWS)
    if own is not None and own.exact:
        return Distances(Linear(), own(rows), seed, SCORED_ROWS, coordinates=True)
    width = None if own is not None else explicit_width(kernel, rows)
    if width is not None and width <= _rows.count(rows):
        return Distances(Linear(), explicit_map(kernel, width)(rows), seed, SCORED_ROWS, coordinates=True)
    return Distances(kernel, rows, seed, SCORED_ROWS)


# ------------------------------------------------------------------------------------------------------------- choosing


def choose(
    candidates: Sequence[Candidate],
    start: Candidate | None,
    rows: Any,
    constraint: Constraint,
    *,
    rank: str | int,
    seed: int,
    guard: bool,
) -> Choice:
    """Return the candidate with the best score, or with ``guard`` the start if that is not worse.

    Raises
    ------
    InputError
        If the relations cannot be split or scored, or if every candidate fails.
    """
    n, folds = _rows.count(rows), f"{CHECKED} folds over rows"
    with join.progress(f"choosing a method on {n} rows") as step:
        compared = list(candidates)
        if n > MOST_ROWS or _rows.is_dask(rows):
            compared = [_at_full_rank(one, rows, constraint, rank, seed) for one in candidates]
            drawn = constraint.some_rows(MOST_ROWS, seed=seed)
            rows, constraint = _rows.take(rows, drawn), constraint[drawn]
            folds += f", of which {len(drawn):,} of {n:,} were drawn"
        compared += [start] if start is not None else []
        found = score(compared, rows, constraint, rank=rank, seed=seed, most=CHECKED, step=step)
    base = found.pop() if start is not None else None
    finished = [place for place, one in enumerate(found) if one.scores]
    if not finished:
        raise InputError(f"every candidate failed; {found[0].name}: {found[0].failure}")
    place = max(finished, key=lambda place: found[place].mean)
    best = found[place]
    measured = {"candidates": {one.name: _facts(one) for one in (*found, *([base] if base else []))}}
    if base is None or not base.scores:
        others = "".join(f", {one.name} {_percent(one)}" for one in found if one.scores and one is not best)
        line = f"chosen: {best.name} ({constraint.score_name} {_percent(best)}{others}; {folds})"
        return Choice(candidates[place], {"choice": line, **measured})
    gain, error = best.gain(base)
    if guard and gain <= 0:
        line = (
            f"kept the start ({constraint.score_name} {_percent(base)}): {best.name} gained {100 * gain:.1f} ± "
            f"{100 * error:.1f} points ({folds})"
        )
        assert start is not None
        return Choice(start, {"choice": line, **measured})
    both = f"{constraint.score_name} {_percent(best)}, the start {_percent(base)}"
    line = f"chosen: {best.name} ({both}; {folds})"
    return Choice(candidates[place], {"choice": line, **measured})


def _at_full_rank(one: Candidate, rows: Any, constraint: Constraint, rank: str | int, seed: int) -> Candidate:
    """Return a candidate with the number of landmarks that it takes on all rows: on fewer rows it would take more."""
    if (rank if one.rank is None else one.rank) != "auto":
        return one
    plan = one.plan
    try:
        usable = join.relations(constraint, _rows.count(rows), plan.solver.accepts, seed=seed).usable
        space = join.make_space(plan.kernel, rows, "auto", seed=seed, method=plan.method, constraint=usable)
    except (InputError, SolverError):
        return one  # its fit fails likewise, and says why
    return replace(one, rank=space.rank) if space.representation == "landmarks" else one


def _facts(one: Scored) -> dict[str, Any]:
    score = one.mean if one.scores else None  # a report has no NaN
    return {"score": score, "error": one.error, "seconds": one.seconds, "failure": one.failure}


def _percent(one: Scored) -> str:
    return f"{100 * one.mean:.1f} ± {100 * one.error:.1f} %"
