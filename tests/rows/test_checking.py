"""What users may pass as rows: every container they may bring, and the message for everything else."""

from __future__ import annotations

import warnings

import dask
import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from metricforge.errors import InputError
from metricforge.rows import as_objects, as_strings, as_vectors, check_widths

PLAIN = np.arange(12.0).reshape(4, 3)
LETTERS = ["AC", "", "漢"]


def spoilt(value, dtype=np.float64):
    X = PLAIN.astype(dtype)
    X[2, 1] = value
    return X


# ------------------------------------------------------------------------------------------------------------- vectors


@pytest.mark.parametrize(
    "given",
    [
        PLAIN.tolist(),
        PLAIN.astype(int),
        PLAIN.astype(np.int8),
        PLAIN.astype(np.float16),
        PLAIN.astype(object),
        np.ma.masked_array(PLAIN),
        np.asfortranarray(PLAIN),
        pd.DataFrame(PLAIN, columns=list("abc")),
        pl.DataFrame(PLAIN, schema=list("abc")),
        PLAIN.astype(str),
    ],
    ids=["list", "int", "int8", "float16", "object", "masked", "fortran", "pandas", "polars", "digits"],
)
def test_dense_containers_become_float64(given):
    made = as_vectors(given)
    assert made.dtype == np.float64
    np.testing.assert_array_equal(made, PLAIN)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_array_of_floats_is_not_copied(dtype):
    X = PLAIN.astype(dtype)
    assert as_vectors(X) is X
    S = sp.csr_array(X)
    assert as_vectors(S) is S


@pytest.mark.parametrize("make", [sp.csr_array, sp.csr_matrix, sp.coo_array, sp.csc_matrix, sp.lil_array, sp.bsr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, bool])
def test_sparse_containers_become_csr(make, dtype):
    made = as_vectors(make(PLAIN.astype(dtype)))
    assert made.format == "csr"
    assert made.dtype == (np.float32 if dtype is np.float32 else np.float64)
    np.testing.assert_array_equal(made.toarray(), PLAIN.astype(dtype))


def test_duplicate_sparse_entries_are_summed_on_a_copy():
    S = sp.csr_array((np.ones(3), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2))
    made = as_vectors(S)
    assert made.has_canonical_format
    assert S.nnz == 3
    np.testing.assert_array_equal(made.toarray(), [[0, 2], [1, 0]])


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_dask_rows_are_checked_when_they_are_computed(make):
    def lazily(X, chunks=(3, 2)):
        lazy = da.from_array(X, chunks=chunks)
        return lazy if make is np.asarray else lazy.rechunk({1: -1}).map_blocks(make)

    made = as_vectors(lazily(PLAIN.astype(int)))
    assert made.dtype == np.float64
    assert made.chunks == ((3, 1), (3,))
    found = made.compute(scheduler="sync")
    np.testing.assert_array_equal(found if make is np.asarray else found.toarray(), PLAIN)
    for value, says in [
        (np.nan, r"^X contains NaN in 1 row\(s\), first row 2; drop those rows"),
        (-np.inf, r"^X contains infinity in 1 row\(s\), first row 2;"),
        (1e200, r"^X has values up to 1e\+200, whose squares overflow"),
    ]:
        bad = as_vectors(lazily(spoilt(value), (2, -1)))
        with pytest.raises(InputError, match=says):
            bad.compute(scheduler="sync")


def test_chunks_without_rows_are_dropped():
    lazy = da.from_array(PLAIN, chunks=((0, 3, 0, 1), (3,)))
    assert as_vectors(lazy).chunks == ((3, 1), (3,))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (3.5, "^X must be a 2-d array with one row per item, got the scalar 3.5$"),
        ([[1, 2], [3]], "^X must be a 2-d array of numbers; its rows have unequal lengths"),
        (PLAIN.ravel(), r"^X must be 2-d, got shape \(12,\). Reshape your data with X.reshape\(-1, 1\) .* X.reshape"),
        (PLAIN[None], r"^X must be 2-d \(rows × features\), got shape \(1, 4, 3\); flatten each row first"),
        (["a", "b"], r"^X holds text; use a kernel on strings, for instance kernel=mf.kernels.Spectrum\(3\)"),
        (np.array(["a"], dtype=object), "^X holds text"),
        (PLAIN * 1j, "^Complex data not supported: X has dtype complex128; give real numbers"),
        (sp.csr_array(PLAIN * 1j), "^Complex data not supported: X has dtype complex128"),
        (PLAIN[:0], r"^X has 0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1 is required; give at least one row"),
        (PLAIN[:, :0], r"^X has 0 feature\(s\) .* give at least one column"),
        (sp.csr_array((0, 3)), r"^X has 0 sample\(s\)"),
        (spoilt(np.nan), r"^X contains NaN in 1 row\(s\), first row 2; drop those rows or fill them"),
        (spoilt(np.inf, np.float32), r"^X contains infinity in 1 row\(s\), first row 2"),
        (sp.csr_array(spoilt(np.nan)), r"^X contains NaN in 1 row\(s\), first row 2; drop those rows or fill them"),
        (spoilt(-1e200), r"^X has values up to 1e\+200, whose squares overflow; rescale its features"),
        (spoilt(1e30, np.float32), r"^X has values up to 1e\+30, whose squares overflow"),
        (sp.csr_array(spoilt(1e200)), r"^X has values up to 1e\+200"),
        (np.full((2, 2), np.datetime64("2020-01-01")), "^X must hold numbers, got dates or times; convert them"),
        (np.ma.masked_array(PLAIN, mask=PLAIN == 4), r"^X is a masked array with masked cells; .* X.filled\(0\)"),
        (da.from_array(PLAIN * 1j), "^X must hold real numbers, got a dask array of dtype complex128"),
        (da.from_array(PLAIN.ravel()), r"^X must be 2-d, got a dask array of shape \(12,\)"),
        (da.from_array(PLAIN)[:0], r"^X has 0 sample\(s\); give at least one row"),
        (dask.delayed(PLAIN), "^X must be a dask array, got DelayedLeaf; see dask.array.from_delayed"),
    ],
)
def test_what_is_no_table_of_numbers(given, says):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of some of these itself
        with pytest.raises(InputError, match=says):
            as_vectors(given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            pd.DataFrame({"age": [1, 2], "town": ["Ulm", "Bonn"]}),
            r"^X must hold numbers; column 'town' does not, first 'Ulm' in row 0. Encode text columns",
        ),
        (
            [[1, 2, "x"], [3, "y", 4]],
            r"^X must hold numbers; columns 1, 2 \(counted from 0\) do not, first 'y' in row 1. Encode",
        ),
        (pd.DataFrame({"a": [1, pd.NA]}), r"column 'a' does not, first <NA> in row 1. Fill"),
        ([[{}] * 7], r"columns 0, 1, 2, 3, 4, \.\.\. \(counted from 0\) do not, first {} in row 0"),
        ([["x" * 60]], r"first 'x{38}… in row 0"),
    ],
)
def test_columns_that_are_not_numbers_are_named(given, says):
    with pytest.raises(InputError, match=says):
        as_vectors(np.array(given, dtype=object) if isinstance(given, list) else given)


