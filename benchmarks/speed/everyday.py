"""CPU time and memory of what users do most, on generated rows and one BLAS thread.

asv finds methods by their prefix: ``time_`` is CPU time, ``peakmem_`` the peak resident size of the process, ``track_``
a number.  Only public names are used, so that the file runs on every commit.
"""

from __future__ import annotations

import os
import time
import warnings

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np

import metricforge as mf

warnings.simplefilter("ignore")


def rows(n, d, classes=4, seed=0):
    """Return rows around one centre per class, and their classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    return rng.normal(size=(n, d)) + rng.normal(size=(classes, d))[y], y


class _CPU:
    timer = time.process_time
    warmup_time = 0.2
    rounds = 5
    timeout = 300


class FirstCall(_CPU):
    """``mf.learn(X, hints)`` on 1,000 rows of 20 columns."""

    params = ["labels", "pairs", "triplets", "groups"]
    param_names = ["hints"]

    def setup(self, hints):
        self.X, y = rows(1000, 20)
        drawn = {
            "labels": lambda: mf.Labels(y),
            "pairs": lambda: mf.Pairs.from_labels(y, n_pairs=5000, seed=0),
            "triplets": lambda: mf.Triplets.from_labels(y, n_triplets=5000, seed=0),
            "groups": lambda: mf.Chunklets.from_labels(y, seed=0),
        }
        self.hints = drawn[hints]()
        mf.learn(self.X[:200], y[:200])  # imports and compiles

    def time_learn(self, hints):
        mf.learn(self.X, self.hints)


class Fit(_CPU):
    """One method on 5,000 rows of 30 columns."""

    params = ["idealized", "kcr", "lpdesign", "krca", "simplenpkl"]
    param_names = ["method"]

    def setup(self, method):
        self.X, self.y = rows(5000, 30)
        mf.learn(self.X[:300], self.y[:300], method=method)

    def time_fit(self, method):
        mf.learn(self.X, self.y, method=method)

    def peakmem_fit(self, method):
        mf.learn(self.X, self.y, method=method)


class LongTable(_CPU):
    """Cheap methods on 200,000 rows of 32 columns, where passes over the rows are what costs."""

    params = ["euclidean", "krca"]
    param_names = ["method"]

    def setup(self, method):
        self.X, self.y = rows(200_000, 32)
        mf.learn(self.X[:300], self.y[:300], method=method)

    def time_fit(self, method):
        mf.learn(self.X, self.y, method=method)


class Query(_CPU):
    """The neighbours of one row and of 2,000 among 50,000 of 16 columns."""

    params = ["linear", "rbf"]
    param_names = ["kernel"]

    def setup(self, kernel):
        X, y = rows(50_000, 16)
        self.metric = mf.learn(X, y, method="krca", kernel=kernel)
        self.one, self.many = X[:1] + 0.01, X[: 2000 if kernel == "linear" else 50] + 0.01
        self.metric.neighbors(self.one, k=5)

    def time_one(self, kernel):
        self.metric.neighbors(self.one, k=5)

    def time_many(self, kernel):
        self.metric.neighbors(self.many, k=5)


class Small(_CPU):
    """Calls whose own work is tiny, so that what the library adds shows."""

    def setup(self):
        self.X, self.y = rows(100, 5)
        self.metric = mf.learn(self.X, self.y, method="krca", kernel="linear")
        self.groups = mf.Chunklets([0, 0])

    def time_learn(self):
        mf.learn(self.X, self.y, method="krca", kernel="linear")

    def time_distance_of_two_rows(self):
        self.metric.distance(self.X[0], self.X[1])

    def time_transform(self):
        self.metric.transform(self.X)

    def time_update(self):
        self.metric.update(self.X[:2] + 0.1, self.groups)


class Search(_CPU):
    """Lists of the 10 nearest other rows of 20,000."""

    params = ["dense", "binary"]
    param_names = ["rows"]

    def setup(self, kind):
        rng = np.random.default_rng(0)
        self.X = rng.normal(size=(20_000, 16)) if kind == "dense" else (rng.random((20_000, 120)) < 0.1).astype(float)
        mf.neighbors.search(self.X[:500], 10)

    def time_search(self, kind):
        mf.neighbors.search(self.X, 10)


class Import(_CPU):
    """Importing the package in a new process."""

    def track_seconds(self):
        import subprocess
        import sys

        code = "import time; t = time.process_time(); import metricforge; print(time.process_time() - t)"
        found = [float(subprocess.run([sys.executable, "-c", code], capture_output=True).stdout) for _ in range(5)]
        return min(found)

    track_seconds.unit = "s"
