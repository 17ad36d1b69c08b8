"""Conformance checks that plugin authors run on their kernels, constraints, solvers, methods and other components.

Call them from a test; each raises AssertionError with a sentence that names the violated requirement::

    from metricforge.testing import check_kernel, check_method

    def test_cosine():
        check_kernel(Cosine())
        check_method("cosine")
"""

from __future__ import annotations

import pickle
import tempfile
from argparse import ArgumentParser
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from . import eigen, neighbors
from . import rows as _rows
from .cli.command import Command
from .constraints import Constraint, Distances, Labels, Lines, Satisfied
from .distributed.chunks import as_dask
from .errors import InputError, NotAcceptedError
from .kernels import Kernel, Linear
from .learning import learn
from .metric import Metric, Report, load
from .registry import registry
from .resolve import as_constraint, find_method
from .solver import Certificate, Method, Problem, Solver, Status
from .space import Size, represent


def example_rows(takes: str, n: int = 30, *, seed: int = 0) -> tuple[Any, Any]:
    """Return n rows that a kernel takes, in three classes, and their labels."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    if takes == "vectors":
        return rng.normal(size=(n, 4)) + 2 * y[:, None], y
    if takes == "gram":
        Z = rng.normal(size=(n, n)) + y[:, None]
        return Z @ Z.T / n, y
    strings = ["".join(rng.choice(list("ACDE" if c else "ACFG"), size=12 + c)) for c in y]
    return np.array(strings, dtype=object), y


def example_constraint(kinds: tuple[type[Constraint], ...], y: Any) -> Constraint | None:
    """Return a constraint of one of these kinds from a number per row, or None if none of them can be built from it."""
    for kind in kinds:
        found = kind.of_values(y)
        if registry.path(type(found), kinds) is not None:
            return registry.convert(found, kinds, seed=0)[0]  # type: ignore[no-any-return]
    return None


# ------------------------------------------------------------------------------------------------------------- kernels


def check_kernel(kernel: Kernel, X: Any = None) -> None:
    """Check a kernel: shapes, symmetry, positive definiteness, distances, slicing, dask, pickling, files.

    Parameters
    ----------
    kernel : Kernel
        ``gamma="median"`` and the like are resolved on the rows first.
    X : rows, optional
        At least ten; default: examples of what the kernel takes.
    """
    assert isinstance(kernel, Kernel), f"{kernel!r} does not subclass mf.Kernel"
    _check_component(kernel)
    X = kernel.check(example_rows(kernel.takes)[0] if X is None else X)
    kernel = kernel.resolve(X, seed=0)
    assert kernel.resolve(X, seed=1) == kernel, "resolve changes a kernel that is resolved already"
    n = _rows.count(X)
    K = kernel.block(X, X)
    assert K.shape == (n, n), f"block(X, X) has shape {K.shape}, expected {(n, n)}"
    assert np.isfinite(K).all(), "block(X, X) is not finite"
    scale = float(np.abs(K).max()) or 1.0
    _close(K, K.T, scale, "block(X, X) is not symmetric")
    _close(kernel.diag(X), K.diagonal(), scale, "diag(X) is not the diagonal of block(X, X)")
    _close(kernel.paired(X, X[::-1]), K[np.arange(n), np.arange(n)[::-1]], scale, "paired(X, Y) is not k(x_i, y_i)")
    smallest = float(np.linalg.eigvalsh((K + K.T) / 2)[0])
    assert smallest > -1e-8 * n * scale, f"block(X, X) is not positive semidefinite: eigenvalue {smallest:.3g}"
    part = kernel.block(X[2:7], X[4:9])
    _close(part, K[2:7, 4:9], scale, "a block of some rows differs from that part of the whole block")

    D = kernel.squared_distance(X, X)
    d = K.diagonal()
    _close(D, np.maximum(d[:, None] + d - 2 * K, 0), scale, "squared_distance is not k(x,x) + k(y,y) - 2 k(x,y)")
    _close(
        kernel.paired_squared_distance(X[1:], X[:-1]), D[np.arange(1, n), np.arange(n - 1)], scale, "paired distance"
    )
    _check_metric_axioms(kernel.distance(X, X))
    _check_on_dask(kernel, X, K, scale)
    _check_file(Metric(kernel, Report({"method": "test"}), rows=X), X[:5])


def _check_on_dask(kernel: Kernel, X: Any, K: Any, scale: float) -> None:
    if kernel.takes == "gram":
        return
    n = _rows.count(X)
    shape = ((n // 3 + 1, -1), (n // 2, 2)) if _rows.width(X) else ((n // 3 + 1,), (n // 2,))
    for chunks in shape:
        lazy = as_dask(X if not _rows.is_sparse(X) else X.toarray(), chunks)
        _close(kernel(lazy).compute(), K, scale, f"the Gram matrix on dask with chunks {chunks} differs")


# --------------------------------------------------------------------------------------------------------- constraints


def check_constraint(constraint: Constraint) -> None:
    """Check a constraint: slicing by row in every form scikit-learn uses, counts, scores, folds, pictures, pickling.

    Parameters
    ----------
    constraint : Constraint
        With at least a few relations over at least six rows.  What the kind does not define (`satisfied`, `folds`,
        ``flag``) is not checked.
    """
    assert isinstance(constraint, Constraint), f"{constraint!r} does not subclass mf.Constraint"
    _check_component(constraint)
    _check_slicing(constraint)
    assert constraint.describe(), "describe() is empty"
    _check_counts(constraint)
    _check_folds(constraint)
    _check_pictures(constraint)
    if constraint.flag is not None:
        assert constraint.flag_help, f"flag is {constraint.flag!r}, but flag_help is empty"
        assert constraint.table_columns, f"flag is {constraint.flag!r}, but table_columns is empty"
    try:
        constraint.check(len(constraint) + 1)
    except InputError:
        return
    raise AssertionError("check(n + 1) accepts a constraint over n rows")


def _check_slicing(constraint: Constraint) -> None:
    n = len(constraint)
    assert constraint.shape == (n,), f"shape is {constraint.shape}, expected {(n,)}"
    assert constraint.size >= 0, "size is negative"
    whole = constraint[np.arange(n)]
    assert whole.size == constraint.size, "selecting all rows changes the number of relations"
    assert whole.dropped == constraint.dropped, "selecting all rows drops relations"
    half = np.arange(0, n, 2)
    mask = np.zeros(n, dtype=bool)
    mask[half] = True
    first = constraint[half]
    for form in (mask, slice(0, n, 2), list(half), (half, Ellipsis)):
        assert constraint[form] == first, f"selecting rows by {type(form).__name__} differs from an index array"
    assert len(first) == len(half), f"c[rows] is about {len(first)} rows, expected {len(half)}"
    twice = constraint[half][np.arange(0, len(half), 2)]
    once = constraint[half[::2]]
    assert twice.size == once.size, "slicing twice keeps other relations than slicing once"
    back = constraint[np.arange(n)[::-1]]
    assert back.size == constraint.size, "reversing the rows changes the number of relations"
    assert back[np.arange(n)[::-1]] == whole, "reversing the rows twice is not the identity"


def _example_distances(n: int) -> Distances:
    return Distances(Linear(), example_rows("vectors", n)[0], seed=0)


def _check_counts(constraint: Constraint) -> None:
    distances = _example_distances(len(constraint))
    found = constraint.satisfied(distances)
    assert isinstance(found, tuple), f"satisfied returned a {type(found).__name__}, expected a tuple"
    for part in found:
        assert isinstance(part, Satisfied), f"satisfied returned a {type(part).__name__}, expected Satisfied"
        assert part.condition, "an entry of satisfied has no condition"
        assert 0 <= part.count <= part.total > 0, f"{part.count} of {part.total} relations are satisfied"
    assert constraint.satisfied(distances) == found, "satisfied gives two answers for the same distances"
    if found or type(constraint).score is not Constraint.score:
        score = constraint.score(distances)
        assert 0 <= score <= 1, f"score is {score}, expected a number in [0, 1]"
        assert constraint.score(distances) == score, "score gives two answers for the same distances"
    assert all(isinstance(note, str) for note in constraint.remarks(distances)), "remarks must be strings"


def _check_folds(constraint: Constraint) -> None:
    if not constraint.index_fields and type(constraint).folds is Constraint.folds:
        return
    n, k = len(constraint), 3
    out = np.zeros(n, dtype=int)
    again = list(constraint.folds(k, seed=1))
    folds = list(constraint.folds(k, seed=1))
    assert len(folds) == k, f"folds({k}) yields {len(folds)} folds"
    for (rows, held_out), (rows_again, held_out_again) in zip(folds, again, strict=True):
        assert np.array_equal(rows, rows_again), "folds gives two answers for the same seed"
        assert held_out == held_out_again, "folds gives two answers for the same seed"
        assert len(held_out) == n, f"a held-out constraint is about {len(held_out)} rows, expected all {n}"
        assert held_out[rows].size == 0, "a held-out relation lies inside the training rows"
        inside = constraint[rows].size
        assert inside + held_out.size <= constraint.size, "training and held-out relations overlap"
        out += ~np.isin(np.arange(n), rows)
    assert out.max() == 1, "no row is outside the training rows exactly once"


def _check_pictures(constraint: Constraint) -> None:
    n = len(constraint)
    links = constraint.links()
    arrays = [] if links is None else [("links().must", links.must), ("links().cannot", links.cannot)]
    for line in constraint.lines():
        assert isinstance(line, Lines), f"lines returned a {type(line).__name__}, expected Lines"
        arrays.append(("lines()", line.pairs))
    for name, pairs in arrays:
        assert pairs.ndim == 2, f"{name} must be a (p, 2) array, got shape {pairs.shape}"
        assert pairs.shape[1] == 2, f"{name} must be a (p, 2) array, got shape {pairs.shape}"
        assert ((pairs >= 0) & (pairs < n)).all(), f"{name} names a row outside 0 .. {n - 1}"
    classes = constraint.row_classes()
    assert classes is None or len(classes) == n, "row_classes() must be about all rows"


# ------------------------------------------------------------------------------------------------- solvers and methods


def check_solver(solver: Solver, kernel: Kernel, constraint: Constraint | None = None, X: Any = None) -> None:
    """Check a solver on a small problem: the kinds it refuses, its solution and certificate, and that it is repeatable.

    Parameters
    ----------
    solver : Solver
    kernel : Kernel
        The kernel to start from.
    constraint : Constraint, optional
        Of a kind that the solver accepts; default: converted from labels of the example rows.
    X : rows, optional
        The rows that the constraint is about; default: examples of what the kernel takes.
    """
    assert isinstance(solver, Solver), f"{solver!r} does not subclass mf.Solver"
    _check_component(solver)
    rows, y = example_rows(kernel.takes)
    X = kernel.check(rows if X is None else X)
    if constraint is None:
        constraint = example_constraint(solver.accepts, y)
        assert constraint is not None, f"no conversion from labels leads to a kind of {solver!r}; give a constraint"
    space = represent(kernel.resolve(X, seed=0), X, seed=0)
    for entry in registry.entries("constraint"):
        kind = entry.load()
        if not issubclass(kind, solver.accepts) and registry.path(Labels, (kind,)) is not None:
            try:
                solver.solve(Problem(space, Labels(y).to(kind), seed=0))
            except NotAcceptedError:
                continue
            raise AssertionError(f"{solver!r} solved a problem with {kind.__name__}, which it does not accept")
    steps: list[int] = []
    problem = Problem(space, constraint, 0, lambda step, total=None, **info: steps.append(step))
    solution = solver.solve(problem)
    assert isinstance(solution.status, Status), f"status is {solution.status!r}, expected a mf.Status"
    assert isinstance(solution.kernel, Kernel), f"the learned kernel is a {type(solution.kernel).__name__}"
    assert solution.gap >= -1e-9 * max(1.0, abs(solution.objective)), f"the gap is negative: {solution.gap}"
    assert str(solution.certificate), "the certificate has no kind; give certificate=mf.Certificate(kind, value)"
    if solution.status is Status.OPTIMAL and isinstance(solution.certificate, Certificate):
        assert solution.certificate.kind != "gradient", "a small gradient proves no optimum: the status is STATIONARY"
    assert solution.n_iter == 0 or steps, "a solver that iterates must call problem.step"
    again = solver.solve(Problem(space, constraint, seed=0))
    K, L = (s.kernel.block(X, X) for s in (solution, again))
    assert np.array_equal(K, L), "solving twice with the same seed gives two answers"


def _check_cost(method: Method) -> None:
    """Check that the forecast is a number of seconds that does not decrease in the rank."""
    for representation in ("exact", "landmarks", "explicit"):
        sizes = [Size(m, 5, m) if representation == "exact" else Size(3000, 5, m) for m in (100, 200, 400)]
        known = [replace(size, p=500, representation=representation, kind=method.constraint) for size in sizes]
        seconds = [method.forecast(size) for size in known]
        assert all(0 < s < np.inf for s in seconds), f"the forecast must be seconds above 0, got {seconds}"
        assert seconds == sorted(seconds), f"the forecast must not decrease with the rank, got {seconds}"
        assert seconds == [method.forecast(size) for size in known], "the forecast must depend on the size alone"


def check_method(name: str, X: Any = None, y: Any = None) -> None:
    """Check a registered method as users call it: learn, distances on new rows, embedding, files, dask.

    Parameters
    ----------
    name : str
    X, y : rows, and labels or a Constraint over them, optional
        Default: examples of what the method's kernel takes.  Needed if no conversion leads from labels to the kind of
        constraint that the method uses.
    """
    method = find_method(name)
    kind = method.constraint
    _check_cost(method)
    given = None if y is None else registry.convert(as_constraint(y, "y", kind), method.solver.accepts, seed=0)[0]
    check_solver(method.solver, method.kernel, given, X)
    rows, labels = example_rows(method.kernel.takes)
    X, y = (rows, labels) if X is None else (X, y)
    y = as_constraint(y, "y", kind)
    metric = learn(X, y, method=name, seed=0)
    assert metric.report.method == name, "the report names another method"
    assert metric.start == method.kernel.resolve(metric.rows, seed=0), "metric.start is not the resolved kernel"
    for field in ("status", "objective", "gap", "certificate", "n_iter", "seconds", "converted", "dropped", "notes"):
        assert field in metric.report, f"the report has no {field!r}"
    new = example_rows(method.kernel.takes, 12, seed=1)[0] if method.kernel.takes != "gram" else X[:12]
    D = metric.distance(new)
    _check_metric_axioms(D)
    _close(metric.distance(new, X)[:, 3], metric.distance(X[3:4], new)[0], float(D.max()), "distance is not symmetric")
    _close(metric.paired_distance(new[1:], new[:-1]), D[range(1, 12), range(11)], float(D.max()), "paired_distance")
    E = metric.transform(X)
    gram = np.linalg.norm(E[:, None] - E[None], axis=-1)
    _close(gram, metric.distance(X), float(gram.max()), "distances in the embedding are not the metric's", 1e-6)
    index, near = metric.neighbors(new, k=3)
    assert index.shape == near.shape == (12, 3), "neighbors(A, k=3) must return two (len(A), 3) arrays"
    _close(near[:, 0], metric.distance(new, X).min(axis=1), float(D.max()), "the first neighbour is not the nearest")
    _check_file(metric, new)
    if method.kernel.takes != "gram":
        _check_method_on_dask(name, metric, X, y, new)


def _check_method_on_dask(name: str, metric: Metric, X: Any, y: Any, new: Any) -> None:
    if _rows.is_sparse(X):
        return
    chunks = (len(X) // 2, -1) if _rows.width(X) else (len(X) // 2,)
    remote = learn(as_dask(X, chunks), y, method=name, seed=0)
    D = metric.distance(new)
    _close(remote.distance(new), D, float(D.max()), "the metric learned on a dask array differs", 1e-8)


# --------------------------------------------------------------------------------- eigensolvers and neighbour searches


def check_eigensolver(solver: Any) -> None:
    """Check an eigensolver: its pairs against LAPACK, that it is repeatable, and that it returns when it is stopped."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(80, 80)))[0]
    exact = np.concatenate([[1.0, 1.0, 0.9, 0.5, 0.4], np.linspace(0.3, -1.0, 75)])
    A = (Q * exact) @ Q.T
    A = (A + A.T) / 2
    found = eigen.top(A, 4, solver=solver, seed=0)
    assert found.solver != "dense", "the eigensolver was not called"
    assert found.status == "converged", f"the eigensolver does not converge: {found.status}"
    _close(found[0], exact[:4], 1.0, "the eigenvalues differ from those of LAPACK", 1e-7)
    again = eigen.top(A, 4, solver=solver, seed=0)
    assert np.array_equal(found[1], again[1]), "the same start vectors give two answers"
    start = np.linalg.qr(rng.normal(size=(80, 4)))[0]
    kept = start.copy()
    # eigen.top repairs what a solver returns, so its own pairs are checked too
    w, V = solver(_operator(A), 4, tol=1e-8, v0=start.copy(), stop=lambda: False)
    assert len(w), "the eigensolver returns no pair although nothing stops it"
    V = V / np.linalg.norm(V, axis=0)
    _close(A @ V, V * w, 1.0, "the eigensolver's pairs are not eigenpairs", 1e-6)
    nearest = exact[:4][np.abs(np.subtract.outer(w, exact[:4])).argmin(axis=1)]
    _close(w, nearest, 1.0, "the eigensolver's eigenvalues are not among the largest", 1e-6)
    w, V = solver(_operator(A), 4, tol=1e-8, v0=start, stop=lambda: True)
    assert np.array_equal(start, kept), "the eigensolver changes v0"
    assert V.ndim == 2, f"V has shape {V.shape}, expected (n, j)"
    assert V.shape == (80, len(w)), f"V has shape {V.shape} for {len(w)} eigenvalues, expected (80, {len(w)})"


