"""Tables of numbers, categories, dates and missing cells: what is decided, and the same again for later files."""

from __future__ import annotations

import gzip
import io
import sys

import numpy as np
import pandas as pd
import pytest
from metricforge_cases.tables import put

import metricforge as mf
from metricforge.errors import InputError, ModelFileError
from metricforge.tables import Choices, Dialect, read_again, read_prepared
from metricforge.tables.cells import Texts
from metricforge.tables.preparation import Origin, Preparation, as_days, style_of
from metricforge.tables.table import standard_input

BIRDS = """\
id,kind,island,bill,mass,tagged,seen,count
1,A,North,39.1,3750,yes,2007-11-11,"1,234,567"
2,A,North,39.5,3800,no,2007-11-12,"2,000"
3,A,South,,NA,no,2008-11-12,"3,000"
4,G,South,46.1,4500,yes,2009-01-12,"3,500"
5,G,South,50,5700,yes,2009-01-13,"4,000"
6,G,?,48,5400,no,2009-01-13,"4,500"
"""


@pytest.fixture
def birds(tmp_path):
    return put(tmp_path / "birds.csv", BIRDS)


def described(table):
    return dict(table.preparation.describe())


def test_every_kind_of_column_becomes_numbers(birds):
    table = read_prepared(birds, Choices(), extra=["kind", "id"])
    assert table.names == ("island=North", "island=South", "bill", "mass", "tagged", "seen", "count")
    assert table.extra["kind"].tolist() == list("AAAGGG")
    np.testing.assert_array_equal(table.rows[:, 0], [1, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(table.rows[:, 1], [0, 0, 1, 1, 1, 1])  # the missing one is filled with the commonest
    np.testing.assert_array_equal(table.rows[:, 2], [39.1, 39.5, 46.1, 46.1, 50, 48])
    np.testing.assert_array_equal(table.rows[:, 4], [1, 0, 0, 1, 1, 0])
    np.testing.assert_array_equal(np.diff(table.rows[:, 5]), [1, 366, 61, 1, 0])
    np.testing.assert_array_equal(table.rows[:, 6], [1234567, 2000, 3000, 3500, 4000, 4500])
    said = described(table)
    assert said["island"].endswith("1 missing cell filled with the commonest, South")
    assert said["bill"] == "a number; 1 missing cell filled with the median, 46.1"
    assert said["seen"] == "a date, as days since 1970-01-01"
    assert said["count"] == "a number, with ',' between thousands"


def test_the_same_is_done_to_a_later_file(birds, tmp_path):
    table = read_prepared(birds, Choices(), extra=["kind", "id"])
    again = read_again(birds, table.preparation, extra=["id"])
    np.testing.assert_array_equal(again.rows, table.rows)
    later = put(tmp_path / "later.csv", 'bill,island,seen,mass,tagged,count\n,East,2010-01-01,1,no,"1,000"\n')
    found = read_again(later, table.preparation)
    assert found.names == table.names
    np.testing.assert_array_equal(found.rows[0, :4], [0, 0, 46.1, 1])
    said = "column 'island': the metric has not seen the level East; in 1 row all its columns are 0"
    assert found.notes == (said,)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("39.1", "heavy"), "line 2: column 'bill' holds the text 'heavy'; the metric was learned on numbers there"),
        (("2007-11-11", "yesterday"), "line 2: column 'seen' holds 'yesterday', but the metric was learned on dates"),
        (("yes", "perhaps"), "line 2: column 'tagged' holds the text 'perhaps'"),
        (("39.1", "inf"), "line 2: column 'bill' holds 'inf'"),
        (("bill", "beak"), "no column 'bill'"),
    ],
)
def test_a_later_file_of_other_kinds_is_refused_by_its_cell(birds, tmp_path, change, said):
    preparation = read_prepared(birds, Choices(), extra=["kind", "id"]).preparation
    other = put(tmp_path / "other.csv", BIRDS.replace(*change, 1))
    with pytest.raises(InputError) as caught:
        read_again(other, preparation)
    assert said in str(caught.value)


