"""learn(): resolve names, choose a method where none is named, and fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import rows as _rows
from .auto import Automatic, Situation, first_suited, knowing
from .errors import InputError, SolverError
from .fitting import fit
from .kernels import Kernel
from .metric import Metric
from .resolve import Plan, as_constraint, find_kernel, find_solver, method_names, method_of, resolve, start_kernel
from .solver import Solver
from .validation import nearest, one_of, shown, whole_number

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
        plan = plan_of(method, kernel, solver, constraints, options, X, rank)
        return fit(plan, plan.kernel.check(X, "X"), constraints, seed=seed, columns=columns)
    constraint, base = as_constraint(constraints), None if kernel is None else find_kernel(kernel)
    call = Automatic(X, constraint, base, rank, seed, guard=selection == "guard")
    failed: list[tuple[str, Exception]] = []
    for choice in call.choices() if candidates is None else [call.best_of(candidates)]:
        plan = choice.plan.noting(*(f"{name} could not learn: {error}" for name, error in failed))
        try:
            rows = plan.kernel.check(X, "X")
            return fit(plan, rows, constraint, seed=seed, columns=columns, choice=choice.facts)
        except (InputError, SolverError) as error:
            failed.append((plan.name, error))
    raise failed[0][1]


def plan_of(
    method: Any,
    kernel: Any = None,
    solver: Solver | str | None = None,
    constraints: Any = None,
    options: Mapping[str, Any] | None = None,
    X: Any = None,
    rank: str | int = "auto",
) -> Plan:
    """Resolve names to a plan.  "auto" is the method of the solver or of the options, or the first choice for X."""
    if not isinstance(method, str):
        raise InputError(f"method must be the name of a method, got {shown(method)}; {nearest('', method_names())}")
    kernel = start_kernel(kernel, method, X)
    notes: tuple[str, ...] = ()
    if method == "auto" and solver is not None:
        method = method_of(find_solver(solver)) or "auto"
    if method == "auto":
        situation = Situation.of(X, as_constraint(constraints), None if kernel is None else find_kernel(kernel))
        if options and solver is None:
            method, notes = knowing(options, situation)
        else:
            ranked, notes = first_suited(situation)
            if solver is None:
                return ranked[0].plan(kernel, rank).noting(*notes)
            method = ranked[0].name
    return resolve(method, kernel, solver, options, rank=rank).noting(*notes)
