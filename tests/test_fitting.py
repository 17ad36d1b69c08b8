"""The join: what learn, Metric.update and tuning do around a solver."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import metricforge as mf
from metricforge import fitting, resolve
from metricforge.errors import InputError, SolverError
from metricforge.kernels import Linear
from metricforge.solver import Method, Solution, Solver, Status

X = np.random.default_rng(0).normal(size=(20, 3))
NEW = np.random.default_rng(1).normal(size=(6, 3))
GROUPS = mf.Chunklets(np.arange(20) % 4)
CALLS: list[str] = []


@dataclass(frozen=True)
class Growing(Solver):
    """Counts rows in groups; written as a plugin's author would, with faults on request."""

    fault: str = ""
    accepts = (mf.Chunklets,)

    def _solution(self, n):
        if self.fault == "error":
            raise ZeroDivisionError("foreign code")
        value = np.nan if self.fault == "nan" else 0.0
        outcome = {"rows": n, "n": -1}
        return Solution(float(n) * Linear(), Status.OPTIMAL, value, 0.0, "closed form", outcome=outcome)

    def _solve(self, problem):
        CALLS.append("solve")
        if self.fault:
            return Growing()._solution(problem.n)
        return self._solution(problem.n)

    def update(self, metric, X, constraint, **options):
        CALLS.append(f"update {type(constraint).__name__} {options}")
        return self._solution(metric.report.outcome["rows"] + len(X))


@pytest.fixture
def growing(plugged):
    """Register the method, and record progress in the list that is returned."""
    CALLS.clear()
    events = []
    with plugged(
        step=events.append,
        plugin="garden",
        solver={"growing": Growing},
        method={"growing": Method(mf.Chunklets, Linear(), Growing())},
    ):
        yield events


def learned(fault=""):
    return mf.learn(X, GROUPS, method="growing", fault=fault)


# --------------------------------------------------------------------------------------------------------------- learn


def test_a_conversion_that_leaves_nothing_is_an_error_before_the_solver_runs(growing):
    dissimilar = mf.Pairs(dissimilar=[(0, 1), (2, 3)], n=20)
    said = (
        r"constraints holds no relation after conversion \(Pairs \(2\) → Chunklets \(0\), 2 dropped\); give relations"
    )
    with pytest.raises(InputError, match=said):
        mf.learn(X, dissimilar, method="growing")
    assert CALLS == []
    assert growing == []
    learned()
    assert CALLS == ["solve"]


def test_the_outcome_cannot_overwrite_the_fields_of_the_core(growing):
    report = learned().report
    assert (report.n, report["n"], report.outcome["n"]) == (20, 20, -1)
    assert report.rows == report["rows"] == 20
    assert "rows" not in report._core
    assert repr(report).count("\noutcome.n ") == 1
    assert sorted(report) == sorted(set(report))
    assert len(report) == len(list(report)) == len(dict(report))
    with pytest.raises(TypeError):
        report.outcome["rows"] = 3
    with pytest.raises(AttributeError, match="no 'column'"):
        _ = report.column


# -------------------------------------------------------------------------------------------------------------- update


def test_an_update_walks_the_join(growing):
    metric = learned()
    growing.clear()
    updated = metric.update(NEW, [0, 0, 1, 1, 2, 2], colour="green")
    assert CALLS[1:] == ["update Chunklets {'colour': 'green'}"]
    assert [(e.task, e.done) for e in growing] == [
        ("update of growing by 6 rows", False),
        ("update of growing by 6 rows", True),
    ]
    assert updated.report.converted == ("Labels (6) → Chunklets (3)",)
    assert updated.report.n == 26
    assert updated.report.rows == updated.report.outcome["rows"] == 26
    assert updated.report.updates == 1
    assert updated.start == metric.start == Linear()
    assert metric.report.n == 20
    assert updated.update(NEW, np.arange(6) % 2).report.converted == (
        "Labels (6) → Chunklets (3)",
        "Labels (6) → Chunklets (2)",
    )


