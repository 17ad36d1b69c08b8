"""Files saved before still load: metrics written by version 0.1.0 in file format 1 measure what they did then.

The files and what they must answer lie in ``golden``; ``golden/make.py`` says how they were written.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import metricforge as mf

GOLDEN = Path(__file__).parent / "golden"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))
FILES = EXPECTED["files"]
COUNTS = {"files": 77, "kernel": 19, "method": 6, "solver": 7}
"""How many files there are, and how many names were registered when they were written."""

every_file = pytest.mark.parametrize("name", FILES)


def ask(name, which="rows"):
    """Return the queries of a file, or further rows to update it with, as they were when it was written."""
    asked = EXPECTED["queries"][FILES[name]["queries"]]
    assert len(asked[which]) == 6
    if asked["kind"] == "strings":
        return np.array(asked[which], dtype=object)
    rows = np.array(asked[which], dtype=asked["dtype"])
    if asked["kind"] == "frame":
        return pd.DataFrame(rows, columns=asked["columns"])
    assert asked["kind"] in ("array", "csr")
    return sp.csr_array(rows) if asked["kind"] == "csr" else rows


def close(found, expected, name, digits=9):
    """Compare to as many digits of the largest value as the rows have: single precision has six."""
    expected = np.asarray(expected, dtype=np.float64)
    assert expected.size
    largest = np.abs(expected).max()
    assert largest > 0
    if EXPECTED["queries"][FILES[name]["queries"]].get("dtype") == "float32":
        digits = 6
    np.testing.assert_allclose(found, expected, rtol=10.0**-digits, atol=10.0**-digits * largest)


def between(E):
    """Return the Euclidean distances of the rows of an embedding."""
    return np.linalg.norm(E[:, None].astype(np.float64) - E[None], axis=-1)


def head(name):
    """Return the JSON tree in a file, read without metricforge."""
    with zipfile.ZipFile(GOLDEN / name) as archive:
        return json.loads(archive.read("metric.json"))


def components(tree):
    """Yield kind and name of every component in the tree of a file."""
    if isinstance(tree, dict) and "component" in tree:
        yield tree["component"], tree["name"]
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from components(part)


# ----------------------------------------------------------------------------------------------------------- the folder


def test_the_folder_holds_the_files_that_are_expected():
    assert sorted(path.name for path in GOLDEN.glob("*.metric")) == sorted(FILES)
    assert len(FILES) == COUNTS["files"]


@every_file
def test_a_file_is_as_it_was_written(name):
    content = (GOLDEN / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == FILES[name]["sha256"]
    assert len(content) < 30_000
    tree = head(name)
    assert (tree["format"], tree["metricforge"]) == (1, "0.1.0")


@pytest.mark.parametrize("kind", ["kernel", "solver"])
def test_every_kernel_and_solver_of_then_is_in_some_file(kind):
    names = EXPECTED["registered"][kind]
    assert len(set(names)) == COUNTS[kind]
    found = {part for name in FILES for k, part in components(head(name)["content"]) if k == kind}
    assert found == set(names)


def test_every_method_of_then_is_in_some_file():
    names = EXPECTED["registered"]["method"]
    assert len(set(names)) == COUNTS["method"]
    assert set(names) <= {mf.load(GOLDEN / name).report["method"] for name in FILES}


# ------------------------------------------------------------------------------------------------------------ the files


def check_distances(metric, name):
    asked, expected = ask(name), FILES[name]["distance"]
    D = metric.distance(asked)
    assert D.shape == (6, 6)
    close(D, expected, name)
    close(metric.kernel(asked), FILES[name]["kernel"], name)
    rows = asked.to_numpy() if isinstance(asked, pd.DataFrame) else asked
    close(metric.paired_distance(rows[1:], rows[:-1]), np.diagonal(expected, offset=1), name)


def check_embedding(metric, name):
    asked, expected = ask(name), FILES[name]
    if expected["columns"] is None:  # of an indefinite kernel
        with pytest.raises(mf.errors.InputError, match="embedding"):
            metric.transform(asked)
        return
    E = metric.transform(asked)
    assert E.shape == (6, expected["columns"])
    if expected["embedded"] is None:  # over landmarks that are drawn now
        assert metric.rank == expected["columns"] == 20
    else:
        close(between(E), expected["embedded"], name)
    if "embedding" in expected:  # over those in the file
        assert metric.stored_map is not None
        close(E, expected["embedding"], name)


def check_neighbors(metric, name):
    asked = ask(name)
    assert (metric.rows is None) == ("neighbors" not in FILES[name])
    if metric.rows is None:
        with pytest.raises(mf.errors.InputError, match="keeps no training rows"):
            metric.neighbors(asked, k=3)
        return
    expected = FILES[name]["neighbors"]
    indices, distances = metric.neighbors(asked, k=3)
    close(distances, expected["distances"], name)
    assert len(indices) == len(expected["indices"]) == 6
    for found, known in zip(indices.tolist(), expected["indices"], strict=True):
        assert known is None or found == known  # None: two rows are as near
    whole = metric.distance(asked, metric.rows)
    # six digits: a distance of 0 is the root of what rounding leaves
    close(np.take_along_axis(whole, indices, axis=1), expected["distances"], name, digits=6)


def check_report(metric, name):
    report, expected = metric.report, FILES[name]
    assert (metric.rank, metric.seed, metric.width) == (expected["rank"], expected["seed"], expected["width"])
    assert sorted(report) == sorted(expected["report"])
    assert report["method"] == expected["method"]
    assert [part["method"] for part in report.get("parts", ())] == expected["parts"]
    if expected["status"] is None:  # of a sum, whose parts have theirs
        assert "status" not in report
        assert expected["parts"]
    else:
        assert report["status"] == expected["status"] == "optimal"
        assert report["objective"] == expected["objective"]
        assert report["version"] == "0.1.0"


@pytest.mark.parametrize("check", [check_distances, check_embedding, check_neighbors, check_report])
@every_file
def test_a_loaded_metric_is_the_same(name, check):
    check(mf.load(GOLDEN / name), name)


@every_file
def test_a_loaded_metric_can_be_saved_again(name, tmp_path):
    metric = mf.load(GOLDEN / name)
    check_embedding(metric, name)  # what was found on the way is saved too
    metric.save(tmp_path / "again.metric")
    again = mf.load(tmp_path / "again.metric")
    check_distances(again, name)
    check_embedding(again, name)
    check_neighbors(again, name)
    check_report(again, name)
    assert again.kernel == metric.kernel
    assert again.solver == metric.solver
    assert type(again.rows) is type(metric.rows)


def test_most_files_are_asked_everything():
    told = {name.removesuffix(".metric"): one for name, one in FILES.items()}
    held = {name for name, one in told.items() if "embedding" in one}
    assert held == {name for name in told if mf.load(GOLDEN / f"{name}.metric").stored_map is not None}
    assert held >= {"map-rbf", "map-landmarks", "map-krca", "map-stacked", "dask-rbf", "sum-other-rows"}
    left = {name for name, one in told.items() if one["embedded"] is None}
    assert left == {"idealized-paper", "kernel-mixture-indefinite", "landmarks-rbf"}
    without = {name for name, one in told.items() if "neighbors" not in one}
    assert without == {name for name in told if name.startswith("dask-") or "other-rows" in name}
    assert len(without) == 6
    known = [row for one in told.values() if "neighbors" in one for row in one["neighbors"]["indices"]]
    assert len(known) == 6 * (COUNTS["files"] - 6)
    assert known.count(None) < 0.1 * len(known)
    assert {one["seed"] for one in told.values()} == {0, 7}
    assert {one["rank"] for one in told.values()} == {"auto", 20}
    sums = {name for name, one in told.items() if one["status"] is None}
    assert sums == {name for name in told if name.startswith(("scaled", "sum"))}


# --------------------------------------------------------------------------------------------------- going on with them

UPDATED = [name for name, told in FILES.items() if "updated" in told]


def test_every_file_of_krca_is_updated():
    assert [name for name, told in FILES.items() if told["method"] == "krca"] == UPDATED
    assert len(UPDATED) == 16
    kernels = {dict(head(name)["content"]["dict"])["kernel"]["name"] for name in UPDATED}
    assert kernels == {"krca-exact", "krca-features"}


@pytest.mark.parametrize("name", UPDATED)
def test_an_update_goes_on_where_it_was(name):
    metric, asked = mf.load(GOLDEN / name), ask(name)
    updated = metric.update(ask(name, "more"), mf.Chunklets(EXPECTED["groups"]))
    D = updated.distance(asked)
    close(D, FILES[name]["updated"], name)
    assert np.abs(D - metric.distance(asked)).max() > 1e-3 * D.max()
    assert updated.report["n"] == metric.report["n"] + 6
    assert updated.transform(asked).shape[0] == 6


@pytest.mark.parametrize("name", ["frame-krca.metric", "frame-lpdesign.metric"])
def test_names_of_columns_are_kept(name):
    metric, asked = mf.load(GOLDEN / name), ask(name)
    assert metric.report["columns"] == ("length", "width", "größe", "weight in kg")
    close(metric.distance(asked.to_numpy()), FILES[name]["distance"], name)
    with pytest.raises(mf.errors.InputError, match="in that order"):
        metric.distance(asked[asked.columns[::-1]])


def test_kinds_of_rows_are_kept():
    rows = {name.removesuffix(".metric"): mf.load(GOLDEN / name).rows for name in FILES}
    assert rows["float32-rbf"].dtype == np.float32
    assert rows["euclidean"].dtype == np.float64
    assert type(rows["csr-rbf"]) is sp.csr_array
    assert type(rows["csr-matrix"]) is sp.csr_matrix
    assert rows["strings-spectrum"].dtype == object
    assert any("漢" in word for word in rows["strings-spectrum"])
    assert rows["gram-krca"].shape == (24, 24)
    assert rows["updated-krca"].shape == (33, 4)


@pytest.mark.parametrize("name", ["kcr.metric", "krca.metric", "simplenpkl-nystrom.metric", "sum-other-rows.metric"])
def test_a_loaded_metric_is_a_kernel_of_the_next_fit(name):
    metric = mf.load(GOLDEN / name)
    X = mf.load(GOLDEN / "euclidean.metric").rows
    learned = mf.learn(X, mf.Labels(np.arange(24) % 3), method="euclidean", kernel=metric)
    close(learned.distance(ask(name)), FILES[name]["distance"], name)
    double = metric + mf.load(GOLDEN / name)
    close(double.distance(ask(name)), np.sqrt(2) * np.array(FILES[name]["distance"]), name)
