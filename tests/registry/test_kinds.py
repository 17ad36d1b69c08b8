"""Every kind of the registry is usable by name: a component of each kind is registered and used under its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from metricforge_cases.kinds import Links, links_to_pairs

import metricforge as mf
from metricforge.cli.program import main
from metricforge.distributed.chunks import as_dask
from metricforge.errors import InputError, MissingPluginError, UnknownNameError
from metricforge.registry import KINDS, registry


class CountingEigensolver:
    """LAPACK on the operator times the identity; counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, A, k, *, tol, v0, stop):
        self.calls += 1
        w, V = np.linalg.eigh(A @ np.eye(A.shape[0]))
        return w[-k:], V[:, -k:]


def backwards(X, k, *, queries=None, seed=0):
    """Search by the distances of all rows; the last of equal rows would come first."""
    Q = X if queries is None else queries
    D = np.linalg.norm(Q[:, None] - X[None], axis=2)
    if queries is None:
        np.fill_diagonal(D, np.inf)
    order = np.argsort(D, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(D, order, axis=1)


def test_an_eigensolver_by_name(plug, rng):
    mine = CountingEigensolver()
    plug(("eigensolver", "mine", mine))
    A = np.diag(np.arange(60.0))
    found = mf.eigen.top(A, 3, solver="mine")
    np.testing.assert_allclose(found[0], [59, 58, 57])
    assert mine.calls == 1
    assert found.solver == "mine"
    X, y = rng.normal(size=(90, 3)), np.arange(90) % 2
    metric = mf.learn(X + 3 * y[:, None], y, method="simplenpkl", eigensolver="mine")
    assert mine.calls > 1
    assert metric.report.eigensolver == "mine"


@pytest.mark.parametrize(("share", "taken"), [(0.5, True), (1.5, False)])
def test_auto_takes_an_eigensolver_that_forecasts_less_time(plug, share, taken):
    mine = CountingEigensolver()
    mine.forecast = lambda n, k, tol, warm: share
    plug(("eigensolver", "mine", mine))
    found = mf.eigen.top(np.diag(np.arange(501.0)), 3)
    np.testing.assert_allclose(found[0], [500, 499, 498])
    assert mine.calls == taken


@pytest.mark.parametrize(("seconds", "name"), [(3.0, "mine"), (100.0, "cells")])
def test_auto_takes_a_search_that_forecasts_less_time(plug, seconds, name):
    def mine(X, k, *, queries=None, seed=0):
        return backwards(X, k, queries=queries, seed=seed)

    mine.forecast = lambda X, recall: seconds
    plug(("neighbors", "mine", mine))
    X = np.broadcast_to(np.arange(120_000.0)[:, None], (120_000, 50))
    assert mf.neighbors.choose(X, X, True) == name
    assert mf.neighbors.choose(X, X, True, recall=1) == "exact"


def test_a_saved_metric_loads_without_the_eigensolver_that_its_solver_names(plug, rng, tmp_path):
    plug(("eigensolver", "mine", CountingEigensolver()))
    metric = mf.learn(X, Y, method="simplenpkl", eigensolver="mine")
    metric.save(tmp_path / "a.metric")
    registry.unregister("plugged")
    copy = mf.load(tmp_path / "a.metric")
    np.testing.assert_array_equal(copy.distance(X), metric.distance(X))
    with pytest.raises(MissingPluginError, match=r"its solver cannot be rebuilt.*eigensolver='mine' is unknown"):
        copy.update(X, Y)
    copy.save(tmp_path / "b.metric")
    plug(("eigensolver", "mine", CountingEigensolver()))
    assert mf.load(tmp_path / "b.metric").solver == metric.solver


def test_a_neighbour_search_by_name_in_memory_and_on_dask(plug, rng):
    plug(("neighbors", "mine", backwards))
    X = rng.normal(size=(40, 3))
    expected = mf.neighbors.search(X, 4, method="exact")
    np.testing.assert_array_equal(mf.neighbors.search(X, 4, method="mine")[0], expected[0])
    lazy = mf.neighbors.search(as_dask(X, (15, -1)), 4, method="mine")
    np.testing.assert_array_equal(lazy[0].compute(), expected[0])


@pytest.mark.parametrize(("kernel", "rank"), [("linear", "auto"), ("rbf(gamma=0.1)", 20)])
def test_a_metric_searches_by_name(plug, rng, kernel, rank):
    calls = []

    def counted(X, k, *, queries=None, seed=0):
        calls.append(X.shape)
        return backwards(X, k, queries=queries, seed=seed)

    plug(("neighbors", "mine", counted))
    X = rng.normal(size=(40, 3))
    metric = mf.learn(X, np.arange(40) % 2, method="krca", kernel=kernel, rank=rank)
    expected = metric.neighbors(X[:9], 4)
    found = metric.neighbors(X[:9], 4, method="mine")
    assert len(calls) == 1
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], atol=1e-7)
    with pytest.raises(UnknownNameError, match="method='mien' is unknown"):
        metric.neighbors(X, 4, method="mien")
    if kernel == "linear":
        lazy = metric.neighbors(as_dask(X, (15, -1)), 4, method="mine")
        np.testing.assert_array_equal(lazy[0].compute(), metric.neighbors(X, 4)[0])
    else:
        with pytest.raises(InputError, match="in the embedding, and that of this metric is not exact"):
            metric.neighbors(as_dask(X, (15, -1)), 4, method="mine")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mf.eigen.top(np.eye(30), 2, solver="mien"), "solver='mien' is unknown; did you mean 'mine'"),
        (lambda: mf.neighbors.search(np.eye(30), 2, method="mien"), "method='mien' is unknown; did you mean 'mine'"),
        (lambda: mf.learn(np.eye(4), [0, 1, 0, 1], method="simplenpkl", eigensolver="mien"), "eigensolver='mien'"),
    ],
)
def test_unknown_names_offer_the_registered_ones_too(plug, call, words):
    plug(("eigensolver", "mine", CountingEigensolver()), ("neighbors", "mine", backwards))
    with pytest.raises(UnknownNameError, match=words):
        call()


