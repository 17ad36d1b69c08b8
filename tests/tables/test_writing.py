"""Results to files, atomically."""

from __future__ import annotations

import numpy as np
import pytest

from metricforge.errors import InputError
from metricforge.files import atomic
from metricforge.tables import check_output, read, write


@pytest.mark.parametrize("name", ["e.csv", "e.tsv", "e.npy"])
def test_what_is_written_reads_back_to_the_last_bit(tmp_path, name):
    A = np.random.default_rng(0).normal(size=(20, 3)) * 10.0 ** np.arange(-8, 12)[:, None]
    A[0, 0], A[1, 1] = 1e15, -3.0
    write(tmp_path / name, ['a "b"', "c\td,e", "f"], A)
    back = read(tmp_path / name)
    np.testing.assert_array_equal(back.rows, A)
    if name != "e.npy":
        assert back.names == ('a "b"', "c\td,e", "f")


def interrupted_while_writing(file):
    file.write(b"half of")
    raise KeyboardInterrupt


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic.writing(path) as file:
        interrupted_while_writing(file)
    assert [p.name for p in tmp_path.iterdir()] == ["e.csv"]
    assert path.read_text() == "old"
    path.chmod(0o640)
    atomic.write(path, b"new")
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["e.csv"]
    assert path.stat().st_mode & 0o777 == 0o640


def test_where_nothing_can_be_written(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="it is a folder"):
        atomic.check_writable(tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        atomic.write(tmp_path / "no" / "e.csv", b"")
    with pytest.raises(InputError, match=r"its extension must be .csv, .tsv, .npy, .parquet, .zarr"):
        write(tmp_path / "e.xlsx", ["a"], np.zeros((1, 1)))
    for kind in ("parquet", "zarr"):
        (tmp_path / f"e.{kind}").mkdir()
        with pytest.raises(InputError, match="becomes a folder, and this name exists; remove it first"):
            check_output(tmp_path / f"e.{kind}")
        (tmp_path / f"e.{kind}").rmdir()
    with pytest.raises(InputError, match="No space left"), atomic.writing(tmp_path / "e.csv"):
        raise OSError(28, "No space left on device")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(atomic.os, "access", lambda *_: False)
    with pytest.raises(InputError, match="permission denied"):
        atomic.check_writable(tmp_path / "e.csv")
