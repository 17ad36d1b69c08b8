"""Row containers, and how a function runs over them: in memory by blocks, on dask by chunks.

A row container is a dense 2-d float array, a CSR matrix, a 1-d object array (strings, or what a kernel takes) or a dask
array of any of these.  Code outside this package treats all of them alike.

Files: `containers` recognises rows and hashes content, `checking` validates rows, `mapping` applies functions to them,
`threads` uses the cores of this machine, `memory` has the budget.  What runs on dask is in `metricforge.distributed`,
which is imported where rows are found to be dask.
"""

from __future__ import annotations

from .checking import as_objects, as_strings, as_vectors, check_widths, holds_strings
from .containers import (
    Array,
    ComparedByContent,
    as_float64,
    bytes_of,
    column_names,
    count,
    digest,
    float_dtype,
    is_dask,
    is_sparse,
    quiet,
    width,
)
from .mapping import (
    BLOCK_BYTES,
    beat,
    block_bytes,
    blocks,
    column_range,
    draw,
    fold,
    gathered,
    listening,
    map_paired,
    map_pairs,
    map_relations,
    map_rows,
    map_taken,
    mirror,
    moments,
    stack,
    take,
    wide_blocks,
)
from .memory import check_memory, hold, memory_budget, parse_bytes, show_bytes

__all__ = [
    "BLOCK_BYTES",
    "Array",
    "ComparedByContent",
    "as_float64",
    "as_objects",
    "as_strings",
    "as_vectors",
    "beat",
    "block_bytes",
    "blocks",
    "bytes_of",
    "check_memory",
    "check_widths",
    "column_names",
    "column_range",
    "count",
    "digest",
    "draw",
    "float_dtype",
    "fold",
    "gathered",
    "hold",
    "holds_strings",
    "is_dask",
    "is_sparse",
    "listening",
    "map_paired",
    "map_pairs",
    "map_relations",
    "map_rows",
    "map_taken",
    "memory_budget",
    "mirror",
    "moments",
    "parse_bytes",
    "quiet",
    "show_bytes",
    "stack",
    "take",
    "wide_blocks",
    "width",
]
