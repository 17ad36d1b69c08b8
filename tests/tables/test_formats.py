"""Rows from every format of file, and the message for each file that cannot be read."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from metricforge_cases.tables import X, put

from metricforge.distributed import storage
from metricforge.errors import InputError, MemoryBudgetError
from metricforge.tables import read, read_column
from metricforge.tables.table import row_counters


def test_the_columns_of_a_saved_metric_are_found_by_name_or_by_place(tmp_path):
    named = put(tmp_path / "named.csv", "class,b,a\nred,2.5,1\nred,-4,3\nblue,0.001,0\n")
    np.testing.assert_array_equal(read(named, only=("a", "b")).rows, X)
    bare = put(tmp_path / "bare.csv", "1,2.5\n3,-4\n0,0.001\n")
    np.testing.assert_array_equal(read(bare, only=("a", "b")).rows, X)
    with pytest.raises(InputError, match="no column 'c'"):
        read(named, only=("a", "c"))


def test_npy_npz_libsvm_and_fasta(tmp_path):
    np.save(tmp_path / "d.npy", np.column_stack([X, [0, 1, 1]]))
    table = read(tmp_path / "d.npy", extra=["2"])
    np.testing.assert_array_equal(table.rows, X)
    assert table.extra["2"].tolist() == [0, 1, 1]

    sp.save_npz(tmp_path / "d.npz", sp.coo_matrix(X))
    sparse = read(tmp_path / "d.npz").rows
    assert sparse.format == "csr"
    np.testing.assert_array_equal(sparse.toarray(), X)

    svm = put(tmp_path / "d.svm", "+1 1:1 2:2.5\n-1 1:3 2:-4\n-1 2:0.001\n")
    table = read(svm, extra=["label"], width=4)
    np.testing.assert_array_equal(table.rows.toarray(), np.column_stack([X, np.zeros((3, 2))]))
    assert table.extra["label"].tolist() == [1, -1, -1]

    fasta = put(tmp_path / "d.fasta", ">p1 a.1\nACDE\nFG\n>p2 b.2\nWWW\n")
    table = read(fasta, extra=["id", "description"])
    assert table.rows.tolist() == ["ACDEFG", "WWW"]
    assert table.holds_strings
    assert table.extra["description"].tolist() == ["a.1", "b.2"]


WILD = {
    "a column": ("csr", np.ones(2), [0, 2**30], [0, 1, 2]),
    "a negative column": ("csr", np.ones(2), [0, -(2**30)], [0, 1, 2]),
    "a row": ("csc", np.ones(2), [0, 2**30], [0, 1, 2]),
    "a pointer": ("csr", np.ones(2), [0, 1], [0, 10**8, 2]),
    "a pointer of an empty matrix": ("csr", np.ones(0), [], [0, 10**8, 0]),
    "a block": ("bsr", np.ones((1, 1, 1)), [2**30], [0, 1, 1]),
}


@pytest.mark.parametrize("case", WILD)
def test_a_sparse_matrix_whose_indices_are_out_of_range_is_bad_input(tmp_path, case):
    kind, data, indices, indptr = WILD[case]
    arrays = {"indices": np.array(indices, np.int32), "indptr": np.array(indptr, np.int32), "shape": (2, 2)}
    np.savez(tmp_path / "d.npz", format=kind.encode(), data=data, **arrays)
    # in a process of its own, because the failure is a segmentation fault
    code = "import sys; from metricforge.tables import read; X = read(sys.argv[1]).rows; X @ X.T; X.T.tocsr().toarray()"
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "d.npz"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "InputError" in done.stderr
    assert "d.npz' is not a sparse matrix" in done.stderr


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
def test_every_sparse_format_that_scipy_saves(tmp_path, kind):
    sp.save_npz(tmp_path / "d.npz", sp.coo_matrix(X).asformat(kind))
    np.testing.assert_array_equal(read(tmp_path / "d.npz").rows.toarray(), X)


def test_parquet(tmp_path):
    import polars

    path = tmp_path / "d.parquet"
    polars.DataFrame({"a": [1, 3, 0], "b": [2.5, -4.0, 1e-3], "kind": ["x", None, "y"]}).write_parquet(path)
    table = read(path, extra=["kind"])
    np.testing.assert_array_equal(table.rows, X)
    assert table.extra["kind"].tolist() == ["x", None, "y"]
    with pytest.raises(InputError, match=r"row 0 .counted from 0.: column 'kind' holds the text 'x'"):
        read(path)
    polars.DataFrame({"a": [1.0, None], "b": [1.0, 2.0]}).write_parquet(path)
    with pytest.raises(InputError, match=r"row 1 .counted from 0.: column 'a'"):
        read(path)


@pytest.mark.parametrize("lazy", [False, True])
def test_parquet_of_pandas_with_categories_times_and_holes(tmp_path, lazy):
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame["kind"] = pd.Categorical(["x", "y", "x"])
    frame["when"] = pd.date_range("2020", periods=3, tz="UTC")
    frame.to_parquet(tmp_path / "d.parquet")
    table = read(tmp_path / "d.parquet", extra=["kind"], drop=["when"], lazy=lazy)
    np.testing.assert_array_equal(np.asarray(table.rows), X)
    assert table.extra["kind"].tolist() == ["x", "y", "x"]
    pd.DataFrame({"a": pd.array([True, None], dtype="boolean")}).to_parquet(tmp_path / "d.parquet")
    with pytest.raises(InputError, match=r"row 1 .counted from 0.: column 'a' is empty"):
        np.asarray(read(tmp_path / "d.parquet", lazy=lazy).rows)


@pytest.mark.parametrize("lazy", [False, True])
def test_parquet_columns_that_are_there_twice_or_in_one_file_only(tmp_path, lazy):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table([pa.array([1.0]), pa.array([2.0])], names=["a", "a"]), tmp_path / "d.parquet")
    with pytest.raises(InputError, match=r"d.parquet' has two columns called 'a'; rename one"):
        read(tmp_path / "d.parquet", lazy=lazy)
    (tmp_path / "e.parquet").mkdir()
    pd.DataFrame(X, columns=["a", "b"]).to_parquet(tmp_path / "e.parquet" / "0.parquet")
    pd.DataFrame(X[:, 1:], columns=["b"]).to_parquet(tmp_path / "e.parquet" / "1.parquet")
    with pytest.raises(InputError, match=r"1.parquet' has no (column )?'a'"):
        read(tmp_path / "e.parquet", lazy=lazy)


def test_parquet_without_a_reader_names_the_package(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n in ("pyarrow", "polars") else find(n, *a))
    put(tmp_path / "d.parquet", "PAR1")
    with pytest.raises(InputError, match="needs pyarrow; pip install pyarrow"):
        read(tmp_path / "d.parquet")


WIDE = [f"gene {c}" for c in range(50_000)]


def test_a_table_of_50_000_columns_is_read_in_seconds(tmp_path):
    lines = (WIDE, ["1.5"] * len(WIDE), ["2"] * len(WIDE))
    path = put(tmp_path / "wide.csv", "".join(",".join(line) + "\n" for line in lines))
    start = time.process_time()
    assert read(path).rows.shape == (2, len(WIDE))
    assert read(path, only=WIDE).names == tuple(WIDE)
    # a pass over all columns for each of them takes more than a minute
    assert time.process_time() - start < 30


def test_the_names_of_50_000_parquet_columns_are_compared_in_seconds(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: Parquet files need it")
    import pyarrow as pa

    pq.write_table(pa.table([pa.array([1.0])] * len(WIDE), names=WIDE), tmp_path / "wide.parquet")
    start = time.process_time()
    assert list(storage.parquet_columns(tmp_path / "wide.parquet")) == WIDE
    assert time.process_time() - start < 10


BAD = {
    "missing.csv": (None, "there is no file"),
    "empty.csv": ("", "is empty"),
    "names only.csv": ("a,b\n", "no rows below its column names"),
    "text.csv": ("a,b\n1,2\n3,red\n", "line 3: column 'b' holds the text 'red'; leave the column out with --drop b"),
    "hole.csv": ("a,b\n1,2\n,3\n", "line 3: column 'a' is empty; fill it in"),
    "nan.csv": ("a,b\n1,2\n3,nan\n", "line 3: column 'b' holds 'nan'"),
    "inf.csv": ("a,b\n1,-inf\n", "line 2: column 'b' holds '-inf'"),
    "ragged.csv": ("a,b\n1,2\n3\n", "line 3 has 1 cells, but the first line has 2"),
    "words.csv": (
        "a,b,c\nx,1,y\n",
        "line 2: columns 'a', 'c' hold text (first 'x'); leave them out with --drop a --drop c",
    ),
    "comma.tsv": (
        "a\tb\n1\t2\n1,5\t2\n",
        "line 3: column 'a' holds '1,5' with a decimal comma; write a point, as in 1.5",
    ),
    "grouped.tsv": (
        "a\tb\n1\t2\n1,234\t2\n",
        "holds '1,234' with a comma; write 1234 if it separates thousands, or 1.234 if it is a decimal comma",
    ),
    "millions.csv": (
        'a,b\n1,2\n"1,234,567","-1,234.5"\n',
        "column 'a' holds '1,234,567' with commas between thousands; write 1234567",
    ),
    "thousands.csv": ("a;b\n1;2.75\n1,500;2\n", "a comma ('1,500' in line 3) and with a point ('2.75' in line 2)"),
    "underscore.csv": ("a,b\n1,2\n3,1_0\n", "line 3: column 'b' holds the text '1_0'"),
    "yes and number.csv": ("a,b\n1,yes\n2,3\n", "line 2: column 'b' holds the text 'yes'; leave the column out with"),
    **{
        f"missing {p}.csv": (
            f"a,b\n1,2\n3,{word}\n",
            f"line 3: column 'b' holds {word!r}; fill it in, remove the row, or leave the column out with --drop b",
        )
        for p, word in enumerate(("?", "NA", "nan", "NaN", "null", "N/A", "-"))
    },
    "index.csv": (",a\n0,1\n1,2\n", "column 0 (counted from 0) has no name; name it in the first line"),
    "twice.csv": ("a,a\n1,2\n", "two columns called 'a'"),
    "spaced name.csv": ("the a,b\nx,2\n", "--drop 'the a'"),
    "kind.xlsx": ("", "unknown extension"),
    "broken.npy": ("no array", "not an array of numpy.save"),
    "broken.npz": ("no archive", "not a sparse matrix"),
    "broken.svm": ("1 a:b\n", "not a LIBSVM file"),
    "empty.svm": ("", "is empty"),
    "broken.parquet": ("nothing", "not a Parquet file"),
    "bare.fasta": ("ACDE\n", "line 1: a FASTA file starts with a heading"),
    "empty.fasta": ("", "is empty"),
    "hollow.fasta": (">a\n>b\nAC\n", "'a' has no sequence"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_one_sentence(tmp_path, name):
    text, said = BAD[name]
    if text is not None:
        put(tmp_path / name, text)
    with pytest.raises(InputError) as caught:
        read(tmp_path / name)
    assert said in str(caught.value)
    assert name in str(caught.value)


def test_other_bad_rows(tmp_path):
    (tmp_path / "latin.csv").write_bytes("a,b\nä,1\n".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        read(tmp_path / "latin.csv")
    with pytest.raises(InputError, match="is a folder"):
        read(_folder(tmp_path / "d.csv"))
    path = put(tmp_path / "one.csv", "a,class\n1,x\n")
    with pytest.raises(InputError, match="no column 'clas'; did you mean 'class'"):
        read(path, extra=["clas"])
    with pytest.raises(InputError, match="nothing to learn from"):
        read(path, extra=["class"], drop=["a"])
    np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2)))
    with pytest.raises(InputError, match="2-d array of numbers"):
        read(tmp_path / "cube.npy")
    np.save(tmp_path / "objects.npy", np.array(["AC", "D"], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="save numbers, or strings of one width"):
        read(tmp_path / "objects.npy")
    np.save(tmp_path / "strings.npy", np.array(["AC", "D"]))
    assert read(tmp_path / "strings.npy").rows.tolist() == ["AC", "D"]
    np.savez(tmp_path / "both.npz", X=X, y=[0, 1, 1])
    with pytest.raises(InputError, match=r"np.save\('X.npy', X\).*for learn X.npy --label y.npy"):
        read(tmp_path / "both.npz")
    np.save(tmp_path / "nan.npy", np.array([[1.0, 2.0], [3.0, np.nan]]))
    with pytest.raises(InputError, match=r"row 1 .counted from 0.: column '1' holds 'nan'"):
        read(tmp_path / "nan.npy")
    with pytest.raises(InputError, match="no column 'class'"):
        read(put(tmp_path / "d.svm", "1 1:1\n"), extra=["class"])


def test_an_array_that_declares_more_than_the_file_has(tmp_path):
    path = tmp_path / "d.npy"
    with path.open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (10**9, 1000)}
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes(800))
    for reads in (read, read_column, lambda p: read(p, lazy=True)):
        with pytest.raises(InputError, match=r"declares 8000000000000 bytes of data, but 800 follow"):
            reads(path)


@pytest.mark.parametrize("index", [2 * 10**9, 3 * 10**9, 10**22])
def test_a_libsvm_index_of_ten_digits_is_bad_input(tmp_path, monkeypatch, index):
    monkeypatch.setenv("METRICFORGE_MEMORY", "8GB")
    with pytest.raises(InputError, match=r"d.svm'") as caught:
        read(put(tmp_path / "d.svm", f"1 1:1\n0 {index}:2\n"))
    assert index > 2**31 or "2000000000 columns would take 128.0 GB" in str(caught.value)


@pytest.mark.parametrize("kind", [".csv", ".npy", ".npz", ".svm", ".fasta", ".parquet"])
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path, kind):
    os.mkfifo(tmp_path / f"d{kind}")
    # in a process of its own, because the failure is to wait for ever
    code = "import sys; from metricforge.tables import read; read(sys.argv[1])"
    command = [sys.executable, "-c", code, tmp_path / f"d{kind}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "InputError" in done.stderr
    assert "is a pipe or a device, not a file" in done.stderr


def test_integers_of_many_digits_are_kept_as_they_are(tmp_path):
    ids = [2**63, 2**63 + 1, -1]  # NumPy would make them floats, of which two are equal
    assert read_column(put(tmp_path / "y.csv", "id\n" + "".join(f"{i}\n" for i in ids))).tolist() == ids


def test_columns_that_number_the_rows(tmp_path):
    lines = ["from 0,from 1,late,twice,half,back"] + [
        f"{r},{r + 1},{r + 2},{r // 2},{r + 0.5},{5 - r}" for r in range(6)
    ]
    assert row_counters(read(put(tmp_path / "d.csv", "\n".join(lines)))) == ["from 0", "from 1", "late"]
    np.save(tmp_path / "d.npy", np.column_stack([[5, 1, 2], [1, 2, 3], [0, 1, 3], [0, 2, 1]]))
    assert row_counters(read(tmp_path / "d.npy")) == ["1"]
    assert row_counters(read(tmp_path / "d.npy", lazy=True)) == ["1"]


def _folder(path):
    path.mkdir()
    return path


def test_a_column_in_a_file_of_its_own(tmp_path):
    assert read_column(put(tmp_path / "y.csv", "class\nred\nblue\n")).tolist() == ["red", "blue"]
    assert read_column(put(tmp_path / "z.txt", "3\n1\n2\n")).tolist() == [3, 1, 2]
    np.save(tmp_path / "y.npy", np.array([1, 0]))
    assert read_column(tmp_path / "y.npy").tolist() == [1, 0]
    with pytest.raises(InputError, match="has 2 columns"):
        read_column(put(tmp_path / "two.csv", "a,b\n1,2\n"))
    np.save(tmp_path / "two.npy", np.zeros((2, 2)))
    with pytest.raises(InputError, match="one value a row"):
        read_column(tmp_path / "two.npy")


def test_an_npz_is_measured_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "rows.npz"
    sp.save_npz(path, sp.csr_array(np.ones((400, 400))))  # 2.6 MB that are 4 kB in the file
    monkeypatch.setenv("METRICFORGE_MEMORY", "1MB")
    with pytest.raises(MemoryBudgetError, match=r"^reading '.*rows.npz' would take 3.84 MB"):
        read(path)
