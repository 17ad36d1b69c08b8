"""The rule "triplets" asks whether a head is more like one row or more like another.

Heads are drawn at random, one after the other; for each, the comparison that a committee of metrics disagrees about
most is asked (Houlsby et al. 2011, BALD, over heads as in adaptive round robin).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metricforge.rows import Array

from .answers import Answer
from .groups import View
from .questions import FIRST, SKIP, Question

RANDOM_FIRST = 10
"""The number of questions that are drawn at random before a metric is learned."""
COMMITTEE = 4
CANDIDATES = 300
"""Comparisons that are drawn for a head."""
RIDGE = 1.0
"""The weight λ of ‖L − I‖² beside the sum of logistic losses."""
STEPS = 60
AXES = 20
"""The most columns of the embedding in which the committee learns."""


def triplets_of(answers: Sequence[Answer], row_of: dict[str, int], *, held_out: bool = False) -> list[tuple[int, ...]]:
    """Return (i, j, k) with i more like j than like k, of the answers that are (not) held out."""
    found: list[tuple[int, ...]] = []
    for answer in answers:
        rows = [row_of.get(name) for name in answer.rows]
        if answer.kind != "triplet" or answer.answer == SKIP or answer.held_out is not held_out or None in rows:
            continue
        i, j, k = (int(row) for row in rows if row is not None)
        found.append((i, j, k) if answer.answer == FIRST else (i, k, j))
    return found


def learn_factor(E: Array, triplets: Array, start: Array | None = None) -> Array:
    """Return L that minimises Σ log(1 + exp(‖L(x_i−x_j)‖² − ‖L(x_i−x_k)‖²)) + λ‖L − I‖².

    Parameters
    ----------
    E : (m, r) array
    triplets : (p, 3) int array of positions in E
    """
    from scipy.optimize import minimize

    r = E.shape[1]
    near, far = E[triplets[:, 0]] - E[triplets[:, 1]], E[triplets[:, 0]] - E[triplets[:, 2]]  # (p, r)

    def loss(x: Array) -> tuple[float, Array]:
        L = x.reshape(r, r)
        A, B = near @ L.T, far @ L.T
        margin = (B**2).sum(axis=1) - (A**2).sum(axis=1)
        wrong = 1 / (1 + np.exp(np.clip(margin, -500, 500)))
        change = L - np.eye(r)
        value = np.logaddexp(0, -margin).sum() + RIDGE * (change**2).sum()
        gradient = 2 * ((wrong[:, None] * A).T @ near - (wrong[:, None] * B).T @ far) + 2 * RIDGE * change
        return float(value), gradient.ravel()

    begin = np.eye(r) if start is None else start
    return np.asarray(minimize(loss, begin.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x).reshape(
        r, r
    )


def committee(E: Array, triplets: Array, rng: np.random.Generator) -> list[Array]:
    """Return factors that were learned from bootstrap samples, starting from the one of all triplets."""
    whole = learn_factor(E, triplets)
    draws = (rng.integers(len(triplets), size=len(triplets)) for _ in range(COMMITTEE))
    return [learn_factor(E, triplets[draw], whole) for draw in draws]


def ask(
    view: View, factors: Sequence[Array], asked: set[tuple[int, ...]], rng: np.random.Generator, why: str = "triplet"
) -> Question:
    """Return the comparison about a random head that the committee disagrees about most; without one, a random one."""
    m = len(view.rows)
    head = int(rng.integers(m))
    pairs = rng.integers(m, size=(CANDIDATES, 2))
    good = (pairs[:, 0] != pairs[:, 1]) & (pairs != head).all(axis=1)
    pairs = pairs[good]
    names = [(int(view.rows[head]), *sorted((int(view.rows[j]), int(view.rows[k])))) for j, k in pairs]
    fresh = [c for c, name in enumerate(names) if name not in asked]
    pairs = pairs[fresh] if fresh else pairs
    if why == "random" or not factors:
        best, p = 0, 0.5
    else:
        P = np.stack([_first(view.E @ L.T, head, pairs) for L in factors])  # (committee, candidates)
        best = int((_entropy(P.mean(axis=0)) - _entropy(P).mean(axis=0)).argmax())
        p = float(P[:, best].mean())
    j, k = pairs[best]
    return Question("triplet", (int(view.rows[head]), int(view.rows[j]), int(view.rows[k])), why, p)


def _first(E: Array, head: int, pairs: Array) -> Array:
    """Return the probability that a head is more like the first row of each pair."""
    near, far = (((E[head] - E[pairs[:, c]]) ** 2).sum(axis=1) for c in (0, 1))
    return np.asarray(1 / (1 + np.exp(np.clip(near - far, -500, 500))))


def _entropy(p: Array) -> Array:
    q = np.clip(p, 1e-12, 1 - 1e-12)
    return np.asarray(-q * np.log(q) - (1 - q) * np.log(1 - q))
