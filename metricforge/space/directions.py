"""Directions of wide explicit features that matter for relations between rows.

With L and U the means of zz' over the differences z of like and of unlike rows, leading eigenvectors of U − L are
directions along which unlike rows differ and like rows do not.  Directions of large variance alone (PCA) can miss them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import rows as _rows
from ..rows import Array
from .maps import FeatureMap

DENSE_WIDTH = 1000
"""Up to this many features second moments are formed; beyond, they are only multiplied with."""
OVERSAMPLED, MORE, POWER_STEPS = 2, 20, 2
"""The subspace iteration has 2 r + 20 columns, some for eigenvalues below zero, and two steps after the first."""
SAMPLED = 5000
"""Rows, like pairs and unlike pairs, each at the most, from which directions of features are computed."""
WIDE_SAMPLED = 4000
"""The same for features of which moments are not formed."""
RIDGE = 0.1
"""What is added to the moment of like rows, as a multiple of its mean eigenvalue."""
CONTRASTING = 0.5
"""The share of the directions that is chosen for the contrast of relations; the others are principal axes."""


@dataclass(frozen=True, eq=False)
class Contrast:
    """Pairs of rows that a metric should bring together, and pairs that it should keep apart.

    Attributes
    ----------
    like, unlike : (p, 2) int arrays
        Row numbers; one of the two may be empty.
    """

    like: Array
    unlike: Array


def contrast_weights(dissimilar: Array) -> Array:
    """Return w_t with Σ w_t z_t z_t' = mean_D zz' − mean_S zz'."""
    n_dissimilar = max(int(np.count_nonzero(dissimilar)), 1)
    n_similar = max(len(dissimilar) - n_dissimilar, 1)
    return np.where(dissimilar, 1 / n_dissimilar, -1 / n_similar)


def leading_eigenvectors(G: Array, r: int, within: Array | None = None) -> Array:
    """Return the eigenvectors of the r largest eigenvalues, largest first; of Gv = λBv where B is ``within``."""
    from scipy.linalg import eigh

    p = len(G)
    return np.asarray(eigh(G, within, subset_by_index=[p - r, p - 1])[1][:, ::-1], dtype=np.float64)


def subspace_iteration(product: Callable[[Array], Array], p: int, r: int, seed: int) -> Array:
    """Return approximate eigenvectors of the r largest eigenvalues of a symmetric operator on p coordinates."""
    k = min(p, OVERSAMPLED * r + MORE)
    X = np.random.default_rng(seed).standard_normal((p, k)).astype(np.float32)
    for _ in range(POWER_STEPS + 1):
        X = np.linalg.qr(product(X))[0]
    H = X.T @ product(X)
    return np.asarray(np.linalg.qr(X @ leading_eigenvectors((H + H.T) / 2, r))[0], dtype=np.float64)


def contrasting_directions(map: FeatureMap, rows: Any, contrast: Contrast, r: int, seed: int) -> Array:
    """Return r orthonormal directions of the features of rows, (m, r), chosen from the rows and from relations.

    One half are the leading solutions v of (U − L) v = λ (L + ρI) v, which tell unlike rows apart; the other half are
    the leading principal axes of what these leave of the rows.  Where one kind of pairs is missing, differences of any
    two rows take its place.  The moments are those of a sample in float32, enough for a choice.

    Cost: 15,000 m² + m³ multiplications up to 1000 features; beyond, some 128,000 m (r + 15).
    """
    most = SAMPLED if map.columns <= DENSE_WIDTH else WIDE_SAMPLED
    row_numbers = _rows.draw(_rows.count(rows), most, seed)
    pairs = [part[_rows.draw(len(part), most, seed)] for part in (contrast.like, contrast.unlike)]
    rows, row_numbers, pairs = _local(rows, row_numbers, pairs)
    centred = _centred(map, rows, row_numbers)
    like, unlike = (_differences(map, rows, part) if len(part) else np.sqrt(np.float32(2)) * centred for part in pairs)
    samples = _in_single_precision([centred, like, unlike])
    if samples is None:
        return np.eye(map.columns, r)
    if map.columns <= DENSE_WIDTH:
        return _chosen(samples, r)
    Q = _span(samples, r, seed)
    return np.asarray(Q @ _chosen([Z @ Q.astype(np.float32) for Z in samples], r))


