"""Delimited text: separators, column names, decimal commas, missing cells and blocks of lines."""

from __future__ import annotations

import numpy as np
import pytest
from metricforge_cases.tables import X, put

from metricforge.errors import InputError
from metricforge.tables import Choices, Dialect, delimited, read, read_prepared


def test_a_csv_with_names_labels_and_a_column_to_drop(tmp_path):
    path = put(tmp_path / "d.csv", "id,a,class,b\nr1,1,red,2.5\nr2,3,,-4\nr3,0,blue,1e-3\n")
    table = read(path, extra=["class"], drop=["id"])
    np.testing.assert_array_equal(table.rows, X)
    assert table.names == ("a", "b")
    assert table.extra["class"].tolist() == ["red", None, "blue"]
    assert table.named


def test_columns_without_a_name_are_numbered(tmp_path):
    path = put(tmp_path / "d.csv", "a;b;;\n1;2,5;7;8\n3;-4;7;8\n0;0,001;7;8\n")
    table = read(path)
    assert table.names == ("a", "b", "column 3", "column 4")
    np.testing.assert_array_equal(table.rows[:, :2], X)


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
    np.testing.assert_array_equal(read(put(tmp_path / name, text)).rows, X)


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
    table = read(put(tmp_path / "d.csv", text), extra=[label])
    assert table.rows.shape == (rows, 2)
    assert len(table.extra[label]) == rows


@pytest.mark.parametrize("words", [("True", "False"), ("yes", "no"), ("TRUE", "FALSE"), ("Yes", "No")])
def test_a_column_of_truths_is_one_of_ones_and_zeros(tmp_path, monkeypatch, words):
    monkeypatch.setattr(delimited, "BLOCK_CELLS", 2)
    yes, no = words
    path = put(tmp_path / "d.csv", f"a,fresh,b\n1,{yes},2.5\n3,{no},-4\n0,{yes},0.001\n")
    table = read(path)
    np.testing.assert_array_equal(table.rows, np.insert(X, 1, [1, 0, 1], axis=1))
    for cell, said in (
        ("?", "line 5: column 'fresh' holds '?'; fill it in"),
        ("maybe", "holds the text 'maybe'"),
        ("3", "line 5: column 'fresh' holds '3' below values such as yes and no"),
    ):
        put(path, f"a,fresh,b\n1,{yes},2.5\n3,{no},-4\n0,{yes},0.001\n4,{cell},1\n")
        with pytest.raises(InputError) as caught:
            read(path)
        assert said in str(caught.value)


def test_missing_cells_do_not_make_a_row_the_names_of_columns(tmp_path):
    path = put(tmp_path / "d.csv", "5.1,?,setosa\n4.9,3.0,setosa\n")
    with pytest.raises(InputError, match=r"line 1: column '1' holds '\?'; fill it in, remove the row, or leave"):
        read(path, extra=["2"])


def test_commas_and_points_in_different_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK_CELLS", 1)
    for cells in (("2.75", "1,500"), ("1,500", "2.75")):
        path = put(tmp_path / "d.csv", "a;b\n1;{}\n2;{}\n".format(*cells))
        with pytest.raises(InputError, match=r"a comma \('1,500' in line .\) and with a point \('2.75' in line .\)"):
            read(path)


def test_labels_that_only_python_takes_for_equal_numbers_are_two(tmp_path):
    path = put(tmp_path / "d.csv", "a,kind\n1,1_0\n2,10\n")
    assert read(path, extra=["kind"]).extra["kind"].tolist() == ["1_0", "10"]


def test_a_row_index_can_be_left_out(tmp_path):
    assert read(put(tmp_path / "d.csv", ",a\n0,1\n1,2\n"), drop=[""]).rows.tolist() == [[1.0], [2.0]]