def test_an_update_that_converts_to_nothing_is_an_error_before_the_solver_runs(growing):
    metric = learned()
    with pytest.raises(InputError, match=r"no relation after conversion \(Pairs \(1\) → Chunklets \(0\), 1 dropped\)"):
        metric.update(NEW, mf.Pairs(dissimilar=[(0, 1)], n=6))
    with pytest.raises(InputError, match="holds no relation over these 6 rows"):
        metric.update(NEW, mf.Pairs(n=6))
    with pytest.raises(InputError, match="about 5 rows"):
        metric.update(NEW, mf.Labels(np.arange(5)))
    with pytest.raises(InputError, match="constraints is missing"):
        metric.update(NEW, None)
    with pytest.raises(InputError, match=r"wrap row numbers as mf\.Pairs"):
        metric.update(NEW, [(0, 1)])
    assert CALLS == ["solve"]


def test_an_update_refuses_a_solution_that_is_not_finite(growing):
    metric = learned("nan")
    with pytest.raises(SolverError, match=r"Growing returned a solution that is not finite: solution\.objective"):
        metric.update(NEW, np.arange(6) % 2)
    assert growing[-1].done
    assert metric.report.n == 20


def test_an_error_in_an_update_names_the_solver_and_the_plugin(growing):
    metric = learned("error")
    with pytest.raises(ZeroDivisionError, match="foreign code") as caught:
        metric.update(NEW, np.arange(6) % 2)
    assert caught.value.__notes__ == ["in solver Growing of method 'growing' (plugin 'garden')"]
    assert growing[-1].done


def test_an_update_limits_the_threads_of_blas(growing, monkeypatch):
    limits = []
    one_thread = fitting.one_thread
    monkeypatch.setattr(fitting, "one_thread", lambda: limits.append(1) or one_thread())
    metric = learned()
    assert limits == [1]
    metric.update(NEW, np.arange(6) % 2)
    assert limits == [1, 1]
    monkeypatch.setattr(fitting, "CUBIC", 25)  # 20 rows and 6 more, but their Gram matrix is not used
    metric.update(NEW, np.arange(6) % 2)
    assert limits == [1, 1, 1]
    exact = mf.learn(X, GROUPS, method="growing", kernel=mf.kernels.RBF(0.5), rank="exact")
    exact.update(NEW, np.arange(6) % 2)
    assert limits == [1, 1, 1, 1]


# ------------------------------------------------------------------------------------------------------------- tuning


def test_tuning_reports_progress_and_names_the_solver_in_errors(growing, monkeypatch):
    from metricforge_plugins.idealized import tune as idealized
    from metricforge_plugins.lpdesign import tune as lpdesign

    y = np.arange(20) % 2
    idealized.tune(X, y, c_dissimilar=(1.0, 10.0), ratio=(1.0,), nu=(0.6,))
    assert [(e.step, e.total, e.done) for e in growing] == [
        (0, None, False),
        (1, 2, False),
        (2, 2, False),
        (0, None, True),
    ]
    growing.clear()
    lpdesign.tune(X, mf.Labels(y), sparsities=(1e-3,), traces=(1e-2,))  # converted as in learn
    assert growing[-1].done
    assert {e.task for e in growing} == {"tuning of lpdesign on 20 rows"}
    with pytest.raises(InputError, match="no relation after conversion"):
        idealized.tune(X, mf.Chunklets(np.arange(20)))
    for module, name, fails in (
        (idealized, "_trial", lambda: idealized.tune(X, y)),
        (lpdesign, "_scores", lambda: lpdesign.tune(X, mf.Triplets.from_labels(y, n_triplets=20))),
    ):
        monkeypatch.setattr(module, name, lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError) as caught:
            fails()
        assert "in solver" in caught.value.__notes__[0]


