"""Rows and relations from files: what comes back, and what is said about what cannot."""

from __future__ import annotations

import importlib.util

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from metricforge import files, tables
from metricforge.errors import InputError

X = np.array([[1.0, 2.5], [3.0, -4.0], [0.0, 1e-3]])


def put(path, text):
    path.write_text(text)
    return path


def test_a_csv_with_names_labels_and_a_column_to_drop(tmp_path):
    path = put(tmp_path / "d.csv", "id,a,class,b\nr1,1,red,2.5\nr2,3,,-4\nr3,0,blue,1e-3\n")
    table = tables.read(path, aside=["class"], drop=["id"])
    np.testing.assert_array_equal(table.rows, X)
    assert table.names == ("a", "b")
    assert table.aside["class"].tolist() == ["red", None, "blue"]
    assert table.named


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("comma.csv", "1,2.5\n3,-4\n0,0.001\n"),
        ("semicolon.csv", "a;b\n1;2.5\n3;-4\n0;0.001\n"),
        ("tab.tsv", "a\tb\n1\t2.5\n3\t-4\n0\t0.001\n"),
        ("blank lines.csv", "\na,b\n1,2.5\n\n3,-4\n0,0.001\n\n"),
        ("byte order mark.csv", "\ufeffa,b\n1,2.5\n3,-4\n0,0.001\n"),
        ("quotes.csv", '"a, with a comma",b\n"1","2.5"\n3,-4\n0,0.001\n'),
        ("windows.csv", "a,b\r\n1,2.5\r\n3,-4\r\n0,0.001\r\n"),
        ("spaces.csv", "a, b\n1, 2.5\n3, -4\n0, 0.001\n"),
        ("decimal commas.csv", "a;b\n1;2,5\n3;-4\n0;0,001\n"),
        ("decimal commas, no names.csv", "1,0;2,5\n3,0;-4\n0;0,001\n"),
        ("decimal commas, quoted.csv", '"a";"b"\n"1";"2,5"\n"3";"-4"\n"0";"0,001"\n'),
    ],
)
def test_the_ways_to_write_a_csv(tmp_path, name, text):
    np.testing.assert_array_equal(tables.read(put(tmp_path / name, text)).rows, X)


@pytest.mark.parametrize(
    ("text", "label", "rows"),
    [
        ("5.1,3.5,setosa\n4.9,3.0,setosa\n6.0,2.2,other\n", "2", 3),  # a row like any other
        ("5,1;3,5;setosa\n4,9;3,0;setosa\n6,0;2,2;other\n", "2", 3),  # with decimal commas
        ("a;b;class\n4,9;3,0;setosa\n6,0;2,2;other\n", "class", 2),
        ("0,1,class\n4.9,3.0,setosa\n6.0,2.2,other\n", "class", 2),  # the name was asked for
        ("0,1,class\n4.9,3.0,0\n6.0,2.2,1\n", "class", 2),  # a word over a number
        ("a,b,class\n4.9,3.0,setosa\n6.0,2.2,other\n", "class", 2),
        ("yes,no,setosa\nno,no,setosa\nyes,no,other\n", "2", 3),  # truths over truths
        ("yes,no,class\n12,4,setosa\n3,5,other\n", "class", 2),  # how many said so
    ],
)
def test_a_first_line_is_names_or_a_row(tmp_path, text, label, rows):
    table = tables.read(put(tmp_path / "d.csv", text), aside=[label])
    assert table.rows.shape == (rows, 2)
    assert len(table.aside[label]) == rows


@pytest.mark.parametrize("words", [("True", "False"), ("yes", "no"), ("TRUE", "FALSE"), ("Yes", "No")])
def test_a_column_of_truths_is_one_of_ones_and_zeros(tmp_path, monkeypatch, words):
    monkeypatch.setattr(tables, "BLOCK", 2)
    yes, no = words
    path = put(tmp_path / "d.csv", f"a,fresh,b\n1,{yes},2.5\n3,{no},-4\n0,{yes},0.001\n")
    table = tables.read(path)
    np.testing.assert_array_equal(table.rows, np.insert(X, 1, [1, 0, 1], axis=1))
    for cell, said in (
        ("?", "line 5: column 'fresh' holds '?'; fill it in"),
        ("maybe", "holds the text 'maybe'"),
        ("3", "line 5: column 'fresh' holds '3' below words such as yes and no"),
    ):
        put(path, f"a,fresh,b\n1,{yes},2.5\n3,{no},-4\n0,{yes},0.001\n4,{cell},1\n")
        with pytest.raises(InputError) as caught:
            tables.read(path)
        assert said in str(caught.value)


