"""Formulation (2) of the lpdesign paper, cone="sdp", stated in cvxpy, to compare optima with."""

from __future__ import annotations

import warnings

import numpy as np

import metricforge as mf

RBF = mf.kernels.RBF


def case(seed: int):
    """Rows, triples, bases, penalties, and whether white is allowed; weights may have any sign."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(10, 22))
    y = rng.integers(2, size=n)
    X = rng.normal(size=(n, 3)) + 1.5 * y[:, None]
    triples = mf.Triplets.from_labels(y, n_triplets=40, seed=seed)
    bases = [RBF(0.1), RBF(1.0), mf.kernels.Linear(), mf.kernels.Polynomial(2)]
    options = {
        "bases": bases,
        "sparsity": float(rng.choice([1e-3, 1e-2])),
        "trace": float(rng.choice([1e-2, 0.1])),
        "white": bool(seed % 2),
    }
    return X, triples, options


def optimum(X, triples, options, solver="CLARABEL") -> float:
    """The least cost over α with K = Σ α K_p (+ white) ⪰ 0, stated from the definition."""
    import cvxpy as cp

    n, T = len(X), triples.size
    grams = [base(X) for base in options["bases"]]
    alpha, white = cp.Variable(len(grams)), cp.Variable()
    K = sum(a * G for a, G in zip(alpha, grams, strict=True))
    whole = K + white * np.eye(n) if options["white"] else K
    i, j, k = triples.triples.T
    D = np.stack([G[i, j] - G[i, k] for G in grams], axis=1)
    cost = cp.sum(cp.pos(1 - D @ alpha)) / T + options["sparsity"] * cp.norm1(alpha)
    cost = cost + options["trace"] * cp.trace(whole) / n**2
    problem = cp.Problem(cp.Minimize(cost), [(whole + whole.T) / 2 >> 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver=solver)
    assert problem.status in ("optimal", "optimal_inaccurate")
    return float(problem.value)


def from_sdpa(seed: int) -> float:
    """Return the difference of the objective from the optimum by a solver that has no part in it, relative."""
    X, triples, options = case(seed)
    report = learned(X, triples, cone="sdp", **options).report
    return abs(report.objective / optimum(X, triples, options, "SDPA") - 1)


def compared(seed: int) -> tuple[float, float, float, bool, float]:
    """Return objective and bound above the optimum, the gap (relative), whether it closed, and dd above it."""
    X, triples, options = case(seed)
    report = learned(X, triples, cone="sdp", **options).report
    least = optimum(X, triples, options)
    dominant = learned(X, triples, cone="dd", **options).report.objective
    met = str(report.status) == "optimal"
    return (
        *(report.objective / least - 1, report.lower_bound / least - 1, report.gap / least, met),
        dominant / report.objective - 1,
    )


def learned(X, triples, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mf.learn(X, triples, method="lpdesign", tol=1e-5, **options)
