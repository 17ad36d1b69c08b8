"""Run cases in separate processes with time limits, so that a hang or a crash costs one case only.

A server process imports the dependencies and forks workers; when a worker hangs or crashes, the server forks the next
one.  The campaign sends ``[seed, number]`` as a line of JSON and receives an `Outcome`.  A case may use 10 seconds of
CPU time, or be idle for 10 seconds; a runnable process that gets no CPU time on a busy machine is not interrupted.
The stack of a process that hangs is recorded before it is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import json
import logging
import os
import re
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .trial import DESCRIPTION_FILE, ROOT, Ended, Finding, Outcome, State, Trial, Verdict, site_of

SECONDS = 10.0
PATIENCE = 120
"""Limit of the wall time of a runnable process, in multiples of its CPU limit."""
BUDGET = 256 * 2**20
"""METRICFORGE_MEMORY of workers."""
SLACK = 96 * 2**20
"""Memory allowed in addition to the budget: late imports, heap fragmentation."""
ADDRESS_SPACE = 6 * 2**30
STARTUP_SECONDS = 1800
DEFAULT: Any = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
"""NumPy's own setting."""


@dataclass(frozen=True)
class Part:
    """A part of the campaign: a module of this package with ``attack`` and, optionally, ``prepare(folder)``.

    Attributes
    ----------
    cases : int
        Number of cases of a full run.
    seconds : float
        Time limit of one case.
    numbered : bool
        Whether ``attack`` also takes the number of the case, which selects an entry of a list.
    alone : bool
        Whether every case runs in a new process, which may print and has no memory limit.
    """

    cases: int
    seconds: float = SECONDS
    numbered: bool = False
    alone: bool = False


PARTS = {
    "api": Part(10_000),
    "certificates": Part(600),
    "invariances": Part(600),
    "files": Part(10_000),
    "index": Part(500),
    "answers": Part(2_000),
    "tables": Part(750),
    "memory": Part(194, 125, numbered=True, alone=True),
    "faults": Part(61, 180, numbered=True, alone=True),
    "soak": Part(1, 1800, numbered=True, alone=True),
}


# ----------------------------------------------------------------------------------------------------------- the parent