def test_what_is_no_name_is_refused():
    with pytest.raises(InputError, match="solver must be a name or a callable, got NoneType"):
        mf.eigen.top(np.eye(3), 1, solver=None)
    with pytest.raises(InputError, match="method must be a name or a callable, got int"):
        mf.neighbors.search(np.eye(3), 1, method=3)
    with pytest.raises(InputError, match="eigensolver must be a name, got 3"):
        mf.learn(np.eye(4), [0, 1, 0, 1], method="simplenpkl", eigensolver=3)


def test_an_unregistered_plugin_leaves_nothing(plug):
    plug(("neighbors", "mine", backwards))
    registry.unregister("plugged")
    registry.unregister("plugged")
    assert "plugged" not in [plugin.name for plugin in mf.plugins()]
    with pytest.raises(UnknownNameError):
        mf.neighbors.search(np.eye(3), 1, method="mine")


def test_a_namespace_by_name(plug):
    plug(("namespace", "mine", "json.decoder"), ("namespace", "other", "json:JSONEncoder"))
    assert mf.mine.__name__ == "json.decoder"
    assert mf.other.__name__ == "JSONEncoder"
    assert {"mine", "other"} <= set(dir(mf))
    registry.unregister("plugged")
    assert "mine" not in dir(mf)
    with pytest.raises(AttributeError, match="no attribute 'mine'"):
        _ = mf.mine


def test_a_broken_namespace_raises_its_own_error(plug):
    plug(("namespace", "mine", "no_such_module"))
    with pytest.raises(ModuleNotFoundError) as caught:
        _ = mf.mine
    assert "while loading namespace 'mine' of plugin 'plugged' from 'no_such_module'" in caught.value.__notes__


# ------------------------------------------------------------------------------------------------------- every kind


@dataclass(frozen=True)
class Doubled(mf.Kernel):
    """Twice the linear kernel."""

    def block(self, X, Y):
        return 2 * X @ Y.T


@dataclass(frozen=True)
class Keep(mf.Solver):
    """Return the base kernel."""

    accepts: ClassVar = (mf.Labels,)

    def _solve(self, problem):
        return mf.Solution(problem.kernel, mf.Status.OPTIMAL, 0.0, certificate=mf.Certificate("nothing", 0.0))


X = np.random.default_rng(0).normal(size=(30, 3))
Y = np.arange(30) % 2


def use_constraint(plug):
    plug(("constraint", "links", Links), ("conversion", "pairs->links", lambda c, *, seed: Links(c.similar, n=c.n)))
    return isinstance(mf.Pairs([(0, 1)], n=3).to("links"), Links)


def use_conversion(plug):
    plug(("constraint", "links", Links), ("conversion", "links->pairs", links_to_pairs))
    metric = mf.learn(X, Links(np.array([(0, 1), (2, 3), (4, 5)]), n=30), method="krca")
    return metric.report.converted[0].startswith("Links (3) → Pairs (3)")


def use_kernel(plug):
    plug(("kernel", "doubled", Doubled))
    return mf.learn(X, Y, method="euclidean", kernel="doubled").start == Doubled()


def use_solver(plug):
    plug(("solver", "keep", Keep))
    learner = mf.MetricLearner("euclidean", solver="keep").fit(X, Y)
    return mf.learn(X, Y, method="euclidean", solver="keep").solver == Keep() == learner.metric_.solver


def use_method(plug):
    plug(("method", "keep", mf.Method(mf.Labels, Doubled(), Keep())))
    return mf.learn(X, Y, method="keep").report.method == "keep"


def use_eigensolver(plug):
    plug(("eigensolver", "mine", CountingEigensolver()))
    return mf.eigen.top(np.diag(np.arange(30.0)), 1, solver="mine").solver == "mine"


def use_neighbors(plug):
    plug(("neighbors", "mine", backwards))
    return mf.neighbors.search(X, 1, method="mine")[0].shape == (30, 1)


def use_command(plug):
    calls = []
    plug(("command", "mine", mf.Command("do it", calls.append)))
    return main(["mine"]) == 0 and len(calls) == 1


def use_namespace(plug):
    plug(("namespace", "mine", "json"))
    return mf.mine.__name__ == "json"


USES = {name.removeprefix("use_"): function for name, function in list(globals().items()) if name.startswith("use_")}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_usable_by_name(plug, kind):
    assert USES[kind](plug)
