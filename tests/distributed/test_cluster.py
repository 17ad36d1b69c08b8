"""All methods on worker processes: the same answer, also when a worker is killed at its work."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client, LocalCluster

import metricforge as mf
from metricforge import rows
from metricforge.distributed import cluster as where_it_runs
from metricforge.distributed.chunks import spread
from metricforge.errors import InputError
from metricforge.kernels import RBF, Spectrum
from metricforge.registry import registry

pytestmark = pytest.mark.xdist_group("cluster")  # one cluster, not one for each process of the suite

N, D = 90, 4
METHODS = [name for name in (m.name for m in mf.methods()) if name != "euclidean"]
CHUNKS = [(30, -1), (17, -1), (41, 2)]


def data():
    rng = np.random.default_rng(3)
    y = np.arange(N) % 3
    X = rng.normal(size=(N, D))
    X[:, 0] += 2 * y
    return X, y


def learned(X, y, method):
    return mf.learn(X, y, method=method, kernel=RBF(0.2), rank=25, seed=1)


def difference(one, other):
    """The largest difference of two learned kernels on rows neither has seen, relative to their size."""
    new = np.random.default_rng(4).normal(size=(20, D))
    K, L = one.kernel(new), other.kernel(new)
    return np.abs(K - L).max() / np.abs(K).max()


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_a_fit_on_two_worker_processes_is_the_fit_in_memory(client, method, chunks):
    X, y = data()
    assert where_it_runs.client() is client
    there = learned(da.from_array(X, chunks=chunks), y, method)
    with without_client():
        here = learned(X, y, method)
    assert difference(here, there) < 1e-8
    assert abs(here.report.objective - there.report.objective) <= 1e-8 * max(1, abs(here.report.objective))


@pytest.mark.parametrize("method", METHODS)
def test_sparse_chunks(client, method):
    X, y = data()
    X = X * (np.abs(X) > 0.5)
    lazy = da.from_array(X, chunks=(31, -1)).map_blocks(sp.csr_array)
    with without_client():
        here = learned(sp.csr_array(X), y, method)
    assert difference(here, learned(lazy, y, method)) < 1e-8


@pytest.mark.parametrize("method", METHODS)
def test_string_chunks(client, method):
    rng = np.random.default_rng(0)
    S = np.array(["".join(rng.choice(list("ACDE"), size=12)) for _ in range(60)], dtype=object)
    y = np.arange(60) % 3
    options = {"kernel": Spectrum(2).normalized(), "rank": 15, "seed": 1}
    if method == "lpdesign":
        options["bases"] = (Spectrum(1), Spectrum(2), Spectrum(3))
    with without_client():
        here = mf.learn(S, y, method=method, **options)
    there = mf.learn(da.from_array(S, chunks=23), y, method=method, **options)
    np.testing.assert_allclose(there.kernel(S[:9]), here.kernel(S[:9]), atol=1e-8 * np.abs(here.kernel(S[:9])).max())


@contextmanager
def without_client():
    """Hide the active client, so that a call in memory stays in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where_it_runs, "client", lambda: None)
        yield


# ----------------------------------------------------------------------------------------------- workers that die


class Fatal:
    """A block function that stops in the middle of its first call and leaves word of its process."""

    def __init__(self, folder):
        self.word = folder / "pid"

    def __call__(self, block):
        try:
            with self.word.open("x") as word:
                word.write(str(os.getpid()))
        except FileExistsError:
            return block
        time.sleep(60)
        raise RuntimeError("this process was to be killed")


def killer(word, killed):
    """Kill the process that left word, once it is seen to be at work on a task."""
    deadline = time.monotonic() + 50
    while time.monotonic() < deadline:
        try:
            pid = int(word.read_text() or 0)
        except FileNotFoundError:
            pid = 0
        if pid:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            return
        time.sleep(0.02)


