"""The command line: what each command gives, and what it says to every kind of bad input."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import tracemalloc
import warnings
from dataclasses import replace
from pathlib import Path

import distributed
import numpy as np
import pandas as pd
import pytest
import zarr

import metricforge as mf
from metricforge.constraints import Satisfied
from metricforge.files import atomic as files
from metricforge.files import read, writing
from metricforge.shell import demo
from metricforge.shell import main as cli

ROOT = Path(__file__).parents[2]
COMMANDS = ("demo", "learn", "transform", "neighbors", "distance", "plugins", "datasets", "reproduce")


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A folder with the files a user would have."""
    folder = tmp_path_factory.mktemp("user")
    X, y = mf.datasets.load("toy")
    names = [f"f{i}" for i in range(11)]
    kinds = np.array(["red", "blue"])[y]
    lines = [",".join(map(repr, row.tolist())) + f",{kind},{g}" for row, kind, g in zip(X, kinds, y, strict=True)]
    (folder / "toy.csv").write_text("\n".join([",".join([*names, "class", "group"]), *lines]) + "\n")
    np.savetxt(folder / "bare.csv", X, delimiter=",", fmt="%.17g")
    np.save(folder / "toy.npy", X)
    (folder / "labels.csv").write_text("class\n" + "\n".join(kinds) + "\n")
    pairs = mf.Pairs.from_labels(y, n_pairs=40, seed=0)
    signed = [(*p, 1) for p in pairs.similar] + [(*p, -1) for p in pairs.dissimilar]
    (folder / "pairs.csv").write_text("i,j,similar\n" + "\n".join(f"{i},{j},{s}" for i, j, s in signed) + "\n")
    triples = mf.Triplets.from_labels(y, n_triplets=100, seed=0).triples
    (folder / "t.csv").write_text("i,j,k\n" + "\n".join(f"{i},{j},{k}" for i, j, k in triples) + "\n")
    proteins = [f">p{i} {'ab'[i % 2]}\n{'ACDE' * 3 if i % 2 else 'WYVL' * 3}{'ACDEFGHIKL'[i % 10]}" for i in range(20)]
    (folder / "p.fasta").write_text("\n".join(proteins) + "\n")
    (folder / "run.toml").write_text(
        'data = "toy.csv"\nlabel = "class"\ndrop = ["group"]\nmethod = "krca"\nout = "run.metric"\n'
        'kernel = "linear"\n[options]\nepsilon = 0.5\n'
    )
    mf.learn(X, y, method="krca", kernel="linear").save(folder / "python.metric")
    return folder


