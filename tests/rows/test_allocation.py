"""Workers keep freed memory instead of mapping every array anew."""

from __future__ import annotations

import platform

import dask.array as da
import numpy as np
import pytest

from metricforge import rows
from metricforge.rows import allocation

pytestmark = pytest.mark.xdist_group("cluster")
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is of glibc")


def faults_per_array():
    """Return the pages that the system maps for each of many temporary arrays of 256 pages."""
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        np.ones(2**17)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 100


@glibc
def test_workers_of_a_client_that_computes_keep_freed_memory(client):
    rows.gathered(da.ones((10, 2), chunks=5))
    assert all(count < 40 for count in client.run(faults_per_array).values())


@glibc
def test_malloc_takes_the_settings():
    assert allocation.keep_freed(allocation.TRIMMED)


def test_nothing_changes_without_mallopt(monkeypatch):
    monkeypatch.setattr(allocation.ctypes, "CDLL", lambda name: object())
    assert not allocation.keep_freed(1)
