"""Scores on held-out relations, by one loop over folds: for method="auto", for `compare`, and for the command line.

A fold learns from the relations inside its training rows.  Every relation that touches a held-out row is scored.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from . import rows as _rows
from .constraints import Constraint, Distances
from .errors import ConvergenceWarning, InputError, SolverError, UnknownNameError
from .figures import grid
from .fitting import fit, make_space, relations, solve
from .kernels import Kernel, Linear
from .metric import Metric
from .registry import registry
from .registry.progress import progress
from .resolve import START, Plan, as_constraint, declared_methods, find_kernel, read_plan, start_kernel, start_plan
from .solver import Certificate
from .space import explicit_map, explicit_width
from .validation import nearest, whole_number

FOLDS = 3
MOST_RELATIONS = 50_000
"""Relations that folds learn from and score.  Up to `MOST_ROWS` rows are not sampled: with fewer, other candidates
win."""
MOST_ROWS = 10_000
"""The largest number of rows on which candidates are compared.  Of more rows some are drawn, so that the comparison
costs about as much as the fit."""
SCORED_ROWS = 600
"""Labelled rows of either side that are compared: shares are then accurate to two percent, at a part of the cost of a
fit."""


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

    @property
    def percent(self) -> str:
        """Mean and standard error as text."""
        return f"{100 * self.mean:.1f} ± {100 * self.error:.1f} %" if self.scores else "not measured"

    def gain(self, other: Scored) -> tuple[float, float]:
        """Return by how much the mean is above that of another candidate, and the standard error of that."""
        difference = np.subtract(self.scores, other.scores)
        return float(difference.mean()), standard_error(difference)


def standard_error(values: Any) -> float:
    """Return the standard error of a mean; 0 for fewer than two values."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def score(
    plans: Sequence[Plan],
    rows: Any,
    constraint: Constraint,
    *,
    seed: int,
    folds: int = FOLDS,
    most: int | None = None,
    step: Any = None,
    balanced: bool = False,
) -> list[Scored]:
    """Score every plan on the same folds of checked rows, or on the first ``most`` of these.

    With ``balanced``, balanced accuracies are measured too.

    A plan whose fit fails has no scores but a failure.

    Raises
    ------
    InputError
        If the relations cannot be split or scored.
    """
    constraint = constraint.sampled(MOST_RELATIONS, seed=seed)
    scored: list[Scored] = [Scored(plan.label) for plan in plans]
    used = folds if most is None else most
    for number, (training, held_out) in enumerate(islice(constraint.folds(folds, seed), used)):
        inside, part = constraint[training], _rows.take(rows, training)
        for i, plan in enumerate(plans):
            if step is not None:
                step(number * len(plans) + i, used * len(plans))
            if scored[i].failure:
                continue
            started = time.process_time()
            try:
                kernel, certificate = _learned(plan, part, inside, seed)
            except (InputError, SolverError) as error:
                spent = scored[i].seconds + time.process_time() - started
                scored[i] = Scored(plan.label, seconds=spent, failure=f"{type(error).__name__}: {error}")
                continue
            distances = _distances(kernel, rows, seed)
            value = held_out.score(distances)
            parts = [part.share for part in held_out.satisfied(distances) if part.by_class] if balanced else []
            scored[i] = replace(
                scored[i],
                scores=(*scored[i].scores, value),
                seconds=scored[i].seconds + time.process_time() - started,
                certificate=certificate,
                balanced=(*scored[i].balanced, *parts),
            )
    return scored