class Worker:
    """Runs cases of one part in processes that may die."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.process: subprocess.Popen[bytes] | None = None
        self.folder = tempfile.TemporaryDirectory(prefix="campaign-")
        self.lost = 0
        self.cpu = 0.0

    def __enter__(self) -> Worker:
        read, write = os.pipe()
        self.log = (Path(self.folder.name) / "log").open("w+b")
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from campaign.worker import main; main()", str(write), self.folder.name, self.part],
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=self.log,
            pass_fds=(write,),
            cwd=ROOT,
            env=environment(),
        )
        os.close(write)
        self.answers = os.fdopen(read, "rb", buffering=0)
        self.pending = b""
        self.child = self._await_child()
        return self

    def __exit__(self, *_: Any) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.close()  # ends the server, which ends the worker
        self._kill()
        self.process.wait()
        self.answers.close()
        self.log.close()
        self.folder.cleanup()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child, signal.SIGKILL)

    def _await_child(self) -> int:
        """Return the process id of the next worker."""
        while True:
            line = self._line(STARTUP_SECONDS)
            if not line:
                raise RuntimeError(f"a worker did not start: {self._tail()}")
            if line.startswith("pid "):
                return int(line[4:])

    def run(self, seed: int, number: int) -> Outcome:
        """Return the outcome of one case, whatever becomes of the process."""
        assert self.process is not None
        assert self.process.stdin is not None
        began = time.monotonic()
        before = self.log.seek(0, os.SEEK_END)
        self.process.stdin.write(json.dumps([seed, number]).encode() + b"\n")
        self.process.stdin.flush()
        answer = self._watch(PARTS[self.part].seconds)
        if answer == "":
            raise RuntimeError(f"the server of the workers ended: {self._tail()}")
        if answer is not None and answer.startswith("{"):
            outcome = Outcome.loads(answer)
            if self.log.seek(0, os.SEEK_END) > before and not PARTS[self.part].alone:
                self.log.seek(before)
                text = self.log.read().decode(errors="replace")
                what = f"written to the terminal: {' '.join(text.split())[:60]}"
                outcome.add(Finding(Verdict.WARNED, what, text[:1500]))
        else:
            outcome = self._lost(answer, before)
            outcome.poisoned = True
            self.lost += 1
        outcome.seconds = time.monotonic() - began
        if outcome.poisoned or PARTS[self.part].alone:
            self._kill()
            self.child = self._await_child()
        return outcome

    def _watch(self, seconds: float) -> str | None:
        """Return the answer, "died CODE" where the process ended, None where it hangs."""
        before = cpu_seconds(self.child)
        line = self._line(1.0)
        if line is None:  # reading the state of all processes is expensive, so only for slow cases
            watch = Watch(self.child, seconds - 1)
            while (line := self._line(1.0)) is None and not watch.stuck():
                pass
        self.cpu += max(0.0, cpu_seconds(self.child) - before)
        return line

    def _line(self, timeout: float) -> str | None:
        """Return the next line, "" at the end of the stream, None when none comes in time."""
        end = time.monotonic() + timeout
        while b"\n" not in self.pending:
            ready, _, _ = select.select([self.answers], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return None
            chunk = self.answers.read(65536)
            if not chunk:
                return ""
            self.pending += chunk
        line, _, self.pending = self.pending.partition(b"\n")
        return line.decode()

    def _lost(self, answer: str | None, before: int) -> Outcome:
        """Return the outcome of a case whose process hangs or is gone, with the stack that faulthandler wrote."""
        if answer is None:
            os.kill(self.child, signal.SIGUSR1)
            time.sleep(1.0)
            verdict, what = Verdict.HANG, "hangs"
        else:
            code = int(answer.split()[1])
            what = signal.Signals(-code).name if code < 0 else f"exit {code}"
            verdict = Verdict.CRASH
        self.log.seek(before)
        text = self.log.read()[-20000:].decode(errors="replace")
        description = (Path(self.folder.name) / DESCRIPTION_FILE).read_text(errors="replace").splitlines()
        frames = [Frame(*found) for found in re.findall(r'File "([^"]+)", line \d+ in (\S+)', text)]
        main = text.rfind("most recent call first")
        if main >= 0:
            frames = [Frame(*found) for found in re.findall(r'File "([^"]+)", line \d+ in (\S+)', text[main:])]
        where = site_of(frames[::-1])
        return Outcome(verdict, description, [Finding(verdict, f"{what} in {where}", text[max(0, main) :][:1500])])

    def _tail(self) -> str:
        self.log.seek(0)
        return self.log.read()[-3000:].decode(errors="replace")


class Frame:
    """A line of faulthandler's, as `site_of` reads frames."""

    def __init__(self, filename: str, name: str) -> None:
        self.filename, self.name = filename, name


def environment(**more: str) -> dict[str, str]:
    """Return the environment variables of the campaign's processes."""
    plain = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    own = (ROOT, ROOT / "plugins", ROOT / "tests")
    path = os.pathsep.join([*map(str, own), *filter(None, [os.environ.get("PYTHONPATH")])])
    fixed = {"METRICFORGE_MEMORY": str(BUDGET), "METRICFORGE_PROGRESS": "0", "PYTHONPATH": path}
    return {**os.environ, **plain, **fixed, **more}


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(fields[i]) for i in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")


