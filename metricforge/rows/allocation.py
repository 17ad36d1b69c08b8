"""How worker processes allocate memory: freed arrays are kept for the next task.

This file imports ``distributed`` when it is imported, and is imported when a client is active.
"""

from __future__ import annotations

import ctypes
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""The parameters of ``mallopt``, from malloc.h."""
MAPPED = 2**25
"""Arrays from this size on are mapped by themselves; glibc takes no larger number."""
TRIMMED = 2**28
"""Free memory that a worker keeps, at the most."""
TRIMMED_SHARE = 16
"""A worker keeps at most 1/TRIMMED_SHARE of its memory limit."""


class KeepFreed(WorkerPlugin):  # type: ignore[misc]
    """Let malloc keep freed memory in every worker process, those that join later included.

    dask's nanny sets MALLOC_TRIM_THRESHOLD_ to 64 kB, which also fixes the size from which arrays are mapped at 128 kB:
    every temporary array of a tile is then mapped and zeroed by the system anew.  ``mallopt`` changes both in a process
    that runs already.  Where the C library has no ``mallopt`` (macOS, Windows), nothing changes.
    """

    name = "metricforge-keep-freed"
    idempotent = True

    def setup(self, worker: Any) -> None:
        """Change the settings of the process of a worker."""
        limit = worker.memory_manager.memory_limit
        keep_freed(TRIMMED if not limit else min(TRIMMED, limit // TRIMMED_SHARE))


def keep_freed(most: int) -> bool:
    """Let malloc keep ``most`` freed bytes in this process; return whether it does."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, MAPPED) and mallopt(M_TRIM_THRESHOLD, most))