@pytest.mark.parametrize("method", METHODS)
def test_a_killed_worker_does_not_change_the_answer(client, method, tmp_path):
    X, y = data()
    fatal = Fatal(tmp_path)
    lazy = da.from_array(X, chunks=(17, -1)).map_blocks(fatal, meta=np.empty((0, 0)))
    before = set(client.run(os.getpid).values())
    killed: list[int] = []
    thread = threading.Thread(target=killer, args=(fatal.word, killed))
    thread.start()
    there = learned(lazy, y, method)
    thread.join()
    assert killed
    assert killed[0] in before  # it was a worker, inside a task of this fit
    with without_client():
        here = learned(X, y, method)
    assert difference(here, there) < 1e-8
    client.wait_for_workers(2, timeout=120)


def test_rows_in_memory_outlive_a_worker(client):
    X, _ = data()
    lazy = spread(X)
    assert rows.is_dask(lazy)
    assert lazy.numblocks[0] > 1
    rows.gathered(lazy)
    victim = next(iter(client.run(os.getpid).values()))
    os.kill(victim, signal.SIGKILL)
    np.testing.assert_array_equal(rows.gathered(lazy), X)
    client.wait_for_workers(2, timeout=120)


# -------------------------------------------------------------------------------------------------- what users see


class Moody:
    def __call__(self, block):
        if block.shape[0] and 50 in block[:, 0]:
            raise ZeroDivisionError("no such luck")
        return block


def test_the_users_error_arrives_and_names_the_block(client):
    X = np.tile(np.arange(90.0)[:, None], (1, 3))
    lazy = da.from_array(X, chunks=(30, -1))
    with pytest.raises(ZeroDivisionError, match="no such luck") as caught:
        rows.gathered(rows.map_rows(Moody(), lazy, 3, np.float64))
    assert "in the block of rows 30 to 59" in caught.value.__notes__
    with pytest.raises(ZeroDivisionError, match="no such luck") as caught:
        rows.fold(Moody(), list, lazy)
    assert "in the block of rows 30 to 59" in caught.value.__notes__
    with pytest.raises(ZeroDivisionError) as caught:
        rows.gathered(rows.map_pairs(MoodyPair(), lazy, X[:4], np.float64))
    assert "in the block of rows 30 to 59 and rows 0 to 3" in caught.value.__notes__


class MoodyPair:
    def __call__(self, A, B):
        return Moody()(A) @ B.T


@pytest.mark.parametrize("method", METHODS)
def test_a_fit_whose_rows_cannot_be_read_raises_what_the_reading_raised(client, method):
    X, y = data()
    X[50, 0] = 50
    lazy = da.from_array(X, chunks=(30, -1)).map_blocks(Moody(), meta=np.empty((0, 0)))
    with pytest.raises(ZeroDivisionError, match="no such luck"):
        learned(lazy, y, method)


def test_rows_in_memory_go_to_the_active_client(client, monkeypatch):
    X, y = data()
    with without_client():
        here = learned(X, y, "krca")
    seen = []
    monkeypatch.setattr(registry, "step", seen.append)
    there = learned(X, y, "krca")
    assert difference(here, there) < 1e-8
    assert isinstance(there.rows, np.ndarray)  # so that it can be saved and searched as before
    assert any("tasks" in event.info and event.step == event.total for event in seen)
    assert seen[-1].done


def slow(block):
    time.sleep(0.4)
    return block


def test_long_work_tells_how_far_it_is(client):
    told = []
    lazy = da.from_array(np.arange(8.0), chunks=1).map_blocks(slow)
    with where_it_runs.watched(lambda finished, total: told.append((finished, total))):
        (result,) = where_it_runs.compute(lazy.sum())
    assert result == 28
    assert len({finished for finished, _ in told}) > 3
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 8


def test_work_inside_a_task_stays_in_the_task(client):
    X, y = data()
    metric = learned(X, y, "krca")
    assert client.submit(lambda: where_it_runs.client() is None).result()
    far = client.submit(metric.transform, X).result()
    np.testing.assert_allclose(far, metric.transform(X))


def learned_inside():
    X, y = data()
    return learned(da.from_array(X, chunks=(30, -1)), y, "krca").transform(X)


def test_a_task_may_learn_from_chunks_itself(client):
    X, y = data()
    tasks = [client.submit(learned_inside, pure=False) for _ in range(3)]  # more than there are threads
    with without_client():
        here = learned(X, y, "krca").transform(X)
    for task in tasks:
        np.testing.assert_allclose(task.result(timeout=120), here, atol=1e-8)


