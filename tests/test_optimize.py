"""What solvers share: L-BFGS, the record of bounds, how a solve ended, and forecasts as data."""

import numpy as np
import pytest

import metricforge as mf
from metricforge.errors import ConvergenceWarning, InputError
from metricforge.kernels import Linear
from metricforge.optimize import Bounds, conclude, minimize, smoothed_hinge
from metricforge.solver import Method, Status
from metricforge.space import Size, compact, rows_seconds, space_bytes, space_seconds


def test_lbfgs_keeps_the_shape_and_the_lower_bounds():
    target = np.array([[1.0, -2.0], [3.0, 0.5]])

    def value(L):
        return float(np.square(L - target).sum()), 2 * (L - target)

    L, steps = minimize(value, np.zeros((2, 2)), 50, least=0.0)
    np.testing.assert_allclose(L, np.maximum(target, 0), atol=1e-8)
    assert 0 < steps < 50


def test_lbfgs_ends_where_the_caller_says_so():
    seen = []
    _, steps = minimize(lambda x: (float(x @ x) ** 2, 4 * x * (x @ x)), np.ones(3), 50, after=seen.append)
    assert len(seen) == steps > 2
    _, steps = minimize(lambda x: (float(x @ x) ** 2, 4 * x * (x @ x)), np.ones(3), 50, after=lambda x: True)
    assert steps == 1


def test_progress_keeps_the_best_of_both_bounds():
    progress = Bounds()
    assert progress.offer(3.0, "first")
    progress.record(1.0)
    assert not progress.offer(4.0, "worse")
    progress.record(0.5)
    assert (progress.point, progress.upper, progress.lower, progress.gap) == ("first", 3.0, 1.0, 2.0)
    assert progress.trace == [(3.0, 2.0), (3.0, 2.0)]
    assert progress.within(0.7)
    assert not progress.within(0.6)
    progress.record(3.5)
    assert progress.gap == 0


def test_a_solve_that_did_not_converge_warns_and_says_why_it_stopped():
    assert conclude("m", True, True, "") == Status.OPTIMAL
    with pytest.warns(ConvergenceWarning, match="m stopped after 3 steps; raise max_iter or tol"):
        assert conclude("m", False, True, "after 3 steps") == Status.ITERATION_LIMIT
    with pytest.warns(ConvergenceWarning, match="raise lam"):
        assert conclude("m", False, False, "after 3 steps", "raise lam") == Status.STALLED


def test_the_smoothed_hinge_is_the_hinge_outside_its_width():
    x = np.array([-1.0, 0.0, 1.0])
    value, slope = smoothed_hinge(x, 0.5)
    np.testing.assert_allclose(value, [0.0, 0.0625, 1.0])
    np.testing.assert_allclose(slope, [0.0, 0.5, 1.0])


def test_compact_numbers_the_rows_that_occur():
    rows, pairs = compact(np.array([[7, 3], [9, 7]]))
    assert rows.tolist() == [3, 7, 9]
    assert pairs.tolist() == [[1, 0], [2, 1]]


def test_forecasts_are_read_from_coefficients():
    size = Size(n=50, d=3, m=4, p=6, representation="exact")
    method = Method(mf.Pairs, Linear(), None, cost={"pmm": 2.0, "": 5.0}, memory={"nn": 1e3, "m": 1.0})
    assert method.forecast(size) == pytest.approx(rows_seconds(size) + space_seconds(size) + 1e-9 * (2 * 6 * 16 + 5))
    assert method.peak(size) == 2500 * 1000 + 4
    assert Method(mf.Pairs, Linear(), None, memory={"n": 1.0}).peak(size) == space_bytes(size)
    with pytest.raises(InputError, match="cost has the term 'qm'"):
        Method(mf.Pairs, Linear(), None, cost={"qm": 1.0})
