"""The interface between the core and a method: certificates, solutions, solvers, methods."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest

import metricforge as mf
from metricforge.errors import InputError, NotAcceptedError, NotUpdatableError, SolverError
from metricforge.kernels import RBF, Linear
from metricforge.solver import Certificate, Method, Problem, Solution, Solver, Status
from metricforge.space import LearnedKernel, represent

X = np.random.default_rng(0).normal(size=(20, 3))
PAIRS = mf.Pairs([(0, 2)], [(0, 1)], n=20)


def solution(**changes):
    return Solution(**{"kernel": Linear(), "status": Status.OPTIMAL, "objective": 1.0, "gap": 0.0, **changes})


@dataclass(frozen=True)
class Returning(Solver):
    """Returns what it is given."""

    result: object = None
    accepts = (mf.Pairs,)

    def _solve(self, problem):
        return self.result


# --------------------------------------------------------------------------------------------------------- certificates


@pytest.mark.parametrize(
    ("certificate", "described", "printed"),
    [
        (Certificate("gap", 1e-6, 5.0), "duality gap 1e-06, relative 2e-07", "duality gap"),
        (Certificate("gap", 0.0, 5.0), "duality gap 0, relative 0", "duality gap"),
        (Certificate("bound", 0.25), "objective minus lower bound 0.25", "objective minus lower bound"),
        (Certificate("bound", 0.25, 0.0), "objective minus lower bound 0.25", "objective minus lower bound"),
        (
            Certificate("residual", 3e-16, definition="relative KKT residual along a random v"),
            "residual of the optimality conditions 3e-16",
            "relative KKT residual along a random v",
        ),
        (Certificate("gradient", 0.012, 2.0), "gradient norm 0.012, relative 0.006", "gradient norm"),
        (Certificate("closed form", 0.0), "closed form", "closed form"),
        (Certificate("share of violated cycles", 0.02), "share of violated cycles 0.02", "share of violated cycles"),
    ],
)
def test_a_certificate_is_described_by_its_kind(certificate, described, printed):
    assert certificate.describe() == described
    assert str(certificate) == printed
    assert "optimum" not in certificate.describe()


def test_a_certificate_is_equal_to_its_fields_and_to_its_text():
    one = Certificate("gap", 0.5, 2.0)
    assert one.relative == 0.25
    assert one == Certificate("gap", 0.5, 2.0) != Certificate("gap", 0.5)
    assert one == "duality gap" != "gap"
    assert {one: 1}[Certificate("gap", 0.5, 2.0)] == 1
    assert one != 0.5
    assert pickle.loads(pickle.dumps(one)) == one


# ------------------------------------------------------------------------------------------------------------ solutions


def test_a_solution_takes_a_certificate_or_the_kind_of_one():
    assert solution(certificate="closed form").certificate == Certificate("closed form", 0.0)
    assert solution(gap=0.5).certificate == Certificate("gap", 0.5)
    structured = Solution(Linear(), Status.STATIONARY, 1.0, certificate=Certificate("gradient", 1e-3, 2.0))
    assert structured.gap == 1e-3
    assert structured.status == "stationary"
    with pytest.raises(SolverError, match=r"gap=0\.1, but the value of its certificate is 0\.2"):
        solution(gap=0.1, certificate=Certificate("gap", 0.2))


def test_the_outcome_may_be_given_by_its_earlier_name():
    old = solution(report={"width": 3})
    assert old.outcome == old.report == {"width": 3}
    assert replace(old, notes=("read this",)).outcome == {"width": 3}
    assert replace(old, outcome={"depth": 4}).report == {"depth": 4}


def test_a_solution_that_is_none_is_an_error():
    problem = Problem(represent(Linear(), X), PAIRS)
    with pytest.raises(SolverError, match="Returning returned a NoneType, expected"):
        Returning().solve(problem)
    found = solution()
    assert Returning(found).solve(problem) is found


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"objective": np.inf}, "solution.objective"),
        ({"gap": np.nan}, "solution.gap"),
        ({"certificate": Certificate("gap", 0.0, np.nan)}, "solution.certificate.scale"),
        ({"trace": ((1.0, np.nan),)}, "solution.trace.0.1"),
        ({"outcome": {"deep": [np.ones(2), {"x": np.array([1.0, -np.inf])}]}}, "solution.outcome.deep.1.x"),
    ],
)
def test_the_first_number_that_is_not_finite_is_named(changes, path):
    with pytest.raises(SolverError, match=f"Returning returned a solution that is not finite: {path}$"):
        Returning(solution(**changes)).solve(Problem(represent(Linear(), X), PAIRS))


@dataclass(frozen=True, eq=False)
class Growing(Linear):
    """A kernel with arrays."""

    values: object = None
    other: object = None


def test_a_check_after_an_update_skips_what_was_checked_and_nothing_else():
    buffer = np.ones(10)
    old = Growing(values=buffer[:4], other=np.ones(3))
    solver = Returning()

    def check(**arrays):
        return solver.checked(solution(kernel=Growing(**arrays)), old)

    check(values=buffer[:6], other=old.other)
    buffer[0] = np.nan  # checked before; the contract forbids to change it
    check(values=buffer[:6], other=old.other)
    buffer[5] = np.nan
    for arrays, path in (
        ({"values": buffer[:6]}, "values"),  # after what was checked
        ({"values": buffer[:6].copy()}, "values"),  # a copy
        ({"other": np.array([1.0, np.nan])}, "other"),
        ({"values": old.values, "other": buffer[::5]}, "other"),  # the same beginning, other entries
        ({"other": (np.ones(2), np.inf)}, "other.1"),
    ):
        with pytest.raises(SolverError, match=f"not finite: solution.kernel.{path}$"):
            check(**arrays)


# -------------------------------------------------------------------------------------------------- solvers and methods


def test_a_solver_checks_the_constraint_before_it_solves():
    space = represent(Linear(), X)
    with pytest.raises(NotAcceptedError, match=r"Returning accepts Pairs, got Labels.*constraint\.to\(mf\.Pairs\)"):
        Returning(solution()).solve(Problem(space, mf.Labels(np.arange(20) % 2)))
    with pytest.raises(mf.errors.InputError, match="about 5 rows"):
        Returning(solution()).solve(Problem(space, mf.Pairs([(0, 1)], n=5)))


def test_only_a_solver_that_defines_update_can_update():
    class Updating(Returning):
        def update(self, metric, X, constraint):
            return solution()

    assert not Returning().can_update
    assert Updating().can_update
    with pytest.raises(NotUpdatableError, match="Returning cannot be updated"):
        Returning().update(None, X, PAIRS)


def test_a_problem_shows_the_parts_of_its_space():
    problem = Problem(represent(Linear(), X), PAIRS)
    assert problem.n == 20
    assert problem.kernel == Linear()
    assert problem.rows is problem.space.rows
    assert problem.step(1, 2, gap=0.5) is None


def test_a_method_declares_whether_it_depends_on_scales():
    def linear(kernel, solver):
        return isinstance(kernel, Linear) and solver.result is None

    plain = Method(mf.Pairs, Linear(), Returning())
    assert (plain.order, plain.settings, plain.rank, plain.baseline) == (None, (), None, False)
    assert not plain.ignores_scales(Linear(), Returning())
    assert Method(mf.Pairs, Linear(), Returning(), scale_free=True).ignores_scales(RBF(1.0), Returning())
    some = Method(mf.Pairs, Linear(), Returning(), scale_free=linear, settings=({"tol": 1},))
    assert some.ignores_scales(Linear(), Returning())
    assert not some.ignores_scales(RBF(1.0), Returning())
    assert not some.ignores_scales(Linear(), Returning(1))
    assert isinstance(hash(some), int)
    with pytest.raises(TypeError):
        Method(mf.Pairs, Linear(), Returning(), 1)


def test_progress_has_the_documented_signature_and_is_discarded_by_default():
    problem = Problem(represent(Linear(), X), PAIRS)
    assert problem.step(3, None, gap=0.1) is None
    assert str(inspect.signature(problem.step)).startswith("(step: 'int', total: 'int | None' = None, **info")
    assert "step(k, total=None, **info)" in Problem.__doc__
    # a function in the class would be documented as a method without its first argument
    assert "step" not in vars(Problem)


@dataclass(frozen=True)
class Weighing(Solver):
    """Returns the kernel with the matrix weight · I on the features."""

    weight: float = 1.0
    accepts = (mf.Pairs,)

    def _solve(self, problem):
        return solution(kernel=LearnedKernel(problem.space.map, self.weight * np.eye(problem.space.map.columns)))


@pytest.mark.parametrize(
    ("weight", "scale", "error", "words"),
    [
        (-1.0, 1.0, SolverError, "Weighing returned an indefinite kernel, with squared distances down to -"),
        (1e250, 1e40, InputError, "X: Weighing learns distances that cannot be computed"),
    ],
)
def test_a_kernel_without_distances_is_refused_by_solve(weight, scale, error, words, plugged):
    with pytest.raises(error, match=words):
        Weighing(weight).solve(Problem(represent(Linear(), scale * X), PAIRS))
    method = Method(mf.Pairs, Linear(), Weighing(weight))
    with plugged(method={"weighing": method}), pytest.raises(error) as caught:
        mf.learn(scale * X, PAIRS, method="weighing")
    assert any("plugin 'plugged'" in note for note in caught.value.__notes__)


def test_a_solver_given_by_hand_is_reported_as_itself():
    llr = mf.learn(X, PAIRS, method="llr").solver
    assert mf.learn(X, PAIRS, method="idealized", solver=llr).report.method == "llr"
    for method in ("auto", "idealized"):
        report = mf.learn(X, PAIRS, method=method, solver=Weighing()).report
        assert report.method == "Weighing"
        assert any("Weighing solves in place of the solver of method" in note for note in report.notes)