def test_a_file_longer_than_a_block_comes_back_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK_CELLS", 7)
    A = np.random.default_rng(0).normal(size=(50, 3))
    np.savetxt(tmp_path / "d.csv", A, delimiter=",", fmt="%.17g")
    np.testing.assert_array_equal(read(tmp_path / "d.csv").rows, A)
    (tmp_path / "d.csv").write_text((tmp_path / "d.csv").read_text() + "1,oops,2\n")
    with pytest.raises(InputError, match="line 51: column '1' holds the text 'oops'"):
        read(tmp_path / "d.csv")


ODD = {
    "plain": ("a,b,c\n1,2.5,x\n3,-4,y\n", None),
    "no names": ("1,2.5,x\n3,-4,y\n", None),
    "leading blank lines": ("\n\na,b,c\n1,2.5,x\n3,-4,y\n", None),
    "blank lines between": ("a,b,c\n\n1,2.5,x\n\n\n3,-4,y\n\n", None),
    "windows": ("a,b,c\r\n1,2.5,x\r\n3,-4,y\r\n", None),
    "byte order mark": ("\ufeffa,b,c\n1,2.5,x\n3,-4,y\n", None),
    "byte order mark, no names": ("\ufeff1,2.5,x\n3,-4,y\n", None),
    "quoted": ('"a","b","c"\n"1","2.5","x"\n"3","-4","y"\n', None),
    "a space before a quote": ('a, b, c\n1, 2.5, "x"\n3, -4, "y"\n', None),
    "a line end in a name": ('"a\nb",b,c\n1,2.5,x\n3,-4,y\n', None),
    "a line end in a cell": ('a,b,c\n1,2.5,"x\nz"\n3,-4,y\n', ([[1.0, 2.5], [3.0, -4.0]], ["x\nz", "y"])),
    "a separator in a cell": ('a,b,c\n1,2.5,"x,z"\n3,-4,y\n', ([[1.0, 2.5], [3.0, -4.0]], ["x,z", "y"])),
    "a doubled quote": ('a,b,c\n1,2.5,"x""z"\n3,-4,y\n', ([[1.0, 2.5], [3.0, -4.0]], ['x"z', "y"])),
    "a plus sign": ("a,b,c\n+1,2.5,x\n3,-4,y\n", None),
    "spaces around": ("a,b,c\n 1 , 2.5 , x \n3,-4,y\n", None),
    "an underscore": ("a,b,c\n1_0,2.5,x\n3,-4,y\n", "line 2: column 'a' holds the text '1_0'"),
    "infinity": ("a,b,c\ninf,2.5,x\n3,-4,y\n", "line 2: column 'a' holds 'inf'"),
    "too large": ("a,b,c\n1e999,2.5,x\n3,-4,y\n", "line 2: column 'a' holds '1e999'"),
    "nan": ("a,b,c\nnan,2.5,x\n3,-4,y\n", "line 2: column 'a' holds 'nan'"),
    "empty": ("a,b,c\n,2.5,x\n3,-4,y\n", "line 2: column 'a' is empty"),
    "a word": ("a,b,c\nten,2.5,x\n3,-4,y\n", "line 2: column 'a' holds the text 'ten'"),
    "a late word": ("a,b,c\n" + "1,2.5,x\n" * 300 + "ten,2,y\n", "line 302: column 'a' holds the text 'ten'"),
    "too many cells": ("a,b,c\n1,2.5,x\n3,-4,y,z\n", "line 3 has 4 cells, but the first line has 3"),
    "too few cells": ("a,b,c\n1,2.5,x\n3,-4\n", "line 3 has 2 cells, but the first line has 3"),
    "truths": ("a,b,c\ntrue,2.5,x\nfalse,-4,y\n", ([[1.0, 2.5], [0.0, -4.0]], ["x", "y"])),
    "decimal commas": ("a;b;c\n1;2,5;x\n3;-4;y\n", None),
    "decimal commas, late": (
        "a;b;c\n" + "1;2;x\n" * 300 + "3;-4,5;y\n",
        ([[1, 2]] * 300 + [[3, -4.5]], ["x"] * 300 + ["y"]),
    ),
    "both marks": (
        "a;b;c\n1;2,5;x\n3;-4.5;y\n",
        "holds numbers with a comma ('2,5' in line 2) and with a point ('-4.5' in line 3)",
    ),
    "tabs": ("a\tb\tc\n1\t2.5\tx\n3\t-4\ty\n", None),
    "hexadecimal": ("a,b,c\n0x10,2.5,x\n3,-4,y\n", "line 2: column 'a' holds the text '0x10'"),
    "digits of another script": ("a,b,c\n\u0661,2.5,x\n3,-4,y\n", None),
    "a unit": ("a,b,c\n1%,2.5,x\n3,-4,y\n", "line 2: column 'a' holds the text '1%'"),
    "a zero byte": ("a,b,c\n1,2.5,x\x00\n3,-4,y\n", None),
    "old Macintosh": ("a,b,c\r1,2.5,x\r3,-4,y\r", None),
    "a date": ("a,b,c\n2020-01-31,2.5,x\n3,-4,y\n", "line 2: column 'a' holds the text '2020-01-31'"),
    "many digits": (
        "a,b,c\n0.1234567890123456789,123456789012345678901234567890,x\n3,-4,y\n",
        ([[0.12345678901234568, 1.2345678901234568e29], [3.0, -4.0]], ["x", "y"]),
    ),
    "labels that are numbers": ("a,b,c\n1,2.5,7\n3,-4,\n", ([[1.0, 2.5], [3.0, -4.0]], [7, None])),
}