def test_missing_cells_do_not_make_a_row_the_names_of_columns(tmp_path):
    path = put(tmp_path / "d.csv", "5.1,?,setosa\n4.9,3.0,setosa\n")
    with pytest.raises(InputError, match=r"line 1: column '1' holds '\?'; fill it in, remove the row, or leave"):
        tables.read(path, aside=["2"])


def test_commas_and_points_in_different_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK", 1)
    for cells in (("2.75", "1,500"), ("1,500", "2.75")):
        path = put(tmp_path / "d.csv", "a;b\n1;{}\n2;{}\n".format(*cells))
        with pytest.raises(InputError, match=r"a comma \('1,500' in line .\) and with a point \('2.75' in line .\)"):
            tables.read(path)


def test_labels_that_only_python_takes_for_equal_numbers_are_two(tmp_path):
    path = put(tmp_path / "d.csv", "a,kind\n1,1_0\n2,10\n")
    assert tables.read(path, aside=["kind"]).aside["kind"].tolist() == ["1_0", "10"]


def test_a_row_index_can_be_left_out(tmp_path):
    assert tables.read(put(tmp_path / "d.csv", ",a\n0,1\n1,2\n"), drop=[""]).rows.tolist() == [[1.0], [2.0]]


def test_a_file_longer_than_a_block_comes_back_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK", 7)
    A = np.random.default_rng(0).normal(size=(50, 3))
    np.savetxt(tmp_path / "d.csv", A, delimiter=",", fmt="%.17g")
    np.testing.assert_array_equal(tables.read(tmp_path / "d.csv").rows, A)
    (tmp_path / "d.csv").write_text((tmp_path / "d.csv").read_text() + "1,oops,2\n")
    with pytest.raises(InputError, match="line 51: column '1' holds the text 'oops'"):
        tables.read(tmp_path / "d.csv")


def test_the_columns_of_a_saved_metric_are_found_by_name_or_by_place(tmp_path):
    named = put(tmp_path / "named.csv", "class,b,a\nred,2.5,1\nred,-4,3\nblue,0.001,0\n")
    np.testing.assert_array_equal(tables.read(named, only=("a", "b")).rows, X)
    bare = put(tmp_path / "bare.csv", "1,2.5\n3,-4\n0,0.001\n")
    np.testing.assert_array_equal(tables.read(bare, only=("a", "b")).rows, X)
    with pytest.raises(InputError, match="no column 'c'"):
        tables.read(named, only=("a", "c"))


def test_npy_npz_libsvm_and_fasta(tmp_path):
    np.save(tmp_path / "d.npy", np.column_stack([X, [0, 1, 1]]))
    table = tables.read(tmp_path / "d.npy", aside=["2"])
    np.testing.assert_array_equal(table.rows, X)
    assert table.aside["2"].tolist() == [0, 1, 1]

    sp.save_npz(tmp_path / "d.npz", sp.coo_matrix(X))
    sparse = tables.read(tmp_path / "d.npz").rows
    assert sparse.format == "csr"
    np.testing.assert_array_equal(sparse.toarray(), X)

    svm = put(tmp_path / "d.svm", "+1 1:1 2:2.5\n-1 1:3 2:-4\n-1 2:0.001\n")
    table = tables.read(svm, aside=["label"], width=4)
    np.testing.assert_array_equal(table.rows.toarray(), np.column_stack([X, np.zeros((3, 2))]))
    assert table.aside["label"].tolist() == [1, -1, -1]

    fasta = put(tmp_path / "d.fasta", ">p1 a.1\nACDE\nFG\n>p2 b.2\nWWW\n")
    table = tables.read(fasta, aside=["id", "description"])
    assert table.rows.tolist() == ["ACDEFG", "WWW"]
    assert table.holds_strings
    assert table.aside["description"].tolist() == ["a.1", "b.2"]