@pytest.fixture
def here(started, tmp_path, monkeypatch):
    """The same files in a folder of the test's own, which is the current one."""
    shutil.copytree(started, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    return cli.main([str(word) for word in words])


def learn(*words):
    assert run("learn", "toy.csv", "--label", "class", "--drop", "group", "--method", "krca", *words) == 0


# ------------------------------------------------------------------------------------------------------------- learn


def test_learn_from_labels_says_what_changed_and_saves(here, capsys):
    typed = ["learn", "toy.csv", "--label", "class", "--drop", "group", "--method", "auto", "--kernel", "linear"]
    assert run(*typed, "-o", "toy.metric", "--report", "report.html") == 0
    out, err = capsys.readouterr()
    assert "100 labels in 2 classes over 100 rows of 11 features" in out
    assert "rows whose nearest other row is of their class" in out
    assert "metricforge neighbors toy.metric toy.csv" in out
    assert "\r" not in err  # no progress bar outside a terminal
    metric = mf.load("toy.metric")
    assert metric.report.columns == tuple(f"f{i}" for i in range(11))
    page = (here / "report.html").read_text()
    assert "metricforge learn toy.csv --label class" in page
    assert "toy.csv" in page


@pytest.mark.parametrize(
    ("words", "method"),
    [
        (["toy.csv", "--label", "class", "--drop", "group"], None),
        (["toy.csv", "--groups", "group", "--drop", "class"], "krca"),
        (["bare.csv", "--pairs", "pairs.csv"], None),
        (["bare.csv", "--triplets", "t.csv"], "lpdesign"),
        (["toy.npy", "--label", "labels.csv"], None),
        (["p.fasta", "--label", "description", "--method", "krca"], "krca"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_every_kind_of_hint_and_the_same_answer_as_python(here, capsys, words, method):
    assert run("learn", *words, "-o", "x.metric", "--json", "--seed", "3") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["metric"] == "x.metric"
    assert told["report"]["seed"] == 3
    assert method in (None, told["report"]["method"])
    assert all(0 <= h["before"] <= 1 and 0 <= h["after"] <= 1 for h in told["held"])
    metric = mf.load("x.metric")
    if "t.csv" in words:
        triplets = mf.Triplets(np.loadtxt("t.csv", delimiter=",", skiprows=1, dtype=int), n=100)
        same = mf.learn(np.load("toy.npy"), triplets, seed=3)
        np.testing.assert_allclose(metric.distance(np.load("toy.npy")), same.distance(np.load("toy.npy")), atol=1e-10)


def test_options_kernels_rank_and_the_default_name(here):
    learn("--kernel", "rbf(gamma=0.01)", "--option", "epsilon=0.25", "--rank", "20")
    report = mf.load("toy.metric").report
    assert report.epsilon == 0.25
    assert report.kernel == repr(mf.kernels.RBF(0.01))
    assert report["rank"] == 20


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("kcr", r"optimal: duality gap 0\.\d+, relative 0\.000\d+; \d+ iterations, "),
        ("krca", r"optimal: residual of the optimality conditions \d.*e-\d\d; 1 iteration, "),
        ("euclidean", r"optimal: nothing is optimised; 0 iterations, "),
    ],
)
def test_the_certificate_is_described_by_its_kind(here, capsys, method, said):
    assert run("learn", "toy.csv", "--label", "class", "--drop", "group", "--method", method, "-o", "x.metric") == 0
    assert re.search(said, capsys.readouterr().out)
    assert run("learn", "toy.csv", "--label", "class", "--drop", "group", "--method", method, "--json") == 0
    told = json.loads(capsys.readouterr().out)["report"]
    assert (told["gap"], told["certificate"]) == tuple(mf.load("toy.metric").report[n] for n in ("gap", "certificate"))


def test_what_to_try_is_said_where_less_holds_than_before(here, capsys, monkeypatch):
    def shares(*values):
        counts = iter(values)

        def count(*_, **__):
            # with labels, three entries of which the first decides; with pairs, two that both decide
            found = next(counts)
            return [Satisfied(str(p), h, 100, decisive=p == 0 or len(found) == 2) for p, h in enumerate(found)]

        monkeypatch.setattr("metricforge.shell.learn.satisfied", count)

    tries = "try --standardize if columns are on different scales, or another --method ("
    for values, hint, said in (
        ([(80, 50, 50), (79, 60, 60)], ["--label", "class", "--drop", "group"], tries),
        ([(80, 50, 50), (80, 40, 40)], ["--label", "class", "--drop", "group"], ""),
        (
            [(80, 50, 50), (79, 60, 60)],
            ["--label", "class", "--drop", "group", "--standardize"],
            "try another --method (",
        ),
        ([(50, 50), (60, 45)], ["--pairs", "pairs.csv", "--drop", "class"], ""),
        ([(50, 50), (60, 35)], ["--pairs", "pairs.csv", "--drop", "class"], tries),
    ):
        shares(*values)
        assert run("learn", "toy.csv", *hint, "--method", "krca", "-o", "x.metric") == 0
        out = capsys.readouterr().out
        assert ("less holds after learning than before" in out) == bool(said)
        assert said in out
        assert ("or an --option of krca (epsilon)" in out) == bool(said)


def test_constant_columns_are_called_by_their_names(here, capsys):
    Path("flat.csv").write_text("class,a,flat,b,7\nx,1,5,2,0\ny,2,5,1,0\nx,3,5,4,0\ny,4,5,3,0\n")
    assert run("learn", "flat.csv", "--label", "class", "--method", "krca", "--kernel", "linear") == 0
    assert "note: 2 feature(s) are constant and carry no information ('flat', '7')\n" in capsys.readouterr().out


def test_kernels_that_only_a_fit_makes_are_not_offered(here, capsys):
    assert run("learn", "toy.csv", "--label", "class", "--kernel", "zzz") == 2
    known = capsys.readouterr().err.partition("'zzz' is unknown; known: ")[2].strip().split(", ")
    assert {"linear", "rbf", "spectrum", "weak", "mixture"} <= set(known)
    assert not {"learned", "projected", "unprojected", "krca-exact", "krca-features", "simplenpkl-ridge"} & set(known)


def test_a_column_that_drowns_the_others_is_pointed_out(here, capsys):
    assert run("datasets", "wine", "-o", "wine.csv") == 0
    for words, said in (
        ([], True),
        (["--method", "lpdesign"], False),
        (["--method", "krca", "--kernel", "linear", "--option", "epsilon=0"], False),
    ):
        capsys.readouterr()
        assert run("learn", "wine.csv", "--label", "class", *words) == 0
        assert ("note: column 'x13' spreads" in capsys.readouterr().out) == said


def test_the_next_command_can_be_pasted(here, capsys):
    (here / "toy.csv").rename(here / "my toys; (1).csv")
    assert run("learn", "my toys; (1).csv", "--label", "class", "--drop", "group", "--method", "krca") == 0
    command = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("next:"))
    words = shlex.split(command)[1:]
    assert words == ["metricforge", "neighbors", "my toys; (1).metric", "my toys; (1).csv", "-k", "5"]
    assert run(*words[1:]) == 0


def test_a_column_that_numbers_the_rows_is_pointed_out(here, capsys):
    first, *lines = (here / "toy.csv").read_text().splitlines()
    order = sorted(range(len(lines)), key=lambda r: lines[r].rsplit(",", 2)[1])
    numbered = [f"{place},{lines[r]}" for place, r in enumerate(order, 1)]
    (here / "sorted.csv").write_text("\n".join([f"row id,{first}", *numbered]) + "\n")
    words = ["learn", "sorted.csv", "--label", "class", "--drop", "group", "--method", "krca"]
    assert run(*words) == 0
    out = capsys.readouterr().out
    assert "\nnote: column 'row id' numbers the rows, and the metric uses it like any other feature; " in out
    assert "leave it out with --drop 'row id'\n" in out
    assert run(*words, "--json") == 0
    assert "'row id' numbers the rows" in json.loads(capsys.readouterr().out)["notes"][0]
    assert run(*words, "--drop", "row id") == 0
    assert "numbers the rows" not in capsys.readouterr().out


def test_a_run_file_is_seen_from_its_folder_and_the_command_line_wins(here, monkeypatch):
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    assert run("learn", "--config", "../run.toml") == 0
    assert mf.load(here / "run.metric").report.epsilon == 0.5
    assert run("learn", "--config", "../run.toml", "--option", "epsilon=0.125", "-o", "mine.metric") == 0
    assert mf.load("mine.metric").report.epsilon == 0.125
    assert run("learn", "--config", "../run.toml", "--groups", "group", "--drop", "class", "-o", "g.metric") == 0
    assert mf.load("g.metric").report.converted == ()


@pytest.mark.parametrize(
    "written", ['option = ["epsilon=0.25"]', 'option = "epsilon=0.25"', "[option]\nepsilon = 0.25"]
)
def test_a_run_file_may_write_options_as_they_are_typed(here, written):
    Path("mine.toml").write_text(f'data = "toy.csv"\nlabel = "class"\ndrop = ["group"]\nmethod = "krca"\n{written}\n')
    assert run("learn", "--config", "mine.toml", "-o", "a.metric") == 0
    assert mf.load("a.metric").report.epsilon == 0.25


def test_standardized_columns(here):
    X, y = mf.datasets.load("wine")
    np.savetxt("wine.csv", np.c_[X, y], delimiter=",", header=",".join("abcdefghijklmn"), comments="", fmt="%.17g")
    assert cli.main(["learn", "wine.csv", "--label", "n", "--method", "krca", "--standardize", "-o", "a.metric"]) == 0
    Path("run.toml").write_text('data = "wine.csv"\nlabel = "n"\nmethod = "krca"\nstandardize = true\n')
    assert cli.main(["learn", "--config", "run.toml", "-o", "b.metric"]) == 0
    kernel = mf.kernels.Standardized(mf.kernels.RBF("median"))
    wanted = mf.learn(X, y, method="krca", kernel=kernel).distance(X[:9])
    for name in ("a.metric", "b.metric"):
        np.testing.assert_allclose(mf.load(name).distance(X[:9]), wanted)


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    """The address of a scheduler with two worker processes, started from the shell."""
    folder = tmp_path_factory.mktemp("dask")
    told = folder / "scheduler.json"
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    work = [sys.executable, "-m", "distributed.cli.dask_worker"]
    here = ["--host", "127.0.0.1", "--no-dashboard"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    with contextlib.ExitStack() as running:

        def started(words):
            process = running.enter_context(subprocess.Popen(words, **quiet))
            running.callback(process.terminate)

        started([*dask, *here, "--port", "0", "--scheduler-file", str(told)])
        started([*work, *here, "--scheduler-file", str(told), "--nworkers", "2", "--nthreads", "1"])
        deadline = time.monotonic() + 60
        while not told.exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        address = json.loads(told.read_text())["address"]
        with distributed.Client(address) as client:
            client.wait_for_workers(2, timeout=60)
        yield address


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory):
    """Rows in every kind of file that workers read themselves, larger than what the client may hold in the tests."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    y = np.arange(N_LARGE) % 3
    X = rng.normal(size=(N_LARGE, 40)).astype(np.float32)
    X[:, 0] += 2 * y
    np.save(folder / "rows.npy", X)
    np.save(folder / "y.npy", y)
    zarr.save_array(str(folder / "rows.zarr"), X)
    names = [f"c{i}" for i in range(40)]
    frame = pd.DataFrame(X, columns=names).assign(kind=np.array(["a", "b", "c"])[y])
    frame.to_parquet(folder / "rows.parquet", row_group_size=1500, index=False)
    (folder / "parts.parquet").mkdir()
    for i, start in enumerate(range(0, N_LARGE, 2500)):
        part = frame[start : start + 2500]
        part.to_parquet(folder / "parts.parquet" / f"{i}.parquet", row_group_size=700, index=False)
    (folder / "pairs.csv").write_text("i,j\n" + "\n".join(f"{3 * i},{3 * i + 3}" for i in range(100)) + "\n")
    return folder


N_LARGE = 6000
FAR = ("--method", "krca", "--kernel", "rbf(gamma=0.02)", "--rank", "30", "--json")


@pytest.fixture
def disk(on_disk, tmp_path, monkeypatch):
    """Those rows, and a folder of the test's own to write to; both are seen by the workers."""
    monkeypatch.chdir(on_disk)
    monkeypatch.setattr("metricforge.files.storage.CHUNK_BYTES", 200_000)  # several chunks
    return tmp_path


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
    monkeypatch.setattr("metricforge.constraints.distances.MOST_ROWS", 100)
    monkeypatch.setattr("metricforge.files.storage.CHUNK_BYTES", 4_000_000)
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


def test_a_metric_without_rows_says_where_to_search(here, capsys):
    metric = mf.load("python.metric")
    replace(metric, rows=None).save("bare.metric")
    assert run("neighbors", "bare.metric", "toy.npy") == 2
    assert "name their file with --among FILE" in capsys.readouterr().err
    assert run("neighbors", "bare.metric", "toy.npy", "-k", "1", "--among", "toy.npy", "-o", "n.npy") == 0
    np.testing.assert_array_equal(np.load("n.npy")[:, 2], np.arange(100))


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


# ------------------------------------------------------------------------------------------------ with a saved metric


def test_a_saved_metric_on_new_rows_gives_what_python_gives(here, capsys):
    learn("--kernel", "linear", "-o", "toy.metric")
    metric, X = mf.load("toy.metric"), np.load("toy.npy")
    capsys.readouterr()

    assert run("transform", "toy.metric", "toy.csv", "-o", "e.csv") == 0  # the label columns do no harm
    np.testing.assert_array_equal(read("e.csv").rows, metric.transform(X))
    assert run("transform", "toy.metric", "bare.csv", "-o", "e.npy") == 0
    np.testing.assert_array_equal(np.load("e.npy"), metric.transform(X))

    capsys.readouterr()
    assert run("neighbors", "toy.metric", "toy.csv", "-k", "3") == 0
    (here / "n.csv").write_text(capsys.readouterr().out)
    found = read("n.csv")
    assert found.names == ("row", "place", "neighbor", "distance")
    indices, distances = metric.neighbors(X, k=3)
    np.testing.assert_array_equal(found.rows[:, 2].reshape(-1, 3), indices)
    np.testing.assert_array_equal(found.rows[:, 3].reshape(-1, 3), distances)
    assert run("neighbors", "toy.metric", "toy.csv", "-k", "3", "--json") == 0
    assert json.loads(capsys.readouterr().out)["indices"] == indices.tolist()

    assert run("distance", "toy.metric", "toy.csv", "bare.csv", "-o", "d.npy") == 0
    np.testing.assert_array_equal(np.load("d.npy"), metric.distance(X, X))
    capsys.readouterr()
    assert run("distance", "toy.metric", "toy.csv", "toy.npy", "--paired", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"distances": metric.paired_distance(X, X).tolist()}
    assert run("distance", "toy.metric", "toy.csv") == 0
    assert capsys.readouterr().out.startswith("0,1,2,3")


def test_a_metric_saved_in_python_takes_the_columns_as_they_come(here, capsys):
    assert run("transform", "python.metric", "bare.csv", "-o", "e.npy", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"written": "e.npy", "shape": [100, 11]}


# ------------------------------------------------------------------------------------------------------ what there is


def test_plugins_and_datasets(here, capsys):
    assert run("plugins") == 0
    out = capsys.readouterr().out
    assert all(entry.name in out for entry in mf.methods())
    assert run("plugins", "--json") == 0
    assert {p["name"] for p in json.loads(capsys.readouterr().out)} == {p.name for p in mf.plugins()}
    assert run("datasets") == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("wine ") for line in lines)
    end = head.index("rows") + len("rows")  # a column of numbers ends where its name ends
    assert all(line[end - 1].isdigit() and line[end] == " " for line in lines)
    assert run("datasets", "wine", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["n"] == 178
    assert run("datasets", "wine", "-o", "wine.csv") == 0
    X, y = mf.datasets.load("wine")
    table = read("wine.csv", extra=["class"])
    np.testing.assert_array_equal(table.rows, X)
    np.testing.assert_array_equal(table.extra["class"], y)


def test_a_plugin_that_failed_to_load_is_listed_with_its_reason(capsys, monkeypatch):
    from metricforge.registry import Plugin

    monkeypatch.setattr(
        "metricforge.shell.listing._plugins", lambda: [Plugin("bad", "bad-dist", "1.0", error="it broke")]
    )
    assert run("plugins") == 0
    assert capsys.readouterr().out == "bad (bad-dist 1.0)\n  it broke\n"


def test_demo_prints_scores_before_and_after_and_writes_report_and_picture(here, capsys, monkeypatch):
    every = list(demo.halves())
    monkeypatch.setattr(demo, "halves", lambda: iter([every[0], every[2]]))  # the slow one is left out
    assert run("demo") == 0
    out = capsys.readouterr().out
    for entry in mf.methods():
        assert (entry.name in out) == (entry.name != "euclidean")
    for shown in ("gap", "bound", "residual"):
        assert re.search(rf" {shown} \d\.\de-\d\d ", out)
    assert "krca (kernel=Linear(), epsilon=0.0)" in out
    assert out.count("\nWorse than before: kcr on wine; column 12 spreads") == 1
    for name in ("wine.png", "report.html"):
        assert str(Path("demo") / name) in out
    picture = (here / "demo" / "wine.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(picture) > 20_000
    assert "one half of wine" in (here / "demo" / "report.html").read_text()
    monkeypatch.setattr(demo, "halves", lambda: iter([every[0]]))
    assert run("demo", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert {line["method"] for line in told["lines"]} == {e.name for e in mf.methods()} - {"euclidean"}
    assert min(line["error"][1] for line in told["lines"]) < 0.05 < told["lines"][0]["error"][0]


# ------------------------------------------------------------------------------------------------------------ bad input

HINT = ("--label", "class", "--drop", "group", "--method", "krca")
BAD = {
    "no command": ([], "the following arguments are required: COMMAND; see metricforge --help"),
    "unknown command": (["dmeo"], "command='dmeo' is unknown; did you mean 'demo'?"),
    "unknown flag": (["demo", "--nothing"], "unrecognized arguments: --nothing; see metricforge demo --help"),
    "misspelt flag": (["learn", "toy.csv", "--standarize"], "--standarize; see metricforge learn --help"),
    "demo into a file": (["demo", "--out", "toy.csv"], "--out: cannot create the folder 'toy.csv'"),
    "learn nothing": (["learn"], "data is missing"),
    "learn without hints": (["learn", "toy.csv"], "give one of --label, --pairs, --triplets, --groups\n"),
    "learn LIBSVM without hints": (["learn", "toy.svm"], "the labels inside a LIBSVM file are --label label"),
    "learn FASTA without hints": (["learn", "p.fasta"], "are --label id and --label description"),
    "learn from two hints": (["learn", "toy.csv", "--label", "class", "--pairs", "pairs.csv"], "were both given"),
    "learn a missing file": (["learn", "no.csv", *HINT], "there is no file 'no.csv'"),
    "learn a folder": (["learn", "folder.csv", *HINT], "is a folder"),
    "learn a truncated array": (["learn", "huge.npy", "--label", "labels.csv"], "declares 8000000000000 bytes of data"),
    "learn an index too large": (["learn", "wide.svm", "--label", "label"], "'wide.svm' is not a LIBSVM file"),
    "learn pairs of many digits": (
        ["learn", "toy.npy", "--pairs", "digits.csv"],
        "column 'j' holds 12345678901234567890123 in entry 1, which is no row number",
    ),
    "learn an empty file": (["learn", "empty.csv", *HINT], "'empty.csv' is empty"),
    "learn names without rows": (["learn", "names.csv", "--label", "class"], "no rows below its column names"),
    "learn a wrong column": (["learn", "toy.csv", "--label", "clas"], "no column 'clas'; did you mean 'class'?"),
    "learn to drop a wrong column": (["learn", "toy.csv", *HINT, "--drop", "f99"], "no column 'f99'"),
    "learn text": (["learn", "toy.csv", "--groups", "group"], "line 2: column 'class' holds the text 'red'"),
    "learn text beside labels": (
        ["learn", "toy.csv", "--groups", "group"],
        "leave the column out with --drop class, or name it as --label or --groups\n",
    ),
    "learn text beside pairs": (
        ["learn", "toy.csv", "--pairs", "pairs.csv"],
        "holds the text 'red'; leave the column out with --drop class\n",
    ),
    "learn nan": (["learn", "nan.csv", "--label", "class"], "line 3: column 'b' holds 'nan'; fill it in"),
    "learn a question mark": (
        ["learn", "unknown.csv", "--label", "class"],
        "line 3: column 'b' holds '?'; fill it in, remove the row, or leave the column out with --drop b\n",
    ),
    "learn a hole": (["learn", "hole.csv", "--label", "class"], "line 2: column 'a' is empty"),
    "learn one class": (["learn", "one.csv", "--label", "class", "--method", "lpdesign"], "1 class(es)"),
    "learn no labels": (["learn", "unlabelled.csv", "--label", "class"], "holds no relation"),
    "learn labels of another length": (
        ["learn", "one.csv", "--drop", "class", "--label", "labels.csv"],
        "100 values for",
    ),
    "learn an unknown kind of file": (["learn", "toy.xlsx", *HINT], "unknown extension"),
    "learn an unknown method": (["learn", "toy.csv", *HINT, "--method", "krcaa"], "method='krcaa' is unknown; did you"),
    "learn an unknown kernel": (["learn", "toy.csv", *HINT, "--kernel", "rbff"], "kernel='rbff' is unknown; did you"),
    "learn an unknown parameter": (
        ["learn", "toy.csv", *HINT, "--kernel", "rbf(gama=1)"],
        "kernel='rbf(gama=1)': rbf has no parameter 'gama'; did you mean 'gamma'?",
    ),
    "learn a bad kernel": (["learn", "toy.csv", *HINT, "--kernel", "rbf(gamma=-1)"], "gamma must be"),
    "learn an unknown option": (["learn", "toy.csv", *HINT, "--option", "epsilom=1"], "option 'epsilom' is unknown"),
    "learn a bad option": (["learn", "toy.csv", *HINT, "--option", "epsilon=-1"], "epsilon must be"),
    "learn half an option": (["learn", "toy.csv", *HINT, "--option", "epsilon"], "write NAME=VALUE"),
    "learn an option of ours": (["learn", "toy.csv", *HINT, "--option", "seed=1"], "write --seed"),
    "learn a bad rank": (["learn", "toy.csv", *HINT, "--rank", "many"], "rank must be"),
    "learn a bad seed": (["learn", "toy.csv", *HINT, "--seed", "-1"], "seed must be"),
    "learn no seed": (["learn", "toy.csv", *HINT, "--seed", "x"], "invalid int value: 'x'"),
    "learn into no folder": (["learn", "toy.csv", *HINT, "-o", "no/x.metric"], "there is no folder 'no'"),
    "learn into a folder": (["learn", "toy.csv", *HINT, "-o", "."], "it is a folder"),
    "learn onto the data": (["learn", "toy.csv", *HINT, "-o", "toy.csv"], "this run reads it"),
    "learn into one file": (["learn", "toy.csv", *HINT, "-o", "x.htm", "--report", "./x.htm"], "choose two names"),
    "learn a report as what": (["learn", "toy.csv", *HINT, "--report", "r.pdf"], "ends in .html or .htm"),
    "learn rows that are their own class": (["learn", "toy.csv", "--label", "f0", "--drop", "class"], "rows share"),
    "learn a report into no folder": (["learn", "toy.csv", *HINT, "--report", "no/r.html"], "there is no folder 'no'"),
    "learn missing pairs": (["learn", "bare.csv", "--pairs", "no.csv"], "there is no file 'no.csv'"),
    "learn pairs without j": (["learn", "bare.csv", "--pairs", "labels.csv"], "no column 'i'"),
    "learn far pairs": (["learn", "nan.csv", "--drop", "b", "--drop", "class", "--pairs", "pairs.csv"], "outside 0 .."),
    "learn triplets of two": (["learn", "bare.csv", "--triplets", "pairs.csv"], "no column 'k'"),
    "learn from no scheduler": (
        ["learn", "toy.csv", *HINT, "--scheduler", "nonsense://x"],
        "no dask scheduler answers",
    ),
    "learn a missing run file": (["learn", "--config", "no.toml"], "--config: cannot read 'no.toml'"),
    "learn a broken run file": (["learn", "--config", "broken.toml"], "is not TOML"),
    "learn a strange run file": (
        ["learn", "--config", "strange.toml"],
        "sets 'metod', which is no setting; did you mean",
    ),
    "learn half an option in a run file": (["learn", "--config", "half.toml"], "write NAME=VALUE"),
    "learn no options in a run file": (
        ["learn", "--config", "number.toml"],
        'write option = ["name=value"] or a table',
    ),
    "learn a wrong run file": (["learn", "--config", "wrong.toml"], "sets seed = 'zero', which has the wrong type"),
    "learn numbers for names in a run file": (["learn", "--config", "drop.toml"], "sets drop = (1,), which has"),
    "learn two kinds of options in a run file": (["learn", "--config", "both.toml"], "sets options = 3, which has"),
    "transform onto the data": (["transform", "toy.metric", "toy.csv", "-o", "toy.csv"], "this run reads it"),
    "neighbors onto the others": (
        ["neighbors", "toy.metric", "hole.csv", "--among", "toy.csv", "-o", "toy.csv"],
        "this run reads it",
    ),
    "distance onto the others": (
        ["distance", "toy.metric", "hole.csv", "toy.csv", "-o", "toy.csv"],
        "this run reads it",
    ),
    "transform without a metric": (["transform", "no.metric", "toy.csv"], "cannot read 'no.metric'"),
    "transform by a damaged metric": (["transform", "damaged.metric", "toy.csv"], "'damaged.metric' is damaged"),
    "transform by no metric": (["transform", "toy.csv", "toy.csv"], "is not a saved metric"),
    "transform a missing file": (["transform", "toy.metric", "no.csv"], "there is no file 'no.csv'"),
    "transform an empty file": (["transform", "toy.metric", "empty.csv"], "'empty.csv' is empty"),
    "transform wrong columns": (["transform", "toy.metric", "nan.csv"], "no column 'f0'"),
    "transform another width": (["transform", "python.metric", "narrow.csv"], "has 2 features, but the metric"),
    "transform text": (
        ["transform", "python.metric", "toy.csv"],
        "holds the text 'red'; take the column out of the file\n",
    ),
    "transform text that is needed": (
        ["transform", "toy.metric", "worded.csv"],
        "column 'f3' holds the text 'x'; the metric was learned on numbers there; write numbers\n",
    ),
    "transform nan": (["transform", "python.metric", "hole.csv"], "is empty; fill it in"),
    "transform into another kind": (["transform", "toy.metric", "toy.csv", "-o", "x.xlsx"], "must be .csv, .tsv"),
    "transform into no folder": (["transform", "toy.metric", "toy.csv", "-o", "no/x.csv"], "there is no folder"),
    "neighbors without a metric": (["neighbors", "no.metric", "toy.csv"], "cannot read 'no.metric'"),
    "neighbors of a missing file": (["neighbors", "toy.metric", "no.csv"], "there is no file"),
    "neighbors, none": (
        ["neighbors", "toy.metric", "toy.csv", "-k", "0"],
        "k must be a whole number of at least 1 and at most 100",
    ),
    "neighbors, too many": (
        ["neighbors", "toy.metric", "toy.csv", "-k", "101"],
        "at most 100 (the number of training rows), got 101",
    ),
    "neighbors into a folder": (["neighbors", "toy.metric", "toy.csv", "-o", "folder.csv"], "it is a folder"),
    "distance without a metric": (["distance", "no.metric", "toy.csv"], "cannot read 'no.metric'"),
    "distance to a missing file": (["distance", "toy.metric", "toy.csv", "no.csv"], "there is no file"),
    "distance, paired with nothing": (["distance", "toy.metric", "toy.csv", "--paired"], "give a second file"),
    "distance, unequal": (["distance", "python.metric", "toy.npy", "few.npy", "--paired"], "100 rows and B has 2"),
    "plugins of what": (["plugins", "x"], "unrecognized arguments: x"),
    "an unknown data set": (["datasets", "wien"], "unknown data set 'wien': did you mean 'wine'?"),
    "a data set into no folder": (["datasets", "wine", "-o", "no/w.csv"], "there is no folder"),
    "a data set as what": (["datasets", "wine", "-o", "w.npy"], "must be .csv or .tsv"),
    "all data sets into a file": (["datasets", "-o", "w.csv"], "name it"),
    "reproduce an unknown paper": (["reproduce", "krac"], "paper='krac' is unknown; did you mean 'krca'?"),
    "reproduce an unknown table": (["reproduce", "krca", "table9"], "krca has no 'table9'; did you mean 'table"),
    "reproduce, no repeats": (["reproduce", "krca", "figure1", "--repeats", "0"], "--repeats must be a whole number"),
    "reproduce, a bad seed": (["reproduce", "krca", "figure1", "--seed", "-1"], "--seed must be a whole number"),
    "reproduce onto a file": (["reproduce", "krca", "figure1", "--out", "toy.csv"], "cannot create the folder"),
}


@pytest.fixture(scope="module")
def trouble(started):
    """The files that are wrong, beside those that are right."""
    (started / "folder.csv").mkdir()
    (started / "empty.csv").write_text("")
    with (started / "huge.npy").open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (10**9, 1000)}
        np.lib.format.write_array_header_1_0(file, header)
    (started / "wide.svm").write_text(f"1 1:1\n0 {3 * 10**9}:1\n")
    (started / "digits.csv").write_text("i,j,similar\n0,1,1\n2,12345678901234567890123,0\n")
    (started / "names.csv").write_text("a,class\n")
    (started / "nan.csv").write_text("a,b,class\n1,2,x\n2,nan,y\n3,4,x\n")
    (started / "unknown.csv").write_text("a,b,class\n1,2,x\n2,?,y\n3,4,x\n")
    (started / "toy.svm").write_text("1 1:1\n-1 1:2\n")
    (started / "half.toml").write_text('data = "toy.csv"\nlabel = "class"\noption = ["epsilon"]\n')
    (started / "drop.toml").write_text('data = "toy.csv"\nlabel = "class"\ndrop = [1]\n')
    (started / "both.toml").write_text('data = "toy.csv"\nlabel = "class"\noption = ["a=1"]\noptions = 3\n')
    (started / "number.toml").write_text('data = "toy.csv"\nlabel = "class"\noption = 3\n')
    words = ",".join(f"f{i}" for i in range(11)), ",".join("123x5678911")
    (started / "worded.csv").write_text("\n".join(words) + "\n")
    (started / "hole.csv").write_text("a,b,class\n,2,x\n2,3,y\n")
    (started / "one.csv").write_text("a,class\n1,x\n2,x\n3,x\n")
    (started / "unlabelled.csv").write_text("a,class\n1,\n2,\n")
    (started / "narrow.csv").write_text("1,2\n3,4\n")
    (started / "toy.xlsx").write_text("")
    np.save(started / "few.npy", np.ones((2, 11)))
    (started / "broken.toml").write_text("data = ")
    (started / "strange.toml").write_text('data = "toy.csv"\nmetod = "krca"\n')
    (started / "wrong.toml").write_text('data = "toy.csv"\nseed = "zero"\n')
    table = read(started / "toy.csv", extra=["class"], drop=["group"])
    metric = mf.learn(table.rows, table.extra["class"], method="krca", kernel="linear")
    mf.Metric(metric.kernel, metric.report, metric.rows, columns=tuple(table.names)).save(started / "toy.metric")
    whole = (started / "toy.metric").read_bytes()
    (started / "damaged.metric").write_bytes(whole[: len(whole) // 2])
    return started


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_exit_code_two(trouble, monkeypatch, capsys, case):
    words, said = BAD[case]
    monkeypatch.chdir(trouble)
    before = {path: path.stat().st_mtime_ns for path in trouble.iterdir()}
    assert run(*words) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert err.startswith("metricforge: ")
    assert err.count("\n") == 1
    assert out == ""
    assert {path: path.stat().st_mtime_ns for path in trouble.iterdir()} == before


def test_every_command_is_in_the_table_of_bad_input():
    commands = {words[0] for words, _ in BAD.values() if words}
    assert commands >= set(COMMANDS)


def test_debug_shows_where(trouble, monkeypatch, capsys):
    monkeypatch.chdir(trouble)
    for words in (["--debug", "datasets", "wien"], ["datasets", "wien", "--debug"]):
        assert run(*words) == 2
        assert "Traceback" in capsys.readouterr().err


def test_a_fault_of_ours_exits_with_one_and_without_a_traceback(monkeypatch, capsys):
    def broken(args):
        error = TypeError("it\nbroke")
        error.add_note("in solver X")
        raise error

    monkeypatch.setattr("metricforge.shell.listing.plugins", broken)
    assert run("plugins") == 1
    assert capsys.readouterr().err == (
        "metricforge: a fault, not your input: TypeError: it broke (in solver X); run again with --debug to see where\n"
    )


def test_too_little_memory_is_not_called_a_fault(monkeypatch, capsys):
    def large(args):
        raise MemoryError("Unable to allocate\n7.28 TiB")

    monkeypatch.setattr("metricforge.shell.listing.datasets", large)
    assert run("datasets") == 2
    assert capsys.readouterr().err == (
        "metricforge: there is not enough memory (MemoryError: Unable to allocate 7.28 TiB); "
        "give fewer rows or columns\n"
    )


def test_a_record_of_the_log_is_one_line():
    code = "import logging; from metricforge.cli import main; main(['datasets']); logging.warning('two\\nlines')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "metricforge: two lines\n"


def test_a_warning_is_one_line(here, capsys):
    words = [
        "learn",
        "toy.csv",
        "--label",
        "class",
        "--drop",
        "group",
        "--method",
        "lpdesign",
        "--option",
        "max_iter=1",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # in this suite they are errors; a user sees them
        assert run(*words) == 0
    err = capsys.readouterr().err
    assert "max_iter" in err
    assert all(line.startswith("metricforge: ") for line in err.splitlines())


# -------------------------------------------------------------------------------------------- processes of their own


def start(*words, code=None, **options):
    what = ["-m", "metricforge", *words] if code is None else ["-c", code, *words]
    return subprocess.Popen(
        [sys.executable, *what], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


SLOW = """
import sys, time
import metricforge as mf
from metricforge.cli import main

class Watch:
    @mf.hookimpl
    def metricforge_step(self, event):
        sys.stdout.write("step\\n")
        sys.stdout.flush()
        time.sleep(0.2)

mf.register(Watch(), name="watch")
sys.exit(main(sys.argv[1:]))
"""


def test_an_interrupted_run_exits_with_130_and_leaves_nothing_half_written(here):
    (here / "x.metric").write_text("the old one")
    listed = sorted(path.name for path in here.iterdir())
    words = ["learn", "toy.csv", "--label", "class", "--drop", "group", "--method", "lpdesign"]
    process = start(*words, "-o", "x.metric", "--report", "r.html", code=SLOW)
    assert process.stdout.readline() == "step\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "metricforge: interrupted; nothing is left half-written\n"
    assert sorted(path.name for path in here.iterdir()) == listed
    assert (here / "x.metric").read_text() == "the old one"


@pytest.mark.parametrize(
    "words",
    [["learn", "--config", "pipe"], ["transform", "pipe", "toy.npy"], ["learn", "pipe.csv", "--label", "class"]],
)
def test_a_pipe_is_refused_instead_of_waited_for(here, words):
    for name in ("pipe", "pipe.csv"):
        os.mkfifo(here / name)
    process = start(*words)
    try:
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 2
    assert "is a pipe or a device, not a file" in err


SLOW_WRITER = """
import sys, time
import numpy as np
from metricforge.cli import main

def save(file, *_, **__):
    file.write(b"half")
    file.flush()
    sys.stdout.write("writing\\n")
    sys.stdout.flush()
    time.sleep(60)

np.save = save
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def hangup_ends():
    """The default action of SIGHUP, also where the suite runs under nohup; child processes inherit it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 130)])
@pytest.mark.usefixtures("hangup_ends")
def test_signals_that_end_a_run_leave_nothing_half_written(here, name, code):
    listed = sorted(path.name for path in here.iterdir())
    process = start("transform", "python.metric", "bare.csv", "-o", "e.npy", code=SLOW_WRITER)
    assert process.stdout.readline() == "writing\n"
    assert len(list(here.glob(".*.part"))) == 1
    process.send_signal(getattr(signal, name))
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert err.endswith("; nothing is left half-written\n")
    assert err.count("\n") == 1
    assert sorted(path.name for path in here.iterdir()) == listed


@pytest.mark.usefixtures("hangup_ends")
def test_the_callers_signal_handlers_stay(here, capsys):
    def own(*_):
        pass

    old = signal.signal(signal.SIGTERM, own)
    try:
        assert run("plugins") == 0
        assert signal.getsignal(signal.SIGTERM) is own
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, old)


@pytest.mark.parametrize("name", ["e.csv", "e.npy"])
def test_interrupted_while_writing(here, monkeypatch, capsys, name):
    def lines(*_):
        yield "half\n"
        raise KeyboardInterrupt

    def save(file, *_, **__):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(writing, "as_text", lines)
    monkeypatch.setattr(writing.np, "save", save)
    (here / name).write_text("the old one")
    listed = sorted(path.name for path in here.iterdir())
    assert run("transform", "python.metric", "bare.csv", "-o", name) == 130
    assert (here / name).read_text() == "the old one"
    assert sorted(path.name for path in here.iterdir()) == listed


def test_a_full_disk_is_one_sentence(here, monkeypatch, capsys):
    def save(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing.np, "save", save)
    assert run("transform", "python.metric", "bare.csv", "-o", "e.npy") == 2
    assert "No space left on device" in capsys.readouterr().err
    assert not list(here.glob(".*.part"))


@pytest.mark.parametrize("rows", ["toy.npy", "few.npy"])  # more than a buffer holds, and less
def test_a_reader_who_has_seen_enough_is_no_error(here, rows):
    np.save("few.npy", np.ones((2, 11)))
    end, closed = os.pipe()
    os.close(end)
    done = subprocess.run(
        [sys.executable, "-m", "metricforge", "distance", "python.metric", rows],
        stdout=closed,
        stderr=subprocess.PIPE,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    os.close(closed)
    assert (done.returncode, done.stderr) == (0, b"")


def test_help_is_there_for_every_command_and_loads_nothing_heavy():
    loaded = (
        "import sys; from metricforge.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    with start(code=loaded) as process:
        out, modules = process.communicate()
    assert all(command in out for command in COMMANDS)
    assert not {"numpy", "scipy", "sklearn", "dask", "matplotlib"} & set(modules.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(command, capsys):
    with pytest.raises(SystemExit) as caught:
        run(command, "--help")
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert ("Euclidean" in out) == (command == "transform")
    assert f"usage: metricforge {command}" in out
    assert "--json" in out


def test_a_bar_on_a_terminal(here):
    terminal, end = pty.openpty()
    words = ["learn", "toy.csv", "--label", "class", "--drop", "group", "--method", "lpdesign", "-o", "x.metric"]
    code = "from metricforge.registry import progress; progress._Bar.delay = progress._Bar.interval = 0.0\n" + SLOW
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdout=subprocess.DEVNULL,
        stderr=end,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(end)
    seen = b""
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        seen += chunk
    os.close(terminal)
    assert process.wait(timeout=60) == 0
    assert b"lpdesign on 100 rows" in seen


def test_the_module_is_the_command():
    with start("--version") as process:
        out, _ = process.communicate()
    assert out == f"metricforge {mf.__version__}\n"


def test_the_script_is_installed_under_its_name():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"metricforge": "metricforge.cli:main"}


def test_writing_beside_a_link_replaces_what_it_stands_for(tmp_path):
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    files.write(tmp_path / "link.csv", b"new")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == "new"
