"""pyarrow and the careful reader agree: the same values, and None where only the careful one should speak."""

from __future__ import annotations

import numpy as np
import pytest
from metricforge_cases.tables import put

from metricforge.errors import InputError
from metricforge.tables import Dialect, arrow, read
from metricforge.tables.dialect import TextFile

ODD = {
    "plain": "a,b,c\n1,2.5,x\n3,-4,y\n",
    "no names": "1,2.5,x\n3,-4,y\n",
    "leading blank lines": "\n\na,b,c\n1,2.5,x\n3,-4,y\n",
    "blank lines between": "a,b,c\n\n1,2.5,x\n\n\n3,-4,y\n\n",
    "windows": "a,b,c\r\n1,2.5,x\r\n3,-4,y\r\n",
    "byte order mark": "\ufeffa,b,c\n1,2.5,x\n3,-4,y\n",
    "byte order mark, no names": "\ufeff1,2.5,x\n3,-4,y\n",
    "quoted": '"a","b","c"\n"1","2.5","x"\n"3","-4","y"\n',
    "a space before a quote": 'a, b, c\n1, 2.5, "x"\n3, -4, "y"\n',
    "a line end in a name": '"a\nb",b,c\n1,2.5,x\n3,-4,y\n',
    "a line end in a cell": 'a,b,c\n1,2.5,"x\nz"\n3,-4,y\n',
    "a separator in a cell": 'a,b,c\n1,2.5,"x,z"\n3,-4,y\n',
    "a doubled quote": 'a,b,c\n1,2.5,"x""z"\n3,-4,y\n',
    "a plus sign": "a,b,c\n+1,2.5,x\n3,-4,y\n",
    "spaces around": "a,b,c\n 1 , 2.5 , x \n3,-4,y\n",
    "an underscore": "a,b,c\n1_0,2.5,x\n3,-4,y\n",
    "infinity": "a,b,c\ninf,2.5,x\n3,-4,y\n",
    "too large": "a,b,c\n1e999,2.5,x\n3,-4,y\n",
    "nan": "a,b,c\nnan,2.5,x\n3,-4,y\n",
    "empty": "a,b,c\n,2.5,x\n3,-4,y\n",
    "a word": "a,b,c\nten,2.5,x\n3,-4,y\n",
    "a late word": "a,b,c\n" + "1,2.5,x\n" * 300 + "ten,2,y\n",
    "too many cells": "a,b,c\n1,2.5,x\n3,-4,y,z\n",
    "too few cells": "a,b,c\n1,2.5,x\n3,-4\n",
    "truths": "a,b,c\ntrue,2.5,x\nfalse,-4,y\n",
    "decimal commas": "a;b;c\n1;2,5;x\n3;-4;y\n",
    "decimal commas, late": "a;b;c\n" + "1;2;x\n" * 300 + "3;-4,5;y\n",
    "both marks": "a;b;c\n1;2,5;x\n3;-4.5;y\n",
    "tabs": "a\tb\tc\n1\t2.5\tx\n3\t-4\ty\n",
    "hexadecimal": "a,b,c\n0x10,2.5,x\n3,-4,y\n",
    "digits of another script": "a,b,c\n\u0661,2.5,x\n3,-4,y\n",
    "a unit": "a,b,c\n1%,2.5,x\n3,-4,y\n",
    "a zero byte": "a,b,c\n1,2.5,x\x00\n3,-4,y\n",
    "old Macintosh": "a,b,c\r1,2.5,x\r3,-4,y\r",
    "a date": "a,b,c\n2020-01-31,2.5,x\n3,-4,y\n",
    "many digits": "a,b,c\n0.1234567890123456789,123456789012345678901234567890,x\n3,-4,y\n",
    "labels that are numbers": "a,b,c\n1,2.5,7\n3,-4,\n",
}


def answer(path, label="c"):
    try:
        table = read(path, extra=[label])
    except InputError as error:
        return str(error)
    return table.rows.tolist(), table.names, table.extra[label].tolist(), table.extra[label].dtype.kind


@pytest.mark.parametrize("case", ODD)
def test_both_readers_give_the_same_values_and_the_same_refusals(tmp_path, monkeypatch, case):
    path = put(tmp_path / "d.csv", ODD[case])
    label = "2" if case.endswith("no names") else "c"
    quick = answer(path, label)
    monkeypatch.setattr(arrow, "installed", lambda name: False)
    assert quick == answer(path, label)


def test_ordinary_files_do_go_through_pyarrow(tmp_path):
    for case in (
        "plain",
        "no names",
        "windows",
        "quoted",
        "decimal commas",
        "blank lines between",
        "leading blank lines",
    ):
        path = put(tmp_path / "d.csv", ODD[case])
        with TextFile(path) as file:
            found = arrow.read_columns(file, file.names[:2], file.names[2:])
        np.testing.assert_array_equal(found.numbers, [[1, 2.5], [3, -4]])
        assert found.texts[file.names[2]].values().tolist() == ["x", "y"]


def test_a_line_longer_than_a_block_and_a_file_of_several_blocks(tmp_path, monkeypatch, rng):
    monkeypatch.setattr(arrow, "BLOCK_BYTES", 100)
    monkeypatch.setattr(arrow, "CELL_BYTES", 8)
    X = rng.normal(size=(300, 7))
    path = tmp_path / "d.csv"
    np.savetxt(path, X, delimiter=",", fmt="%.17g")
    np.testing.assert_array_equal(read(path).rows, X)


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
    path = put(tmp_path / "rows.csv", "a,b\n1,2\n3,4\n")
    with TextFile(path) as file:
        assert arrow.read_columns(file, ["a", "b"], ["b"]) is None
    with TextFile(path) as file:
        found = arrow.read_columns(file, ["a"], ["b"])
    assert found is not None
    assert found.texts["b"].texts == ("2", "4")