def test_nothing_is_left_on_the_workers(client, tmp_path):
    X, y = data()
    np.save(tmp_path / "rows.npy", X)
    rows_on_disk = mf.open_rows(tmp_path / "rows.npy", chunk_rows=20)
    before = len(client.get_scheduler_logs())
    for method in ("krca", "kcr"):
        learned(rows_on_disk, y, method)
    X[50, 0] = 50
    with pytest.raises(ZeroDivisionError):
        learned(da.from_array(X, chunks=(30, -1)).map_blocks(Moody(), meta=np.empty((0, 0))), y, "krca")
    deadline = time.monotonic() + 20
    while client.futures and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not client.futures
    said = [text for _, text in client.get_scheduler_logs()][: -before or None]
    assert not [text for text in said if "run_spec" in text]  # no task had the name of another


def test_an_asynchronous_client():
    import asyncio

    X = np.arange(20.0).reshape(10, 2)
    lazy = da.from_array(X, chunks=(5, -1))

    async def work():
        async with Client(processes=False, asynchronous=True, n_workers=1, dashboard_address=":0"):
            np.testing.assert_array_equal(await asyncio.to_thread(rows.gathered, lazy), X)
            assert where_it_runs.client() is None
            with pytest.raises(RuntimeError, match="asynchronous Client"):  # said, not waited for
                rows.gathered(lazy)

    asyncio.run(work())


begun = threading.Event()


def endless(block):
    begun.set()
    time.sleep(0.5)
    return block


def test_a_client_closed_at_its_work_is_an_error():
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as local:
        brief = Client(local)
        closing = threading.Thread(target=lambda: begun.wait(60) and brief.close())
        closing.start()
        with brief.as_current(), pytest.raises(Exception, match="ancelled"):
            where_it_runs.compute(da.from_array(np.arange(200.0), chunks=1).map_blocks(endless, meta=np.empty(0)))
        closing.join()


def test_a_scheduler_lost_while_values_are_fetched_is_an_input_error(client, monkeypatch):
    from distributed.client import FutureCancelledError

    def lost(*args, **options):
        raise FutureCancelledError("value", "scheduler-connection-lost")

    monkeypatch.setattr(Client, "gather", lost)
    with pytest.raises(InputError, match=r"the cluster cancelled the computation .*scheduler-connection-lost"):
        where_it_runs.compute(da.ones(6, chunks=3))


def test_a_closed_client_is_an_input_error():
    X, y = data()
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as local,
        Client(local) as brief,
    ):
        brief.close()
        with brief.as_current():
            for given in (X, da.from_array(X, chunks=(30, -1))):
                with pytest.raises(InputError, match="is closed"):
                    learned(given, y, "krca")


@dataclass(frozen=True)
class Locked(mf.Kernel):
    """A kernel with a field that cannot be pickled."""

    lock: object = None

    def block(self, X, Y):
        return np.asarray(X @ Y.T)


def test_a_kernel_that_cannot_be_pickled_is_named(client):
    X, y = data()
    with pytest.raises(InputError, match=r"kernel Locked cannot be sent .*lock"):
        mf.learn(X, y, method="krca", kernel=Locked(threading.Lock()), rank=25)
    with without_client():
        mf.learn(X, y, method="krca", kernel=Locked(threading.Lock()), rank=25)


def test_large_results_in_memory_come_back_from_the_client(client, monkeypatch):
    X, y = data()
    metric = learned(X, y, "krca")
    monkeypatch.setattr(rows, "BLOCK_BYTES", 100)
    monkeypatch.setattr("metricforge.metric.SENT_NEIGHBORS", 100)
    E, found = metric.transform(X), metric.neighbors(X, 3)
    assert isinstance(E, np.ndarray)
    assert isinstance(found[0], np.ndarray)
    with without_client():
        np.testing.assert_allclose(E, metric.transform(X), atol=1e-12)
        np.testing.assert_array_equal(found[0], metric.neighbors(X, 3)[0])


