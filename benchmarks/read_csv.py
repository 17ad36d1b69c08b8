"""Reading a table of numbers: CPU time beside pandas, polars, pyarrow and NumPy, with the values compared.

The file has 100,000 rows of 20 numbers with all their digits and a column of labels.  One thread throughout.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .run import Table


def cpu(call: Callable[[], Any], repeats: int = 5) -> tuple[float, Any]:
    """Return the least CPU time of several calls, and the result."""
    best, result = np.inf, None
    for _ in range(repeats):
        start = time.process_time()
        result = call()
        best = min(best, time.process_time() - start)
    return best, result


def run(quick: bool = False) -> Table:
    import pandas as pd
    import polars as pl
    from pyarrow import csv

    from metricforge.tables import Choices, read, read_prepared

    n, d = (2000, 20) if quick else (100_000, 20)
    rng = np.random.default_rng(0)
    X, kinds = rng.normal(size=(n, d)), rng.integers(3, size=n)
    names = [f"f{c}" for c in range(d)]
    table = Table(["reader", "CPU s", "times pandas", "same values"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.csv")
        lines = [",".join(map(repr, row)) + f",{'abc'[kind]}" for row, kind in zip(X.tolist(), kinds, strict=True)]
        path.write_text("\n".join([",".join([*names, "class"]), *lines]) + "\n")
        one = csv.ReadOptions(use_threads=False)
        readers = {
            "pandas": lambda: pd.read_csv(path)[names].to_numpy(),
            "metricforge, read": lambda: read(path, extra=["class"]).rows,
            "metricforge, read_prepared": lambda: read_prepared(path, Choices(), extra=["class"]).rows,
            "pyarrow": lambda: csv.read_csv(path, one).select(names).to_pandas().to_numpy(),
            "polars (POLARS_MAX_THREADS=1)": lambda: pl.read_csv(path).select(names).to_numpy(),
            "np.loadtxt": lambda: np.loadtxt(path, delimiter=",", skiprows=1, usecols=range(d)),
        }
        base = 0.0
        for name, call in readers.items():
            seconds, found = cpu(call, 1 if "loadtxt" in name else 5)
            base = base or seconds
            table.add(name, seconds, seconds / base, "yes" if np.array_equal(found, X) else "no")
    table.notes += [
        f"{n:,} × {d} numbers and a column of labels; CPU time, least of 5 (of 1 for the last)",
        "the goal is at most 1.5 times pandas",
    ]
    return table
