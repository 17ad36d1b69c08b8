"""How worker processes allocate memory: freed arrays are kept for the next task.

This file imports ``distributed`` when it is imported, and is imported when a client is active.
"""

from __future__ import annotations

import ctypes
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

from ..rows.memory import resident_memory

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
"""The parameters of ``mallopt``, from malloc.h."""
MAPPED = 2**25
"""Arrays from this size on are mapped by themselves where these are not excluded; glibc takes no larger number."""
TRIMMED = 2**28
"""Free memory at the end of the heap that a worker keeps, at the most."""
TRIMMED_SHARE = 16
"""A worker keeps at most 1/TRIMMED_SHARE of its memory limit there."""
RETURNED_SHARE = 0.4
"""From this share of its memory limit on, a worker returns all freed memory: dask acts on 0.6 and more."""
RETURNED_SECONDS = 1.0
"""How often a worker checks that."""


class KeepFreed(WorkerPlugin):  # type: ignore[misc]
    """Let malloc keep freed memory in every worker process, those that join later included.

    dask's nanny sets MALLOC_TRIM_THRESHOLD_ to 64 kB, which also fixes the size from which arrays are mapped at 128 kB:
    every temporary array of a tile is then mapped and zeroed by the system anew.  ``mallopt`` changes both in a process
    that runs already.  Where the C library has no ``mallopt`` (macOS, Windows), nothing changes.

    In a process that a nanny started, which serves tasks only, no array is mapped by itself: blocks of a Gram matrix
    are larger than any threshold that glibc takes.  Freed memory inside the heap then remains with the process, so it
    is returned when the process approaches its memory limit.
    """

    name = "metricforge-keep-freed"
    idempotent = True

    def setup(self, worker: Any) -> None:
        """Change the settings of the process of a worker."""
        limit = worker.memory_manager.memory_limit
        alone = worker.nanny is not None and bool(limit)
        if keep_freed(TRIMMED if not limit else min(TRIMMED, limit // TRIMMED_SHARE), map_large=not alone) and alone:
            from tornado.ioloop import PeriodicCallback

            def returned() -> None:
                return_freed(int(RETURNED_SHARE * limit))

            check = PeriodicCallback(returned, 1000 * RETURNED_SECONDS)
            worker.periodic_callbacks[self.name] = check  # the worker stops it when it closes
            check.start()


def keep_freed(most: int, *, map_large: bool = True) -> bool:
    """Let malloc keep ``most`` freed bytes at the end of the heap of this process; return whether it does.

    Unless ``map_large``, arrays of any size are in the heap.
    """
    mallopt = _c_function("mallopt")
    if mallopt is None:
        return False
    large = mallopt(M_MMAP_THRESHOLD, MAPPED) if map_large else mallopt(M_MMAP_MAX, 0)
    return bool(large and mallopt(M_TRIM_THRESHOLD, most))


def return_freed(allowed: int) -> bool:
    """Return all freed memory to the system if this process has more than ``allowed`` bytes; return whether it did."""
    trim = _c_function("malloc_trim")
    if trim is None or resident_memory() <= allowed:
        return False
    trim(0)
    return True


def _c_function(name: str) -> Any | None:
    """Return a function of the C library, or None if another library than glibc has none."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
