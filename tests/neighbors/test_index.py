"""The index by cells: search, folder, damage."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from metricforge import neighbors
from metricforge.errors import InputError, ModelFileError
from metricforge.neighbors import index

rng = np.random.default_rng(0)
CENTRES = 3 * rng.standard_normal((20, 6))
Z = CENTRES[rng.integers(20, size=8000)] + rng.standard_normal((8000, 6))
NEW = CENTRES[rng.integers(20, size=200)] + rng.standard_normal((200, 6))


@pytest.fixture(scope="module")
def made():
    return index.build(Z, k=10, recall=0.95)


def test_neighbours_of_new_rows_to_the_recall_asked_for(made):
    indices, distances = made.search(NEW, 10)
    assert neighbors.recall(indices, Z, queries=NEW) >= 0.95
    assert made.recall >= 0.95
    np.testing.assert_allclose(distances, np.linalg.norm(NEW[:, None] - Z[indices], axis=2), rtol=1e-12)


def test_one_query_gets_the_answer_that_many_get(made):
    many = made.search(NEW, 7)
    for i in (0, 11):
        one = made.search(NEW[i : i + 1], 7)
        np.testing.assert_array_equal(one[0][0], many[0][i])
        np.testing.assert_array_equal(one[1][0], many[1][i])


def test_more_neighbours_than_the_cells_have_rows_are_found(made):
    indices, distances = made.search(NEW[:3], 8000)
    assert (np.sort(indices, axis=1) == np.arange(8000)).all()
    assert (np.diff(distances, axis=1) >= 0).all()


def test_recall_one_is_exact():
    exact = index.build(Z[:500], recall=1.0)
    wanted = neighbors.search(Z[:500], 5, queries=NEW, method="exact")
    found = exact.search(NEW, 5)
    np.testing.assert_array_equal(found[0], wanted[0])
    np.testing.assert_array_equal(found[1], wanted[1])


def test_a_folder_is_opened_with_its_rows_mapped(made, tmp_path):
    made.save(tmp_path / "rows.index", metric="abc")
    again, described = index.opened(tmp_path / "rows.index")
    assert described["metric"] == "abc"
    assert isinstance(again.members.rows, np.memmap)
    np.testing.assert_array_equal(again.search(NEW, 4)[0], made.search(NEW, 4)[0])
    made.save(tmp_path / "rows.index")  # replaced
    assert [path.name for path in tmp_path.iterdir()] == ["rows.index"]


def test_an_index_is_replaced_by_a_whole_one_or_not_at_all(made, tmp_path, monkeypatch):
    made.save(tmp_path / "rows.index", name="first")
    move = type(tmp_path).replace

    def full(self, target):
        if self.suffix == ".part":
            raise OSError(28, "No space left on device")
        return move(self, target)

    monkeypatch.setattr(type(tmp_path), "replace", full)
    with pytest.raises(OSError, match="No space"):
        made.save(tmp_path / "rows.index", name="second")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.index"]
    assert index.opened(tmp_path / "rows.index")[1]["name"] == "first"


def test_a_disk_without_room_is_named_before_the_work(made, tmp_path, monkeypatch):
    monkeypatch.setattr(index.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    for write in (lambda: made.save(tmp_path / "rows.index"), lambda: index.build(Z, folder=tmp_path / "rows.index")):
        with pytest.raises(InputError, match=r"takes .* MB, and 0.001 MB are free"):
            write()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("chunks", [900, 8000])
def test_chunks_give_the_index_of_rows_in_memory(chunks, made, tmp_path):
    import dask.array as da

    lazy = index.build(da.from_array(Z, chunks=(chunks, -1)), k=10, folder=tmp_path / "lazy")
    assert lazy.probes == made.probes
    np.testing.assert_array_equal(lazy.members.numbers, made.members.numbers)
    np.testing.assert_array_equal(lazy.search(NEW, 4)[1], made.search(NEW, 4)[1])


def test_damage_is_named(made, tmp_path):
    folder = tmp_path / "a"
    with pytest.raises(ModelFileError, match="no complete index"):
        index.opened(folder)
    made.save(folder)
    np.save(folder / "starts.npy", np.array([0, 3]))
    with pytest.raises(ModelFileError, match=r"starts\.npy is not as it was written"):
        index.opened(folder)
    (folder / "index.json").write_text(json.dumps({"format": 9}))
    with pytest.raises(ModelFileError, match="format 9"):
        index.opened(folder)
    (tmp_path / "b").mkdir()
    with pytest.raises(InputError, match="something else"):
        made.save(tmp_path / "b")
    with pytest.raises(InputError, match="6"):
        made.search(np.zeros((1, 4)), 1)


DAMAGE = {
    "a number below 0": ("numbers", lambda A: np.where(np.arange(len(A)) == 5, -1, A)),
    "a number beyond the rows": ("numbers", lambda A: A + 1),
    "no centres": ("centres", lambda A: A[:0]),
    "complex centres": ("centres", lambda A: A.astype(complex)),
    "complex starts": ("group_starts", lambda A: A.astype(complex)),
    "groups of text": ("groups", lambda A: A.astype(str)),
    "centres whose squares overflow": ("centres", lambda A: np.full_like(A, np.finfo(A.dtype).max / 4)),
    "groups whose squares overflow": ("groups", lambda A: np.full_like(A, np.finfo(A.dtype).max / 4)),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_parts_that_cannot_be_searched_are_refused(tmp_path, made, what):
    made.save(tmp_path / "index")
    name, change = DAMAGE[what]
    array = np.load(tmp_path / "index" / f"{name}.npy")
    np.save(tmp_path / "index" / f"{name}.npy", change(array))
    with pytest.raises(ModelFileError, match=r"damaged index|no complete index"):
        index.opened(tmp_path / "index")


def test_rows_that_are_not_finite_are_found_when_they_are_searched(tmp_path, made):
    rows = np.full_like(made.members.rows, np.nan)
    replace(made, members=replace(made.members, rows=rows)).save(tmp_path / "index")
    with pytest.raises(ModelFileError, match="not finite"):
        index.opened(tmp_path / "index")[0].search(NEW, 3)


FILES = [f"{name}.npy" for name in index.ARRAYS] + [index.DESCRIPTION]


def answer(folder):
    """Return the neighbours of many rows, or None if the index is refused."""
    try:
        return index.opened(folder)[0].search(NEW, 5)
    except ModelFileError:
        return None


@pytest.mark.parametrize("name", FILES)
def test_damage_changes_no_answer(tmp_path, made, name):
    made.save(tmp_path / "index")
    right, path = made.search(NEW, 5), tmp_path / "index" / name
    content = path.read_bytes()
    refused = 0
    for place in np.random.default_rng(0).integers(len(content), size=12).tolist():
        for damage in (bytes(100), bytes([content[place] ^ 1])):
            damaged = content[:place] + damage + content[place + len(damage) :]
            path.write_bytes(damaged[: len(content)])
            found = answer(tmp_path / "index")
            refused += found is None
            if found is not None:
                np.testing.assert_array_equal(found, right)
    assert refused
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelFileError, match="build it again"):
        index.opened(tmp_path / "index")
    path.unlink()
    os.mkfifo(path)  # opening it would wait for ever
    with pytest.raises(ModelFileError, match=f"there is no file {name}"):
        index.opened(tmp_path / "index")


@pytest.mark.parametrize("header", [b"{'descr': '<f8', (", b"{" * 90, b"\xff" * 60])
def test_a_broken_header_is_refused(tmp_path, made, header):
    made.save(tmp_path / "index")
    (tmp_path / "index" / "numbers.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(ModelFileError, match="no complete index"):
        index.opened(tmp_path / "index")


@pytest.mark.parametrize(
    ("name", "value"),
    [("k", -5), ("k", 2.5), ("recall", 5), ("recall", "1"), ("largest", 10**400), ("largest", -1), ("probes", "1")],
)
def test_numbers_of_a_description_that_cannot_be_are_refused(tmp_path, made, name, value):
    folder = tmp_path / "index"
    made.save(folder)
    described = json.loads((folder / "index.json").read_text()) | {name: value}
    described.pop("checksums")
    described["checksums"] = index._file_checksums(folder, described)
    (folder / "index.json").write_text(json.dumps(described))
    with pytest.raises(ModelFileError, match=f"damaged index: {name} must be"):
        index.opened(folder)


def test_numbers_damaged_after_opening_are_refused_when_they_are_read(tmp_path, made):
    made.save(tmp_path / "index")
    opened = index.opened(tmp_path / "index")[0]
    numbers = np.load(tmp_path / "index" / "numbers.npy", mmap_mode="r+")
    numbers[: len(numbers) // 2] = 0
    numbers.flush()
    with pytest.raises(ModelFileError, match="damaged"):
        opened.search(np.asarray(made.members.rows), 3)
    with pytest.raises(ModelFileError, match="damaged"):
        opened.rows_of(np.arange(2))