def test_missing_cells_are_filled_dropped_or_refused(birds):
    dropped = read_prepared(birds, Choices(missing="drop"), extra=["kind", "id"])
    np.testing.assert_array_equal(dropped.kept, [0, 1, 3, 4])
    assert (len(dropped.rows), dropped.total) == (4, 6)
    assert dropped.extra["id"].tolist() == [1, 2, 4, 5]
    np.testing.assert_array_equal(read_again(birds, dropped.preparation).kept, [0, 1, 3, 4])
    with pytest.raises(InputError, match=r"line 7: column 'island' holds '\?'; fill it in, remove the row"):
        read_prepared(birds, Choices(missing="error"), extra=["kind", "id"])
    with pytest.raises(InputError, match="line 4: column 'bill' is empty"):
        read_prepared(birds, Choices(missing="error", drop=("island",)), extra=["kind", "id"])
    with pytest.raises(InputError, match="missing='mean' is unknown"):
        read_prepared(birds, Choices(missing="mean"), extra=["kind", "id"])


def test_columns_categories_and_what_is_left_out(tmp_path):
    lines = [f"{i},n{i},{i % 3},0{i % 10}/0{1 + i % 9}/2020,,{'x' if i % 2 else 'y'}" for i in range(1, 10)]
    path = put(tmp_path / "d.csv", "\n".join(["a,name,code,day,empty,kind", *lines]) + "\n")
    table = read_prepared(path, Choices(), extra=["kind"])
    assert table.names == ("a", "code")
    said = described(table)
    assert said["name"].startswith("left out: text with 9 different values in 9 rows")
    assert said["empty"] == "left out: every cell is missing"
    assert said["day"].startswith("left out: dates such as 01/02/2020, whose day and month cannot be told apart")
    coded = read_prepared(path, Choices(columns=("a", "code"), categories=("code",)), extra=["kind"])
    assert coded.names == ("a", "code=0", "code=1", "code=2")
    np.testing.assert_array_equal(read_again(path, coded.preparation).rows, coded.rows)
    with pytest.raises(InputError, match="no column 'cod'; did you mean 'code'"):
        read_prepared(path, Choices(categories=("cod",)))
    with pytest.raises(InputError, match="no column 'cod'; did you mean 'code'"):
        read_prepared(path, Choices(columns=("cod",)))
    with pytest.raises(InputError, match=r"no column is left to learn from .*'empty'"):
        read_prepared(path, Choices(columns=("empty",)))


def test_a_word_in_a_column_of_numbers_is_not_a_category(tmp_path):
    path = put(tmp_path / "d.csv", "a,b\n" + "1,2\n" * 150 + "x,2\n")
    with pytest.raises(InputError, match=r"line 152: column 'a' holds the text 'x'; .*--categories a"):
        read_prepared(path, Choices())
    assert read_prepared(path, Choices(categories=("a",))).names == ("a=1", "a=x", "b")


@pytest.mark.parametrize(
    ("cells", "given", "values"),
    [
        (["1,234,567", "2,000"], None, [1234567, 2000]),
        (["1,234.5", "2,000"], None, [1234.5, 2000]),
        (["1,234", "2,000"], ",", [1234, 2000]),
        (["1'234", "2'000.5"], "'", [1234, 2000.5]),
    ],
)
def test_thousands(tmp_path, cells, given, values):
    path = put(tmp_path / "d.csv", "a,b\n" + "".join(f'"{cell}",1\n' for cell in cells))
    table = read_prepared(path, Choices(dialect=Dialect(thousands=given)))
    np.testing.assert_array_equal(table.rows[:, 0], values)
    np.testing.assert_array_equal(read_again(path, table.preparation).rows, table.rows)


def test_a_comma_that_may_be_either_is_refused(tmp_path):
    path = put(tmp_path / "d.csv", 'a,b\n"1,500",1\n3,4\n5,6\n')
    with pytest.raises(InputError, match=r"write 1500 if it separates thousands, or 1\.500 if it is a decimal comma"):
        read_prepared(path, Choices())


def test_compressed_files_and_standard_input(birds, tmp_path, monkeypatch):
    wanted = read_prepared(birds, Choices(), extra=["kind", "id"]).rows
    (tmp_path / "birds.csv.gz").write_bytes(gzip.compress(BIRDS.encode()))
    np.testing.assert_array_equal(
        read_prepared(tmp_path / "birds.csv.gz", Choices(), extra=["kind", "id"]).rows, wanted
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BIRDS.encode())))
    standard_input.cache_clear()
    np.testing.assert_array_equal(read_prepared("-", Choices(), extra=["kind", "id"]).rows, wanted)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a,b\n1,x\n2,3,4\n")))
    standard_input.cache_clear()
    with pytest.raises(InputError, match="standard input, line 3 has 3 cells"):
        read_prepared("-", Choices())
    standard_input.cache_clear()
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(BIRDS.encode())[:60])
    (tmp_path / "no.csv.gz").write_bytes(b"not compressed")
    for name in ("cut.csv.gz", "no.csv.gz"):
        with pytest.raises(InputError, match=f"'[^']*{name}' is not a whole gzip file"):
            read_prepared(tmp_path / name, Choices())
    (tmp_path / "d.zip.gz").write_bytes(b"")
    with pytest.raises(InputError, match="unknown extension"):
        read_prepared(tmp_path / "d.zip.gz", Choices())


