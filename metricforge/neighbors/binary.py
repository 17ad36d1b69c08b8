"""Exact search of rows of zeros and ones, packed into bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError
from .contract import Array, Found
from .distances import is_binary


def hamming_search(X: Any, Q: Any, k: int, own: Array | None) -> Found:
    """Search by counting the places in which rows differ; ``own[i]`` is the row of X that query i may not find."""
    from . import bits

    for name, rows in (("X", X), ("queries", Q)):
        if not is_binary(rows):
            raise InputError(
                f'method "hamming" takes rows of zeros and ones, and {name} has others; pass method="auto"'
            )
    packed = bits.packed(X)
    indices, counts = bits.nearest(packed, packed if Q is X else bits.packed(Q), k, own)
    return indices, np.sqrt(counts)
