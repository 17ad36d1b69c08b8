"""The keys of tasks: no two computations share one by accident, and the dashboard of dask shows names."""

from __future__ import annotations

import logging

import numpy as np
from dask.utils import key_split

import metricforge as mf


def rows_on_disk(folder, n=600):
    X = np.random.default_rng(0).normal(size=(n, 6))
    X[::2, 0] += 4
    np.save(folder / "rows.npy", X)
    return mf.open_rows(folder / "rows.npy", chunk_rows=100), np.arange(n) % 2


def test_a_fit_shares_no_key_with_what_a_user_computes(tmp_path, caplog):
    from distributed import Client, LocalCluster

    lazy, y = rows_on_disk(tmp_path)
    lazy, y = lazy[50:550], y[50:550]
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        caplog.at_level(logging.WARNING, "distributed.scheduler"),
    ):
        held = [client.compute(lazy)]  # dask fuses these tasks, and the scheduler keeps them
        for _ in range(2):
            metric = mf.learn(lazy, y, method="simplenpkl")
            held += [client.compute(metric.neighbors(lazy[:50], k=3)[0]), client.compute(metric.transform(lazy))]
            client.gather(held)
    assert "run_spec" not in caplog.text


def test_tasks_have_names_that_a_person_reads(tmp_path):
    lazy, y = rows_on_disk(tmp_path)
    metric = mf.learn(lazy, y, method="euclidean")
    found = {key_split(key) for key in metric.neighbors(lazy, k=3)[0].__dask_graph__()}
    assert {"read", "finite_block", "neighbors", "join-neighbors"} <= found
    assert not found & {"graph", "tasks"}


def test_the_keys_of_a_file_are_those_of_its_content(tmp_path):
    first, again = rows_on_disk(tmp_path)[0], mf.open_rows(tmp_path / "rows.npy", chunk_rows=100)
    assert first.name == again.name
    np.save(tmp_path / "rows.npy", np.zeros((600, 6)))
    assert mf.open_rows(tmp_path / "rows.npy", chunk_rows=100).name != first.name
