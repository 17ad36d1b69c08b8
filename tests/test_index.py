"""The index of a metric: exact distances, the folder beside the model, the command."""

from __future__ import annotations

import json

import numpy as np
import pytest

import metricforge as mf
from metricforge.cli import main
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


def test_the_command_builds_and_searches(linear, tmp_path, capsys):
    linear.save(tmp_path / "wine.metric")
    np.save(tmp_path / "new.npy", X[1::2])
    assert main(["index", str(tmp_path / "wine.metric"), "--recall", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 89
    call = ["index", str(tmp_path / "wine.metric"), str(tmp_path / "new.npy"), "-k", "2", "--json"]
    assert main(call) == 0
    found = json.loads(capsys.readouterr().out)
    np.testing.assert_array_equal(found["indices"], linear.neighbors(X[1::2], k=2)[0])
