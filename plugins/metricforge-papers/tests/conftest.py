"""The folder of the papers' data sets."""

from __future__ import annotations

import os
from pathlib import Path

# set before NumPy is loaded: the problems are small, and threads of BLAS would cost more than they save
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
import pytest


@pytest.fixture(scope="session")
def data_folder():
    """The folder of the papers' data sets; tests that need it have a generated twin that always runs."""
    folder = os.environ.get("METRICFORGE_DATA")
    if not folder:
        pytest.skip("METRICFORGE_DATA does not name the folder of the papers' data sets")
    return Path(folder)


@pytest.fixture
def rng():
    return np.random.default_rng(0)
