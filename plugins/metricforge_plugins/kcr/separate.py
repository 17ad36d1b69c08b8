"""Separate kernels (Theorem 1): each coordinate of the embedding belongs to one summand, so W is block diagonal."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from metricforge.errors import InputError
from metricforge.kernels import Kernel, Mixture
from metricforge.rows import Array
from metricforge.solver import Problem
from metricforge.space import FeatureMap, LearnedKernel, represent


def maps_of(problem: Problem) -> tuple[FeatureMap, ...]:
    """Return the feature maps of the summands of the kernel."""
    kernel, space = problem.kernel, problem.space
    if not isinstance(kernel, Mixture) or min(kernel.weights) < 0:
        raise InputError(
            f'kernels="separate" needs a sum of kernels with weights >= 0, got {kernel!r}; give kernel=k1 + k2'
        )
    rank = space.rank if space.representation == "landmarks" else "exact"
    return tuple(
        represent(part, problem.rows, rank, seed=problem.seed).map.scaled(weight)
        for part, weight in zip(kernel.kernels, kernel.weights, strict=True)
        if weight > 0
    )


def slices(maps: tuple[FeatureMap, ...]) -> list[slice]:
    """Return the columns of each map among those of all."""
    ends = np.cumsum([0, *(part.columns for part in maps)]).tolist()
    return [slice(a, b) for a, b in pairwise(ends)]


def blocks_of(maps: tuple[FeatureMap, ...]) -> tuple[slice, ...]:
    """Return the diagonal blocks of W, () for one."""
    return tuple(slices(maps)) if len(maps) > 1 else ()


def learned(maps: tuple[FeatureMap, ...], L: Array) -> Kernel:
    """Return Σ_m φ_m'W_mφ_m with W_m the diagonal blocks of LL'."""
    parts = [LearnedKernel(part, L[block] @ L[block].T) for part, block in zip(maps, slices(maps), strict=True)]
    return parts[0] if len(parts) == 1 else Mixture(tuple(parts), (1.0,) * len(parts))


def block_diagonal(S: Array, blocks: tuple[slice, ...]) -> Array:
    """Return S with zeros outside the diagonal blocks."""
    kept = np.zeros_like(S)
    for part in blocks:
        kept[part, part] = S[part, part]
    return kept


def split_columns(P: Array, blocks: tuple[slice, ...]) -> Array:
    """Return P with each column cut into one column per block, zero elsewhere; columns that are zero are dropped."""
    parts = []
    for part in blocks:
        column = np.zeros_like(P)
        column[part] = P[part]
        parts.append(column[:, np.abs(column).max(axis=0, initial=0.0) > 0])
    return np.hstack(parts)