class Watch:
    """Detects whether a process and its descendants hang.

    Parameters
    ----------
    pid : int
    seconds : float
        Limit of their CPU time, and of the time in which all of them are idle.
    """

    def __init__(self, pid: int, seconds: float) -> None:
        self.pid, self.seconds = pid, seconds
        self.began = self.at = time.monotonic()
        self.first = self.last = self._look()[0]

    def _look(self) -> tuple[float, bool]:
        """Return the CPU time of all processes, and whether any is runnable."""
        total, wants = 0, False
        running: dict[int, list[str]] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                running[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        for pid, fields in running.items():
            above = pid
            while above in running and above != self.pid:
                above = int(running[above][1])
            if above == self.pid:
                total += sum(int(fields[i]) for i in (11, 12, 13, 14))
                wants |= fields[0] == "R"
        return total / os.sysconf("SC_CLK_TCK"), wants

    def stuck(self) -> bool:
        """Return whether a limit is exceeded; to be called about once a second."""
        now = time.monotonic()
        total, wants = self._look()
        if total - self.first >= self.seconds or now - self.began >= PATIENCE * self.seconds:
            return True
        if wants or total - self.last >= 0.5:
            self.at, self.last = now, total
        return now - self.at >= self.seconds


# ----------------------------------------------------------------------------------------------------------- the worker


def main() -> None:
    """Import the dependencies of a part, then fork workers until standard input ends."""
    answers, folder, part = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    _end_with_parent()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.getLogger().addHandler(logging.NullHandler())  # logging is allowed
    warm_up()
    module = import_module(f".{part}", "campaign")
    getattr(module, "prepare", lambda _: None)(folder)
    gc.freeze()
    while True:
        pid = os.fork()
        if not pid:
            code = 1
            try:
                os.setpgid(0, 0)
                _end_with_parent()
                serve(module.attack, part, folder, answers)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == DONE:
            return
        os.write(answers, f"died {code}\n".encode())


DONE = 77
"""Exit code of a worker at the end of standard input."""


def serve(attack: Callable[..., None], part: str, folder: Path, answers: int) -> None:
    """Run cases until one may have corrupted this process."""
    if not PARTS[part].alone:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    os.write(answers, f"pid {os.getpid()}\n".encode())
    questions = os.fdopen(0, "rb", buffering=0)
    while line := questions.readline():
        seed, number = json.loads(line)
        outcome = attempt(attack, part, seed, number, folder)
        os.write(answers, outcome.dumps().encode() + b"\n")
        if outcome.poisoned or PARTS[part].alone:
            return
    os._exit(DONE)


def _end_with_parent() -> None:
    """Have the system kill this process when its parent ends."""
    with contextlib.suppress(OSError):
        ctypes.CDLL("libc.so.6").prctl(1, signal.SIGKILL)


def attempt(attack: Callable[..., None], part: str, seed: int, number: int, folder: Path) -> Outcome:
    """Run one case in this process."""
    import numpy as np

    from metricforge.errors import InputError

    trial = Trial(folder)
    state, before = State.now(), reset_peak()
    try:
        more = (number,) if PARTS[part].numbered else ()
        attack(trial, rng_of(part, seed, number), *more)
    except Ended:
        pass
    except InputError as error:  # of a lazy result that was computed later
        trial.judge("computing what is lazy", error)
    except Exception:  # an error of the campaign, not of the library
        trial.find(Verdict.RAW, "the campaign itself", traceback.format_exc()[-1500:])
    state.compare(trial)
    np.seterr(**DEFAULT)
    growth = peak_memory() - before
    if growth > BUDGET + SLACK and not PARTS[part].alone:
        last = trial.description[-1] if trial.description else part
        trial.find(Verdict.BUDGET, last.partition("(")[0][:60], f"{growth / 1e6:.0f} MB")
    outcome = trial.outcome()
    outcome.peak = growth
    outcome.poisoned = trial.poisoned
    return outcome


def rng_of(part: str, seed: int, number: int) -> Any:
    """Return the random generator of a case, which depends on its name only."""
    import numpy as np

    return np.random.default_rng([seed, number, *part.encode()])


def warm_up() -> None:
    """Trigger the lazy imports of the library, so that no case is charged for them."""
    import numpy as np

    import metricforge as mf

    X, y = np.random.default_rng(0).normal(size=(12, 3)), np.arange(12) % 3
    for entry in mf.methods():
        with contextlib.suppress(Exception):
            metric = mf.learn(X, y, method=entry.name)
            metric.transform(X)
            metric.neighbors(X, k=2)


def reset_peak() -> int:
    """Reset the peak resident size; return the current resident size."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak_memory() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return 1024 * int(next(line.split()[1] for line in text.splitlines() if line.startswith(name)))
