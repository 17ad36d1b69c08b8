"""Rows that stay on disk: what tasks read is what the file holds, and nothing is read early."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr

import metricforge as mf
from metricforge.distributed import storage
from metricforge.errors import InputError, MemoryBudgetError, UnknownNameError


def rows(n=50, d=3):
    return np.random.default_rng(0).normal(size=(n, d))


def write(folder, kind, X):
    path = folder / f"rows.{kind}"
    if kind == "npy":
        np.save(path, X)
    elif kind == "zarr":
        zarr.save_array(str(path), X)
    else:
        frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
        frame.to_parquet(path, row_group_size=7, index=False)
    return path


@pytest.mark.parametrize("kind", ["npy", "parquet", "zarr"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
@pytest.mark.parametrize("chunk_rows", [None, 1, 9, 50, 1000])
def test_chunks_are_the_rows_of_the_file(tmp_path, kind, dtype, chunk_rows):
    X = (100 * rows()).astype(dtype)
    lazy = mf.open_rows(write(tmp_path, kind, X), chunk_rows=chunk_rows)
    assert lazy.shape == X.shape
    assert max(lazy.chunks[0]) == min(chunk_rows or 50, 50)
    found = lazy.compute(scheduler="sync")
    np.testing.assert_array_equal(found, X)
    assert found.dtype == lazy.dtype


@pytest.mark.parametrize("kind", ["npy", "parquet", "zarr"])
def test_a_metric_learned_from_disk_is_the_one_from_memory(tmp_path, kind):
    X, y = rows(60, 4), np.arange(60) % 3
    lazy = mf.open_rows(write(tmp_path, kind, X), chunk_rows=13)
    here, there = (mf.learn(data, y, method="krca", rank=20, seed=0) for data in (X, lazy))
    np.testing.assert_allclose(there.transform(X), here.transform(X), atol=1e-9)


def test_parquet_columns_and_folders(tmp_path):
    X = rows(20)
    folder = tmp_path / "many.parquet"
    folder.mkdir()
    for i, part in enumerate((X[:8], X[8:])):
        pd.DataFrame(part, columns=["a", "b", "c"]).to_parquet(folder / f"{i}.parquet", row_group_size=3)
    lazy = mf.open_rows(folder, columns=["c", "a"], chunk_rows=6)
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), X[:, [2, 0]])


def test_nothing_is_read_early(tmp_path):
    path = write(tmp_path, "npy", rows())
    lazy = mf.open_rows(path, chunk_rows=10)
    path.unlink()
    with pytest.raises(InputError, match="every worker must have the same files"):
        lazy.compute(scheduler="sync")


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        mf.open_rows(tmp_path / "missing.npy")
    (tmp_path / "rows.csv").write_text("1,2\n")
    with pytest.raises(UnknownNameError, match=r"'rows.csv' has a format that cannot be read in parts.*\.npy"):
        mf.open_rows(tmp_path / "rows.csv")
    for kind in ("npy", "parquet"):
        (tmp_path / f"bad.{kind}").write_bytes(b"nothing of the sort")
        with pytest.raises(InputError, match=rf"'bad.{kind}' is not"):
            mf.open_rows(tmp_path / f"bad.{kind}")
    (tmp_path / "bad.zarr").mkdir()
    with pytest.raises(InputError, match=r"'bad.zarr' is not a zarr array"):
        mf.open_rows(tmp_path / "bad.zarr")
    np.save(tmp_path / "flat.npy", np.arange(3))
    with pytest.raises(InputError, match=r"2-d array .* got shape \(3,\)"):
        mf.open_rows(tmp_path / "flat.npy")
    np.save(tmp_path / "none.npy", np.empty((0, 3)))
    with pytest.raises(InputError, match="holds 0 rows"):
        mf.open_rows(tmp_path / "none.npy")
    np.save(tmp_path / "words.npy", np.array([["a", "b"]]))
    with pytest.raises(InputError, match="not numbers"):
        mf.open_rows(tmp_path / "words.npy")
    np.save(tmp_path / "good.npy", rows())
    with pytest.raises(InputError, match="columns selects columns of a Parquet file"):
        mf.open_rows(tmp_path / "good.npy", columns=["a"])
    with pytest.raises(InputError, match="chunk_rows must be a whole number of at least 1"):
        mf.open_rows(tmp_path / "good.npy", chunk_rows=0)


def test_parquet_tells_what_is_wrong_with_a_column(tmp_path):
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"size": [1.0, 2.0], "name": ["a", "b"]}).to_parquet(path)
    with pytest.raises(InputError, match=r"column 'name' of 'rows\.parquet' holds object"):
        mf.open_rows(path)
    with pytest.raises(UnknownNameError, match="has no 'sice'; did you mean 'size'"):
        mf.open_rows(path, columns=["sice"])
    pd.DataFrame({"size": pd.array([1, 2, None, 4], dtype="Int64")}).to_parquet(path)
    with pytest.raises(InputError, match=r"row 2 .counted from 0.: column 'size' is empty"):
        mf.open_rows(path).compute(scheduler="sync")


def test_what_a_killed_worker_leaves_in_a_folder_is_passed_over(tmp_path, monkeypatch):
    import dask.array as da
    import pyarrow.parquet as pq

    write_table = pq.write_table

    def twice(table, where):  # as if an earlier try had been killed at its work
        where.with_name(where.name + "0").write_bytes(b"half")
        write_table(table, where)

    monkeypatch.setattr(pq, "write_table", twice)
    X = rows()
    storage.store(da.from_array(X, chunks=(20, 2)), tmp_path / "rows.parquet", ["a", "b", "c"])
    assert len(list((tmp_path / "rows.parquet").iterdir())) == 6
    np.testing.assert_array_equal(pd.read_parquet(tmp_path / "rows.parquet").to_numpy(), X)


def test_a_damaged_chunk_is_said(tmp_path):
    zarr.save_array(str(tmp_path / "rows.zarr"), np.arange(12.0).reshape(6, 2))
    chunk = next(path for path in (tmp_path / "rows.zarr" / "c").rglob("*") if path.is_file())
    chunk.write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"rows.zarr' is damaged: .*; restore it from a copy, or write it again$"):
        storage.open_rows(tmp_path / "rows.zarr").compute()


def test_a_header_that_declares_the_world_is_refused(tmp_path):
    zarr.create_array(str(tmp_path / "rows.zarr"), shape=(10**15, 3), chunks=(10**6, 3), dtype="f8")
    with pytest.raises(InputError, match=r"declares 1000000000000000 rows of 3 columns, which would be \d+ chunks"):
        storage.open_rows(tmp_path / "rows.zarr")


@pytest.mark.parametrize("kind", ["npy", "parquet", "zarr"])
def test_an_interrupted_store_ends_its_tasks_and_leaves_nothing(tmp_path, kind):
    began, ended = [], []

    def slow(block):
        began.append(1)
        if len(began) == 3:
            os.kill(os.getpid(), signal.SIGALRM)  # Python's handler runs in the main thread
        time.sleep(0.2)
        ended.append(1)
        return block

    def ring(*_):
        raise KeyboardInterrupt

    X = da.from_array(rows(400), chunks=(20, -1)).map_blocks(slow, dtype=float, meta=np.empty((0, 0)))
    before = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(KeyboardInterrupt):
            storage.store(X, tmp_path / f"out.{kind}", ["a", "b", "c"])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert 3 <= len(began) == len(ended) < 20
    assert list(tmp_path.iterdir()) == []


def test_a_parquet_file_of_one_row_group_is_read_within_the_memory_budget(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "rows.parquet"
    columns = {f"c{i}": np.tile(np.arange(100.0), 30_000) for i in range(16)}  # 384 MB, in a small file
    pq.write_table(pa.table(columns), path, row_group_size=3_000_000)
    code = f"""
