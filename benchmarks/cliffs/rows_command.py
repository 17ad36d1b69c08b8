"""The row of ``metricforge learn --report``: CPU time, and how often a fit does what once is enough.

See `rows_idealized` for what a row may import and returns.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import metricforge as mf
from metricforge.rows import checking

ROWS = 4000


def learn_report(split: int) -> dict[str, Any]:
    X = np.random.default_rng(split).normal(size=(ROWS, 10))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.csv")
        lines = [",".join(map(str, row)) + f",{int(row[0] > 0)}" for row in X]
        file.write_text("\n".join([",".join([*map("c{}".format, range(10)), "class"]), *lines]))
        typed = ["learn", str(file), "--label", "class", "--method", "krca", "--kernel", "rbf", "--folds", "0"]
        typed += ["-o", str(Path(folder, "a.metric")), "--report", str(Path(folder, "a.html"))]
        command(typed)  # imports
        calls = counted()
        started = time.process_time()
        command(typed)
        seconds = time.process_time() - started
    done = ", ".join(f"{what} {calls[what]} times" for what in sorted(calls))
    return {"seconds": seconds, "details": done.replace(" 1 times", " once").replace(" 2 times", " twice")}


def command(typed: list[str]) -> None:
    """Run the command line in this process."""
    from metricforge.shell.main import main

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        if main(typed):
            raise RuntimeError(said.getvalue().strip())


def counted() -> Counter[str]:
    """Count checks of all rows, resolved widths and counts of relations from now on.

    Relations are counted under two metrics, the start and the learned one: neither count gives the other, so each
    metric has a count of its own.
    """
    calls: Counter[str] = Counter()

    def count(owner: Any, name: str, what: Any) -> None:
        original = getattr(owner, name)

        def call(*args: Any, **options: Any) -> Any:
            done = what(*args)
            if done:
                calls[done] += 1
            return original(*args, **options)

        setattr(owner, name, call)

    count(checking, "_check_finite", lambda rows, *_: "rows checked" if len(rows) == ROWS else "")
    count(mf.kernels.RBF, "resolve", lambda kernel, *_: "width resolved" if isinstance(kernel.gamma, str) else "")
    count(mf.Labels, "satisfied", lambda _, distances: f"relations counted {under(distances.kernel)}")
    return calls


def under(kernel: Any) -> str:
    """Return which of the two metrics a kernel is: the command starts from a Gaussian, and learns another kernel."""
    return "under the start" if isinstance(kernel, mf.kernels.RBF) else "under the learned metric"
