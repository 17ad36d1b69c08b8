"""Worker processes of the panel: they run one task at a time with one BLAS thread and a limit of CPU seconds.

A task that exceeds its limit ends its process, whatever code it is in; `Worker.result` then raises `Ended`, and the
next task starts a new process.  ``python -m benchmarks.first_call_worker`` is the process.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import cloudpickle

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


class Ended(Exception):  # noqa: N818 # exceeding a limit is an expected result
    """The process of a task ended before the task did."""

    def __init__(self, code: int) -> None:
        self.over_limit = code == -signal.SIGXCPU
        super().__init__(f"the process ended with code {code}")


class Worker:
    """A process that runs callables; they may be closures, and are sent by value."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def result(self, task: Callable[[], Any]) -> Any:
        """Return what the task returns."""
        if self.process is None or self.process.poll() is not None:
            self.process = self._start()
        pipe: Any = self.process
        try:
            cloudpickle.dump(task, pipe.stdin)
            pipe.stdin.flush()
            failure, value = pickle.load(pipe.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            raise Ended(pipe.wait()) from None
        if failure:
            raise RuntimeError(f"a worker failed: {failure}")
        return value

    def _start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, sys.path)])
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.first_call_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
        )

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def cpu_limit(seconds: float | None) -> Any:
    """End this process if the block takes more CPU seconds; only for use inside a worker."""
    if seconds is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + seconds) + 1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, before)


def serve(tasks: BinaryIO, results: BinaryIO) -> None:
    """Run tasks until there are no more; a failure is sent back as text."""
    while True:
        try:
            task = pickle.load(tasks)
        except EOFError:
            return
        except Exception as error:  # the task names something that this process cannot import
            answer: tuple[str, Any] = (repr(error), None)
        else:
            try:
                answer = ("", task())
            except Exception as error:
                answer = (repr(error), None)
        pickle.dump(answer, results)
        results.flush()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what tasks print must not reach the channel
    serve(sys.stdin.buffer, channel)
