"""method="auto": which methods suit a constraint and rows, and whether the first choice is better than the start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from . import rows as _rows
from .constraints import Constraint
from .distributed import cluster
from .errors import InputError, SolverError, UnknownNameError
from .evaluation import MOST_ROWS, Scored, score
from .fitting import make_space, relations
from .kernels import Kernel
from .registry import registry
from .registry.progress import progress
from .resolve import Plan, declared_methods, read_plan, start_plan
from .solver import Method, Use
from .validation import nearest

CHECKED = 2
"""Folds on which "auto" checks its choice: with its fit on all rows it then costs less than four fits."""


@dataclass(frozen=True)
class Situation:
    """What decides which methods suit: the constraint, and the number, type and place of the rows."""

    constraint: Constraint
    n: int
    takes: str = "vectors"
    dask: bool = False

    @classmethod
    def of(cls, X: Any, constraint: Constraint, kernel: Kernel | None) -> Situation:
        """Return the situation of a call; with an active client, rows in memory go to its workers."""
        on_dask = _rows.is_dask(X) or cluster.client() is not None
        return cls(constraint, constraint.n, "vectors" if kernel is None else kernel.takes, on_dask)

    def admits(self, use: Use) -> bool:
        """Return whether a use is within its declared limits here."""
        return (
            (use.most_rows is None or self.n <= use.most_rows)
            and (not use.takes or self.takes in use.takes)
            and (use.dask or not self.dask)
            and (use.when is None or (isinstance(self.constraint, use.constraint) and use.when(self.constraint)))
        )


@dataclass(frozen=True)
class Suited:
    """A method that suits a situation, in the order in which "auto" tries it."""

    name: str
    use: Use
    steps: int
    """The number of conversions from the given kind to that of the use."""

    def plan(self, kernel: Kernel | None, rank: str | int) -> Plan:
        """Return the declared plan for this use; kernel and rank of the call come before those of its setting."""
        given = {"kernel": kernel is not None, "rank": rank != "auto"}
        setting = {name: value for name, value in self.use.setting.items() if not given.get(name, False)}
        return read_plan({"method": self.name, **setting}, kernel, rank)


def suited(situation: Situation) -> tuple[list[Suited], tuple[str, ...]]:
    """Return the methods that declare themselves for a situation, first choice first, and why others cannot be loaded.

    Methods for the kind itself come before those for a kind that it can be converted to, then the declared order
    counts.  A method occurs once, with the best of its uses.
    """
    declared, failed = declared_methods()
    kind = type(situation.constraint)
    found: list[tuple[int, int, str, Use]] = []
    for name, method in declared.items():
        for use in method.declared_uses:
            path = registry.path(kind, (use.constraint,))
            if path is not None and situation.admits(use):
                found.append((len(path), use.order, name, use))
    ordered: dict[str, Suited] = {}
    for steps, _, name, use in sorted(found, key=lambda entry: entry[:3]):
        ordered.setdefault(name, Suited(name, use, steps))
    return list(ordered.values()), failed


def first_suited(situation: Situation) -> tuple[list[Suited], tuple[str, ...]]:
    """Return what `suited` finds and notes on the choice, or raise if there is nothing."""
    found, failed = suited(situation)
    kind = type(situation.constraint).__name__
    if not found:
        raise InputError(
            f"method='auto' finds no method for {kind}: none declares itself for this kind, or for one that it can be "
            f"converted to{''.join(f'; {reason}' for reason in failed)}; name a method that accepts {kind}"
        )
    first = found[0]
    if first.steps == 0:
        return found, ()
    wanted = first.use.constraint.__name__
    over = "" if situation.takes == "vectors" else f" over {situation.takes}"
    return found, (
        f"no method declares itself for {kind}{over}: {first.name!r}, which is for {wanted}, was chosen",
        *failed,
    )


def knowing(options: Iterable[str], situation: Situation) -> tuple[str, tuple[str, ...]]:
    """Return the first method that has all the options, and a note if it is not the one "auto" would take.

    Raises
    ------
    UnknownNameError
        If no method that can learn from this kind has them; the message names the methods that do.
    """
    wanted = list(options)
    ranked = [entry.name for entry in suited(situation)[0]]
    declared = declared_methods()[0]
    kind = type(situation.constraint)
    usable = [name for name, m in declared.items() if registry.path(kind, m.solver.accepts) is not None]
    have = [name for name in (*ranked, *sorted(set(usable) - set(ranked))) if _has(declared[name], wanted)]
    if have:
        given = ", ".join(wanted)
        note = f"method {have[0]!r} was chosen, because {given} {'is' if len(wanted) == 1 else 'are'} among its options"
        return have[0], () if ranked and have[0] == ranked[0] else (note,)
    for option in wanted:
        owners = [name for name, m in declared.items() if _has(m, [option])]
        if not owners:
            known = sorted({name for m in declared.values() for name in _options(m)})
            raise UnknownNameError(f"option {option!r} is unknown to every method; {nearest(option, known)}")
        if not set(owners) & set(usable):
            raise UnknownNameError(
                f"option {option!r} belongs to method {' and '.join(map(repr, owners))}, which cannot learn from "
                f"{kind.__name__}; give other hints, or leave the option out"
            )
    owners_of = {option: [name for name in usable if _has(declared[name], [option])] for option in wanted}
    belong = "; ".join(f"{option} belongs to {', '.join(names)}" for option, names in owners_of.items())
    raise UnknownNameError(f"options {', '.join(map(repr, wanted))} belong to different methods ({belong}); name one")


def _options(method: Method) -> list[str]:
    return [f.name for f in fields(method.solver) if f.init]  # type: ignore[arg-type]


def _has(method: Method, wanted: Iterable[str]) -> bool:
    return set(wanted) <= set(_options(method))


@dataclass(frozen=True)
class Choice:
    """A chosen plan, and the fields of the report that say why."""

    plan: Plan
    facts: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Automatic:
    """A call with method="auto", without solver and options."""

    X: Any
    constraint: Constraint
    kernel: Kernel | None
    rank: str | int
    seed: int
    guard: bool

    def choices(self) -> Iterable[Choice]:
        """Yield the first choice, then those to take where a fit fails."""
        situation = Situation.of(self.X, self.constraint, self.kernel)
        ranked, notes = first_suited(situation)
        for entry in (one for one in ranked if one.steps == ranked[0].steps):
            choice = self._checked(entry, situation, ranked)
            yield replace(choice, plan=choice.plan.noting(*notes))

    def best_of(self, given: Sequence[Any]) -> Choice:
        """Return the best of several candidates, or the start where none is better."""
        if isinstance(given, str | Mapping) or not len(given):
            raise InputError(f"candidates must be a list of one or more methods, got {given!r}")
        return self._chosen([read_plan(one, self.kernel, self.rank) for one in given], self._start())

    def _start(self) -> Plan | None:
        return start_plan(self.kernel, self.rank)

    def _checked(self, entry: Suited, situation: Situation, ranked: Sequence[Suited]) -> Choice:
        plan = entry.plan(self.kernel, self.rank)
        line = f"{plan.label}, the first choice for these rows; not checked"
        if not self.guard:
            return Choice(plan, {"choice": line})
        compared, start, reason = [plan], self._start(), ""
        if situation.takes not in ("vectors", "strings"):
            reason = "the rows are no vectors"
        elif situation.constraint.size < entry.use.check_from * situation.n:
            rivals = [one for one in ranked if one.use.rival and one.name != entry.name]
            compared += [one.plan(self.kernel, self.rank) for one in rivals]
            start = None
            reason = "" if rivals else f"there are fewer than {entry.use.check_from:g} relations for each row"
        if not reason:
            try:
                return self._chosen(compared, start)
            except InputError as error:
                reason = " ".join(str(error).split())
        return Choice(plan, {"choice": f"{line}, because {reason}"})

    def _chosen(self, plans: Sequence[Plan], start: Plan | None) -> Choice:
        """Return the plan with the best score on held-out relations, or with ``guard`` the start if that is not worse.

        Raises
        ------
        InputError
            If the relations cannot be split or scored, or if every fit fails.
        """
        rows, constraint = plans[0].kernel.check(self.X, "X"), self.constraint
        n, folds = _rows.count(rows), f"{CHECKED} folds over rows"
        constraint.check(n, "constraints")
        with progress(f"choosing a method on {n} rows") as step:
            compared = list(plans)
            if n > MOST_ROWS or _rows.is_dask(rows):
                compared = [self._at_full_rank(plan, rows) for plan in plans]
                drawn = constraint.some_rows(MOST_ROWS, seed=self.seed)
                rows, constraint = _rows.take(rows, drawn), constraint[drawn]
                folds += f", of which {len(drawn):,} of {n:,} were drawn"
            compared += [] if start is None else [start]
            scored = score(compared, rows, constraint, seed=self.seed, most=CHECKED, step=step)
        base = None if start is None else scored.pop()
        finished = [i for i, one in enumerate(scored) if one.scores]
        if not finished:
            raise InputError(f"every candidate failed; {scored[0].name}: {scored[0].failure}")
        chosen = max(finished, key=lambda i: scored[i].mean)
        best, plan, name = scored[chosen], plans[chosen], constraint.score_name
        facts = {"candidates": {one.name: _facts(one) for one in (*scored, *([base] if base else []))}}
        if base is None or start is None or not base.scores:
            others = "".join(f", {one.name} {one.percent}" for one in scored if one.scores and one is not best)
            return Choice(plan, {"choice": f"chosen: {best.name} ({name} {best.percent}{others}; {folds})", **facts})
        gain, error = best.gain(base)
        if self.guard and gain <= 0:
            gained = f"{best.name} gained {100 * gain:.1f} ± {100 * error:.1f} points ({folds})"
            return Choice(start, {"choice": f"kept the start ({name} {base.percent}): {gained}", **facts})
        line = f"chosen: {best.name} ({name} {best.percent}, the start {base.percent}; {folds})"
        return Choice(plan, {"choice": line, **facts})

    def _at_full_rank(self, plan: Plan, rows: Any) -> Plan:
        """Return a plan with the number of landmarks that it takes on all rows: on fewer rows it would take more."""
        if plan.rank != "auto":
            return plan
        try:
            usable = relations(self.constraint, _rows.count(rows), plan.solver.accepts, seed=self.seed).usable
            space = make_space(plan.kernel, rows, "auto", seed=self.seed, method=plan.method, constraint=usable)
        except (InputError, SolverError):
            return plan  # its fit fails likewise, and says why
        return replace(plan, rank=space.rank) if space.representation == "landmarks" else plan


def _facts(one: Scored) -> dict[str, Any]:
    score = one.mean if one.scores else None  # a report has no NaN
    return {"score": score, "error": one.error, "seconds": one.seconds, "failure": one.failure}
