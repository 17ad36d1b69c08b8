"""Files that a user would have, on disk and wrong ones, and a scheduler with two workers."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time

import distributed
import numpy as np
import pandas as pd
import pytest
import zarr
from metricforge_cases.shell import N_LARGE

import metricforge as mf
from metricforge.tables import read


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


@pytest.fixture
def disk(on_disk, tmp_path, monkeypatch):
    """Those rows, and a folder of the test's own to write to; both are seen by the workers."""
    monkeypatch.chdir(on_disk)
    monkeypatch.setattr("metricforge.distributed.storage.CHUNK_BYTES", 200_000)  # several chunks
    return tmp_path


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
    (started / "alike.csv").write_text("i,j,similar\n0,1,1\n2,3,1\n")
    (started / "typo.csv").write_text("a,b,class\n1,2,x\n2,two,y\n3,4,x\n5,6,y\n")
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
