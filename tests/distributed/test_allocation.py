"""Workers keep freed memory instead of mapping every array anew."""

from __future__ import annotations

import platform

import dask.array as da
import numpy as np
import pytest

from metricforge import rows
from metricforge.distributed import allocation

pytestmark = pytest.mark.xdist_group("cluster")
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is of glibc")


def faults_per_array(numbers=2**17):
    """Return the pages that the system maps for each of many temporary arrays, by default of 256 pages."""
    import resource

    np.ones(numbers)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(numbers)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20


@glibc
def test_workers_of_a_client_that_computes_keep_freed_memory(client):
    rows.gathered(da.ones((10, 2), chunks=5))
    assert all(count < 40 for count in client.run(faults_per_array).values())
    # 50 MB, more than any threshold of glibc: inside a task, on its own thread
    assert client.submit(faults_per_array, 6_250_000, pure=False).result() < 40


def memory_while(limit):
    """Return the memory of this process with arrays, without most of them, and after freed memory was returned."""
    arrays = [np.ones(2**17) for _ in range(200)]
    last = np.ones(2**17)  # at the end of the heap, so that nothing is returned by itself
    full = allocation.resident_memory()
    del arrays
    kept = allocation.resident_memory()
    allocation.return_freed(limit)
    return full, kept, allocation.resident_memory(), last.sum()


@glibc
def test_a_worker_near_its_limit_returns_freed_memory(client):
    rows.gathered(da.ones((10, 2), chunks=5))
    full, kept, after, _ = client.submit(memory_while, 0, pure=False).result()
    assert full - kept < 50e6
    assert kept - after > 150e6
    full, kept, after, _ = client.submit(memory_while, 2**60, pure=False).result()
    assert kept - after < 50e6


@glibc
def test_processes_with_a_nanny_check_their_memory(client):
    rows.gathered(da.ones((10, 2), chunks=5))
    running = client.run(lambda dask_worker: dask_worker.periodic_callbacks[allocation.KeepFreed.name].is_running())
    assert all(running.values())


@glibc
def test_malloc_takes_the_settings():
    assert allocation.keep_freed(allocation.TRIMMED)


def test_nothing_changes_without_mallopt(monkeypatch):
    monkeypatch.setattr(allocation.ctypes, "CDLL", lambda name: object())
    assert not allocation.keep_freed(1)
    assert not allocation.return_freed(0)
