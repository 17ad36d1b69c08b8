"""What the tests share: small data, and a look at the data folder."""

from __future__ import annotations

import os
from pathlib import Path

# The problems are small: threads of BLAS would cost more than they save, and two pools of them (NumPy's and PRIMME's)
# on few cores wait for each other.  Set before NumPy is loaded; worker processes inherit it.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
import pytest
from hypothesis import settings

# A slow or busy machine fails no test; which examples are drawn depends on the test alone, so a failure repeats.
settings.register_profile("metricforge", deadline=None, derandomize=True)
settings.load_profile("metricforge")

ROOT = Path(__file__).parent.parent


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def wine():
    from sklearn.datasets import load_wine
    from sklearn.preprocessing import StandardScaler

    X, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture(scope="session")
def data_folder():
    """The folder of the papers' data sets; tests that need it have a generated twin that always runs."""
    folder = os.environ.get("METRICFORGE_DATA")
    if not folder:
        pytest.skip("METRICFORGE_DATA is not set: the papers' data sets are not on this machine")
    return Path(folder)
