"""Reading under a small memory budget: what would not fit is refused before it is read."""

from __future__ import annotations

import gzip
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

import metricforge as mf
from metricforge.cli.program import main
from metricforge.errors import InputError, MemoryBudgetError
from metricforge.tables import delimited, read
from metricforge.tables.formats import read_column, read_relations
from metricforge.tables.preparing import Choices, read_prepared
from metricforge.tasks import held_out


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    np.save(tmp_path / "one.npy", np.eye(2))
    (tmp_path / "one.csv").write_text("a,b\n1,2\n")
    (tmp_path / "one.svm").write_text("1 1:1\n")
    for name in ("one.npy", "one.csv", "one.svm"):  # modules that are imported late
        read(tmp_path / name)
    monkeypatch.setenv("METRICFORGE_MEMORY", "4MB")


def peak_of(call):
    tracemalloc.start()
    with pytest.raises(MemoryBudgetError, match="would take"):
        call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_more_rows_than_fit(tmp_path, name):
    path = tmp_path / name
    text = b"a,b,class\n" + b"1,2,x\n" * 70_000  # 64 bytes a row: numbers twice, and a text
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    for call in (lambda: read(path, extra=["class"]), lambda: read_prepared(path, Choices(), extra=["class"])):
        assert peak_of(call) < 4_000_000
    assert read(path, extra=["class"], drop=["b"]).rows.shape == (70_000, 1)


def test_lines_that_do_not_fit(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"1," * 10_000_000)
    assert peak_of(lambda: read(path)) < 4_000_000
    for rows in (1, 1000):  # in the sample, and below it
        path.write_bytes(b"a,b\n" + b"1,2\n" * rows + b"1" * 20_000_000)
        assert peak_of(lambda: read(path, extra=["b"])) < 4_000_000


def test_texts_are_kept_once(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b,c,class\n" + "1,left,some words that are common,x\n" * 20_000)
    tracemalloc.start()
    assert read_prepared(path, Choices(), extra=["class"]).rows.shape == (20_000, 1)
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
    tracemalloc.stop()
    path.write_text("i,j,k\n" + "".join(f"{i},{i + 1},{i + 2}\n" for i in range(60_000)))
    assert peak_of(lambda: read_relations(path, mf.Triplets, 60_002)) < 8_000_000


def test_one_long_label_does_not_widen_all(tmp_path):
    path = tmp_path / "y.csv"
    path.write_text("class\n" + "x" * 100_000 + "\n" + "y\n" * 9_999)  # 4 GB as an array of strings
    y = read_column(path)
    assert len(mf.Labels(y).classes) == len(mf.Labels(y.tolist()).classes) == 2
    assert mf.Labels(y).codes.sum() == 9_999


def test_other_formats_that_do_not_fit(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((1000, 600)))
    assert peak_of(lambda: read(tmp_path / "rows.npy")) < 1_000_000
    np.save(tmp_path / "part.npy", np.zeros((1000, 300)))
    assert peak_of(lambda: read(tmp_path / "part.npy", drop=["0"])) < 4_000_000
    (tmp_path / "rows.svm").write_text("1 1:1 2:1 3:1\n" * 50_000)
    assert peak_of(lambda: read(tmp_path / "rows.svm")) < 2_000_000
    (tmp_path / "rows.fasta").write_text(">a\n" + "ACGT" * 300_000)
    assert peak_of(lambda: read(tmp_path / "rows.fasta")) < 1_000_000
    sp.save_npz(tmp_path / "rows.npz", sp.csr_matrix(np.ones((1000, 200))))
    assert peak_of(lambda: read(tmp_path / "rows.npz")) < 1_000_000


def test_repeated_values_of_parquet_count_as_they_are_read(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: Parquet files need it")
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: Parquet files need it")
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": np.zeros(300_000), "class": ["x"] * 300_000}), path)
    assert path.stat().st_size < 100_000
    with pytest.raises(MemoryBudgetError, match="reading 300000 rows"):
        read(path, extra=["class"])


def test_a_saved_metric_that_does_not_fit(tmp_path, monkeypatch, rng):
    path = tmp_path / "x.metric"
    mf.learn(rng.normal(size=(100, 100)), np.arange(100) % 2, method="euclidean").save(path)
    monkeypatch.setenv("METRICFORGE_MEMORY", "50kB")
    with pytest.raises(MemoryBudgetError, match="loading"):
        mf.load(path)


def test_columns_that_turn_out_to_hold_text_make_one_more_pass(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK_CELLS", 300)
    monkeypatch.setattr(delimited, "SAMPLE", 1)
    rows = [["1"] * 30 for _ in range(400)]
    for c in range(30):  # each is found in another block
        rows[5 + 12 * c][c] = "word"
    path = tmp_path / "rows.csv"
    names = [f"c{c}" for c in range(30)]
    path.write_text("\n".join(",".join(row) for row in [names, *rows]) + "\n")
    opened = []
    start = delimited.TextFile._start
    monkeypatch.setattr(delimited.TextFile, "_start", lambda self: (opened.append(1), start(self)))
    with pytest.raises(InputError, match="holds the text 'word'"):
        read_prepared(path, Choices())
    assert len(opened) <= 5


def test_a_score_on_held_out_rows_that_does_not_fit_is_left_out(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a,b,class\n" + b"1,2,x\n3,4,y\n" * 25_000)
    out = str(tmp_path / "x.metric")
    assert main(["learn", str(path), "--label", "class", "--method", "euclidean", "-o", out]) == 0
    assert "no rows were held out: holding out some of 50000 rows" in capsys.readouterr().out
    with pytest.raises(MemoryBudgetError, match="holding out some of 50000 rows"):
        held_out(np.zeros((50_000, 2)), mf.Labels(np.arange(50_000) % 2), mf.learn)


def test_distinct_labels_are_found_in_blocks():
    y = np.asarray([f"class {i}" for i in range(7)])[np.arange(200_000) % 7]
    wide = np.arange(200_000) % 9 * 10.0**9
    mf.Labels(y[:9])
    for values in (y, wide):
        tracemalloc.start()
        labels = mf.Labels(values)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < values.nbytes + 3 * labels.codes.nbytes
        classes, codes = np.unique(values, return_inverse=True)
        assert labels.classes.tolist() == classes.tolist()
        assert np.array_equal(labels.codes, codes)