def test_separators(tmp_path):
    path = put(tmp_path / "d.txt", "a|b\n1|2\n3|4\n")
    np.testing.assert_array_equal(read_prepared(path, Choices(dialect=Dialect(sep="pipe"))).rows, [[1, 2], [3, 4]])
    for wrong in ("ab", "x", '"'):
        with pytest.raises(InputError, match="--sep must be one character"):
            Dialect(sep=wrong)
    with pytest.raises(InputError, match="--encoding 'utf-9' is unknown"):
        Dialect(encoding="utf-9")
    with pytest.raises(InputError, match="both ','"):
        Dialect(sep=",", thousands=",")


def test_parquet_has_categories_dates_and_holes_too(tmp_path, birds):
    frame = pd.read_csv(birds, parse_dates=["seen"], thousands=",", na_values=["?"])
    frame.to_parquet(tmp_path / "birds.parquet", index=False)
    table = read_prepared(tmp_path / "birds.parquet", Choices(), extra=["kind", "id"])
    text = read_prepared(birds, Choices(), extra=["kind", "id"])
    assert table.names == text.names
    np.testing.assert_array_equal(table.rows, text.rows)
    np.testing.assert_array_equal(read_again(tmp_path / "birds.parquet", text.preparation).rows, text.rows)
    with pytest.raises(InputError, match=r"row 2 \(counted from 0\): column 'bill' holds 'nan'"):
        read_prepared(tmp_path / "birds.parquet", Choices(missing="error", drop=("island",)), extra=["kind", "id"])


def test_a_file_without_names_and_arrays_are_taken_in_order(tmp_path):
    named = put(tmp_path / "d.csv", "a,b,c\n1,2,x\n3,4,y\n")
    preparation = read_prepared(named, Choices(), extra=["c"]).preparation
    bare = put(tmp_path / "bare.csv", "7,8\n5,\n")
    np.testing.assert_array_equal(read_again(bare, preparation).rows, [[7, 8], [5, 3]])
    np.save(tmp_path / "d.npy", np.array([[5.0, 6.0]]))
    np.testing.assert_array_equal(read_again(tmp_path / "d.npy", preparation).rows, [[5, 6]])
    with pytest.raises(InputError, match="--categories"):
        read_prepared(tmp_path / "d.npy", Choices(categories=("0",)))


@pytest.mark.parametrize(
    ("cells", "style"),
    [
        (["2020-01-31", "2021-12-01T10:00:00"], "iso"),
        (["2020-01-31 23:59", "NA"], "iso"),
        (["2020/01/31", "2021/2/1"], "year first"),
        (["31.01.2020", "1.2.2021"], "dotted"),
        (["31/01/2020", "01/02/2020"], "day first"),
        (["01/31/2020", "01/02/2020"], "month first"),
        (["01/02/2020"], "unclear"),
        (["2020-13-31"], None),
        (["2020-01-31", "x"], None),
        (["", "NA"], None),
    ],
)
def test_styles_of_dates(cells, style):
    assert style_of(cells) == style


def test_dates_are_days_with_the_time_as_a_fraction():
    column = Texts.of(["1970-01-02", "1970-01-01T12:00:00", "", "1970-01-01T02:00:00+02:00", "x"])
    np.testing.assert_array_equal(as_days(column, "iso"), [1, 0.5, np.nan, 0, np.inf])
    np.testing.assert_array_equal(as_days(np.array(["1970-01-02", "NaT"], dtype="datetime64[D]"), "iso"), [1, np.nan])


# ----------------------------------------------------------------------------------------------------- in a model file


