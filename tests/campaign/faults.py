"""Faults of the environment: signals, full disks, killed workers and schedulers, concurrent threads and processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import metricforge as mf
from metricforge import kernels as k

from .rows import Rng
from .shell import left_behind
from .trial import ROOT, Ended, Trial, Verdict
from .worker import Watch, environment

PATIENCE = 60
"""CPU or idle seconds after which a process that received a signal, or lost its cluster, counts as hanging."""
OLD = b"what was there before"
METHODS = sorted(entry.name for entry in mf.methods())


def attack(trial: Trial, rng: Rng, number: int) -> None:
    """Run one scenario, chosen by ``number``; ``rng`` chooses the moment of the fault."""
    name = list(SCENARIOS)[number % len(SCENARIOS)]
    folder = trial.folder / "faults"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    trial.describe(name)
    try:
        SCENARIOS[name](trial, rng, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ------------------------------------------------------------------------------------------------------------- commands


def started(folder: Path, *words: str, **options: Any) -> subprocess.Popen[str]:
    """Start the command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "metricforge", *words],
        cwd=folder,
        env=environment(METRICFORGE_MEMORY="8GB"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def ended(trial: Trial, process: subprocess.Popen[str], what: str) -> tuple[int, str]:
    """Return the exit code and standard error of a process, which must end."""
    watch = Watch(process.pid, PATIENCE)
    while True:
        try:
            _, err = process.communicate(timeout=1)
        except subprocess.TimeoutExpired:
            if not watch.stuck():
                continue
            process.kill()
            process.communicate()
            trial.find(Verdict.HANG, f"does not end after {what}")
            raise Ended from None
        return process.returncode, err


def rows_on_disk(folder: Path, n: int = 60_000, d: int = 40) -> Path:
    path = folder / "rows.npy"
    np.save(path, np.random.default_rng(0).normal(size=(n, d)))
    np.save(folder / "y.npy", np.arange(n) % 3)
    return path


def saved_metric(folder: Path, d: int = 40) -> Path:
    X = np.random.default_rng(1).normal(size=(50, d))
    path = folder / "saved.metric"
    mf.learn(X, np.arange(50) % 2, method="euclidean").save(path)
    return path


COMMANDS = {
    "learn": ("rows.npy", "--label", "y.npy", "--method", "euclidean", "-o", "out.metric"),
    "transform to .npy": ("saved.metric", "rows.npy", "-o", "out.npy"),
    "transform to .csv": ("saved.metric", "rows.npy", "-o", "out.csv"),
    "transform to .parquet": ("saved.metric", "rows.npy", "-o", "out.parquet"),
    "transform to .zarr": ("saved.metric", "rows.npy", "-o", "out.zarr"),
}


def _words(what: str) -> tuple[str, ...]:
    return (what.partition(" ")[0], *COMMANDS[what])


def _prepared(folder: Path, what: str) -> Path:
    """Write rows and a metric to a folder; return the path of the output, which holds old content if it is a file."""
    rows_on_disk(folder)
    saved_metric(folder)
    out = folder / COMMANDS[what][-1]
    if out.suffix not in (".parquet", ".zarr"):
        out.write_bytes(OLD)
    return out


def _check_output(trial: Trial, out: Path, what: str) -> None:
    """Check that the output is the old file or a complete new one, and that no temporary file is left."""
    part = left_behind(out.parent)
    trial.check(not part, Verdict.STATE, f"{what} leaves a .part file", ", ".join(part)[:200])
    if out.is_file() and out.read_bytes() != OLD:
        with contextlib.suppress(Ended):
            if out.suffix == ".metric":
                trial.call("loading what was written", mf.load, out)
            elif out.suffix == ".npy":
                trial.call("loading what was written", np.load, out)


def interrupted(kind: str, what: str, trial: Trial, rng: Rng, folder: Path) -> None:
    """Send a signal as soon as a temporary file exists."""
    out = _prepared(folder, what)
    process = started(folder, *_words(what))
    end = time.monotonic() + PATIENCE
    while not left_behind(folder) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.001)
    _signalled(trial, process, kind, out, f"{kind} while writing ({what})")