def test_tuning_refuses_what_is_not_finite(monkeypatch):
    from metricforge_plugins.idealized import tune as idealized

    monkeypatch.setattr(idealized.Prepared, "matrix", lambda self, B: np.full_like(B, np.nan))
    monkeypatch.setattr(idealized.Prepared, "alignment", lambda self, B: 0.0)
    with pytest.raises(SolverError, match="Idealized returned a solution that is not finite: W"):
        idealized.tune(X, np.arange(20) % 2, c_dissimilar=(1.0,), ratio=(1.0,), nu=(0.6,))


def test_several_constraints_are_refused():
    y = np.arange(6) % 2
    with pytest.raises(InputError, match="must be one constraint, got a list"):
        mf.learn(np.eye(6), [mf.Labels(y), mf.Pairs([(0, 2)], n=6)])


def test_rows_whose_squares_would_overflow_in_a_solver_are_refused():
    X = np.random.default_rng(0).normal(size=(12, 2)) * 1e100
    with pytest.raises(InputError, match="solvers square it"):
        mf.learn(
            X, mf.Pairs.from_labels(np.arange(12) % 2, components=0.5, seed=0), method="idealized", kernel="linear"
        )


@pytest.mark.parametrize("value", [mf.Pairs, np.ndarray])
def test_a_class_is_no_constraint(value):
    with pytest.raises(InputError, match=r"^constraints must be labels \(1-d\) or a constraint, got <class"):
        resolve.as_constraint(value)


def test_a_matrix_that_cannot_be_factorised_is_an_input_error():
    says = r"^X: mine met a matrix that it cannot factorise \(3-th minor\); rescale"
    with pytest.raises(InputError, match=says), fitting.solving(None, "features", 9, "mine"):
        raise np.linalg.LinAlgError("3-th minor")


@pytest.mark.parametrize(
    "constraint",
    [
        mf.Labels(np.arange(30) % 3),
        mf.Pairs([(0, 3)], [(0, 1)], n=30),
        mf.Triplets([(0, 3, 1)], n=30),
        mf.Quadruplets([(0, 3, 5, 7)], n=30),
        mf.Targets(np.arange(30.0)),
    ],
)
def test_every_kind_of_hints_says_which_rows_are_alike(constraint):
    found = fitting.contrast(constraint, seed=0)
    assert len(found.like)
    assert len(found.unlike)
    if isinstance(constraint, mf.Labels):
        codes = constraint.codes
        assert (codes[found.like[:, 0]] == codes[found.like[:, 1]]).all()
        assert (codes[found.unlike[:, 0]] != codes[found.unlike[:, 1]]).all()


def test_groups_say_which_rows_are_alike_only():
    found = fitting.contrast(mf.Chunklets(np.arange(30) % 3), seed=0)
    assert len(found.like)
    assert found.unlike.shape == (0, 2)


def test_hints_of_a_foreign_kind_choose_no_components():
    class Ranks(mf.Labels):
        def lines(self):
            return ()

        def to(self, kind, *, seed=0):
            raise InputError("no conversion leads from Ranks")

    assert fitting.contrast(Ranks(np.arange(9) % 2), seed=0) is None


@pytest.mark.parametrize("wrap", [np.asarray, list])
def test_a_bare_y_of_many_fractions_is_no_class_per_row(wrap):
    y = wrap(np.arange(40) / 8)
    X = np.random.default_rng(0).normal(size=(40, 2))
    for call in (mf.learn, mf.compare, mf.MetricLearner().fit):
        with pytest.raises(InputError, match=r"y holds 35 different numbers.*; give mf\.Targets\(y\).*mf\.Labels\(y\)"):
            call(X, y)
    assert resolve.as_constraint(mf.Labels(y)).size == 40
    assert resolve.as_constraint(y, kind=mf.Targets).size == 40
    assert len(resolve.as_constraint(np.arange(40) % 20 / 8).classes) == 20