def test_a_saved_metric_keeps_the_preparation_labels_and_identifiers(birds, tmp_path):
    table = read_prepared(birds, Choices(missing="drop"), extra=["kind", "id"])
    origin = Origin.of(
        table.preparation,
        kept=table.kept,
        label=("kind", table.extra["kind"]),
        identifiers=("id", table.extra["id"]),
    )
    metric = mf.learn(table.rows, table.extra["kind"], method="krca")
    mf.Metric(**{**vars(metric), "origin": origin}).save(tmp_path / "m.metric")
    loaded = mf.load(tmp_path / "m.metric").origin
    assert loaded.preparation.describe() == table.preparation.describe()
    np.testing.assert_array_equal(read_again(birds, loaded.preparation).rows, table.rows)
    assert loaded.labels_of(np.array([[0, 2], [3, 1]])).tolist() == [["A", "G"], ["G", "A"]]
    assert loaded.ids_of(np.array([0, 3])).tolist() == ["1", "5"]
    assert loaded.numbers_of(np.array([0, 3])).tolist() == [0, 4]
    assert Origin(codes=np.array([0, -1]), classes=np.array(["a"])).labels_of(np.array([0, 1])).tolist() == ["a", None]


@pytest.mark.parametrize(
    "origin",
    [
        {"codes": np.array([0, 1]), "classes": np.array(["a", "b"])},
        {"ids": np.array(["a"])},
        {"numbers": np.array([0, 1])},
    ],
)
def test_an_origin_of_other_rows_is_refused(tmp_path, origin):
    metric = mf.learn(np.eye(4), [0, 0, 1, 1], method="krca")
    mf.Metric(**{**vars(metric), "origin": Origin(**origin)}).save(tmp_path / "m.metric")
    with pytest.raises(ModelFileError, match=r"about . rows, not 4"):
        mf.load(tmp_path / "m.metric")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"kinds": ("odd",)}, "kind of 'a'"),
        ({"kinds": ()}, "one kind and one fill"),
        ({"kinds": ("category",)}, "no levels"),
        ({"kinds": ("date",)}, "no style"),
        ({"missing": "mean"}, "missing='mean' is unknown"),
    ],
)
def test_a_preparation_of_wrong_parts_is_refused(values, said):
    with pytest.raises(InputError, match=said):
        Preparation(**{"columns": ("a",), "kinds": ("number",), "fills": np.zeros(1)} | values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"codes": np.zeros(1)}, "whole numbers"),
        ({"codes": np.array([3]), "classes": np.array(["a"])}, "no class"),
        ({"ids": np.zeros((1, 1))}, "must be a list"),
    ],
)
def test_an_origin_of_wrong_parts_is_refused(values, said):
    with pytest.raises(InputError, match=said):
        Origin(**values)


MARKED = 'a;b;kind;note\n1,5;-200;x;ok\n2,5;7;y;none\n-200,0;8;none;bad\n3,5;9;x;ok\n"-200";9;x;bad\n'


def test_marks_of_missing_cells_are_the_users_own(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(MARKED)
    choices = Choices(dialect=Dialect(missing_values=("-200", "none")))
    table = read_prepared(path, choices, extra=["kind"])
    np.testing.assert_array_equal(
        table.rows, [[1.5, 8.5, 0, 1], [2.5, 7, 1, 0], [2.5, 8, 1, 0], [3.5, 9, 0, 1], [2.5, 9, 1, 0]]
    )
    assert table.names == ("a", "b", "note=bad", "note=ok")
    assert table.extra["kind"].tolist() == ["x", "y", None, "x", "x"]
    said = dict(table.preparation.describe())
    assert said["all columns"] == "a cell that holds -200 or none is missing"
    assert "2 missing cells filled with the median, 2.5" in said["a"]
    (tmp_path / "later.csv").write_text("note;b;a\nok;-200;-200\nbad;1;2\n")
    later = read_again(tmp_path / "later.csv", table.preparation)
    np.testing.assert_array_equal(later.rows, [[2.5, 8.5, 0, 1], [2, 1, 1, 0]])


def test_a_mark_is_named_where_missing_cells_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(MARKED)
    choices = Choices(missing="error", dialect=Dialect(missing_values=("-200", "none")))
    with pytest.raises(InputError, match=r"line 4: column 'a' holds '-200,0', which stands for a missing cell here"):
        read_prepared(path, choices, extra=["kind"])
    np.save(tmp_path / "t.npy", np.ones((2, 2)))
    with pytest.raises(InputError, match=r"--missing-values: .* holds numbers only"):
        read_prepared(tmp_path / "t.npy", choices)


def test_marks_in_parquet(tmp_path):
    pd.DataFrame({"a": [1, -200, 3], "b": ["u", "none", "u"], "y": [1, -200, 0]}).to_parquet(tmp_path / "t.parquet")
    choices = Choices(dialect=Dialect(missing_values=("-200", "none")))
    table = read_prepared(tmp_path / "t.parquet", choices, extra=["y"])
    np.testing.assert_array_equal(table.rows[:, 0], [1, 2, 3])
    assert table.extra["y"].tolist() == [1, None, 0]