def _operator(A: Any) -> Any:
    from scipy.sparse.linalg import aslinearoperator

    return aslinearoperator(A)


def check_neighbors(search: Any, X: Any = None, recall: float = 0.9) -> None:
    """Check a neighbour search: shapes, order, recall, that rows do not find themselves, repeatability, dask.

    Parameters
    ----------
    search : callable
        Called as ``search(X, k, queries=queries, seed=seed)``.
    X : rows, optional
        At least 20; default: 60 rows of 4 features, or of zeros and ones for a search that refuses these.
    recall : float
        The share of true neighbours that an approximate search must find.
    """
    X = _searchable(search) if X is None else X
    half, k = X[: _rows.count(X) // 2], 5
    for queries in (None, half):
        indices, distances = neighbors.search(X, k, queries=queries, method=search, seed=0)
        true, exact = neighbors.search(X, k, queries=queries, method="exact")
        share = float(np.mean(distances <= exact[:, -1:] * (1 + 1e-6)))
        what = "without queries" if queries is None else "with queries"
        assert share >= recall, f"{what} the search finds {share:.0%} of the true neighbours, expected {recall:.0%}"
        agree = indices == true
        assert np.allclose(distances[agree], exact[agree]), f"{what} the distances are not Euclidean"
        again = neighbors.search(X, k, queries=queries, method=search, seed=0)
        assert np.array_equal(indices, again[0]), f"{what} the same seed gives two answers"
    if not _rows.is_sparse(X):
        lazy = neighbors.search(as_dask(X, (_rows.count(X) // 2, -1)), k, queries=half, method=search, seed=0)
        found = np.asarray(lazy[1])
        share = float(np.mean(found <= exact[:, -1:] * (1 + 1e-6)))
        assert share >= recall, f"on dask the search finds {share:.0%} of the true neighbours, expected {recall:.0%}"


def _searchable(search: Any) -> Any:
    X = example_rows("vectors", 60)[0]
    try:
        search(X, 1, queries=X, seed=0)
    except InputError:
        return (np.median(X, axis=0) < X).repeat(8, axis=1) ^ (np.random.default_rng(0).random((60, 32)) < 0.3)
    return X


# ------------------------------------------------------------------------------------------------------------- plugins


def check_plugin(name: str) -> None:
    """Check that a plugin is loaded, and its components as far as that needs no further arguments.

    Methods, eigensolvers, neighbour searches, and constraints that follow from a value per row are checked in full.
    For kernels, solvers and commands only the type is checked: call `check_kernel` and `check_solver` with an instance.
    Components whose requirements are not installed are skipped.
    """
    plugin = next((p for p in registry.plugins() if p.name == name), None)
    assert plugin is not None, f"no plugin is called {name!r}; see mf.plugins()"
    assert plugin.ok, plugin.error
    types = {"constraint": Constraint, "kernel": Kernel, "solver": Solver}
    for entry in plugin.entries:
        if entry.missing:
            continue
        component, what = entry.load(), f"{entry.kind} {entry.name!r}"
        if entry.kind in types:
            assert isinstance(component, type), f"{what} must be a class"
            assert issubclass(component, types[entry.kind]), f"{what} must subclass mf.{types[entry.kind].__name__}"
        if entry.kind == "constraint":
            example = example_constraint((component,), example_rows("vectors")[1])
            if example is not None:
                check_constraint(example)
        elif entry.kind == "method":
            check_method(entry.name)
        elif entry.kind == "eigensolver":
            check_eigensolver(component)
        elif entry.kind == "neighbors":
            check_neighbors(component)
        elif entry.kind == "command":
            assert isinstance(component, Command), f"{what} must be a mf.Command"
            component.arguments(ArgumentParser())


# -------------------------------------------------------------------------------------------------------------- pieces


def _check_component(component: Any) -> None:
    assert is_dataclass(component), f"{type(component).__name__} is not a dataclass"
    params: Any = vars(type(component))["__dataclass_params__"]
    assert params.frozen, f"{type(component).__name__} is not frozen: write @dataclass(frozen=True)"
    copy = pickle.loads(pickle.dumps(component))
    assert copy == component, f"{component!r} is not equal to its pickled copy"
    assert hash(copy) == hash(component), f"{component!r} and its pickled copy have different hashes"
    assert repr(component), "repr is empty"


def _check_metric_axioms(D: Any) -> None:
    scale = float(D.max()) or 1.0
    assert np.isfinite(D).all(), "distances are not finite"
    assert (D >= 0).all(), "a distance is negative"
    # a distance is the root of a difference, so rounding at 1e-16 shows at 1e-8
    assert np.abs(D.diagonal()).max() < 1e-6 * scale, "a row has a distance from itself"
    _close(D, D.T, scale, "distance is not symmetric", 1e-6)
    longest = (D[:, :, None] + D[None]).min(axis=1)
    assert (longest >= D - 1e-6 * scale).all(), "the triangle inequality does not hold"


def _check_file(metric: Metric, rows: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "test.metric"
        metric.save(path)
        copy = load(path)
    assert copy.kernel == metric.kernel, f"{metric.kernel!r} is not equal to its saved copy"
    assert np.array_equal(copy.distance(rows), metric.distance(rows)), "the saved copy measures other distances"


def _close(a: Any, b: Any, scale: float, what: str, tol: float = 1e-9) -> None:
    worst = float(np.abs(np.asarray(a) - np.asarray(b)).max()) if np.size(a) else 0.0
    assert worst <= tol * max(scale, 1e-300), f"{what} (off by {worst:.3g}, scale {scale:.3g})"
