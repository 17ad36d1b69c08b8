"""Convex programs for the other choices of the kcr paper, to compare optima with.

log Σ exp (footnote 6), a kernel for each coordinate (Theorem 1) and a dimension as large as the rank of the optimum
have convex programs.  With a window other than the naive one (eq. 8) the problem is a difference of convex functions: a
point is stationary if it minimises the convex majorant in which the votes of the own class are linearised there.  The
Cauchy window has no convex majorant of this kind: there the votes of all rows are linearised.
"""

from __future__ import annotations

import warnings

import numpy as np

import metricforge as mf

RBF, Linear = mf.kernels.RBF, mf.kernels.Linear
WINDOWS = {
    "gaussian": lambda D, d: np.exp(-D),
    "epanechnikov": lambda D, d: np.maximum(1 - D, 0),
    "cauchy": lambda D, d: 1 / (1 + D ** ((d + 1) / 2)),
}


def instance(seed, n=16, classes=3, d=3):
    """Overlapping classes of unequal sizes."""
    rng = np.random.default_rng(seed)
    y = np.sort(np.append(np.arange(classes), rng.integers(classes, size=n - classes)))
    return rng.normal(size=(n, d)) + rng.choice([0.5, 1.0, 2.0]) * rng.normal(size=(classes, d))[y], y


def signs(y):
    return np.where(np.equal.outer(y, y), 1.0, -1.0)


def features(kernel, X):
    w, V = np.linalg.eigh(kernel(X, X))
    return V[:, w > 1e-10 * w[-1]] * np.sqrt(w[w > 1e-10 * w[-1]])


class Program:
    """Variables W_m ⪰ 0 (one per block of features) and h >= 0, and the squared distances D as an expression."""

    def __init__(self, blocks):
        import cvxpy as cp

        n = len(blocks[0])
        self.W = [cp.Variable((F.shape[1],) * 2, PSD=True) for F in blocks]
        self.h = cp.Variable(nonneg=True)
        self.penalty = sum(cp.trace(W) for W in self.W)
        total = 0
        for F, W in zip(blocks, self.W, strict=True):
            Z = (F[:, None] - F[None]).reshape(n * n, -1)
            outer = (Z[:, :, None] * Z[:, None, :]).reshape(n * n, -1)
            total = total + outer @ cp.vec(W, order="C")
        self.D = cp.reshape(total, (n, n), order="C")

    def least(self, value, constraints=()):
        import cvxpy as cp

        problem = cp.Problem(cp.Minimize(value), list(constraints))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem.solve(solver="CLARABEL")
        assert problem.status in ("optimal", "optimal_inaccurate")
        return float(problem.value)


def naive(program, y, *, logistic=False, pooled=True):
    """The data term of eq. (9), or with footnote 6 in place of the sum over classes."""
    import cvxpy as cp

    tau = signs(y)
    inner = cp.pos(1 + cp.multiply(tau, program.D - program.h))
    same = tau > 0
    total = 2 - same.sum(axis=1) + cp.sum(cp.multiply(same, inner), axis=1)
    if pooled:
        total = total + cp.sum(cp.multiply(~same, inner), axis=1)
    else:
        rows = []
        for i in range(len(y)):
            votes = [cp.sum(inner[i, np.flatnonzero(y == c)]) for c in np.unique(y) if c != y[i]]
            rows.append(cp.log_sum_exp(cp.hstack(votes)))
        total = total + cp.hstack(rows)
    return cp.sum(cp.logistic(total - 1) if logistic else cp.pos(total))


def logsumexp_value(D, h, y):
    """Footnote 6 as printed, from squared distances."""
    total = 0.0
    for i in range(len(y)):
        v = np.maximum(1 + np.where(y == y[i], 1, -1) * (D[i] - h), 0)
        rivals = [v[y == c].sum() for c in np.unique(y) if c != y[i]]
        total += max(0.0, 2 - (y == y[i]).sum() + v[y == y[i]].sum() + np.log(np.exp(rivals).sum()))
    return total


def window_value(D, y, window, d, logistic=False):
    """The data term of eq. (8) as printed, with the sum over j ≠ i."""
    K = WINDOWS[window](D, d) * (1 - np.eye(len(y)))
    x = (-signs(y) * K).sum(axis=1)
    return (np.logaddexp(0, x) if logistic else np.maximum(1 + x, 0)).sum()


def majorant(program, y, W, blocks, window):
    """Eq. (8) with the votes of the own class linearised at W: convex, and equal at W, so that W minimises it."""
    import cvxpy as cp

    tau, D = signs(y), sum(distances(F, V) for F, V in zip(blocks, W, strict=True))
    others = 1 - np.eye(len(y))
    if window == "gaussian":
        votes, k, slope = cp.exp(-program.D), np.exp(-D), -np.exp(-D)
    else:
        votes, k, slope = cp.pos(1 - program.D), np.maximum(1 - D, 0), -(D < 1).astype(float)
    own = k + cp.multiply(slope, program.D - D)
    against = cp.sum(cp.multiply((tau < 0) * others, votes), axis=1)
    return cp.sum(cp.pos(1 + against - cp.sum(cp.multiply((tau > 0) * others, own), axis=1)))


