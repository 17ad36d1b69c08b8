"""A lower bound on the optimum: a feasible point of the dual, from the multipliers of the smoothed problem.

For 0 <= β_ij <= a_i <= 1 with Σ β_ij τ_ij <= 0 and λI + Σ β_ij τ_ij z_ij z_ij' ⪰ 0, z_ij = φ_i − φ_j,

    Σ_i a_i (2 − n_i⁺) + Σ_ij β_ij  <=  optimum,

because [x]₊ >= a x and [x]₊ >= b x for multipliers in [0, 1], and the rest depends on W and h by
⟨λI + Σ β τ z z', W⟩ − h Σ β τ >= 0.  For the logistic bound [x]₊ >= a x becomes log(1 + e^x) >= a x + H(a), with the
entropy H(a) = −a log a − (1 − a) log(1 − a), and 2 − n_i⁺ becomes 1 − n_i⁺.  Where log Σ exp bounds the maximum over
other classes, log Σ_l e^(g_l) >= Σ_l p_l g_l + H(p) for weights p of sum 1: β_ij <= a_i p_il for j in class l, and
H(p_i) is added to 2 − n_i⁺.

With a window other than the naive one the problem is not convex, and there is no such bound.  A point is stationary
where λI + M ⪰ 0 and ⟨λI + M, W⟩ = 0, M = Σ β τ z z' the gradient of the data term.  The residual is the largest
decrease of the linear model, ⟨λI + M, W⟩ − ⟨λI + M, W'⟩, over all W' ⪰ 0 with tr W' <= objective / λ, beyond which no
point is better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metricforge import eigen
from metricforge.rows import Array

from .classwise import rivals
from .objective import Multipliers, Objective, Smoothing

DENSE = 1000
"""Up to this many features all eigenpairs are computed; beyond, the FEW lowest."""
FEW = 12


@dataclass(frozen=True, eq=False)
class DualBound:
    """The lower bound from the multipliers at a point.

    Attributes
    ----------
    bound : float
        The lower bound.
    dual : float
        The value before the multipliers were scaled to satisfy the matrix inequality; the bound converges to it.
    loss : float
        The part of the gap that is due to smoothing.
    peak : float
        The largest a_i.
    values, vectors : (k,) and (m, k) arrays
        The lowest eigenpairs of Σ β τ z z', the gradient of the data term in W; of its diagonal blocks, where W has
        blocks.
    """

    bound: float
    dual: float
    loss: float
    peak: float
    values: Array
    vectors: Array


def certify(
    objective: Objective,
    root: Array,
    lam: float,
    P: Array,
    h: float,
    smoothing: Smoothing,
    blocks: tuple[slice, ...] = (),
) -> DualBound:
    """Return the bound of a dual feasible point made from the derivatives at (P, h).

    The multipliers with τ = +1 are scaled down until Σ β τ <= 0, then all of them until the matrix inequality holds;
    then a_i is the best value that the β_ij of its row allow.  At an exact minimiser of the smoothed problem both
    factors are 1.  ``root`` is C with φ = C f for the coordinates f of the objective.  If W is block diagonal, so is
    the matrix inequality: ``blocks`` are those of more than one.

    If the problem is not convex, the multipliers are not scaled, and ``bound`` is −inf.

    Cost: O(p (m + r)) and O(n m²) for M = Σ β τ z z', O(m³) for its eigenvalues; memory O(m² + block).
    """
    convex = objective.loss.convex
    plus, minus = _totals(objective, P, h, smoothing) if convex else (0.0, 0.0)
    theta = min(1.0, minus / plus) if plus > 0 else 1.0
    F = objective.F
    m, n = F.shape
    R, degree, top, entropy = np.zeros((m, m)), np.zeros(n), np.zeros(n), np.zeros(n)
    loss = 0.0
    for part in objective.multipliers(P, h, smoothing):
        C, rows, cols = _shrink(part.C, theta), part.rows, part.cols
        if part.entropy is None:
            top[rows] = _largest(C)
        else:  # β_ij <= a_i p_ij max b
            top[rows], entropy[rows] = part.a * part.b.max(axis=1), part.entropy
        degree[rows] += C.sum(axis=1)
        degree[cols] += C.sum(axis=0)
        R += F[:, rows] @ (C @ F[:, cols].T)
        loss += _loss(part, smoothing)
    M = (F * degree) @ F.T - R - R.T
    M = root @ M @ root.T
    values, vectors = _lowest(M, blocks or (slice(0, m),))
    if not convex:
        return DualBound(-np.inf, -np.inf, loss, float(top.max()), values, vectors)
    # subtract a rounding bound, so that an infeasible point is not taken for feasible
    lowest = float(values[0]) - m * np.finfo(np.float64).eps * float(np.abs(M).max())
    c = min(1.0, lam / -lowest) if lowest < 0 else 1.0
    total = theta * plus + minus
    offset = objective.offset + entropy
    bound, dual = (_value(offset, factor * top, objective.logistic) + factor * total for factor in (c, 1.0))
    return DualBound(bound, dual, loss, float(top.max()), values, vectors)


def residual(value: float, lam: float, P: Array, gradient: Array, lowest: float) -> float:
    """Return the largest decrease of the linear model over the better points, as a share of the value; see above.

    ``gradient`` is that in P, ``lowest`` the lowest eigenvalue of M.
    """
    along = 0.5 * float(np.vdot(P, gradient))  # ⟨λI + M, W⟩
    return max(abs(along) / value, 0.0) + max(-lowest / lam - 1, 0.0)


def factor_residual(value: float, P: Array, h: float, gradient: Array, slope: float, root: Array) -> float:
    """Return the largest decrease of the linear model in (L, h) over changes no longer than L and h, as a share.

    W = LL' with the columns of L fixed in number; ``gradient`` is that in P, ``slope`` that in h.
    """
    from scipy.linalg import solve_triangular

    L = solve_triangular(root, P, lower=True, trans="T", check_finite=False)
    return float(np.linalg.norm(root @ gradient) * np.linalg.norm(L) + abs(slope) * h) / value


def trivial_bound(objective: Objective) -> float:
    """Return the bound of β = 0: the loss of rows without another row of their class; 0 where there is none."""
    if not objective.loss.convex:
        return 0.0
    entropy = 0.0 if objective.loss.pooled else np.log(np.maximum(rivals(objective.pairs), 1))
    return _value(objective.offset + entropy, np.zeros(objective.pairs.n), objective.logistic)


def _totals(objective: Objective, P: Array, h: float, smoothing: Smoothing) -> tuple[float, float]:
    """Return Σ β over τ = +1 and over τ = −1."""
    plus = minus = 0.0
    for part in objective.multipliers(P, h, smoothing):
        data = _entries(part.C)
        up, both = float(np.maximum(data, 0).sum()), float(np.abs(data).sum())
        plus, minus = plus + up, minus + both - up
    return plus, minus


def _value(offset: Array, least: Array, logistic: bool) -> float:
    """Return the largest Σ_i a_i offset_i, or its logistic counterpart, over least_i <= a_i <= 1."""
    if not logistic:
        return float((np.where(offset > 0, 1.0, least) * offset).sum())
    from scipy.special import entr, expit

    a = np.maximum(least, expit(offset))
    return float((a * offset + entr(a) + entr(1 - a)).sum())


def _shrink(C: Any, theta: float) -> Any:
    if theta == 1:
        return C
    if isinstance(C, np.ndarray):
        return np.where(C > 0, theta * C, C)
    C = C.copy()
    C.data[C.data > 0] *= theta
    return C


def _largest(C: Any) -> Array:
    if isinstance(C, np.ndarray):
        return np.asarray(np.abs(C).max(axis=1))
    return np.asarray(np.maximum.reduceat(np.abs(C.data), C.indptr[:-1]))


def _loss(part: Multipliers, smoothing: Smoothing) -> float:
    """Return Σ a_i μ b_ij (1 − b_ij) / 2 and the same for the outer hinges: the smoothed value minus the dual value."""
    beta = np.abs(_entries(part.C))
    inner = 0.5 * smoothing.mu * float((beta * (1 - part.b)).sum())
    return inner + 0.5 * smoothing.width * float((part.a * (1 - part.a / smoothing.cap)).sum())


def _entries(C: Any) -> Array:
    return C if isinstance(C, np.ndarray) else np.asarray(C.data)


def _lowest(M: Array, blocks: tuple[slice, ...]) -> tuple[Array, Array]:
    """Return the lowest eigenpairs of the diagonal blocks, ascending: all of them, or a few of a large block."""
    found = [_lowest_of((M[part, part] + M[part, part].T) / 2) for part in blocks]
    if len(found) == 1:
        return found[0]
    values = np.concatenate([w for w, _ in found])
    vectors = np.zeros((len(M), len(values)))
    done = 0
    for part, (w, V) in zip(blocks, found, strict=True):
        vectors[part, done : done + len(w)] = V
        done += len(w)
    order = np.argsort(values, kind="stable")
    return values[order], vectors[:, order]


def _lowest_of(M: Array) -> tuple[Array, Array]:
    if len(M) > DENSE:
        w, V = eigen.top(-M, FEW, tol=1e-6)
        # an iterative solver may miss the lowest eigenvalue; a Cholesky factorisation verifies it
        if _is_positive(M, 1e-6 * abs(w[0]) + w[0]):
            return -w - 1e-6 * abs(w[0]), V
    w, V = np.linalg.eigh(M)
    return w, V


def _is_positive(M: Array, shift: float) -> bool:
    try:
        np.linalg.cholesky(M + shift * np.eye(len(M)))
    except np.linalg.LinAlgError:
        return False
    return True
