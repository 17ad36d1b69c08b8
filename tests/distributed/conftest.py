"""A cluster of two worker processes, one per test file that asks for it."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def client():
    import dask
    from distributed import Client, LocalCluster

    # 15 s after it lost a worker, LocalCluster gives it up if it is away, also to restart after a later kill
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as local,
        Client(local) as active,
    ):
        yield active