def distances(F, W):
    Z = F[:, None] - F[None]
    return np.einsum("ijk,kl,ijl->ij", Z, W, Z)


def weights(metric, X, F):
    """Return W on the features F of the rows from the learned kernel on them."""
    inverse = np.linalg.pinv(F - F.mean(axis=0))
    centred = np.eye(len(X)) - 1 / len(X)
    return inverse @ (centred @ metric.kernel(X, X) @ centred) @ inverse.T


def linearised_least(W, F, y, window, d, lam):
    """The least over V ⪰ 0 of eq. (8) with the votes of every row linearised at W, and the value at W, its equal if W
    is stationary.  Slopes are by central differences of the printed votes."""
    import cvxpy as cp

    def against(V):
        return (-signs(y) * WINDOWS[window](distances(F, V), d) * (1 - np.eye(len(y)))).sum(axis=1)

    m, step = len(W), 1e-6 * max(1.0, np.abs(W).max())
    slopes = np.zeros((len(y), m, m))
    for i, j in np.ndindex(m, m):
        E = np.zeros((m, m))
        E[i, j] += step / 2
        E[j, i] += step / 2
        slopes[:, i, j] = (against(W + E) - against(W - E)) / (2 * step)
    V = cp.Variable((m, m), PSD=True)
    votes = against(W) + slopes.reshape(len(y), -1) @ cp.vec(V - W, order="C")
    least = cp.Problem(cp.Minimize(cp.sum(cp.pos(1 + votes)) + lam * cp.trace(V))).solve(solver="CLARABEL")
    return float(least), window_value(distances(F, W), y, window, d) + lam * np.trace(W)


def best_direction(X, y, lam=1.0):
    """Return the least value of eq. (9) over W = s uu' with 180 directions u in the plane."""
    import cvxpy as cp

    n, tau, Z = len(y), signs(y), X[:, None] - X[None]
    s, h, square = cp.Variable(nonneg=True), cp.Variable(nonneg=True), cp.Parameter((n, n), nonneg=True)
    inner = cp.pos(1 + cp.multiply(tau, s * square - h))
    problem = cp.Problem(cp.Minimize(cp.sum(cp.pos(2 - (tau > 0).sum(axis=1) + cp.sum(inner, axis=1))) + lam * s))
    found = []
    for angle in np.arange(0, np.pi, np.pi / 180):
        square.value = np.square(Z @ [np.cos(angle), np.sin(angle)])
        found.append(problem.solve(solver="CLARABEL"))
    return min(found)


def setting(seed, **sizes):
    rng = np.random.default_rng(seed)
    sizes = {"n": int(rng.integers(14, 19)), "classes": int(rng.integers(2, 5)), **sizes}
    X, y = instance(seed, **sizes)
    return X, y, RBF(0.2) if seed % 2 else Linear(), float(rng.choice([0.3, 1.0, 3.0]))


def cauchy(seed):
    X, y, F, lam, metric = with_cauchy(seed)
    least, value = linearised_least(weights(metric, X, F), F, y, "cauchy", X.shape[1], lam)
    report = metric.report
    return value / least - 1, np.nan, report.gap / report.objective, report.status == "stationary"


def with_cauchy(seed):
    """Return rows, labels, centred rows, λ and the metric of a case."""
    X, y, _, lam = setting(seed)
    metric = mf.learn(
        X, y, method="kcr", kernel=Linear(), lam=lam / 3, window="cauchy", n_components=X.shape[1], tol=1e-3
    )
    return X, y, X - X.mean(axis=0), lam / 3, metric


def searched(seed):
    """The objective above the least value that a direct search finds from the point returned and from near it."""
    from scipy.optimize import minimize

    X, y, F, lam, metric = with_cauchy(seed)
    W = weights(metric, X, F)
    m = len(W)

    def value(factor):
        V = factor.reshape(m, m) @ factor.reshape(m, m).T
        return window_value(distances(F, V), y, "cauchy", m) + lam * np.trace(V)

    w, U = np.linalg.eigh(W)
    L, rng = U * np.sqrt(np.maximum(w, 0)), np.random.default_rng(seed)
    starts = [L + near * np.sqrt(max(w[-1], 1e-3)) * rng.normal(size=L.shape) for near in (0.0, 0.02, 0.05)]
    options = {"maxiter": 6000, "maxfev": 6000, "xatol": 1e-9, "fatol": 1e-11}
    least = min(minimize(value, start.ravel(), method="Nelder-Mead", options=options).fun for start in starts)
    report = metric.report
    return value(L) / min(least, value(L)) - 1, np.nan, report.gap / report.objective, report.status == "stationary"