def _moments(samples: list[Array]) -> list[Array]:
    """Return the mean of zz' over the rows z of each sample."""
    found = []
    for Z in samples:
        found.append((Z.T @ Z).astype(np.float64) / len(Z))
        _rows.beat(len(found), len(samples))
    return found


def _chosen(samples: list[Array], r: int) -> Array:
    """Return r directions from samples of centred rows, of like and of unlike differences."""
    total, like, unlike = _moments(samples)
    m, half = len(total), round(CONTRASTING * r)
    # like rows may all be equal, and so may the sampled ones; the samples are not all zero, so one of these is positive
    ridge = RIDGE * (np.trace(like) or np.trace(total) or np.trace(unlike)) / m
    V = np.linalg.qr(leading_eigenvectors(unlike - like, half, like + ridge * np.eye(m)))[0]
    _rows.beat(1, 2)
    rest = total - V @ (V.T @ total)
    rest -= (rest @ V) @ V.T
    return np.asarray(np.linalg.qr(np.hstack([V, leading_eigenvectors((rest + rest.T) / 2, r - half)]))[0])


def _span(samples: list[Array], r: int, seed: int) -> Array:
    """Return an orthonormal basis of the r leading directions of the rows, and of half as many of the contrast."""
    total, like, unlike = samples
    m = total.shape[1]

    def moment(Z: Array, X: Array) -> Array:
        _rows.beat(0, 1)
        return np.asarray(Z.T @ (Z @ X) / np.float32(len(Z)))

    axes = subspace_iteration(lambda X: moment(total, X), m, r, seed)
    contrast = subspace_iteration(lambda X: moment(unlike, X) - moment(like, X), m, round(CONTRASTING * r), seed)
    return np.asarray(np.linalg.qr(np.hstack([axes, contrast]))[0])


def _local(rows: Any, row_numbers: Array, pairs: list[Array]) -> tuple[Any, Array, list[Array]]:
    """Return rows in memory, and numbers that count in them: of rows on dask, those of the sample are fetched."""
    if not _rows.is_dask(rows):
        return rows, row_numbers, pairs
    used = np.unique(np.concatenate([row_numbers, *(part.ravel() for part in pairs)]))
    return (
        _rows.take(rows, used),
        np.searchsorted(used, row_numbers),
        [np.searchsorted(used, part) for part in pairs],
    )


def _centred(map: FeatureMap, rows: Any, index: Array) -> Array:
    """Return the features of some rows, less their mean."""
    F = np.empty((len(index), map.columns))
    for part in _parts(map, len(index)):
        F[part] = map.block(_rows.take(rows, index[part]))
    F -= F.mean(axis=0)
    return F


def _differences(map: FeatureMap, rows: Any, pairs: Array) -> Array:
    """Return the differences of the features of pairs of rows."""
    Z = np.empty((len(pairs), map.columns))
    for part in _parts(map, len(pairs)):
        first, second = (map.block(_rows.take(rows, pairs[part, end])) for end in (0, 1))
        np.subtract(first, second, out=Z[part])
    return Z


def _in_single_precision(samples: list[Array]) -> list[Array] | None:
    """Return samples in float32, divided by their largest entry; None if all are zero."""
    largest = max(float(max(Z.max(initial=0.0), -Z.min(initial=0.0))) for Z in samples)
    if not largest > 0:
        return None
    found = []
    for Z in samples:
        single = np.empty(Z.shape, dtype=np.float32)
        for part in _rows.wide_blocks(len(Z), Z.shape[1]):
            single[part] = Z[part] / largest
        found.append(single)
    return found


def _parts(map: FeatureMap, n: int) -> Any:
    return _rows.wide_blocks(n, map.widest)