def test_persisted_rows_live_as_long_as_what_is_made_of_them(client):
    X, y = data()
    metric = learned(X, y, "krca")
    lazily = metric.neighbors(da.from_array(X, chunks=(30, -1)).persist(), 3)[0]
    with without_client():
        np.testing.assert_array_equal(lazily.compute(), metric.neighbors(X, 3)[0])


def test_workers_have_one_blas_thread_each(client):
    def threads():
        import numpy as np
        from threadpoolctl import threadpool_info

        np.ones((2, 2)) @ np.ones((2, 2))
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    assert all(found == {1} for found in client.run(threads).values())


def test_chunks_follow_the_memory_of_the_workers(client, monkeypatch):
    limit = min(w["memory_limit"] for w in client.scheduler_info()["workers"].values())
    assert where_it_runs.task_bytes() == limit // where_it_runs.TASK_SHARE
    monkeypatch.setattr(where_it_runs, "task_bytes", lambda: 8 * 25 * 10)
    lazy = da.from_array(data()[0], chunks=(90, -1))
    metric = learned(data()[0], data()[1], "krca")
    assert max(metric.transform(lazy).chunks[0]) == 10
    assert max(max(sizes) for sizes in metric.distance(lazy).chunks) <= 10
    np.testing.assert_allclose(metric.transform(lazy).compute(), metric.transform(data()[0]), atol=1e-10)


def test_an_address_of_no_known_kind_leaves_no_client_behind():
    before = where_it_runs.client()
    with (
        pytest.raises(InputError, match="no dask scheduler answers at 'nonsense://x'"),
        where_it_runs.connected("nonsense://x"),
    ):
        raise AssertionError("there is nothing to connect to")
    assert where_it_runs.client() is before


OVERLAPPING_FITS = """
import sys, threading
import numpy as np
import scipy.linalg
from threadpoolctl import threadpool_info
import metricforge as mf
from metricforge.resolve import find_method
from metricforge.solver import Solution, Status

def threads():
    return sorted(lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas")

def solve(self, problem):
    me = next(order)
    inside[me].set()
    # the second fit begins during the first one, and ends after it
    assert (inside[1] if me == 0 else first_is_out).wait(60)
    limited.append(threads())
    if me == 0 and "fails" in sys.argv:
        raise ZeroDivisionError
    return Solution(problem.kernel, Status.OPTIMAL, objective=0.0, gap=0.0, certificate="nothing is optimised")

def fit(done, other_done):
    try:
        mf.learn(np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2, method="euclidean")
    except ZeroDivisionError:
        pass
    done.set()
    other_done.wait(60)  # alive until the other fit has ended: threadpoolctl heeds the thread that set the limit

before, limited, order = threads(), [], iter([0, 1])
inside = [threading.Event(), threading.Event()]
first_is_out, second_is_out = outs = [threading.Event(), threading.Event()]
type(find_method("euclidean").solver)._solve = solve
fits = [threading.Thread(target=fit, args=each) for each in (outs, outs[::-1])]
fits[0].start()
assert inside[0].wait(60)
fits[1].start()
for each in fits:
    each.join(60)
print(before, *limited, threads(), sep=";")
"""


@pytest.mark.parametrize("how", ["ends", "fails"])
def test_overlapping_fits_restore_the_threads_of_blas(how):
    # in a process of its own: the suite runs with one thread, and raising the number later does not undo that
    two = {**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    command = [sys.executable, "-c", OVERLAPPING_FITS, how]
    ended = subprocess.run(command, env=two, text=True, capture_output=True, timeout=120, check=True)
    before, first, second, after = ended.stdout.strip().split(";")
    if "2" not in before:
        pytest.skip("no BLAS here runs on two threads")
    assert first == second == before.replace("2", "1")  # the second also after the first one has ended
    assert after == before


def test_waiting_leaves_nothing_behind(client):
    """A listener for each future and report would take 0.5 MB a second in the client."""
    running = []

    def watch(finished, total):
        running.append(len(asyncio.all_tasks(client.loop.asyncio_loop)))

    lazy = da.zeros((16, 2), chunks=(1, 2)).map_blocks(slow, dtype=float)
    with where_it_runs.watched(watch):
        where_it_runs.kept(lazy)
    assert len(running) > 5
    assert max(running) - min(running) < 50
