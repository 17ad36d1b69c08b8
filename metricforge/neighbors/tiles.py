"""The sizes of work arrays: tiles of distances, and blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator

from ..rows import blocks

TILE_BYTES = 8 * 2**20
"""A tile of distances.  Smaller ones stay in the cache, larger ones multiply faster: flat between 2 and 8 MB."""
TILE_QUERIES = 1024
"""Queries in a tile: many, because the rows are prepared once for all of them; row numbers must fit an int16."""


def tile_shape(width: int, k: int, item: int = 8) -> tuple[int, int]:
    """Return the numbers of queries and rows of a tile, such that wide operands and long lists stay small too."""
    numbers = TILE_BYTES // item
    queries = min(TILE_QUERIES, max(1, numbers // max(width // 4, 8 * k)))
    return queries, max(1, numbers // max(width // 4, queries))


def row_blocks(n: int, numbers: int, share: int = 1) -> Iterator[slice]:
    """Yield slices that cover ``range(n)``: at most 1/share of a tile each, at ``numbers`` float64 per row."""
    return blocks(n, 8 * numbers, TILE_BYTES // share)
