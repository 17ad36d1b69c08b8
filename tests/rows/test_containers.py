"""Recognising row containers, and what may be asked of all of them."""

from __future__ import annotations

import subprocess
import sys

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from metricforge import rows

PLAIN = np.arange(6.0).reshape(3, 2)
STRINGS = np.array(["a", "b", "c"], dtype=object)


@pytest.mark.parametrize(
    ("X", "n", "d", "lazy", "sparse"),
    [
        (PLAIN, 3, 2, False, False),
        (sp.csr_array(PLAIN), 3, 2, False, True),
        (sp.coo_matrix(PLAIN), 3, 2, False, True),
        (STRINGS, 3, None, False, False),
        (["a", "b", "c"], 3, None, False, False),
        (da.from_array(PLAIN), 3, 2, True, False),
        (da.from_array(STRINGS, chunks=2), 3, None, True, False),
    ],
)
def test_counts_and_kinds(X, n, d, lazy, sparse):
    assert rows.count(X) == n
    assert rows.width(X) == d
    assert rows.is_dask(X) is lazy
    assert rows.is_sparse(X) is sparse


def test_nothing_is_imported_to_recognise_rows():
    code = (
        "import sys; from metricforge import rows; import numpy as np; X = np.eye(2); "
        "assert not rows.is_dask(X) and not rows.is_sparse(X); "
        "print(sorted({'dask', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, da.from_array])
def test_precision(make):
    single, double = make(PLAIN.astype(np.float32)), make(PLAIN)
    assert rows.as_float64(single).dtype == np.float64
    assert rows.as_float64(double) is double
    assert rows.float_dtype(single) == np.float32
    assert rows.float_dtype(double) == rows.float_dtype(make(PLAIN.astype(int))) == np.float64
    assert rows.float_dtype(["a"]) == np.float64
    assert rows.as_float64(STRINGS) is STRINGS


def test_column_names_are_those_of_frames():
    assert rows.column_names(pd.DataFrame(PLAIN, columns=["a", "b"])) == ("a", "b")
    for unnamed in (pd.DataFrame(PLAIN), PLAIN, [[1, 2]], dask.delayed(PLAIN), pd.DataFrame(index=[0, 1])):
        assert rows.column_names(unnamed) is None