@pytest.mark.parametrize("case", ODD)
def test_the_odd_ways_to_write_a_table(tmp_path, case):
    text, expected = ODD[case]
    path, label = put(tmp_path / "d.csv", text), "2" if case.endswith("no names") else "c"
    if isinstance(expected, str):
        with pytest.raises(InputError) as caught:
            read(path, extra=[label])
        assert expected in str(caught.value)
        return
    rows, labels = expected or (X[:2].tolist(), ["x", "y"])
    table = read(path, extra=[label])
    assert table.rows.tolist() == rows
    assert table.extra[label].tolist() == labels


def test_the_encoding_of_the_file(tmp_path):
    text = "größe,b,art\n1,2,süß\n3,4,herb\n"
    for encoding in ("latin-1", "cp1252", "utf-16"):
        (tmp_path / "d.csv").write_bytes(text.encode(encoding))
        table = read(tmp_path / "d.csv", extra=["art"], dialect=Dialect(encoding=encoding))
        assert table.names == ("größe", "b")
        assert table.extra["art"].tolist() == ["süß", "herb"]
    assert read(tmp_path / "d.csv", extra=["art"]).names == ("größe", "b")  # the byte order mark says so
    (tmp_path / "d.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"not UTF-8 text .*--encoding latin-1"):
        read(tmp_path / "d.csv")
    with pytest.raises(InputError, match="not ascii text"):
        read(tmp_path / "d.csv", dialect=Dialect(encoding="ascii"))


def test_a_column_may_be_a_feature_and_a_hint(tmp_path):
    table = read(put(tmp_path / "rows.csv", "a,b\n1,2\n3,4\n"), only=["a", "b"], extra=["b"])
    assert table.rows.tolist() == [[1, 2], [3, 4]]
    assert table.extra["b"].tolist() == [2, 4]


def test_lines_too_wide_for_pandas_are_read_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("METRICFORGE_MEMORY", "200kB")
    text = "a;b;c\n1;2,5;x\n;-4;y\nNA;1e3;x\n"
    (tmp_path / "d.csv").write_text(text)
    expected = read_prepared(tmp_path / "d.csv", Choices(), extra=["c"])
    monkeypatch.setattr(delimited, "COLUMN_BYTES", 10**6)
    found = read_prepared(tmp_path / "d.csv", Choices(), extra=["c"])
    np.testing.assert_array_equal(found.rows, [[1, 2.5], [1, -4], [1, 1000]])
    np.testing.assert_array_equal(found.rows, expected.rows)
    assert found.extra["c"].tolist() == ["x", "y", "x"]