def interrupted_early(kind: str, trial: Trial, rng: Rng, folder: Path) -> None:
    """Send a signal at a random moment: during imports, reading or the fit."""
    out = _prepared(folder, "learn")
    process = started(folder, "learn", "rows.npy", "--label", "y.npy", "--method", "krca", "-o", "out.metric")
    time.sleep(float(rng.uniform(0.05, 6.0)))
    _signalled(trial, process, kind, out, f"{kind} in mid-run")


def _signalled(trial: Trial, process: subprocess.Popen[str], kind: str, out: Path, what: str) -> None:
    if process.poll() is not None:
        trial.describe("it had ended before")
    number = signal.Signals[kind]
    process.send_signal(number)
    code, err = ended(trial, process, kind)
    ok = code in (0, 2, -number, 128 + number)
    trial.check(ok, Verdict.RAW, f"{what}: exit {code}", err[-600:])
    trial.check("Traceback" not in err or code == -number, Verdict.MESSAGE, f"{what}: a traceback", err[-600:])
    _check_output(trial, out, what)


def full_disk(what: str, trial: Trial, rng: Rng, folder: Path) -> None:
    """Allow no file of more than a megabyte."""
    out = _prepared(folder, what)
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (2**20, 2**20))
    process = started(folder, *_words(what), preexec_fn=limit)
    _refused(trial, process, out, f"a full disk ({what})")


def small_disk(what: str, trial: Trial, rng: Rng, folder: Path) -> None:
    """Write to a file system of two megabytes, if one can be mounted."""
    place = folder / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        trial.describe("no file system could be mounted")
        return
    try:
        _prepared(folder, what)
        out = place / COMMANDS[what][-1]
        process = started(folder, *_words(what)[:-1], str(out))
        _refused(trial, process, out, f"a full disk ({what})")
    finally:
        subprocess.run(["umount", str(place)], check=False)


def _refused(trial: Trial, process: subprocess.Popen[str], out: Path, what: str) -> None:
    code, err = ended(trial, process, what)
    trial.check(code == 2, Verdict.RAW, f"{what}: exit {code}", err[-600:])
    lines = [line for line in err.splitlines() if line.strip()]
    trial.check(len(lines) <= 1, Verdict.MESSAGE, f"{what}: several lines", err[-600:])
    trial.refusal = lines[-1] if lines and code == 2 else ""
    _check_output(trial, out, what)


def killed_while_saving(trial: Trial, rng: Rng, folder: Path) -> None:
    """After SIGKILL the output is the old file or a complete new one."""
    out = _prepared(folder, "learn")
    process = started(folder, *_words("learn"))
    while not left_behind(folder) and process.poll() is None:
        time.sleep(0.001)
    process.kill()
    process.communicate()
    whole = out.read_bytes() == OLD
    if not whole:
        trial.call("loading what was written", mf.load, out)


def broken_pipe(trial: Trial, rng: Rng, folder: Path) -> None:
    """The reader of standard output closes the pipe after one line."""
    rows_on_disk(folder, 3000, 40)
    saved_metric(folder)
    process = started(folder, "transform", "saved.metric", "rows.npy")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    code, err = ended(trial, process, "a closed pipe")
    trial.check(code in (0, -signal.SIGPIPE, 141), Verdict.RAW, f"a closed pipe: exit {code}", err[-400:])
    trial.check("Traceback" not in err, Verdict.MESSAGE, "a closed pipe: a traceback", err[-400:])


def special_target(kind: str, trial: Trial, rng: Rng, folder: Path) -> None:
    """Saving to the path of a device or a FIFO must not replace it by a file."""
    path = folder / "target.metric"
    if kind == "FIFO":
        os.mkfifo(path)
    else:
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except PermissionError:
            trial.describe("devices cannot be made here")
            return
    metric = mf.learn(np.eye(4), [0, 0, 1, 1], method="euclidean")
    with contextlib.suppress(Ended):
        trial.call(f"saving over a {kind}", metric.save, path)
    trial.check(not path.is_file(), Verdict.WRONG, f"saving over a {kind} replaces it by a file")


def saving_at_once(trial: Trial, rng: Rng, folder: Path) -> None:
    """Several threads save to and load from the same path."""
    metrics = [mf.learn(np.eye(5) * (i + 1), np.arange(5) % 2, method="euclidean") for i in range(4)]
    path = folder / "shared.metric"
    metrics[0].save(path)

    def work(i: int) -> None:
        for _ in range(10):
            metrics[i].save(path)
            mf.load(path)

    with ThreadPoolExecutor(4) as pool:
        trial.call("four threads that save and load", lambda: list(pool.map(work, range(4))))
    _check_output(trial, path, "saving at once")


