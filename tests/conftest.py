"""Shared by the tests: small data sets, the data folder, and plugins that are registered for one test."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path

# The problems are small: threads of BLAS would cost more than they save, and two pools of them (NumPy's and PRIMME's)
# on few cores wait for each other.  Set before NumPy is loaded; worker processes inherit it.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from metricforge_cases.data import DATA, MISSING

import metricforge as mf
from metricforge.constraints import Lines, Satisfied, as_indices, check_n, freeze

# A slow or busy machine fails no test; which examples are drawn depends on the test alone, so a failure repeats.
settings.register_profile("metricforge", deadline=None, derandomize=True)
settings.load_profile("metricforge")

ROOT = Path(__file__).parent.parent

SLOW = (
    "eigen",
    "estimators",
    "methods",
    "neighbors/test_exhaustive.py",
    "distributed/test_cluster.py",
    "distributed/test_dask.py",
    "distributed/test_eigen.py",
    "cli/test_apply.py",
    "cli/test_bad_input.py",
    "cli/test_demo.py",
    "cli/test_learn.py",
    "cli/test_processes.py",
    "cli/test_scheduler.py",
    "test_conformance.py",
    "test_example_plugin.py",
    "test_memory_budget.py",
    "test_readme.py",
    "ask",
    "benchmarks",
    "classics",
    "test_attacks.py",
    "test_campaign.py",
    "test_auto.py",
    "cli/test_tables.py",
    "cli/test_evaluate.py",
    "tasks",
)
"""Files and folders that ``pytest --quick`` leaves out: the other tests take less than a minute on two cores."""


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="leave out the slow files: see SLOW in tests/conftest.py")


def pytest_ignore_collect(collection_path, config):
    slow = {Path(__file__).parent / name for name in SLOW}
    return True if config.getoption("--quick") and collection_path in slow else None


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def wine():
    from sklearn.datasets import load_wine
    from sklearn.preprocessing import StandardScaler

    X, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture
def plugged():
    """Return a context manager that registers components, and a listener to progress, for the length of its block.

    ``with plugged(kernel={"mine": Mine}, step=events.append): ...``
    """
    from metricforge.registry import hookimpl, registry

    @contextmanager
    def register(*, step=None, plugin="plugged", **kinds):
        class Plugin:
            @hookimpl
            def metricforge_register(self, registrar):
                for kind, components in kinds.items():
                    for name, target in components.items():
                        registrar.add(kind, name, target)

            @hookimpl
            def metricforge_step(self, event):
                if step is not None:
                    step(event)

        plugged = Plugin()
        registry.plugins()
        registry.register(plugged, name=plugin)
        try:
            yield
        finally:
            registry.unregister(plugin)

    return register


@pytest.fixture(scope="session")
def data_folder():
    """The folder of the papers' data sets; tests that need it have a generated twin that always runs."""
    if not DATA:
        pytest.skip(MISSING)
    return Path(DATA)


@pytest.fixture
def plug():
    """Return a function that registers components as a plugin would; they are removed at the end of the test."""
    from metricforge.registry import registry

    def add(*entries):
        class Plugin:
            @mf.hookimpl
            def metricforge_register(self, registrar):
                for kind, name, target in entries:
                    registrar.add(kind, name, target)

        mf.register(Plugin(), name="plugged")

    yield add
    registry.unregister("plugged")


@dataclass(frozen=True, eq=False, repr=False)
class Comparisons(mf.Constraint):
    """A kind that the core does not know: rows a and b are more similar than rows c and d."""

    quadruples: Any
    n: int = None
    dropped: int = 0

    index_fields = ("quadruples",)
    flag = "comparisons"
    flag_help = "columns a, b, c, d: rows a and b are more similar than rows c and d"
    table_columns = ("a", "b", "c", "d")

    def __post_init__(self):
        n = check_n(self.n, "Comparisons")
        freeze(self, quadruples=as_indices(self.quadruples, n, "quadruples", 4), n=n)

    def satisfied(self, distances):
        chosen = distances.sample(self.quadruples)
        near, far = distances.pairs(chosen[:, :2]), distances.pairs(chosen[:, 2:])
        return (Satisfied("comparisons with a nearer to b than c to d", int((near < far).sum()), len(near)),)

    def lines(self):
        return Lines("nearer pair", self.quadruples[:, :2], True), Lines("farther pair", self.quadruples[:, 2:], False)


@pytest.fixture
def comparisons():
    """Return comparisons over labelled rows: a pair of one class against a pair of two."""

    def draw(y, size=60, seed=0):
        pairs = mf.Pairs.from_labels(y, n_pairs=size, seed=seed)
        size = min(len(pairs.similar), len(pairs.dissimilar))
        return Comparisons(np.hstack([pairs.similar[:size], pairs.dissimilar[:size]]), n=len(y))

    return draw