def test_parquet(tmp_path):
    import polars

    path = tmp_path / "d.parquet"
    polars.DataFrame({"a": [1, 3, 0], "b": [2.5, -4.0, 1e-3], "kind": ["x", None, "y"]}).write_parquet(path)
    table = tables.read(path, aside=["kind"])
    np.testing.assert_array_equal(table.rows, X)
    assert table.aside["kind"].tolist() == ["x", None, "y"]
    with pytest.raises(InputError, match=r"row 0 .counted from 0.: column 'kind' holds the text 'x'"):
        tables.read(path)
    polars.DataFrame({"a": [1.0, None], "b": [1.0, 2.0]}).write_parquet(path)
    with pytest.raises(InputError, match=r"row 1 .counted from 0.: column 'a'"):
        tables.read(path)


@pytest.mark.parametrize("lazy", [False, True])
def test_parquet_of_pandas_with_categories_times_and_holes(tmp_path, lazy):
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame["kind"] = pd.Categorical(["x", "y", "x"])
    frame["when"] = pd.date_range("2020", periods=3, tz="UTC")
    frame.to_parquet(tmp_path / "d.parquet")
    table = tables.read(tmp_path / "d.parquet", aside=["kind"], drop=["when"], lazy=lazy)
    np.testing.assert_array_equal(np.asarray(table.rows), X)
    assert table.aside["kind"].tolist() == ["x", "y", "x"]
    pd.DataFrame({"a": pd.array([True, None], dtype="boolean")}).to_parquet(tmp_path / "d.parquet")
    with pytest.raises(InputError, match=r"row 1 .counted from 0.: column 'a' is empty"):
        np.asarray(tables.read(tmp_path / "d.parquet", lazy=lazy).rows)


@pytest.mark.parametrize("lazy", [False, True])
def test_parquet_columns_that_are_there_twice_or_in_one_file_only(tmp_path, lazy):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table([pa.array([1.0]), pa.array([2.0])], names=["a", "a"]), tmp_path / "d.parquet")
    with pytest.raises(InputError, match=r"d.parquet' has two columns called 'a'; rename one"):
        tables.read(tmp_path / "d.parquet", lazy=lazy)
    (tmp_path / "e.parquet").mkdir()
    pd.DataFrame(X, columns=["a", "b"]).to_parquet(tmp_path / "e.parquet" / "0.parquet")
    pd.DataFrame(X[:, 1:], columns=["b"]).to_parquet(tmp_path / "e.parquet" / "1.parquet")
    with pytest.raises(InputError, match=r"1.parquet' has no (column )?'a'"):
        tables.read(tmp_path / "e.parquet", lazy=lazy)


def test_parquet_without_a_reader_names_the_package(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n in ("pyarrow", "polars") else find(n, *a))
    put(tmp_path / "d.parquet", "PAR1")
    with pytest.raises(InputError, match="needs pyarrow; pip install pyarrow"):
        tables.read(tmp_path / "d.parquet")