@_rows.quiet()
def _learned(plan: Plan, rows: Any, constraint: Constraint, seed: int) -> tuple[Kernel, Certificate | None]:
    """Return the kernel that a plan learns from part of the rows, and its certificate; the start takes no solver."""
    if plan.method.baseline:
        return make_space(plan.kernel, rows, plan.rank, seed=seed).kernel, None
    usable = relations(constraint, _rows.count(rows), plan.solver.accepts, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the fit on all rows will say so
        solution = solve(plan, rows, usable, seed=seed).solution
    assert isinstance(solution.certificate, Certificate)
    return solution.kernel, solution.certificate


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


# -------------------------------------------------------------------------------------------------------------- compare


def compare(
    X: Any,
    constraints: Any,
    *,
    candidates: Sequence[Any] | None = None,
    kernel: Kernel | Metric | str | None = None,
    rank: str | int = "auto",
    folds: int = FOLDS,
    seed: int = 0,
) -> Comparison:
    """Compare methods on relations that they did not learn from.

    Every candidate learns from the relations inside the training rows of a fold, and is scored on those that touch a
    held-out row.  The start, the metric before learning, is always among them.

    Parameters
    ----------
    X : rows
        In memory.
    constraints : Constraint, or 1-d array of labels
    candidates : sequence, optional
        Names of methods, or dicts such as ``{"method": name, option: value}``.  Default: every installed method that
        can learn from this kind, with its default and with each of the settings that it declares.
    kernel : Kernel, Metric or str, optional
        The kernel that all start from; default: each method's own, and on strings that of `metricforge.learn`.
    rank : "auto", "exact" or int
    folds : int >= 2
    seed : int
        The same seed gives the same folds and scores.

    Returns
    -------
    Comparison
        Prints as a table; ``best`` is a name, ``fit()`` a Metric.
    """
    constraint = as_constraint(constraints)
    seed, folds = whole_number(seed, "seed", least=0), whole_number(folds, "folds", least=2)
    kernel = start_kernel(kernel, "auto", X)
    base = None if kernel is None else find_kernel(kernel)
    plans = _declared(constraint, base, rank) if candidates is None else _given(candidates, base, rank)
    start = start_plan(base, rank)
    plans += [] if start is None else [start]
    if not plans:
        raise InputError(f"no installed method can learn from {type(constraint).__name__}; give candidates")
    rows = plans[0].kernel.check(X, "X")
    if plans[0].kernel.takes == "gram":
        raise InputError("kernel: a precomputed Gram matrix cannot be split into folds; give rows and a kernel")
    if _rows.is_dask(rows):
        raise InputError("X is a dask array; compare on rows in memory, for instance a sample of them")
    constraint.check(_rows.count(rows), "constraints")
    with progress(f"comparing {len(plans)} candidates on {_rows.count(rows)} rows") as step:
        scored = score(plans, rows, constraint, seed=seed, folds=folds, step=step, balanced=True)
    order = sorted(range(len(plans)), key=lambda i: (not scored[i].scores, -scored[i].mean))
    columns = tuple(_rows.column_names(X) or ())
    ordered = tuple(scored[i] for i in order), tuple(plans[i] for i in order)
    return Comparison(*ordered, rows, constraint, seed, folds, columns)


def _declared(constraint: Constraint, kernel: Kernel | None, rank: str | int) -> list[Plan]:
    plans: list[Plan] = []
    for name, method in declared_methods()[0].items():
        path = registry.path(type(constraint), method.solver.accepts)
        if path is None or method.baseline or (kernel is None and method.kernel.takes != "vectors"):
            continue
        settings = [setting for setting in method.settings if kernel is None or "kernel" not in setting]
        plans += [read_plan({"method": name, **setting}, kernel, rank) for setting in ({}, *settings)]
    return plans


def _given(candidates: Sequence[Any], kernel: Kernel | None, rank: str | int) -> list[Plan]:
    plans = [read_plan(one, kernel, rank) for one in candidates]
    labels = [plan.label for plan in plans]
    again = next((label for label in labels if labels.count(label) > 1 or label == START), None)
    if again is not None:
        raise InputError(f"candidates: {again!r} is there twice; give each once")
    return plans


@dataclass(frozen=True, eq=False)
class Comparison:
    """Candidates and their scores on held-out relations, the best first.

    Attributes
    ----------
    scores : tuple of Scored
        Name, scores by fold, mean, standard error, seconds, certificate and failure of each candidate.
    candidates : tuple of Plan
    rows, constraint, seed, folds, columns
        What was compared.
    """

    scores: tuple[Scored, ...]
    candidates: tuple[Plan, ...]
    rows: Any
    constraint: Constraint
    seed: int
    folds: int
    columns: tuple[str, ...] = ()

    @property
    def best(self) -> str:
        """The name of the candidate with the highest mean score; "start" if no method is better than the start."""
        if not self.scores[0].scores:
            raise InputError(f"every candidate failed; {self.scores[0].name}: {self.scores[0].failure}")
        return self.scores[0].name

    def fit(self, name: str | None = None) -> Metric:
        """Return the metric that a candidate, by default the best, learns from all rows and relations."""
        name = self.best if name is None else name
        plans = {plan.label: plan for plan in self.candidates}
        if name not in plans:
            raise UnknownNameError(f"name={name!r} is not a candidate; {nearest(str(name), plans)}")
        one = next(scored for scored in self.scores if scored.name == name)
        line = f"{name}, of {len(plans)} candidates compared ({self.constraint.score_name} {one.percent})"
        choice = {"choice": line}
        return fit(plans[name], self.rows, self.constraint, seed=self.seed, columns=self.columns, choice=choice)

    def records(self) -> list[dict[str, Any]]:
        """Return a dict for each candidate: name, score, error, seconds, certificate, failure.

        Where the hints name classes, ``balanced`` is the balanced accuracy of the nearest row.
        """
        classes = self._classes
        return [
            {
                "name": one.name,
                "score": one.mean if one.scores else None,
                "error": one.error if one.scores else None,
                "seconds": one.seconds,
                "certificate": "" if one.certificate is None else one.certificate.describe(),
                "failure": one.failure,
                **({"balanced": float(np.mean(one.balanced)) if one.balanced else None} if classes else {}),
            }
            for one in self.scores
        ]

    @property
    def _classes(self) -> bool:
        return any(one.balanced for one in self.scores)

    def to_frame(self) -> Any:
        """Return a pandas frame with a row for each candidate."""
        try:
            import pandas as pd
        except ImportError:
            raise InputError("to_frame() needs pandas, which is not installed; use records()") from None
        return pd.DataFrame(self.records())

    def plot(self, ax: Any = None) -> Any:
        """Draw the scores with their standard errors, the start as a line; return the axes."""
        shown = [one for one in self.scores if one.scores][::-1]
        if ax is None:
            ax = grid(1, 1, width=6.0, height=1.2 + 0.3 * len(shown))[1][0, 0]
        places = range(len(shown))
        errors = [100 * one.error for one in shown]
        ax.errorbar([100 * one.mean for one in shown], places, xerr=errors, fmt="o", color="C0", capsize=3)
        for one in shown:
            if one.name == START:
                ax.axvline(100 * one.mean, color="0.5", linestyle="dashed", linewidth=0.8)
        ax.set_yticks(places, [one.name for one in shown])
        ax.set_xlabel(f"{self.constraint.score_name}, %")
        return ax

    def __str__(self) -> str:
        middle = ("balanced %",) if self._classes else ()
        head = ("candidate", "score %", "± ", *middle, "CPU s", "certificate")
        lines = [
            (
                one.name,
                f"{100 * one.mean:.1f}" if one.scores else "–",
                f"{100 * one.error:.1f}" if one.scores else "–",
                *(f"{100 * np.mean(one.balanced):.1f}" if one.balanced else "–" for _ in middle),
                f"{one.seconds:.2f}",
                one.failure or ("" if one.certificate is None else one.certificate.describe()),
            )
            for one in self.scores
        ]
        wide = [max(len(line[place]) for line in (head, *lines)) for place in range(len(head) - 1)]
        shown = [
            f"{line[0]:<{wide[0]}}  "
            + "  ".join(f"{text:>{w}}" for text, w in zip(line[1:-1], wide[1:], strict=True))
            + f"  {line[-1]}".rstrip()
            for line in (head, *lines)
        ]
        if middle:
            shown.append("balanced: balanced accuracy of the nearest row")
        note = f"score: {self.constraint.score_name}, mean and standard error of {self.folds} folds over rows"
        return "\n".join([*shown, note])

    def __repr__(self) -> str:
        return str(self)
