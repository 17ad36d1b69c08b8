"""The conformance kit: checks that plugin authors run on their kernels, constraints, solvers and methods.

Call them from a test; each raises AssertionError with a sentence that says what does not hold::

    from metricforge.testing import check_kernel, check_method

    def test_cosine():
        check_kernel(Cosine())
        check_method("cosine")
"""

from __future__ import annotations

import pickle
import tempfile
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import rows as _rows
from .constraints import Chunklets, Constraint, Labels, Pairs, Triplets
from .errors import InputError, NotAcceptedError
from .kernels import Kernel
from .learning import find_method, learn
from .metric import Metric, Report, load
from .problem import Problem, Solution, Solver, Status
from .registry import registry
from .space import represent

KINDS = (Labels, Pairs, Chunklets, Triplets)


def example_rows(takes: str, n: int = 30, *, seed: int = 0) -> tuple[Any, Any]:
    """Return n rows of the kind a kernel takes, in three classes, and their labels."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    if takes == "vectors":
        return rng.normal(size=(n, 4)) + 2 * y[:, None], y
    if takes == "gram":
        Z = rng.normal(size=(n, n)) + y[:, None]
        return Z @ Z.T / n, y
    strings = ["".join(rng.choice(list("ACDE" if c else "ACFG"), size=12 + c)) for c in y]
    return np.array(strings, dtype=object), y


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
        lazy = _rows.as_dask(X if not _rows.is_sparse(X) else X.toarray(), chunks)
        _close(kernel(lazy).compute(), K, scale, f"the Gram matrix on dask with chunks {chunks} differs")


# --------------------------------------------------------------------------------------------------------- constraints


def check_constraint(constraint: Constraint) -> None:
    """Check a constraint: length, slicing by row in every form scikit-learn uses, counting, pickling."""
    assert isinstance(constraint, Constraint), f"{constraint!r} does not subclass mf.Constraint"
    _check_component(constraint)
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
    try:
        constraint.check(n + 1)
    except InputError:
        return
    raise AssertionError("check(n + 1) accepts a constraint over n rows")


# ------------------------------------------------------------------------------------------------- solvers and methods


def check_solver(solver: Solver, kernel: Kernel, constraint: Constraint | None = None, X: Any = None) -> None:
    """Check a solver on a small problem: what it refuses, what it returns, its certificate, that it repeats itself."""
    assert isinstance(solver, Solver), f"{solver!r} does not subclass mf.Solver"
    _check_component(solver)
    rows, y = example_rows(kernel.takes)
    X = kernel.check(rows if X is None else X)
    if constraint is None:
        constraint = registry.convert(Labels(y), solver.accepts, seed=0)[0]
    space = represent(kernel.resolve(X, seed=0), X, seed=0)
    for kind in KINDS:
        if not issubclass(kind, solver.accepts):
            try:
                solver.solve(Problem(space, Labels(y).to(kind), seed=0))
            except NotAcceptedError:
                continue
            raise AssertionError(f"{solver!r} solved a problem with {kind.__name__}, which it does not accept")
    steps: list[int] = []
    problem = Problem(space, constraint, 0, lambda step, total=None, **info: steps.append(step))
    solution = solver.solve(problem)
    assert isinstance(solution, Solution), f"_solve returned a {type(solution).__name__}, expected mf.Solution"
    assert isinstance(solution.status, Status), f"status is {solution.status!r}, expected a mf.Status"
    assert isinstance(solution.kernel, Kernel), f"the learned kernel is a {type(solution.kernel).__name__}"
    assert solution.gap >= -1e-9 * max(1.0, abs(solution.objective)), f"the gap is negative: {solution.gap}"
    assert solution.certificate, "the solution does not say what its certificate is"
    assert solution.n_iter == 0 or steps, "a solver that iterates must call problem.step"
    again = solver.solve(Problem(space, constraint, seed=0))
    K, L = (s.kernel.block(X, X) for s in (solution, again))
    assert np.array_equal(K, L), "solving twice with the same seed gives two answers"


def check_method(name: str, X: Any = None, y: Any = None) -> None:
    """Check a registered method from the user's side: learn, distances on new rows, embedding, files, dask."""
    method = find_method(name)
    check_solver(method.solver, method.kernel)
    rows, labels = example_rows(method.kernel.takes)
    X, y = (rows, labels) if X is None else (X, y)
    metric = learn(X, Labels(y), method=name, seed=0)
    assert metric.report.method == name, "the report names another method"
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
    remote = learn(_rows.as_dask(X, chunks), Labels(y), method=name, seed=0)
    D = metric.distance(new)
    _close(remote.distance(new), D, float(D.max()), "the metric learned on a dask array differs", 1e-8)


def check_plugin(name: str) -> None:
    """Check that a plugin was taken in, and every kernel without required parameters and every method it registers."""
    plugin = next((p for p in registry.plugins() if p.name == name), None)
    assert plugin is not None, f"no plugin is called {name!r}; see mf.plugins()"
    assert plugin.ok, plugin.error
    for entry in plugin.entries:
        component = entry.load()
        if entry.kind == "method":
            check_method(entry.name)
        elif entry.kind == "kernel":
            assert isinstance(component, type), f"kernel {entry.name!r} must be a class"
            assert issubclass(component, Kernel), f"kernel {entry.name!r} must subclass mf.Kernel"


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
