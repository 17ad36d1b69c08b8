from __future__ import annotations

import numpy as np
import pytest
from metricforge_cases.simplenpkl_programs import CASES, TOL, case, compared, laplacian, learned, optimum
from metricforge_plugins.simplenpkl.solver import SimpleNPKL
from scipy.sparse import coo_array, csr_array, csr_matrix

import metricforge as mf
from metricforge.errors import InputError

# ------------------------------------------------------------------------------------------------ against the programs


@pytest.mark.parametrize(
    ("name", "seed"),
    # without a bound the plain hinge takes seconds
    [(name, seed) for name in CASES if "steps" not in name for seed in ((2,) if "tol" in name else (0, 1))],
)
def test_optima_are_those_of_clarabel(name, seed):
    loss, options = CASES[name]
    above, bound, gap, closed = compared(seed, loss, **options)
    # without a bound, the plain hinge may stall above its tolerance; its certificate says so
    tol = options.get("tol", TOL) if closed else 5e-3
    assert closed or "tol" in options
    assert -1e-6 <= above <= tol
    assert bound <= 1e-6
    assert above <= gap + 1e-6


@pytest.mark.parametrize("steps", ["harmonic", "best-response"])
@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_published_steps_give_true_bounds(loss, steps):
    at = case(1)
    report = learned(at, loss, tol=1e-3, steps=steps, max_iter=30)
    least = optimum(at, loss, len(at.X))
    assert report.lower_bound <= least + 1e-6 * max(1, abs(least))
    assert report.objective >= least - 1e-6 * max(1, abs(least))


def test_harmonic_steps_are_those_of_algorithm_1():
    at = case(3)  # equal weights
    n, L = len(at.X), laplacian(at.S)
    both = np.concatenate([at.pairs.similar, at.pairs.dissimilar])
    t = np.repeat([1.0, -1.0], [len(at.pairs.similar), len(at.pairs.dissimilar)])
    alpha, best = np.ones(len(t)), np.inf
    for step in range(1, 6):
        T = np.zeros((n, n))
        T[both[:, 0], both[:, 1]] = T[both[:, 1], both[:, 0]] = alpha * t / 2
        w, V = np.linalg.eigh(T - L)
        positive = (V * np.maximum(w, 0)) @ V.T
        K = np.sqrt(n) * positive / np.linalg.norm(positive)
        agreement = t * K[both[:, 0], both[:, 1]]
        best = min(best, np.sum(L * K) + at.C / 2 * np.square(np.maximum(0, 1 - agreement)).sum())
        alpha = np.maximum(0, alpha + (1 - agreement - alpha / at.C) / step)
    report = learned(at, "squared_hinge", tol=1e-9, steps="harmonic", max_iter=5)
    assert report.n_iter == 5
    assert report.objective == pytest.approx(best, rel=1e-6)


# -------------------------------------------------------------------------------------------------------- similarities


def test_the_neighbour_graph_as_a_similarity_gives_the_same_kernel():
    X, y = mf.datasets.load("wine")
    pairs = mf.Pairs.from_labels(y, components=0.7, seed=0)
    kernel = mf.kernels.Linear()
    own = mf.learn(X, pairs, method="simplenpkl", kernel=kernel, n_neighbors=7)
    S = mf.neighbors.graph(mf.neighbors.search(X, 7)[0], kind="mutual")
    given = mf.learn(X, pairs, method="simplenpkl", kernel=kernel, similarity=S)
    assert given.report.objective == pytest.approx(own.report.objective, rel=1e-9)
    assert given.report.edges == own.report.edges
    K, G = (m.report.embedding @ m.report.embedding.T for m in (own, given))
    np.testing.assert_allclose(G, K, atol=1e-6)


def test_weights_matter_and_the_diagonal_counts():
    at = case(1)
    plain = learned(at, "linear").objective
    assert learned(at._replace(S=at.S.power(3)), "linear").objective != pytest.approx(plain, rel=1e-3)
    looped = at._replace(S=csr_array(at.S + csr_array(np.diag(np.arange(len(at.X), dtype=float)))))
    assert learned(looped, "linear").objective == pytest.approx(optimum(looped, "linear", len(at.X)), rel=1e-6)
    assert learned(looped, "linear").edges == learned(at, "linear").edges == np.count_nonzero(at.S.toarray()) // 2


@pytest.mark.parametrize("container", [csr_array, csr_matrix, coo_array])
def test_any_sparse_container(container):
    at = case(1)
    assert learned(at._replace(S=container(at.S)), "linear").objective == learned(at, "linear").objective


def test_a_metric_with_a_similarity_is_saved_and_loaded(tmp_path):
    at = case(1)
    metric = mf.learn(at.X, at.pairs, method="simplenpkl", similarity=at.S)
    metric.save(tmp_path / "own.metric")
    again = mf.load(tmp_path / "own.metric")
    np.testing.assert_array_equal(again.distance(at.X), metric.distance(at.X))
    np.testing.assert_array_equal(again.solver.similarity.toarray(), at.S.toarray())
    assert again.solver == metric.solver
    repr(metric.solver)


def test_a_grid_may_hold_it():
    from sklearn.base import clone

    at = case(1)
    learner = mf.MetricLearner("simplenpkl", solver=SimpleNPKL(similarity=at.S))
    copy = clone(learner).set_params(solver__C=9.0)
    assert copy.fit(at.X, constraints=at.pairs).metric_.report.pairs == at.pairs.size


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda S: S.toarray(), "must be a sparse matrix of SciPy, not ndarray"),
        (lambda S: S[:, :-1], "must be square"),
        (lambda S: S[:-1, :-1], "has .* rows, and X has"),
        (lambda S: -S, "negative or not finite in row"),
        (lambda S: S * np.nan, "negative or not finite in row"),
        (lambda S: S * 0, "no weight above 0"),
        (lambda S: csr_array(np.triu(S.toarray())), "not symmetric in row"),
    ],
)
def test_bad_similarities(change, message):
    at = case(1)
    with pytest.raises(InputError, match=message):
        mf.learn(at.X, at.pairs, method="simplenpkl", similarity=change(at.S))


def test_a_similarity_with_dask_or_nystrom_is_an_error():
    import dask.array as da

    at = case(1)
    with pytest.raises(InputError, match="needs rows in memory"):
        mf.learn(da.from_array(at.X, chunks=(8, -1)), at.pairs, method="simplenpkl", similarity=at.S)
    with pytest.raises(InputError, match="needs the neighbour graph"):
        SimpleNPKL(similarity=at.S, extension="nystrom")


# ----------------------------------------------------------------------------------------------------------- no bound


def test_without_a_bound_the_report_says_what_k_has():
    at = case(1)
    report = learned(at, "squared_hinge", B="unbounded")
    K = report.embedding @ report.embedding.T
    assert np.square(K).sum() <= report.B / 2
    assert any("the bound is not active" in note for note in report.notes)
    # a larger bound changes nothing
    assert learned(at, "squared_hinge", B=16 * report.B).objective == pytest.approx(report.objective, rel=3e-5)
    with pytest.raises(InputError, match='no solution with loss="linear"'):
        SimpleNPKL(B="unbounded")
    with pytest.raises(InputError, match="B must be"):
        SimpleNPKL(B="none", loss="hinge")