def test_the_argument_is_named():
    with pytest.raises(InputError, match=r"^queries must be 2-d"):
        as_vectors([1.0], "queries")


@pytest.mark.parametrize("size", [1e150, -1e150])
def test_large_values_are_allowed_up_to_where_their_squares_overflow(size):
    assert as_vectors(spoilt(size))[2, 1] == size


# ----------------------------------------------------------------------------------------------------- strings, objects


@pytest.mark.parametrize(
    "given",
    [LETTERS, tuple(LETTERS), np.array(LETTERS), pd.Series(LETTERS), iter(LETTERS)],
    ids=["list", "tuple", "array", "series", "iterator"],
)
def test_strings_become_an_object_array(given):
    made = as_strings(given)
    assert made.dtype == object
    assert made.shape == (3,)
    assert made.tolist() == LETTERS
    assert all(isinstance(s, str) for s in made)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("ACDEFGHIKLM", r"^X is one string; give a sequence of strings, for instance \['ACDEFGHI', ...\]"),
        (["A", 3, None], "^X must hold strings; rows 1, 2 hold int. Convert with str, or use another kernel"),
        ([], r"^X has 0 sample\(s\); give at least one string"),
        (7, "^X must be a sequence with one item per row, got 7"),
        (da.from_array(PLAIN), "^X must be 1-d, got a dask array"),
    ],
)
def test_what_is_no_sequence_of_strings(given, says):
    with pytest.raises(InputError, match=says):
        as_strings(given)


def test_objects_are_left_as_they_are():
    items = [{1, 2}, {3}, (4, 5)]
    made = as_objects(items)
    assert made.dtype == object
    assert made.shape == (3,)
    assert made[0] is items[0]
    pairs = as_objects([(1, 2), (3, 4)])  # NumPy would make a table of these
    assert pairs.shape == (2,)
    assert pairs[1] == (3, 4)
    table = PLAIN.astype(int)
    assert as_objects(table) is table
    lazy = da.from_array(table, chunks=(2, 2))
    assert as_objects(lazy).chunks == ((2, 2), (3,))


@pytest.mark.parametrize(
    "given", [[], np.empty((0, 3)), da.from_array(np.empty((0, 3)))], ids=["list", "array", "dask"]
)
def test_no_objects(given):
    with pytest.raises(InputError, match=r"^X has 0 sample\(s\); give at least one row"):
        as_objects(given)


def test_widths_must_agree_where_there_are_any():
    check_widths(PLAIN, sp.csr_array(PLAIN))
    check_widths(np.array(["a"], dtype=object), PLAIN)
    with pytest.raises(InputError, match=r"^A has 3 features, but B has 2; both must have the columns the metric was"):
        check_widths(PLAIN, PLAIN[:, :2], ("A", "B"))


@pytest.mark.parametrize(
    ("part", "place", "value"),
    [
        ("indices", 0, 3),
        ("indices", 0, 2**31 - 1),
        ("indices", 1, -1),
        ("indptr", 1, -1),
        ("indptr", 1, 10**6),
        ("indptr", -1, 0),
    ],
)
@pytest.mark.parametrize("container", [sp.csr_array, sp.csc_matrix])
def test_indices_out_of_range_are_refused_before_compiled_code_meets_them(container, part, place, value):
    X = container(np.ones((3, 3)))
    getattr(X, part)[place] = value
    with pytest.raises(InputError, match=r"^X is a sparse matrix with invalid indices \(.*\); build it anew$"):
        as_vectors(X)
