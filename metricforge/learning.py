"""learn(): resolve names, choose a method where none is named, fit, and conclude with a Metric and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import rows as _rows
from .checks import nearest, one_of, shown, whole_number
from .constraints import Constraint
from .errors import InputError, SolverError
from .fitting import fit
from .join import as_constraint
from .kernels import Kernel
from .metric import Metric
from .plans import (
    Plan,
    Situation,
    Suited,
    declared_methods,
    find_kernel,
    find_method,
    find_solver,
    first_suited,
    knowing,
    method_names,
    method_of,
    providing,
    resolve,
    start_kernel,
    with_options,
)
from .problem import Method, Solver
from .rows import cluster
from .selection import Candidate, Choice, choose, read_candidate, start_candidate, suited_candidate

__all__ = [
    "Method",
    "declared_methods",
    "find_kernel",
    "find_method",
    "find_solver",
    "learn",
    "learn_named",
    "method_of",
    "plan_of",
    "providing",
    "with_options",
]

SELECTION = ("guard", "off")


def learn(
    X: Any,
    constraints: Any,
    *,
    method: str = "auto",
    kernel: Kernel | Metric | str | None = None,
    solver: Solver | str | None = None,
    rank: str | int = "auto",
    selection: str = "guard",
    candidates: Sequence[Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> Metric:
    """Learn a metric on the rows of X from side information about their similarity.

    Parameters
    ----------
    X : rows
        A dense or CSR array, a pandas or polars frame, a list, a dask array; strings for kernels on strings.  A dask
        array is processed chunk by chunk, on the active ``distributed.Client`` if there is one; with a client, rows in
        memory are sent to its workers.
    constraints : Constraint, or 1-d array with a value per row
        Over the rows of X: Labels, Pairs, Chunklets, Triplets, Quadruplets, Targets, or a kind that a plugin registers.
        A bare array means labels, or what the method declares (Targets for methods of regression).  A kind that the
        method cannot use is converted, and ``report.converted`` says how.
    method : str
        A registered method (see ``mf.methods()``).  "auto" takes the first method that declares itself for this kind
        of constraint and these rows, and checks it on held-out relations; ``report.choice`` says what was chosen.
    kernel : Kernel, Metric or str, optional
        The kernel to start from; default: the method's own, and on strings, where that is one for vectors, the
        normalised spectrum kernel ``mf.kernels.Spectrum(3).normalized()``.  A str names a kernel, with parameters where
        it has them: "rbf", "rbf(gamma=0.5)", "standardized(rbf)".  A learned metric can be the start of the next fit.
    solver : Solver or name, optional
        A configured solver, or the name of a registered one, in place of the method's.
    rank : "auto", "exact" or int
        How the kernel is represented: see `metricforge.space.represent`.
    selection : {"guard", "off"}
        "guard": with ``method="auto"``, two folds over rows, each a third of them, compare the method with the start on
        relations that it did not learn from.  Where it is not better, the result is the start itself.  Of more than
        10,000 rows, and of rows on dask, at most 10,000 are drawn for this.  "off": no comparison.
    candidates : sequence, optional
        With ``method="auto"``: the methods to choose from, by name or as a dict such as
        ``{"method": name, option: value}``; the best on held-out relations is taken.  Default: the first choice.
    seed : int
        The same seed gives the same answer.
    **options
        Options of the solver, for instance ``nu=0.3``.  With ``method="auto"`` they decide the method: the first that
        has all of them, without a comparison.

    Returns
    -------
    Metric
    """
    return learn_named(
        X,
        _rows.column_names(X),
        constraints,
        method=method,
        kernel=kernel,
        solver=solver,
        rank=rank,
        seed=seed,
        options=options,
        selection=selection,
        candidates=candidates,
    )


def learn_named(
    X: Any,
    names: Sequence[str] | None,
    constraints: Any,
    *,
    method: str,
    kernel: Kernel | Metric | str | None,
    rank: str | int,
    seed: int,
    options: Mapping[str, Any],
    solver: Solver | str | None = None,
    selection: str = "guard",
    candidates: Sequence[Any] | None = None,
) -> Metric:
    """Learn as `learn` does, on rows whose columns have these names, which ``metric.columns`` keeps."""
    columns = () if names is None else tuple(map(str, names))
    one_of(selection, "selection", SELECTION)
    seed = whole_number(seed, "seed", least=0)
    automatic = isinstance(method, str) and method == "auto" and solver is None and not options
    kernel = start_kernel(kernel, method, X)
    if candidates is not None and not automatic:
        raise InputError(
            "candidates are for method='auto' without solver and options; give options inside a candidate, for "
            'instance candidates=[{"method": name, option: value}]'
        )
    if not automatic:
        plan = plan_of(method, kernel, solver, constraints, options, X)
        return fit(plan, plan.kernel.check(X, "X"), constraints, rank=rank, seed=seed, columns=columns)
    given, base = as_constraint(constraints), None if kernel is None else find_kernel(kernel)
    call = _Automatic(X, given, base, rank, seed, columns, guard=selection == "guard")
    return call.first() if candidates is None else call.best_of(candidates)


def plan_of(
    method: Any,
    kernel: Any = None,
    solver: Solver | str | None = None,
    constraints: Any = None,
    options: Mapping[str, Any] | None = None,
    X: Any = None,
) -> Plan:
    """Resolve names to a plan.  "auto" is the method of the solver or of the options, or the first choice for X."""
    if not isinstance(method, str):
        raise InputError(f"method must be the name of a method, got {shown(method)}; {nearest('', method_names())}")
    kernel = start_kernel(kernel, method, X)
    if method != "auto":
        return resolve(method, kernel, solver, options)
    own = None if solver is None else method_of(find_solver(solver))
    if own is not None:
        return resolve(own, kernel, solver, options)
    situation = _situation(X, as_constraint(constraints), None if kernel is None else find_kernel(kernel))
    if options and solver is None:
        name, notes = knowing(options, situation)
        plan = resolve(name, kernel, solver, options)
    else:
        found, notes = first_suited(situation)
        if solver is None:
            plan = suited_candidate(found[0], kernel, "auto").plan
        else:
            plan = resolve(found[0].name, kernel, solver, options)
    return replace(plan, notes=(*notes, *plan.notes))


def _situation(X: Any, constraint: Constraint, kernel: Kernel | None) -> Situation:
    on_dask = _rows.is_dask(X) or cluster.client() is not None
    return Situation(constraint, constraint.n, "vectors" if kernel is None else kernel.takes, on_dask)


@dataclass(frozen=True, eq=False)
class _Automatic:
    """A call with method="auto"."""

    X: Any
    constraint: Constraint
    kernel: Kernel | None
    rank: str | int
    seed: int
    columns: tuple[str, ...]
    guard: bool

    def first(self) -> Metric:
        """Return the metric of the first method that suits and can be fitted, or the start where it is not better."""
        situation = _situation(self.X, self.constraint, self.kernel)
        ranked, notes = first_suited(situation)
        failed: list[tuple[str, Exception]] = []
        for entry in (one for one in ranked if one.steps == ranked[0].steps):
            candidate = suited_candidate(entry, self.kernel, self.rank)
            try:
                choice = self._checked(candidate, entry, situation, ranked)
                return self._fit(choice, (*notes, *(f"{name} could not learn: {error}" for name, error in failed)))
            except (InputError, SolverError) as error:
                failed.append((entry.name, error))
        raise failed[0][1]

    def best_of(self, given: Sequence[Any]) -> Metric:
        """Return the metric of the best candidate, or the start where none is better."""
        if isinstance(given, str | Mapping) or not len(given):
            raise InputError(f"candidates must be a list of one or more methods, got {given!r}")
        candidates = [read_candidate(one, self.kernel) for one in given]
        return self._fit(self._chosen(candidates, start_candidate(self.kernel)))

    def _checked(self, candidate: Candidate, entry: Suited, situation: Situation, ranked: Sequence[Suited]) -> Choice:
        if not self.guard:
            return Choice(candidate, {"choice": f"{candidate.name}, the first choice for these rows; not checked"})
        reason, compared, start = _not_checkable(situation), [candidate], start_candidate(self.kernel)
        if not reason and situation.constraint.size < entry.use.check_from * situation.n:
            others = [one for one in ranked if one.use.rival and one.name != entry.name]
            compared += [suited_candidate(one, self.kernel, self.rank) for one in others]
            start = None
            reason = "" if others else f"there are fewer than {entry.use.check_from:g} relations for each row"
        if not reason:
            try:
                return self._chosen(compared, start)
            except InputError as error:
                reason = " ".join(str(error).split())
        return Choice(
            candidate, {"choice": f"{candidate.name}, the first choice for these rows; not checked, because {reason}"}
        )

    def _chosen(self, candidates: Sequence[Candidate], start: Candidate | None) -> Choice:
        rows = self._rows(candidates[0])
        self.constraint.check(_rows.count(rows), "constraints")
        return choose(candidates, start, rows, self.constraint, rank=self.rank, seed=self.seed, guard=self.guard)

    def _fit(self, choice: Choice, notes: tuple[str, ...] = ()) -> Metric:
        candidate = choice.candidate
        plan = replace(candidate.plan, notes=(*notes, *candidate.plan.notes))
        return fit(
            plan,
            self._rows(candidate),
            self.constraint,
            rank=self.rank if candidate.rank is None else candidate.rank,
            seed=self.seed,
            columns=self.columns,
            choice=choice.fields,
        )

    def _rows(self, candidate: Candidate) -> Any:
        return candidate.plan.kernel.check(self.X, "X")


def _not_checkable(situation: Situation) -> str:
    """Return why no choice is checked on held-out relations; "" if it is."""
    if situation.takes not in ("vectors", "strings"):
        return "the rows are no vectors"
    return ""
