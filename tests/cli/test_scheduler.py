"""Commands on a dask scheduler: workers read and write, and the answer is that of memory."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace

import distributed
import numpy as np
import pandas as pd
import pytest
import zarr
from metricforge_cases.shell import N_LARGE, learn, run

import metricforge as mf
from metricforge.tables import read

FAR = ("--method", "krca", "--kernel", "rbf(gamma=0.02)", "--rank", "30", "--json")


@pytest.mark.xdist_group("cluster")
@pytest.mark.parametrize(
    "words",
    [
        ["rows.npy", "--label", "y.npy"],
        ["rows.npy", "--label", "39", "--drop", "7"],
        ["rows.npy", "--pairs", "pairs.csv"],
        ["rows.zarr", "--label", "y.npy"],
        ["rows.parquet", "--label", "kind"],
        ["rows.parquet", "--groups", "kind", "--drop", "c3"],
        ["parts.parquet", "--label", "kind", "--standardize"],
    ],
    ids=" ".join,
)
def test_workers_read_the_rows_and_the_answer_is_that_of_memory(scheduler, disk, capsys, words):
    far, near = disk / "far.metric", disk / "near.metric"
    if "39" in words:  # one value a row would be one class each
        np.save(disk / "rows.npy", np.column_stack([np.load("rows.npy")[:, :39], np.load("y.npy")]).astype(np.float32))
        words = [str(disk / "rows.npy"), *words[1:]]
    assert run("learn", *words, *FAR, "-o", far, "--scheduler", scheduler) == 0
    there = json.loads(capsys.readouterr().out)
    assert run("learn", *words, *FAR, "-o", near) == 0
    here = json.loads(capsys.readouterr().out)
    assert there["held"] == here["held"]
    assert there["report"]["columns"] == here["report"]["columns"]
    new = np.random.default_rng(1).normal(size=(5, len(here["report"]["columns"])))
    a, b = mf.load(far), mf.load(near)
    assert a.rows is None  # they stayed where they were
    np.testing.assert_allclose(a.distance(new), b.distance(new), rtol=1e-6)


@pytest.mark.xdist_group("cluster")
@pytest.mark.parametrize("kind", ["npy", "parquet", "zarr", "csv"])
def test_workers_write_what_they_computed(scheduler, disk, kind):
    X = np.load("rows.npy")
    metric = mf.learn(X[:300], np.load("y.npy")[:300], method="krca", rank=30)
    metric.save(disk / "m.metric")
    np.save(disk / "few.npy", X[:9])
    at = ["--scheduler", scheduler]

    def written(command, *words):
        out = disk / f"{command}.{kind}"
        assert run(command, disk / "m.metric", *words, "-o", out, *at) == 0
        return np.loadtxt(out, delimiter=",", skiprows=1) if kind == "csv" else read(out).rows

    np.testing.assert_allclose(written("transform", "rows.npy"), metric.transform(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(written("distance", "rows.npy", disk / "few.npy"), metric.distance(X, X[:9]), atol=1e-5)
    found = written("neighbors", "rows.npy", "-k", "3", "--among", disk / "few.npy")
    indices, distances = replace(metric, rows=X[:9]).neighbors(X, 3)
    np.testing.assert_array_equal(found[:, 0], np.repeat(np.arange(N_LARGE), 3))
    np.testing.assert_array_equal(found[:, 1], np.tile([1, 2, 3], N_LARGE))
    np.testing.assert_array_equal(found[:, 2], indices.ravel())
    np.testing.assert_allclose(found[:, 3], distances.ravel(), atol=1e-5)
    assert not list(disk.glob(".*"))


@pytest.mark.xdist_group("cluster")
@pytest.mark.parametrize("by", ["distance", "kernel"])
def test_an_index_of_rows_that_workers_read_is_that_of_memory(scheduler, disk, capsys, by):
    X = np.load("rows.npy")
    metric = mf.learn(X[:300], np.load("y.npy")[:300], method="krca", kernel="linear")
    metric.save(disk / "m.metric")
    np.save(disk / "few.npy", X[:9])
    words = ["index", disk / "m.metric", disk / "few.npy", "-k", "3", "--by", by, "--among", "rows.npy", "--json"]
    assert run(*words, "--folder", disk / "far.index", "--scheduler", scheduler) == 0
    there = json.loads(capsys.readouterr().out)
    assert run(*words, "--folder", disk / "near.index") == 0
    here = json.loads(capsys.readouterr().out)
    assert there["indices"] == here["indices"]
    values = "distances" if by == "distance" else "kernel"  # values of the kernel are not called distances
    np.testing.assert_allclose(there[values], here[values], rtol=1e-5)


@pytest.mark.xdist_group("cluster")
def test_rows_on_workers_are_sorted_as_in_memory(scheduler, disk, capsys):
    X, y = np.load("rows.npy")[:400], np.load("y.npy")[:400]
    np.save(disk / "some.npy", X)
    np.save(disk / "classes.npy", y)
    mf.learn(X, y, method="krca", rank=30).save(disk / "m.metric")
    rng = np.random.default_rng(0)
    i, j = rng.integers(400, size=(2, 300))
    same = pd.DataFrame({"i": i, "j": j, "similar": (y[i] == y[j]).astype(int)})[i != j]
    same.to_csv(disk / "judged.csv", index=False)
    metric, rows = disk / "m.metric", disk / "some.npy"
    for words in (
        ["classify", metric, rows, "--among", rows, "--label", disk / "classes.npy"],
        ["cluster", metric, rows, "--clusters", "3"],
        ["match", metric, rows, "--pairs", disk / "judged.csv", "--precision", "0.3", "--confidence", "0"],
    ):
        capsys.readouterr()
        assert run(*words, "--json") == 0
        here = json.loads(capsys.readouterr().out)
        assert run(*words, "--json", "--scheduler", scheduler) == 0
        there = capsys.readouterr()
        there, said = json.loads(there.out), there.err
        assert "dask" not in said.lower()
        for name, values in here.items():
            if name in ("class", "clusters", "pairs", "classes"):
                assert there[name] == values, (words[0], name)


@pytest.mark.xdist_group("cluster")
def test_results_on_standard_output_come_from_the_workers_too(scheduler, disk, capsys):
    X = np.load("rows.npy")[:200]
    np.save(disk / "some.npy", X)
    metric = mf.learn(X, np.load("y.npy")[:200], method="krca", rank=30)
    metric.save(disk / "m.metric")
    at = ["--scheduler", scheduler]
    assert run("distance", disk / "m.metric", disk / "some.npy", disk / "some.npy", "--paired", "--json", *at) == 0
    assert json.loads(capsys.readouterr().out) == {"distances": [0.0] * 200}
    assert run("neighbors", disk / "m.metric", disk / "some.npy", "-k", "1", *at) == 0
    head, first, *_ = capsys.readouterr().out.splitlines()
    assert head == "row,place,neighbor,distance"
    assert first.startswith("0,1,0,")


@pytest.mark.xdist_group("cluster")
def test_the_client_never_holds_all_rows(scheduler, disk, capsys, monkeypatch):
    monkeypatch.setattr("metricforge.space.landmarks.SAMPLE_ROWS", 300)
    monkeypatch.setattr("metricforge.constraints.scoring.MOST_ROWS", 100)
    monkeypatch.setattr("metricforge.distributed.storage.CHUNK_BYTES", 4_000_000)
    at = ["--scheduler", scheduler]
    large = disk / "large.npy"
    np.save(large, np.tile(np.load("rows.npy"), (20, 2)))  # 38 MB
    np.save(disk / "few.npy", np.tile(np.load("rows.npy")[:9], (1, 2)))
    words = [large, "--pairs", "pairs.csv", *FAR, "-o", disk / "far.metric"]
    assert run("learn", *words, *at) == 0  # what the first run imports is not what it holds
    size = large.stat().st_size
    for command in (
        ["learn", *words],
        ["transform", disk / "far.metric", large, "-o", disk / "e.npy"],
        ["neighbors", disk / "far.metric", large, "--among", disk / "few.npy", "-k", "2", "-o", disk / "n.npy"],
    ):
        tracemalloc.start()
        assert run(*command, *at) == 0
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert held < size / 3, command


@pytest.mark.xdist_group("cluster")
def test_bad_rows_on_disk_are_one_sentence_that_names_the_cell(scheduler, disk, capsys):
    holes = np.load("rows.npy")
    holes[4321, 7] = np.nan
    np.save(disk / "holes.npy", holes)
    zarr.save_array(str(disk / "holes.zarr"), holes)
    pd.DataFrame(holes, columns=[f"c{i}" for i in range(40)]).to_parquet(disk / "holes.parquet", index=False)
    mf.learn(holes[:50], np.arange(50) % 2, method="krca", kernel="linear").save(disk / "m.metric")
    np.save(disk / "cube.npy", np.zeros((2, 2, 2)))
    (disk / "broken.parquet").write_text("nothing")
    (disk / "old.parquet").write_text("old")
    at = ("--scheduler", scheduler)
    gone = disk / "only-text.parquet"
    pd.DataFrame({"a": [1.0, 2.0], "name": ["x", "y"]}).to_parquet(gone)
    for words, said in (
        (["learn", disk / "holes.npy", "--pairs", "pairs.csv"], "row 4321 (counted from 0): column '7' holds 'nan'"),
        (["learn", disk / "holes.zarr", "--pairs", "pairs.csv"], "row 4321 (counted from 0): column '7' holds 'nan'"),
        (["learn", disk / "holes.parquet", "--pairs", "pairs.csv"], "row 4321 (counted from 0): column 'c7'"),
        (["transform", disk / "m.metric", disk / "holes.npy", "-o", disk / "e.npy"], "row 4321 (counted from 0)"),
        (["learn", gone, "--pairs", "pairs.csv"], "column 'name' holds the text 'x'; leave the column out with --drop"),
        (["learn", "rows.parquet", "--label", "kin"], "no column 'kin'; did you mean 'kind'?"),
        (["learn", "rows.npy", "--label", "40"], "no column '40'"),
        (["learn", "rows.npy", "--label", "pairs.csv"], "has 2 columns"),
        (["learn", disk / "cube.npy", "--pairs", "pairs.csv"], "give a 2-d array of numbers"),
        (["learn", disk / "broken.parquet", "--pairs", "pairs.csv"], "is not a Parquet file"),
        (["learn", disk / "no.zarr", "--pairs", "pairs.csv"], "there is no file"),
        (["transform", disk / "m.metric", "rows.npy", "-o", disk / "old.parquet"], "remove it first"),
    ):
        assert run(*words, *at) == 2
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1
        assert not list(disk.glob(".*"))


def test_on_a_scheduler(here):
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0", protocol="tcp"
    ) as at:
        learn("--kernel", "linear", "--scheduler", at.scheduler_address, "-o", "far.metric")
        assert at.scheduler.transition_counter > 0  # work was done there
    learn("--kernel", "linear", "-o", "near.metric")
    X = np.load("toy.npy")
    np.testing.assert_allclose(mf.load("far.metric").distance(X), mf.load("near.metric").distance(X), atol=1e-8)
    assert mf.load("far.metric").neighbors(X[:2], k=1)[0].tolist() == [[0], [1]]