BAD = {
    "missing.csv": (None, "there is no file"),
    "empty.csv": ("", "is empty"),
    "names only.csv": ("a,b\n", "no rows below its column names"),
    "text.csv": ("a,b\n1,2\n3,red\n", "line 3: column 'b' holds the text 'red'; leave the column out with --drop b"),
    "hole.csv": ("a,b\n1,2\n,3\n", "line 3: column 'a' is empty; fill it in"),
    "nan.csv": ("a,b\n1,2\n3,nan\n", "line 3: column 'b' holds 'nan'"),
    "inf.csv": ("a,b\n1,-inf\n", "line 2: column 'b' holds '-inf'"),
    "ragged.csv": ("a,b\n1,2\n3\n", "line 3 has 1 cells where the first line has 2"),
    "words.csv": (
        "a,b,c\nx,1,y\n",
        "line 2: columns 'a', 'c' hold text (first 'x'); leave them out with --drop a --drop c",
    ),
    "comma.tsv": (
        "a\tb\n1\t2\n1,5\t2\n",
        "line 3: column 'a' holds '1,5' with a decimal comma; write a point, as in 1.5",
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
    "index.csv": (",a\n0,1\n1,2\n", "column 0 (counted from 0) has no name, as a row index has none; leave it out"),
    "twice.csv": ("a,a\n1,2\n", "two columns called 'a'"),
    "spaced name.csv": ("the a,b\nx,2\n", "--drop 'the a'"),
    "kind.xlsx": ("", "no extension this reads"),
    "broken.npy": ("no array", "no array of numpy.save"),
    "broken.npz": ("no archive", "no sparse matrix"),
    "broken.svm": ("1 a:b\n", "no LIBSVM file"),
    "empty.svm": ("", "is empty"),
    "broken.parquet": ("nothing", "no Parquet file"),
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
        tables.read(tmp_path / name)
    assert said in str(caught.value)
    assert name in str(caught.value)


def test_other_bad_rows(tmp_path):
    (tmp_path / "latin.csv").write_bytes("a,b\nä,1\n".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        tables.read(tmp_path / "latin.csv")
    with pytest.raises(InputError, match="is a folder"):
        tables.read(_folder(tmp_path / "d.csv"))
    path = put(tmp_path / "one.csv", "a,class\n1,x\n")
    with pytest.raises(InputError, match="no column 'clas'; did you mean 'class'"):
        tables.read(path, aside=["clas"])
    with pytest.raises(InputError, match="nothing to learn from"):
        tables.read(path, aside=["class"], drop=["a"])
    np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2)))
    with pytest.raises(InputError, match="2-d array of numbers"):
        tables.read(tmp_path / "cube.npy")
    np.save(tmp_path / "objects.npy", np.array(["AC", "D"], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="save numbers, or strings of one width"):
        tables.read(tmp_path / "objects.npy")
    np.save(tmp_path / "strings.npy", np.array(["AC", "D"]))
    assert tables.read(tmp_path / "strings.npy").rows.tolist() == ["AC", "D"]
    np.savez(tmp_path / "both.npz", X=X, y=[0, 1, 1])
    with pytest.raises(InputError, match=r"np.save\('X.npy', X\).*for learn X.npy --label y.npy"):
        tables.read(tmp_path / "both.npz")
    np.save(tmp_path / "nan.npy", np.array([[1.0, 2.0], [3.0, np.nan]]))
    with pytest.raises(InputError, match=r"row 1 .counted from 0.: column '1' holds 'nan'"):
        tables.read(tmp_path / "nan.npy")
    with pytest.raises(InputError, match="no column 'class'"):
        tables.read(put(tmp_path / "d.svm", "1 1:1\n"), aside=["class"])


def _folder(path):
    path.mkdir()
    return path


# ----------------------------------------------------------------------------------------------------------- relations


@pytest.mark.parametrize(
    "words", [("1", "0"), ("+1", "-1"), ("true", "False"), ("similar", "dissimilar"), ("1.0", "0.0")]
)
def test_pairs_in_the_ways_people_write_them(tmp_path, words):
    yes, no = words
    path = put(tmp_path / "p.csv", f"i,j,similar\n0,1,{yes}\n2,0,{no}\n3,1,{yes}\n")
    pairs = tables.read_pairs(path, n=4)
    assert pairs.similar.tolist() == [[0, 1], [1, 3]]
    assert pairs.dissimilar.tolist() == [[0, 2]]


def test_pairs_and_triplets_without_names_or_in_another_order(tmp_path):
    assert tables.read_pairs(put(tmp_path / "a.csv", "0,1\n1,2\n"), n=3).similar.tolist() == [[0, 1], [1, 2]]
    assert tables.read_pairs(put(tmp_path / "b.csv", "0,1,-1\n"), n=3).dissimilar.tolist() == [[0, 1]]
    swapped = put(tmp_path / "c.csv", "similar,J,I\n1,1,2\n")
    assert tables.read_pairs(swapped, n=3).similar.tolist() == [[1, 2]]
    assert tables.read_triplets(put(tmp_path / "t.csv", "k,j,i\n2,1,0\n"), n=3).triples.tolist() == [[0, 1, 2]]
    np.save(tmp_path / "t.npy", np.array([[0, 1, 2], [2, 1, 0]]))
    assert tables.read_triplets(tmp_path / "t.npy", n=3).size == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("i,j\n", "has no rows"),
        ("i,similar\n0,1\n", "no column 'j'"),
        ("i,j\n0,a\n", "column 'j' holds"),
        ("i,j\n0,1.5\n", "column 'j' holds"),
        ("i,j\n0,\n", "column 'j' holds None"),
        ("i,j,similar\n0,1,maybe\n", "column 'similar' holds 'maybe' in pair 0"),
        ("i,j\n0,7\n", "name a row outside 0 .. 2"),
        ("i,j\n1,1\n", "join a row with itself"),
        ("i,j,similar\n0,1,1\n1,0,0\n", "similar and dissimilar both hold"),
    ],
)
def test_bad_pairs_name_the_file_and_the_place(tmp_path, text, said):
    with pytest.raises(InputError) as caught:
        tables.read_pairs(put(tmp_path / "p.csv", text), n=3)
    assert said in str(caught.value)
    assert "p.csv" in str(caught.value)