# -------------------------------------------------------------------------------------------------- threads, processes


def blas_threads(trial: Trial, rng: Rng, folder: Path) -> None:
    """Overlapping fits must restore the number of BLAS threads, and give the same results as separate fits."""
    from threadpoolctl import threadpool_info, threadpool_limits

    def now() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    data = [np.random.default_rng(i).normal(size=(60 + 20 * i, 5)) for i in range(6)]
    names = [METHODS[i % len(METHODS)] for i in range(6)]

    def fit(i: int) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return mf.learn(data[i], np.arange(len(data[i])) % 3, method=names[i]).distance(data[i][:10])

    with threadpool_limits(2):
        alone = [fit(i) for i in range(6)]
        before = now()
        for _ in range(5):
            with ThreadPoolExecutor(6) as pool:
                together = trial.call("six fits at once", lambda pool=pool: list(pool.map(fit, range(6))))
            same = all(np.allclose(a, b, rtol=1e-6, atol=1e-9) for a, b in zip(alone, together, strict=True))
            trial.check(same, Verdict.WRONG, "fits at once find something else than alone")
        after = now()
    trial.check(before == after, Verdict.STATE, "fits at once leave BLAS with other threads", f"{before} -> {after}")


def _distance(metric: Any, X: Any) -> Any:
    return metric.distance(X)


def processes(how: str, trial: Trial, rng: Rng, folder: Path) -> None:
    """Use metrics in spawned, forked and joblib processes."""
    X = np.random.default_rng(0).normal(size=(30, 4))
    y = np.arange(30) % 3
    for method in METHODS:
        metric = mf.learn(X, y, method=method)
        truth = metric.distance(X)
        if how == "joblib":
            from joblib import Parallel, delayed

            found = trial.call(
                f"{method} in {how}", lambda m=metric: Parallel(2)(delayed(_distance)(m, X) for _ in "ab")
            )
        else:
            context = multiprocessing.get_context(how)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python's own, on forking with threads
                with context.Pool(2) as pool:
                    found = trial.call(
                        f"{method} in {how}", lambda p=pool, m=metric: p.starmap(_distance, [(m, X)] * 2)
                    )
        trial.check(
            all(np.array_equal(D, truth) for D in found), Verdict.WRONG, f"another process ({how}) measures otherwise"
        )


class _Late(Exception):  # noqa: N818
    pass


def interrupted_fit(trial: Trial, rng: Rng, folder: Path) -> None:
    """An interrupted fit must leave the previous fit of the estimator intact."""
    X = np.random.default_rng(0).normal(size=(400, 6))
    y = np.arange(400) % 3

    def ring(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for method in METHODS:
            learner = mf.MetricLearner(method=method, random_state=0).fit(X[:60], y[:60])
            truth = learner.transform(X[:5])
            signal.setitimer(signal.ITIMER_REAL, float(rng.uniform(0.001, 0.05)))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    learner.fit(X, y)
            except KeyboardInterrupt:
                same = np.array_equal(learner.transform(X[:5]), truth)
                trial.check(same, Verdict.STATE, f"an interrupted fit of {method} changes the estimator")
            except BaseException as error:
                trial.judge(f"an interrupted fit of {method}", error)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)


# ----------------------------------------------------------------------------------------------------------------- dask


@contextlib.contextmanager
def cluster(workers: int = 2, **options: Any) -> Iterator[tuple[Any, Any]]:
    """Start a local cluster of processes and its client."""
    import logging

    import dask
    from distributed import Client, LocalCluster

    for name in ("distributed", "distributed.nanny", "distributed.worker", "distributed.scheduler", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # a busy machine may exceed dask's default timeouts
    patient = {f"distributed.comm.timeouts.{name}": "600s" for name in ("connect", "tcp")}
    with (
        dask.config.set(patient),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
            **{"memory_limit": "1GB", **options},
        ) as made,
        Client(made) as client,
    ):
        yield made, client


def _slowly(block: Any, seconds: float = 0.05) -> Any:
    time.sleep(seconds)
    return block


