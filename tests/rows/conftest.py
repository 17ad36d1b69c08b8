"""A cluster of two worker processes, one per test file that asks for it."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def client():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as local,
        Client(local) as active,
    ):
        yield active
