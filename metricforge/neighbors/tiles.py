"""The sizes of work arrays: tiles of distances, and blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator

from ..rows import block_bytes, blocks

TILE_BYTES = 8 * 2**20
"""A tile of distances.  Smaller ones stay in the cache, larger ones multiply faster: flat between 2 and 8 MB."""
SINGLE_SHARE = 4
"""Part of a tile that products in float32 fill: they are fast, so the passes that follow should find them in the cache.
A quarter took the least time of 1, 1/2, 1/4 and 1/8, or nearly so, from 4 to 128 columns and for 5 to 50 neighbours."""
TILE_ARRAYS = 5
"""Memory that a tile takes, in tiles: itself, a copy, the order of its entries (int64 for float32), a mask."""
TILE_QUERIES = 1024
"""Queries in a tile: many, because the rows are prepared once for all of them; row numbers must fit an int16."""
LIST_BYTES = 256
"""Memory that a query takes for each neighbour wanted: up to three candidates, their keys, and sorted copies."""


def tile_shape(q: int, width: int, k: int, item: int = 8, share: int = 1) -> tuple[int, int]:
    """Return the numbers of queries and rows of a tile, such that wide operands and long lists stay small too.

    A tile takes 1/share of TILE_BYTES.
    """
    numbers = block_bytes(TILE_ARRAYS * TILE_BYTES) // TILE_ARRAYS // item // share
    most = block_bytes(TILE_QUERIES * LIST_BYTES * k) // (LIST_BYTES * k)
    queries = max(1, min(q, most, numbers // max(width // 4, 8 * k)))
    return queries, max(1, numbers // max(width // 4, queries))


def row_blocks(n: int, numbers: int, share: int = 1) -> Iterator[slice]:
    """Yield slices that cover ``range(n)``: at most 1/share of a tile each, at ``numbers`` float64 per row."""
    return blocks(n, 8 * numbers, TILE_BYTES // share)