def lazy_rows(n: int = 900, d: int = 5, chunk: int = 100) -> tuple[Any, Any, Any]:
    """Return a dask array with slow chunks, the same rows in memory, and labels."""
    import dask.array as da

    X = np.random.default_rng(0).normal(size=(n, d)) + (np.arange(n) % 3)[:, None]
    return da.from_array(X, chunks=(chunk, -1)).map_blocks(_slowly, dtype=X.dtype), X, np.arange(n) % 3


def _options(method: str) -> dict[str, Any]:
    return {"rank": 40} if method in ("krca", "kcr", "idealized") else {}


def _compare(trial: Trial, method: str, found: Any, X: Any, y: Any, what: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        truth = mf.learn(X, y, method=method, **_options(method)).distance(X[:40])
    off = float(np.abs(found - truth).max() / truth.max())
    trial.figure(f"{what}: {method}", off)
    trial.check(off <= 1e-6, Verdict.WRONG, f"{method}: {what} changes the answer", f"by {off:.3g}")


def killed_worker(method: str, trial: Trial, rng: Rng, folder: Path) -> None:
    """Kill a worker during a fit."""
    lazy, X, y = lazy_rows()
    with cluster() as (_, client):
        pids = list(client.run(os.getpid).values())
        timer = threading.Timer(float(rng.uniform(0.05, 1.0)), _kill, [pids[0]])
        timer.start()
        metric = trial.call(
            f"learn by {method} while a worker is killed", mf.learn, lazy, y, method=method, **_options(method)
        )
        timer.join()
        found = trial.call("distance", metric.distance, X[:40])
    _compare(trial, method, found, X, y, "a killed worker")


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def memory_limit(trial: Trial, rng: Rng, folder: Path) -> None:
    """Fit with chunks of 16 MB on workers with 250 MB of memory."""
    import dask.array as da

    X = da.random.default_rng(0).normal(size=(200_000, 20), chunks=(100_000, -1))
    y = np.arange(200_000) % 3
    with cluster(memory_limit="250MB"):
        metric = trial.call("learn on small workers", mf.learn, X, y, method="krca", rank=100)
        trial.call("transform on small workers", lambda: metric.transform(X).sum(axis=0).compute())


def closed_client(form: str, trial: Trial, rng: Rng, folder: Path) -> None:
    """Close the client while it is the default client."""
    lazy, X, y = lazy_rows(300, 4, 50)
    given = lazy if form == "dask rows" else X
    with cluster() as (_, client):
        metric = mf.learn(given, y, method="krca", rank=20)
        client.close()
        trial.call(f"learn from {form} after client.close()", mf.learn, given, y, method="krca", rank=20)
        trial.call("neighbors after client.close()", metric.neighbors, X[:5], k=2)


def closed_cluster(trial: Trial, rng: Rng, folder: Path) -> None:
    """Close the cluster of an open client."""
    lazy, _, y = lazy_rows(300, 4, 50)
    with cluster() as (made, _client):
        made.close()
        trial.call("learn after cluster.close()", mf.learn, lazy, y, method="krca", rank=20)


def lost_scheduler(trial: Trial, rng: Rng, folder: Path) -> None:
    """Kill the scheduler during a fit: the call must end with an error."""
    from distributed import Client

    file = folder / "scheduler.json"
    plain = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment(), "cwd": ROOT}
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--scheduler-file", str(file), "--port", "0"]
    work = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--nthreads", "1"]
    running = [subprocess.Popen([*dask, "--no-dashboard"], **plain)]  # type: ignore[call-overload]
    try:
        end = time.monotonic() + 60
        while not file.exists() and time.monotonic() < end:
            time.sleep(0.1)
        running.append(subprocess.Popen([*work, "--no-dashboard"], **plain))  # type: ignore[call-overload]
        lazy, _, y = lazy_rows()
        client = Client(scheduler_file=str(file), timeout=30)
        client.wait_for_workers(1, timeout=60)
        timer = threading.Timer(float(rng.uniform(0.2, 1.0)), running[0].kill)
        timer.start()
        # a client tries to reconnect for a long time, during which the call must not block
        done: list[Any] = []
        thread = threading.Thread(target=_collect, args=(trial, done, lazy, y), daemon=True)
        thread.start()
        watch = Watch(os.getpid(), PATIENCE)
        while thread.is_alive() and not watch.stuck():
            thread.join(1)
        if thread.is_alive():
            trial.find(Verdict.HANG, "learn does not end when the scheduler is gone")
        timer.join()
        with contextlib.suppress(Exception):
            client.close(timeout=2)
    finally:
        for process in running:
            process.kill()
            process.wait()