import resource
import dask, pyarrow.parquet, metricforge as mf
lazy = mf.open_rows({str(path)!r}).sum(axis=0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert (lazy.compute(scheduler="threads", num_workers=2) == 49.5 * 3_000_000).all()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    environment = os.environ | {"METRICFORGE_MEMORY": "256MB"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert not run.returncode, run.stderr
    assert float(run.stdout) < 200


def test_chunks_of_a_zarr_array_are_decoded_once_or_refused(tmp_path, monkeypatch):
    path, X = tmp_path / "rows.zarr", rows(3000, 100)
    zarr.create_array(str(path), data=X, chunks=(300, 100))
    monkeypatch.setenv("METRICFORGE_MEMORY", "10MB")
    lazy = mf.open_rows(path)
    assert lazy.numblocks[0] > 1
    assert not any(size % 300 for size in lazy.chunks[0])
    np.testing.assert_array_equal(lazy.compute(), X)
    zarr.create_array(str(tmp_path / "one.zarr"), data=np.tile(X, (4, 1)), chunks=(12_000, 100))
    with pytest.raises(MemoryBudgetError, match=r"'one.zarr', whose chunks are 12000 × 100, would take 19.2 MB.*sma"):
        mf.open_rows(tmp_path / "one.zarr")
    with pytest.raises(MemoryBudgetError, match=r"a chunk of 'rows.npy' would take 16 MB.*give a smaller chunk_rows"):
        mf.open_rows(write(tmp_path, "npy", rows(20_000, 100)), chunk_rows=20_000)


@pytest.mark.parametrize("how", [{}, {"zarr_format": 2}, {"shards": (20, 3)}])
def test_a_lost_chunk_of_a_zarr_array_is_an_error(tmp_path, how):
    path = tmp_path / "rows.zarr"
    zarr.create_array(str(path), data=rows(), chunks=(10, 3), **how)
    np.testing.assert_array_equal(mf.open_rows(path).compute(), rows())
    lost = path / ("2.0" if "zarr_format" in how else "c/2/0")
    lost.unlink()
    first = 40 if "shards" in how else 20
    lazy = mf.open_rows(path)
    with pytest.raises(InputError, match=rf"has no file '{lost.relative_to(path)}', with rows from {first} on"):
        lazy.compute()
    os.mkfifo(lost)  # opening it would wait for ever
    with pytest.raises(InputError, match=r"has no file|is a pipe"):
        lazy.compute()


def test_blocks_of_zeros_are_stored(tmp_path):
    for dtype in (float, int):
        path = tmp_path / f"{dtype.__name__}.zarr"
        storage.store(da.zeros((20, 2), dtype=dtype, chunks=(10, 2)), path, ["a", "b"])
        assert not mf.open_rows(path).compute().any()


@pytest.mark.parametrize("entry", ["zarr.json", "c"])
def test_a_pipe_in_a_store_is_refused(tmp_path, entry):
    path = write(tmp_path, "zarr", rows())
    (path / entry).rename(tmp_path / "old")
    os.mkfifo(path / entry)
    with pytest.raises(InputError, match="is a pipe"):
        mf.open_rows(path)


def test_a_zarr_array_of_empty_chunks_is_refused(tmp_path):
    path = write(tmp_path, "zarr", rows())
    described = json.loads((path / "zarr.json").read_text())
    described["chunk_grid"]["configuration"]["chunk_shape"] = [0, 3]
    (path / "zarr.json").write_text(json.dumps(described))
    with pytest.raises(InputError, match=r"'rows.zarr' is not a zarr array"):
        mf.open_rows(path)
