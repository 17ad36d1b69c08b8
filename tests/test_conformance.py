"""The conformance kit on everything that is registered, and the kit itself on things that are wrong on purpose."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
import pytest

import metricforge as mf
from metricforge.kernels import RBF, Linear, Mixture, Normalized, Product, Weak
from metricforge.registry import registry
from metricforge.solver import Solution, Status
from metricforge.space import ChangedKernel, LearnedKernel, represent
from metricforge.testing import (
    check_constraint,
    check_eigensolver,
    check_kernel,
    check_method,
    check_neighbors,
    check_plugin,
    check_solver,
    example_rows,
)


def learned():
    X = example_rows("vectors")[0]
    made = represent(RBF(0.1), X, 9)
    return LearnedKernel(made.map, np.eye(9), 0.5)


def extended():
    X, y = example_rows("vectors")
    return mf.learn(X, mf.Labels(y), method="simplenpkl", extension="nystrom").kernel


def in_chunklets():
    X, y = example_rows("vectors")
    return mf.learn(X, mf.Chunklets.from_labels(y), method="krca", kernel=RBF(0.1), rank="exact").kernel


def weighted():
    X, y = example_rows("vectors")
    return mf.learn(X, mf.Chunklets(y), method="krca-weighted", kernel=RBF(0.1), rank=9).kernel


# Kernels that cannot be built without arguments.
MADE = {
    "weak": lambda: Weak(RBF("median"), feature=1),
    "mixture": lambda: Mixture([RBF(0.2), Linear()], [1.0, 0.5]),
    "product": lambda: Product(RBF(0.2), Linear()),
    "normalized": lambda: Normalized(Linear()),
    "learned": learned,
    "changed": lambda: ChangedKernel(learned().map, np.eye(9)[:, :4], np.eye(4)),
    "factored": lambda: LearnedKernel.of_factor(represent(RBF(0.1), example_rows("vectors")[0], 9).map, np.eye(9)[:4]),
    "simplenpkl-nystrom": extended,
    "krca-exact": in_chunklets,
    "krca-weighted": weighted,
    "unprojected": lambda: registry.get("kernel", "unprojected")(learned()),
    "projected": lambda: registry.get("kernel", "projected")(RBF("median"), direction=(1.0, 0.0, -2.0, 0.5)),
}


def kernels_of_metrics():
    """One learned kernel for each class that a method's plugin registers, from a fit of that method."""
    X, y = example_rows("vectors")
    for entry in mf.methods():
        for rank in ("auto", 9):
            yield mf.learn(X, y, method=entry.name, rank=rank, seed=0).kernel


def example(entry):
    if entry.name in MADE:
        return MADE[entry.name]()
    cls = entry.load()
    try:
        return cls()
    except TypeError:
        found = [kernel for kernel in kernels_of_metrics() if type(kernel) is cls]
        assert found, f"no method gave an example of kernel {entry.name!r}"
        return found[0]


@pytest.mark.parametrize("entry", registry.entries("kernel"), ids=lambda e: e.name)
def test_every_registered_kernel(entry):
    check_kernel(example(entry))


@pytest.mark.parametrize("entry", registry.entries("constraint"), ids=lambda e: e.name)
@pytest.mark.parametrize("components", [None, 0.6])
def test_every_registered_constraint(entry, components):
    y, kind = np.random.default_rng(0).integers(3, size=40), entry.load()
    if isinstance(kind.of_values(y), kind):
        check_constraint(kind.of_values(y))
    if hasattr(kind, "from_labels"):
        check_constraint(kind.from_labels(y, components=components, seed=1))


@pytest.mark.parametrize("entry", registry.entries("eigensolver"), ids=lambda e: e.name)
def test_every_registered_eigensolver(entry):
    if entry.missing:
        pytest.skip(f"{entry.missing} is not installed: it is an extra")
    check_eigensolver(entry.load())


# NN-descent, which compiles for half a minute, is checked with the plugin below
QUICK_SEARCHES = [entry for entry in registry.entries("neighbors") if entry.name != "pynndescent"]


@pytest.mark.parametrize("entry", QUICK_SEARCHES, ids=lambda e: e.name)
def test_every_registered_search(entry):
    check_neighbors(entry.load())


@pytest.mark.parametrize("entry", mf.methods(), ids=lambda e: e.name)
@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
def test_every_registered_method_and_its_solver(entry):
    check_method(entry.name)


@pytest.mark.parametrize("entry", registry.entries("solver"), ids=lambda e: e.name)
@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
@pytest.mark.parametrize("kernel", [Linear(), RBF("median")], ids=str)
def test_every_registered_solver_on_vectors(entry, kernel):
    check_solver(entry.load()(), kernel)


@pytest.mark.xdist_group("pynndescent")
def test_every_plugin_that_ships():
    check_plugin("standard")
    with pytest.raises(AssertionError, match="no plugin is called 'nobody'"):
        check_plugin("nobody")


# ----------------------------------------------------------------------------------------- the kit must be able to fail


@dataclass(frozen=True)
class Skewed(mf.Kernel):
    def block(self, X, Y):
        return X @ Y.T + np.arange(len(X))[:, None]


@dataclass(frozen=True)
class Indefinite(mf.Kernel):
    def block(self, X, Y):
        return -X @ Y.T


@dataclass(frozen=True)
class LooksAtItsNeighbours(mf.Kernel):
    def block(self, X, Y):
        return (X @ Y.T) * len(X)


