"""Rows of zeros and ones, packed into words of 64 columns, and their exact search."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError
from ..rows import blocks, is_sparse
from .contract import Array, Found
from .distances import is_binary

BLOCK_BYTES = 8 * 2**20


def packed_rows(X: Any) -> Array:
    """Return rows of zeros and ones, dense or CSR, as (n, words) uint64."""
    n, d = X.shape
    out = np.zeros((n, -(-d // 64)), dtype=np.uint64)
    for part in blocks(n, 8 * d, BLOCK_BYTES):
        rows = X[part].toarray() if is_sparse(X) else X[part]
        bits = np.zeros((rows.shape[0], 64 * out.shape[1]), dtype=bool)
        bits[:, :d] = rows != 0
        out[part] = np.packbits(bits, axis=1, bitorder="little").view(np.uint64)
    return out


def unpacked(rows: Array, d: int) -> Array:
    """Return the d columns of packed rows as float32."""
    bits = np.unpackbits(np.ascontiguousarray(rows).view(np.uint8), axis=1, count=d, bitorder="little")
    return np.asarray(bits.astype(np.float32))


def hamming_search(X: Any, Q: Any, k: int, own: Array | None) -> Found:
    """Search by counting the places in which rows differ; ``own[i]`` is the row of X that query i may not find."""
    from . import bits

    for name, rows in (("X", X), ("queries", Q)):
        if not is_binary(rows):
            raise InputError(
                f'method "hamming" takes rows of zeros and ones, and {name} has others; pass method="auto"'
            )
    packed = _by_word(X)
    indices, counts = bits.nearest(packed, packed if Q is X else _by_word(Q), k, own)
    return indices, np.sqrt(counts)


def _by_word(X: Any) -> Array:
    """Return packed rows as (words, n): each word of all rows is contiguous."""
    return np.ascontiguousarray(packed_rows(X).T)