def _collect(trial: Trial, done: list[Any], lazy: Any, y: Any) -> None:
    with contextlib.suppress(Ended):
        done.append(trial.call("learn while the scheduler is killed", mf.learn, lazy, y, method="krca", rank=20))


@dataclass(frozen=True)
class Locked(mf.Kernel):
    """A kernel that cannot be pickled."""

    lock: Any = None

    def block(self, X: Any, Y: Any) -> Any:
        return np.asarray(k.RBF(0.1).block(X, Y))


def unpicklable(trial: Trial, rng: Rng, folder: Path) -> None:
    """The error for a kernel that cannot be sent to workers must name the kernel."""
    lazy, _, y = lazy_rows(300, 4, 50)
    with cluster():
        try:
            trial.call(
                "learn with a kernel that cannot be pickled",
                mf.learn,
                lazy,
                y,
                method="krca",
                rank=20,
                kernel=Locked(threading.Lock()),
            )
        finally:
            named = not trial.refusal or "Locked" in trial.refusal
            trial.check(named, Verdict.MESSAGE, "the kernel that cannot be pickled is not named", trial.refusal)


def bad_chunk(trial: Trial, rng: Rng, folder: Path) -> None:
    """A NaN in a chunk on a worker must raise the library's own error."""
    import dask.array as da

    _, X, y = lazy_rows(300, 4, 50)
    X[137, 2] = np.nan
    with cluster():
        trial.call(
            "learn with a NaN in a chunk", mf.learn, da.from_array(X, chunks=(50, -1)), y, method="krca", rank=20
        )


def concurrent_clients(trial: Trial, rng: Rng, folder: Path) -> None:
    """Fits from several threads on one client."""
    lazy, X, y = lazy_rows(300, 4, 50)
    with cluster():
        with ThreadPoolExecutor(3) as pool:
            fits = [pool.submit(mf.learn, lazy, y, method="krca", rank=40) for _ in range(3)]
            metrics = trial.call("three fits on one client", lambda: [f.result() for f in fits])
        for metric in metrics:
            _compare(trial, "krca", metric.distance(X[:40]), X, y, "fits at once on one client")


def inside_a_task(trial: Trial, rng: Rng, folder: Path) -> None:
    """Fit inside a task of a worker."""
    _, X, y = lazy_rows(300, 4, 50)
    with cluster() as (_, client):
        future = client.submit(_fit_in_task, X, y)
        found = trial.call("a fit inside a task", future.result, timeout=PATIENCE)
    _compare(trial, "krca", found, X, y, "a fit inside a task")


def _fit_in_task(X: Any, y: Any) -> Any:
    return mf.learn(X, y, method="krca", rank=40).distance(X[:40])


SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
SCENARIOS: dict[str, Callable[[Trial, Rng, Path], None]] = {
    **{f"{s} while {w} writes": partial(interrupted, s, w) for w in COMMANDS for s in SIGNALS},
    **{f"{s} in mid-run": partial(interrupted_early, s) for s in SIGNALS},
    **{f"no room for the file of {w}": partial(full_disk, w) for w in COMMANDS},
    **{
        f"a full file system under {w}": partial(small_disk, w)
        for w in ("learn", "transform to .npy", "transform to .csv")
    },
    "SIGKILL while saving": killed_while_saving,
    "a closed pipe": broken_pipe,
    **{f"saving over a {kind}": partial(special_target, kind) for kind in ("FIFO", "device")},
    "saving at once": saving_at_once,
    "fits at once": blas_threads,
    **{f"processes: {how}": partial(processes, how) for how in ("spawn", "fork", "forkserver", "joblib")},
    "an interrupt inside fits": interrupted_fit,
    **{f"a worker killed under {method}": partial(killed_worker, method) for method in METHODS},
    "workers with little memory": memory_limit,
    **{f"a closed client, {form}": partial(closed_client, form) for form in ("dask rows", "rows in memory")},
    "a closed cluster": closed_cluster,
    "a lost scheduler": lost_scheduler,
    "a kernel that cannot be pickled": unpicklable,
    "a NaN on a worker": bad_chunk,
    "fits at once on one client": concurrent_clients,
    "a fit inside a task": inside_a_task,
}