@dataclass(frozen=True)
class WrongDiagonal(mf.Kernel):
    def block(self, X, Y):
        return X @ Y.T

    def diag(self, X):
        return np.ones(len(X))


@dataclass
class Thawed(mf.Kernel):
    def block(self, X, Y):
        return X @ Y.T


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (Skewed(), "not symmetric"),
        (Indefinite(), "not positive semidefinite"),
        (LooksAtItsNeighbours(), "paired|differs from that part"),
        (WrongDiagonal(), "diagonal"),
        (Thawed(), "not frozen"),
        ("rbf", "does not subclass"),
    ],
)
def test_the_kit_refuses_kernels(kernel, words):
    with pytest.raises(AssertionError, match=words):
        check_kernel(kernel)


@dataclass(frozen=True, eq=False)
class Forgetful(mf.Labels):
    """Drops relations without counting them."""

    def _select(self, rows, position):
        return Forgetful(np.where(np.arange(len(rows)) % 7, self.y[rows], np.nan))


def test_the_kit_refuses_constraints():
    with pytest.raises(AssertionError, match="selecting all rows changes the number of relations"):
        check_constraint(Forgetful(np.arange(20.0) % 3))


@dataclass(frozen=True)
class Solvers(mf.Solver):
    """A solver with a fault of choice."""

    fault: str = "none"
    accepts: ClassVar = (mf.Labels,)
    state: list = field(default_factory=list, compare=False)

    def _solve(self, problem):
        self.state.append(1)
        weight = 1.0 + (len(self.state) if self.fault == "moody" else 0)
        parts = {"status": Status.OPTIMAL, "objective": 0.0, "gap": 0.0, "certificate": "closed form", "n_iter": 0}
        parts |= {"gap": -1.0} if self.fault == "negative gap" else {}
        parts |= {"status": "fine"} if self.fault == "status" else {}
        parts |= {"n_iter": 5} if self.fault == "silent" else {}
        parts |= {"certificate": ""} if self.fault == "no certificate" else {}
        return Solution(weight * problem.kernel, **parts)

    def __hash__(self):
        return hash(self.fault)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("none", None),
        ("moody", "gives two answers"),
        ("negative gap", "gap is negative"),
        ("status", "expected a mf.Status"),
        ("silent", "must call problem.step"),
        ("no certificate", "the certificate has no kind"),
    ],
)
def test_the_kit_refuses_solvers(fault, words):
    if words is None:
        check_solver(Solvers(fault), Linear())
        return
    with pytest.raises(AssertionError, match=words):
        check_solver(Solvers(fault), Linear())


def lapack(A, k, *, tol, v0, stop):
    w, V = np.linalg.eigh(A @ np.eye(A.shape[0]))
    return w[-k:], V[:, -k:]


def changes_its_start(A, k, *, tol, v0, stop):
    v0[:] = 0
    return lapack(A, k, tol=tol, v0=v0, stop=stop)


def draws_its_own_start(A, k, *, tol, v0, stop):
    w, V = lapack(A, k, tol=tol, v0=v0, stop=stop)
    return w, V @ np.diag(1 + 1e-9 * np.random.default_rng().random(k))


def returns_ones(A, k, *, tol, v0, stop):
    return np.ones(k), np.ones((A.shape[0], k))


def returns_a_vector(A, k, *, tol, v0, stop):
    w, V = lapack(A, k, tol=tol, v0=v0, stop=stop)
    return (w, V) if not stop() else (w, V[:, 0])


@pytest.mark.parametrize(
    ("solver", "words"),
    [
        (lapack, None),
        (changes_its_start, "changes v0"),
        (draws_its_own_start, "two answers"),
        (returns_a_vector, "V has shape"),
        (returns_ones, "are not eigenpairs"),
    ],
)
def test_the_kit_refuses_eigensolvers(solver, words):
    passes_or_fails(check_eigensolver, solver, words)


def brute_force(X, k, *, queries=None, seed=0, shift=0, scale=1.0):
    D = np.linalg.norm((X if queries is None else queries)[:, None] - X[None], axis=2)
    if queries is None:
        np.fill_diagonal(D, np.inf)
    order = np.argsort(D, axis=1, kind="stable")[:, shift : shift + k]
    return order, scale * np.take_along_axis(D, order, axis=1)


def at_random(X, k, *, queries=None, seed=0):
    return brute_force(X, k, queries=queries, shift=int(np.random.default_rng().integers(40)))


@pytest.mark.parametrize(
    ("search", "words"),
    [
        (brute_force, None),
        (partial(brute_force, shift=9), "of the true neighbours"),
        (partial(brute_force, scale=0.5), "not Euclidean"),
        (at_random, "of the true neighbours|two answers"),
    ],
)
def test_the_kit_refuses_searches(search, words):
    passes_or_fails(check_neighbors, search, words)


def passes_or_fails(check, part, words):
    """The kit accepts a part, or refuses it with these words."""
    with nullcontext() if words is None else pytest.raises(AssertionError, match=words):
        check(part)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (("kernel", "k", Linear()), "kernel 'k' must be a class"),
        (("constraint", "c", Linear), "constraint 'c' must subclass mf.Constraint"),
        (("solver", "s", Linear), "solver 's' must subclass mf.Solver"),
        (("command", "c", print), "command 'c' must be a mf.Command"),
    ],
)
def test_the_kit_refuses_plugins(plug, entry, words):
    plug(entry)
    with pytest.raises(AssertionError, match=words):
        check_plugin("plugged")
