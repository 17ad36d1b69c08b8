"""Values on the workers: rounds of tasks, and what happens to those whose history was ended."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

from metricforge.distributed import cluster
from metricforge.distributed.tasks import Value, evaluate, settle


def plus_one(x):
    return x + 1


def chain(length):
    value = Value(np.zeros, 3)
    for _ in range(length):
        value = Value(plus_one, value)
    return value


def test_settled_values_are_the_same_without_their_tasks():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as local,
        Client(local),
    ):
        value = chain(5)
        assert not settle([value])  # five calls are few
        assert settle([value], always=True)
        assert value.depth == 0
        deadline = time.monotonic() + 10
        while len(local.scheduler.tasks) > 1 and time.monotonic() < deadline:  # it is told later
            time.sleep(0.01)
        assert len(local.scheduler.tasks) == 1
        np.testing.assert_array_equal(evaluate([], [Value(plus_one, value)])[0], [6, 6, 6])


def test_what_is_settled_passes_through_this_process_in_pieces(monkeypatch):
    from distributed import Client, LocalCluster

    monkeypatch.setattr(cluster, "PIECE_BYTES", 800)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        sent = []
        scatter = client.scatter
        monkeypatch.setattr(client, "scatter", lambda data, **how: sent.append(data.nbytes) or scatter(data, **how))
        value = Value(np.arange, 450.0)
        settle([value], always=True)
        assert sent == [800, 800, 800, 800, 400]
        np.testing.assert_array_equal(evaluate([], [value])[0], np.arange(450.0))


def test_a_loss_is_reported_once_and_only_to_its_client():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as first,
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as second,
        Client(first) as one,
        Client(second) as two,
    ):
        with one.as_current():
            value = chain(2)
            settle([value], always=True)
            os.kill(next(iter(one.run(os.getpid).values())), signal.SIGKILL)
        with two.as_current():
            np.testing.assert_array_equal(evaluate([], [chain(1)])[0], [1, 1, 1])
        attempts = []

        def attempt():
            attempts.append(value if not attempts else chain(2))
            return evaluate([], [Value(plus_one, attempts[-1])])[0]

        with one.as_current():
            np.testing.assert_array_equal(cluster.despite_losses(attempt, 1, "again"), [3, 3, 3])
        assert len(attempts) == 2


def test_losses_beyond_the_limit_are_raised():
    calls = []

    def attempt():
        calls.append(1)
        raise cluster.LostValuesError("lost")

    with pytest.raises(cluster.LostValuesError):
        cluster.despite_losses(attempt, 2, "again")
    assert len(calls) == 3
