"""Formulation (2): the design over all positive semidefinite mixtures, by the conic solver Clarabel.

    minimise Σ_t n_t max(0, 1 − d_t'α) + γ1 Σ_g max_{p in g} |α_p| / size_p + c'α   subject to   Σ_p α_p K_p ⪰ 0

An interior-point method with one n × n matrix inequality: O(n⁴) memory and O(n⁶) time in the worst case, for a hundred
rows or two.  Both bounds are recomputed here from the solution and its multipliers, so they do not rest on the
tolerance of the solver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from metricforge.errors import InputError
from metricforge.rows import Array
from metricforge.solver import Status

from ..generation import BestDesign

TIGHT = 1e-10
"""Tolerances of Clarabel, which the bounds magnify."""
MOST_ROWS = 300
"""The largest order of the matrix inequality."""


@dataclass(frozen=True, eq=False)
class SemidefiniteProgram:
    """The program over given margins and Gram matrices, for any penalties; `solve` has the parameters."""

    margins: Array
    times: Array
    groups: Array
    sizes: Array
    stack: Array

    def solve(self, gamma1: float, cost: Array, *, tol: float, max_iter: int, step: Callable[..., None]) -> BestDesign:
        """Return the best design and its bounds; the iterations of Clarabel are neither limited nor reported."""
        return solve(self.margins, self.times, self.groups, self.sizes, self.stack, gamma1, cost, tol)


def solve(
    margins: Array, times: Array, groups: Array, sizes: Array, stack: Array, gamma1: float, costs: Array, tol: float
) -> BestDesign:
    """Return the best design and its bounds.

    Parameters
    ----------
    margins : (T, k) array
        K_p,ij − K_p,ik of each triple and each normalised base.
    times : (T,) array
    groups, sizes : (k,) arrays
    stack : (b, n, n) array
        The normalised bases on the rows of the condition, the identity for white last where b = k + 1.
    gamma1 : float > 0
    costs : (b,) array
        c: γ2 Σ_i K_ii of each; white needs a positive one.
    tol : float
        The relative gap to reach.
    """
    n = stack.shape[1]
    if n > MOST_ROWS:
        raise InputError(
            f'cone="sdp" is for at most {MOST_ROWS} rows, and there are {n}; use cone="dd", or rows="triples" with '
            "triples over fewer rows"
        )
    if not gamma1 > 0 or not (costs[len(sizes) :] > 0).all():
        raise InputError('cone="sdp" needs sparsity > 0 and trace > 0, without which designs have no bound')
    alpha, y, Z = _conic(margins, times, groups, sizes, stack, gamma1, costs)
    alpha, lift = _feasible(alpha, stack, len(sizes))
    upper = _cost(alpha, margins, times, groups, sizes, gamma1, costs)
    lower = _lower(np.clip(y, 0, times), Z, upper, margins, groups, sizes, stack, gamma1, costs)
    if upper >= times.sum():  # that of no mixture at all, which every cone has
        alpha, upper, lift = np.zeros_like(alpha), float(times.sum()), True
    gap = upper - lower
    status = Status.OPTIMAL if gap <= tol * abs(upper) else Status.STALLED
    return BestDesign(alpha, upper, lower, status, 1, ((upper, gap),), 0, 1, len(margins), lift)


def _conic(
    margins: Array, times: Array, groups: Array, sizes: Array, stack: Array, gamma1: float, costs: Array
) -> tuple[Array, Array, Array]:
    """Return α, the multipliers of the triples, and the one of the matrix inequality."""
    from scipy.sparse import block_array, csc_array, csc_matrix, eye_array

    clarabel: Any = _clarabel()
    (T, k), (b, n) = margins.shape, stack.shape[:2]
    names, place = np.unique(groups, return_inverse=True)
    G = len(names)
    member = csc_array((np.ones(k), (np.arange(k), place)), shape=(k, G))
    own = csc_array((1 / sizes, (np.arange(k), np.arange(k))), shape=(k, b))
    # columns: α (b), ε (T), u (G); rows b − A x in a cone
    i, j = np.triu_indices(n)
    order = np.lexsort((i, j))  # the upper triangle by columns, off the diagonal times sqrt(2)
    i, j = i[order], j[order]
    triangle = (stack[:, i, j] * np.where(i == j, 1.0, np.sqrt(2.0))).T  # (n(n + 1)/2, b)
    wide = csc_array(np.hstack([margins, np.zeros((T, b - k))]))
    A = block_array(
        [
            [-wide, -eye_array(T), csc_array((T, G))],  # 1 − margins α − ε <= 0
            [csc_array((T, b)), -eye_array(T), csc_array((T, G))],
            [own, csc_array((k, T)), -member],
            [-own, csc_array((k, T)), -member],
            [csc_array(-triangle), csc_array((len(i), T)), csc_array((len(i), G))],
        ],
        format="csc",
    )
    right = np.concatenate([-np.ones(T), np.zeros(T + 2 * k + len(i))])
    q = np.concatenate([costs, times, np.full(G, gamma1)])
    cones = [clarabel.NonnegativeConeT(2 * T + 2 * k), clarabel.PSDTriangleConeT(n)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TIGHT
    found = clarabel.DefaultSolver(csc_matrix((len(q), len(q))), q, csc_matrix(A), right, cones, settings).solve()
    x, z = np.asarray(found.x), np.asarray(found.z)
    if not (np.isfinite(x).all() and np.isfinite(z).all()):
        raise InputError(
            f'cone="sdp": Clarabel ended with the status {found.status} and no solution; scale the rows, or change '
            "sparsity and trace"
        )
    Z = np.zeros((n, n))
    Z[i, j] = Z[j, i] = z[2 * T + 2 * k :] / np.where(i == j, 1.0, np.sqrt(2.0))
    w, V = np.linalg.eigh(Z)
    return x[:b], z[:T], (V * np.maximum(w, 0)) @ V.T


def _clarabel() -> Any:
    try:
        import clarabel  # type: ignore[import-untyped]
    except ImportError:
        raise InputError('cone="sdp" needs the solver Clarabel; pip install "metricforge[sdp]"') from None
    return clarabel


def _feasible(alpha: Array, stack: Array, k: int) -> tuple[Array, bool]:
    """Return α with as much more white as makes K ⪰ 0 in float64, and whether K is."""
    w = np.linalg.eigvalsh(np.tensordot(alpha, stack, 1))
    if w[0] >= 0 or len(alpha) == k:
        return alpha, bool(w[0] >= 0)
    lifted = alpha.copy()
    lifted[k] -= w[0] - 1e-14 * abs(w[-1])
    return lifted, True


def _cost(
    alpha: Array, margins: Array, times: Array, groups: Array, sizes: Array, gamma1: float, costs: Array
) -> float:
    k = len(sizes)
    largest = np.zeros(int(groups.max()) + 1)
    np.maximum.at(largest, groups, np.abs(alpha[:k]) / sizes)
    loss = times @ np.maximum(0, 1 - margins @ alpha[:k])
    return float(loss + gamma1 * largest.sum() + costs @ alpha)


def _lower(
    y: Array,
    Z: Array,
    upper: float,
    margins: Array,
    groups: Array,
    sizes: Array,
    stack: Array,
    gamma1: float,
    costs: Array,
) -> float:
    """Return a lower bound on the cost of every design from multipliers 0 <= y <= times and Z ⪰ 0.

    The Lagrangian is Σ y + γ1 Σ_g h_g + r'α with r_p = c_p − Σ_t y_t d_tp − tr(Z K_p) and h_g = max |α_p| / size_p.  A
    design that costs no more than ``upper`` has Σ h_g <= upper/γ1, because K ⪰ 0 has no negative trace; so what
    Σ_{p in g} |r_p| size_p exceeds γ1 by, and r of white, cost at most as much as such a design can have of them.
    """
    k = len(sizes)
    r = costs - np.tensordot(stack, Z, 2)
    r[:k] -= y @ margins
    excess = np.bincount(groups, weights=np.abs(r[:k]) * sizes).max() - gamma1
    most = upper / gamma1
    lower = float(y.sum()) - most * max(0.0, float(excess))
    if len(costs) > k:
        # 0 <= c'α <= upper bounds white by the others
        others = most * float(np.bincount(groups, weights=np.abs(costs[:k]) * sizes).max())
        lower -= abs(float(r[k])) * (upper + others) / float(costs[k])
    return lower
