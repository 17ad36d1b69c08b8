"""How well a metric predicts held-out answers, and whether more answers would change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

import metricforge as mf
from metricforge.rows import Array

from . import triplets

LOOK_BACK = 40
"""The number of questions that the advice to stop compares."""
NO_GROUP = 30
"""No group may have been opened by so many rows before stopping is advised."""
EQUAL = 0.05
"""Shares that differ by less count as equal."""
MOVED = 0.02
"""A metric whose 1 − cosine with the one `LOOK_BACK` answers ago is larger still changes."""
KNOWN = 300
"""Grouped rows, the latest, whose distances the threshold separates."""


def pairs_foretold(
    held_out: Sequence[tuple[int, int, bool, float]], group: Mapping[int, int], embed: Callable[[Array], Array]
) -> tuple[int, int]:
    """Return how many held-out pairs are on the right side of a threshold, and how many there are.

    Parameters
    ----------
    held_out : list of (i, j, alike, p)
    group : mapping of row to group
        The threshold separates pairs inside groups from pairs between groups.
    embed : callable
        Returns the embedding of some rows.
    """
    rows = np.unique(np.asarray([row for i, j, _, _ in held_out for row in (i, j)] + list(group)))
    E = embed(rows)
    at = {int(row): place for place, row in enumerate(rows)}
    known = list(group)[-KNOWN:]
    limit = threshold(E[[at[row] for row in known]], np.asarray([group[row] for row in known]))
    near = [bool(((E[at[i]] - E[at[j]]) ** 2).sum() < limit) for i, j, _, _ in held_out]
    return sum(one is alike for one, (_, _, alike, _) in zip(near, held_out, strict=True)), len(held_out)


def threshold(E: Array, group: Array) -> float:
    """Return the squared distance that separates pairs inside groups from pairs between groups best."""
    i, j = np.triu_indices(len(E), 1)
    d = ((E[i] - E[j]) ** 2).sum(axis=1)
    alike = group[i] == group[j]
    order = np.argsort(d, kind="stable")
    hits = np.concatenate([[0], np.cumsum(np.where(alike[order], 1, -1))])  # alike below minus unlike below
    best = int(hits.argmax())
    if best == 0:
        return float(d[order[0]]) if len(d) else 0.0
    above = d[order[best]] if best < len(d) else d[order[best - 1]]
    return float((d[order[best - 1]] + above) / 2)


def triplets_foretold(
    held_out: Sequence[tuple[int, ...]], known: Sequence[tuple[int, ...]], embed: Callable[[Array], Array]
) -> tuple[int, int]:
    """Return how many held-out triplets the metric of the known ones orders rightly, and how many there are."""
    rows, inside = np.unique(np.asarray([*held_out, *known]), return_inverse=True)
    inside = inside.reshape(-1, 3)
    E = embed(rows)
    Z = E @ triplets.learn_factor(E, inside[len(held_out) :]).T
    i, j, k = inside[: len(held_out)].T
    near, far = ((Z[i] - Z[other]) ** 2 for other in (j, k))
    return int(np.count_nonzero(near.sum(axis=1) < far.sum(axis=1))), len(held_out)


def settled(placed: Sequence[tuple[int, str, bool, bool]]) -> float | None:
    """Return the share of rows whose first group shown was right, if it has stopped to change; None otherwise.

    Only rows that were drawn at random count, and no group may have been opened lately.
    """
    shown = [right for _, why, opened, right in placed if why == "consolidate" and not opened]
    if len(shown) < 2 * LOOK_BACK or any(opened for _, _, opened, _ in placed[-NO_GROUP:]):
        return None
    last, before = np.mean(shown[-LOOK_BACK:]), np.mean(shown[-2 * LOOK_BACK : -LOOK_BACK])
    return float(last) if abs(last - before) <= EQUAL else None


def change(metric: mf.Metric | None, before: mf.Metric | None) -> float:
    """Return 1 − cos(M, M') of two metrics on the same columns; 1 if there is only one."""
    if metric is None or before is None:
        return 1.0
    M, other = metric.mahalanobis(), before.mahalanobis()
    return float(1 - (M * other).sum() / (np.linalg.norm(M) * np.linalg.norm(other)))


def wilson(right: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """Return the Wilson interval of a share."""
    if total == 0:
        return 0.0, 1.0
    p, zz = right / total, z * z
    centre = (p + zz / (2 * total)) / (1 + zz / total)
    half = z / (1 + zz / total) * float(np.sqrt(p * (1 - p) / total + zz / (4 * total * total)))
    return max(0.0, centre - half), min(1.0, centre + half)