def test_a_column_in_a_file_of_its_own(tmp_path):
    assert tables.read_column(put(tmp_path / "y.csv", "class\nred\nblue\n")).tolist() == ["red", "blue"]
    assert tables.read_column(put(tmp_path / "z.txt", "3\n1\n2\n")).tolist() == [3, 1, 2]
    np.save(tmp_path / "y.npy", np.array([1, 0]))
    assert tables.read_column(tmp_path / "y.npy").tolist() == [1, 0]
    with pytest.raises(InputError, match="has 2 columns"):
        tables.read_column(put(tmp_path / "two.csv", "a,b\n1,2\n"))
    np.save(tmp_path / "two.npy", np.zeros((2, 2)))
    with pytest.raises(InputError, match="one value a row"):
        tables.read_column(tmp_path / "two.npy")


# ------------------------------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize("name", ["e.csv", "e.tsv", "e.npy"])
def test_what_is_written_reads_back_to_the_last_bit(tmp_path, name):
    A = np.random.default_rng(0).normal(size=(20, 3)) * 10.0 ** np.arange(-8, 12)[:, None]
    A[0, 0], A[1, 1] = 1e15, -3.0
    tables.write(tmp_path / name, ['a "b"', "c\td,e", "f"], A)
    back = tables.read(tmp_path / name)
    np.testing.assert_array_equal(back.rows, A)
    if name != "e.npy":
        assert back.names == ('a "b"', "c\td,e", "f")


def interrupted_while_writing(file):
    file.write(b"half of")
    raise KeyboardInterrupt


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), files.writing(path) as file:
        interrupted_while_writing(file)
    assert [p.name for p in tmp_path.iterdir()] == ["e.csv"]
    assert path.read_text() == "old"
    path.chmod(0o640)
    files.write(path, b"new")
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["e.csv"]
    assert path.stat().st_mode & 0o777 == 0o640


def test_where_nothing_can_be_written(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="it is a folder"):
        files.check_writable(tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        files.write(tmp_path / "no" / "e.csv", b"")
    with pytest.raises(InputError, match=r"its extension must be .csv, .tsv, .npy, .parquet, .zarr"):
        tables.write(tmp_path / "e.xlsx", ["a"], np.zeros((1, 1)))
    for kind in ("parquet", "zarr"):
        (tmp_path / f"e.{kind}").mkdir()
        with pytest.raises(InputError, match="becomes a folder, and that name is taken; remove it first"):
            tables.check_output(tmp_path / f"e.{kind}")
        (tmp_path / f"e.{kind}").rmdir()
    with pytest.raises(InputError, match="No space left"), files.writing(tmp_path / "e.csv"):
        raise OSError(28, "No space left on device")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(files.os, "access", lambda *_: False)
    with pytest.raises(InputError, match="permission denied"):
        files.check_writable(tmp_path / "e.csv")
