"""The index of a metric: exact distances, the folder beside the model, the command."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import metricforge as mf
from metricforge.cli.program import main
from metricforge.errors import InputError

X, Y = mf.datasets.load("wine")


@pytest.fixture(scope="module")
def linear():
    return mf.learn(X[::2], Y[::2], method="krca", kernel="linear")


def test_neighbours_are_those_of_the_metric(linear):
    found = linear.index(recall=1.0).search(X[1::2], k=4)
    wanted = linear.neighbors(X[1::2], k=4)
    np.testing.assert_array_equal(found[0], wanted[0])
    np.testing.assert_allclose(found[1], wanted[1])


def test_an_inexact_embedding_is_ordered_by_the_kernel():
    metric = mf.learn(X[::2], Y[::2], method="krca", kernel=mf.kernels.RBF(1e-5), rank=20)
    assert not metric.embedding_is_exact
    indices, distances = metric.index(recall=1.0).search(X[1:9:2], k=3)
    np.testing.assert_allclose(distances, np.take_along_axis(metric.distance(X[1:9:2], X[::2]), indices, axis=1))


def test_saved_beside_the_model_and_opened(linear, tmp_path):
    folder = tmp_path / "wine.index"
    made = linear.index(path=folder)
    stamp = (folder / "rows.npy").stat().st_mtime_ns
    linear.save(tmp_path / "wine.metric")
    again = mf.load(tmp_path / "wine.metric").index(path=folder)
    assert (folder / "rows.npy").stat().st_mtime_ns == stamp
    np.testing.assert_array_equal(again.search(X[:5])[0], made.search(X[:5])[0])
    other = mf.learn(X[::2], Y[::2], method="euclidean")
    with pytest.raises(InputError, match="another metric"):
        other.index(path=folder)
    with pytest.raises(InputError, match="angle"):
        linear.index(by="angle")


@pytest.mark.parametrize("by", ["distance", "kernel"])
@pytest.mark.parametrize("kernel", [mf.kernels.Linear(), mf.kernels.RBF(1e-5)])
def test_the_index_of_other_rows_is_refused(kernel, by, tmp_path):
    metric = mf.learn(X[::2].astype(np.float32), Y[::2], method="krca", kernel=kernel, rank=30)
    metric.index(path=tmp_path / "i", by=by)
    metric.save(tmp_path / "m.metric")
    mf.load(tmp_path / "m.metric").index(path=tmp_path / "i", by=by)
    changed = X[::2].astype(np.float32)
    changed = changed + np.float32(0.1) * changed.std(axis=0)
    with pytest.raises(InputError, match="other rows"):
        replace(metric, rows=changed).index(path=tmp_path / "i", by=by)


def test_the_command_builds_and_searches(linear, tmp_path, capsys):
    linear.save(tmp_path / "wine.metric")
    np.save(tmp_path / "new.npy", X[1::2])
    assert main(["index", str(tmp_path / "wine.metric"), "--recall", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 89
    call = ["index", str(tmp_path / "wine.metric"), str(tmp_path / "new.npy"), "-k", "2", "--json"]
    assert main(call) == 0
    found = json.loads(capsys.readouterr().out)
    np.testing.assert_array_equal(found["indices"], linear.neighbors(X[1::2], k=2)[0])


def test_rows_to_index_are_asked_for(linear, tmp_path, capsys):
    replace(linear, rows=None).save(tmp_path / "bare.metric")
    assert main(["index", str(tmp_path / "bare.metric")]) == 2
    assert "--among FILE" in capsys.readouterr().err


def test_the_largest_kernel_values_are_found(linear, tmp_path):
    index = linear.index(recall=1.0, by="kernel", path=tmp_path / "by.index")
    indices, values = index.search(X[1::2], k=4)
    wanted = linear.neighbors(X[1::2], k=4, by="kernel")
    np.testing.assert_array_equal(indices, wanted[0])
    np.testing.assert_allclose(values, wanted[1], rtol=1e-9)
    assert (indices != linear.neighbors(X[1::2], k=4)[0]).any()  # distances rank otherwise
    with pytest.raises(InputError, match="by kernel, not by distance"):
        linear.index(path=tmp_path / "by.index")


def test_kernel_values_of_an_inexact_embedding_are_those_of_the_kernel():
    metric = mf.learn(X[::2], Y[::2], method="krca", kernel=mf.kernels.RBF(1e-5), rank=20)
    indices, values = metric.index(recall=1.0, by="kernel").search(X[1:9:2], k=3)
    np.testing.assert_allclose(values, np.take_along_axis(metric.kernel(X[1:9:2], X[::2]), indices, axis=1))


def test_the_recall_by_kernel_is_that_of_queries():
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((40, 8))
    rows = (centres[rng.integers(40, size=20_000)] + 0.4 * rng.standard_normal((20_000, 8))).astype(np.float32)
    metric = mf.learn(rows[:19_000], mf.Labels(np.arange(19_000) % 2), method="euclidean", kernel="linear")
    index = metric.index(by="kernel")
    found = index.search(rows[19_000:], k=10)[0]
    wanted = metric.neighbors(rows[19_000:], k=10, by="kernel")[0]
    share = np.mean([len(set(f) & set(w)) for f, w in zip(found, wanted, strict=True)]) / 10
    assert share >= 0.93
    assert abs(index.recall - share) < 0.05
    assert index.cells.probes < index.cells.cells.count  # not by comparing all
