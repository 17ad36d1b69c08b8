from __future__ import annotations

import json
import os
import pickle
import signal
import stat
import subprocess
import sys
import textwrap
import time
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import metricforge as mf
from metricforge.errors import InputError, MissingPluginError, ModelFileError
from metricforge.kernels import RBF, Cauchy, Linear, Mixture, Polynomial, Precomputed, Spectrum, Standardized, Weak
from metricforge.metric import Metric, Report
from metricforge.registry import registry
from metricforge.serialization import model as modelfile
from metricforge.space import LearnedKernel, represent


def points(n=30, d=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def strings(n=20):
    rng = np.random.default_rng(0)
    return np.array(["".join(rng.choice(list("ACDé漢"), size=9)) for _ in range(n)], dtype=object)


def learned(X, a=1.0):
    made = represent(RBF(0.4), X, 8)
    return LearnedKernel(made.map, np.eye(made.map.columns), a)


CASES = {
    "linear": (Linear(), points()),
    "median": (RBF("median"), points()),
    "composite": ((RBF(0.1) + 2 * Linear()) * Cauchy(1 / 3), points()),
    "normalised": (Polynomial(3, 0.5).normalized(), points()),
    "over another kernel": (RBF(0.2, base=Polynomial(2)), points()),
    "weak mixture": (Mixture([Weak(RBF(1.0), feature=i) for i in range(4)], [0.1, 0, 1e-300, 3]), points()),
    "precomputed": (Precomputed(), RBF(0.3)(points())),
    "learned": (learned(points()), points()),
    "learned on learned": (RBF(0.1, base=learned(points())), points()),
    "spectrum": (RBF("median", base=Spectrum(2).normalized()), strings()),
    "sparse": (RBF(0.3), sp.random_array((30, 9), density=0.3, rng=np.random.default_rng(0), format="csr")),
    "sparse matrix": (RBF(0.3), sp.csr_matrix(points())),
    "single precision": (RBF(0.3), points().astype(np.float32)),
}


@pytest.mark.parametrize("case", CASES)
def test_every_kernel_round_trips_bit_for_bit(case, tmp_path):
    kernel, X = CASES[case]
    metric = mf.learn(X, np.arange(X.shape[0]) % 2, method="euclidean", kernel=kernel)
    path = tmp_path / "a.metric"
    metric.save(path)
    copy = mf.load(path)
    copy.save(tmp_path / "b.metric")
    assert (tmp_path / "b.metric").read_bytes() == path.read_bytes()
    assert copy.kernel == metric.kernel
    assert type(copy.rows) is type(metric.rows)
    np.testing.assert_array_equal(copy.distance(X[:7], X), metric.distance(X[:7], X))
    np.testing.assert_array_equal(copy.kernel(X[:7]), metric.kernel(X[:7]))
    np.testing.assert_array_equal(copy.transform(X[:7]), metric.transform(X[:7]))
    for mine, theirs in zip(copy.neighbors(X[:3], 4), metric.neighbors(X[:3], 4), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert dict(copy.report) == dict(metric.report)
    assert copy.solver == metric.solver


@pytest.mark.parametrize("other", [points(), points(25, seed=1)], ids=["same rows", "other rows"])
def test_sums_of_metrics_round_trip(other, tmp_path):
    X = points()
    a = mf.learn(X, np.arange(30) % 2, method="euclidean", kernel=RBF("median"))
    b = mf.learn(other, np.arange(len(other)) % 3, method="euclidean", kernel=learned(other))
    total = 0.7 * a + 0.3 * b
    total.save(tmp_path / "sum.metric")
    copy = mf.load(tmp_path / "sum.metric")
    np.testing.assert_array_equal(copy.distance(X), total.distance(X))
    np.testing.assert_array_equal(copy.transform(X), total.transform(X))


def test_reports_with_every_kind_of_value(tmp_path):
    told = {
        "method": "test",
        "none": None,
        "inf": float("inf"),
        "nested": {"a": [1, 2.5, ("x", True)], 3: "three"},
        "array": np.arange(6).reshape(2, 3),
        "bytes of text": np.array([["ab", "c"], ["", "d"]], dtype=object),
        "scalar": np.float64(0.1),
        "int": np.int64(7),
    }
    path = tmp_path / "r.metric"
    Metric(Linear(), Report(told), rows=points()).save(path)
    copy = mf.load(path).report
    assert copy.none is None
    assert copy.inf == float("inf")
    assert copy.nested == told["nested"]
    assert copy["bytes of text"].tolist() == [["ab", "c"], ["", "d"]]
    assert copy.scalar == 0.1
    np.testing.assert_array_equal(copy.array, told["array"])


# ---------------------------------------------------------------------------------------------------------- bad files


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "wine.metric"
    mf.learn(points(), np.arange(30) % 2, method="euclidean", kernel=RBF(0.5)).save(path)
    return path


def one_sentence(error):
    text = str(error)
    assert "\n" not in text
    assert "wine.metric" in text
    return text


def test_every_flipped_bit_is_noticed(saved):
    whole = saved.read_bytes()
    rng = np.random.default_rng(0)
    places = {0, 10, len(whole) - 1, len(whole) // 2, *rng.integers(len(whole), size=200).tolist()}
    for place in sorted(places):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        saved.write_bytes(bytes(damaged))
        with pytest.raises(ModelFileError) as caught:
            mf.load(saved)
        text = one_sentence(caught.value)
        assert "damaged" in text or "not a saved metric" in text


def test_every_truncation_is_noticed(saved):
    whole = saved.read_bytes()
    for size in (0, 1, 3, 31, 32, 33, len(whole) // 3, len(whole) // 2, len(whole) - 33, len(whole) - 1):
        saved.write_bytes(whole[:size])
        with pytest.raises(ModelFileError) as caught:
            mf.load(saved)
        one_sentence(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"hello", b"\x80\x04\x95", b"PK\x03\x04" + bytes(100), b"", json.dumps({"format": 1}).encode()],
    ids=["text", "pickle", "zip-like", "empty", "json"],
)
def test_foreign_files(content, saved):
    saved.write_bytes(content)
    with pytest.raises(ModelFileError, match="not a saved metric"):
        mf.load(saved)


def test_a_foreign_zip(saved):
    with zipfile.ZipFile(saved, "w") as archive:
        archive.writestr("letter.txt", "dear sir " * 20)
    with pytest.raises(ModelFileError, match="not a saved metric"):
        mf.load(saved)


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(ModelFileError, match=r"cannot read .*nothing\.metric.*No such file"):
        mf.load(tmp_path / "nothing.metric")
    with pytest.raises(ModelFileError, match="cannot read"):
        mf.load(tmp_path)


def rewrite(path, change):
    """Write a well-formed file (digest and all) whose tree was changed."""
    with zipfile.ZipFile(path) as archive:
        head = json.loads(archive.read("metric.json"))
        names = [n for n in archive.namelist() if n.endswith(".npy")]
        arrays = [np.load(archive.open(n)) for n in sorted(names, key=lambda n: int(n[:-4]))]
    change(head)
    with path.open("w+b") as file:
        modelfile._write_zip(file, head, arrays)


def test_a_file_of_a_later_version(saved):
    rewrite(saved, lambda head: head.update(format=99, metricforge="7.0"))
    with pytest.raises(ModelFileError, match=r"written by metricforge 7\.0 in a later format \(99.*upgrade"):
        mf.load(saved)


def kernel_of(head):
    return dict(head["content"]["dict"])["kernel"]


def test_a_field_the_class_does_not_have(saved):
    rewrite(saved, lambda head: kernel_of(head)["fields"].update(colour="red"))
    with pytest.raises(ModelFileError, match="RBF has no field 'colour'"):
        mf.load(saved)


def test_a_value_the_class_refuses(saved):
    rewrite(saved, lambda head: kernel_of(head)["fields"].update(gamma=-1.0))
    with pytest.raises(ModelFileError, match=r"cannot rebuild.*gamma"):
        mf.load(saved)


@pytest.mark.parametrize("missing", ["kernel", "report", "rows"])
def test_a_tree_without_its_parts(missing, saved):
    def drop(head):
        head["content"]["dict"] = [pair for pair in head["content"]["dict"] if pair[0] != missing]

    rewrite(saved, drop)
    with pytest.raises(ModelFileError, match=f"not a saved metric.*{missing}"):
        mf.load(saved)


def test_a_component_of_a_plugin_that_is_not_there(saved):
    def rename(head):
        kernel_of(head).update(name="cosine", plugin="cosine")
        head["plugins"]["cosine"] = {"distribution": "metricforge-cosine", "version": "2"}

    rewrite(saved, rename)
    with pytest.raises(MissingPluginError, match=r"kernel 'cosine' of plugin 'cosine'.*pip install metricforge-cosine"):
        mf.load(saved)


def seal(path):
    """Write the digest that a well-formed file ends with."""
    with path.open("r+b") as file:
        end = file.seek(-modelfile.DIGEST, os.SEEK_END)
        digest = modelfile._digest(file, end)
        file.seek(end)
        file.write(digest)


class Bomb:
    def __reduce__(self):
        return (os.system, ("touch exploded",))


def test_nothing_in_a_file_is_executed(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ModelFileError):
        mf.load(saved)
    # an object array inside an otherwise well-formed file would be a pickle
    with saved.open("w+b") as file, zipfile.ZipFile(file, "w") as archive:
        archive.comment = bytes(modelfile.DIGEST)
        archive.writestr(
            "metric.json", json.dumps({"format": 1, "metricforge": "0", "plugins": {}, "content": {"array": 0}})
        )
        with archive.open("0.npy", "w") as member:
            np.lib.format.write_array(member, np.array([Bomb()], dtype=object), allow_pickle=True)
    seal(saved)
    with pytest.raises(ModelFileError):
        mf.load(saved)
    assert not (tmp_path / "exploded").exists()
    source = Path(modelfile.__file__).read_text()
    assert "pickle" not in source.replace("allow_pickle=False", "")


# -------------------------------------------------------------------------------------------------------------- saving


def test_unsaveable_things_are_named(tmp_path):
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Secret(mf.Kernel):
        def block(self, X, Y):
            return X @ Y.T

    metric = mf.learn(points(), np.arange(30) % 2, method="euclidean", kernel=Secret())
    with pytest.raises(InputError, match=r"metric\.kernel: Secret is not registered.*mf\.register"):
        metric.save(tmp_path / "s.metric")
    odd = Metric(Linear(), Report({"method": "x", "thing": object()}), rows=points())
    with pytest.raises(InputError, match=r"metric\.report\.thing holds a object"):
        odd.save(tmp_path / "s.metric")
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_place_is_one_sentence(tmp_path):
    metric = mf.learn(points(), np.arange(30) % 2, method="euclidean")
    with pytest.raises(InputError, match=r"cannot write .* there is no folder"):
        metric.save(tmp_path / "no" / "such" / "folder.metric")


def test_a_failing_save_leaves_the_old_file_and_no_litter(saved, monkeypatch):
    before = saved.read_bytes()
    metric = mf.load(saved)
    monkeypatch.setattr(np.lib.format, "write_array", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        metric.save(saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_permissions_are_those_of_any_new_file(saved, tmp_path):
    mask = os.umask(0o022)
    try:
        mf.load(saved).save(tmp_path / "new.metric")
        assert stat.S_IMODE((tmp_path / "new.metric").stat().st_mode) == 0o644
        saved.chmod(0o600)
        mf.load(saved).save(saved)
        assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    finally:
        os.umask(mask)


KILLED = """
import sys, time
import numpy as np
import metricforge as mf
from metricforge.serialization import model as modelfile
metric = mf.learn(np.eye(50), np.arange(50) % 2, method="euclidean", kernel=mf.kernels.RBF(9.0))
real = np.lib.format.write_array
def slow(*args, **kwargs):
    real(*args, **kwargs)
    print("writing", flush=True)
    time.sleep(60)
np.lib.format.write_array = slow
metric.save(sys.argv[1])
"""


def test_killing_the_process_while_saving_leaves_the_old_file_whole(saved):
    before = saved.read_bytes()
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(saved)], stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout.readline() == "writing\n"
        assert len(list(saved.parent.iterdir())) == 2  # it was in the middle of the new file
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert saved.read_bytes() == before
    assert mf.load(saved).kernel == RBF(0.5)


def test_two_writers_leave_one_whole_file(saved):
    metrics = [mf.learn(points(), np.arange(30) % 2, method="euclidean", kernel=RBF(g)) for g in (1.0, 2.0)]
    from threading import Thread

    def write(metric):
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            metric.save(saved)

    threads = [Thread(target=write, args=(m,)) for m in metrics]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        assert mf.load(saved).kernel.gamma in (0.5, 1.0, 2.0)
    for t in threads:
        t.join()


# ------------------------------------------------------------------------------------------------------ crafted files


def set_part(name, value):
    def change(head):
        head["content"]["dict"] = [[k, value if k == name else v] for k, v in head["content"]["dict"]]

    return change


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernel", "rbf"),
        ("kernel", {"component": "method", "name": "euclidean", "plugin": "euclidean", "fields": {}}),
        ("kernel", {"component": "solver", "name": "euclidean", "plugin": "euclidean", "fields": {}}),
        ("report", "ab"),
        ("rows", 5),
        ("rows", {"array": 10**6}),
        ("solver", 3),
        ("seed", "x"),
        ("map", 3),
        ("rank", None),
        ("rows", {"csr": [{"array": 0}], "shape": [1], "class": "csr_array"}),
    ],
)
def test_parts_of_a_wrong_kind_are_noticed_on_loading(name, value, saved):
    rewrite(saved, set_part(name, value))
    with pytest.raises(ModelFileError) as caught:
        mf.load(saved)
    one_sentence(caught.value)


def test_a_tree_too_deep_to_build(saved):
    with zipfile.ZipFile(saved) as archive:
        text = archive.read("metric.json").decode()
    deep = text.replace('"gamma": 0.5', '"gamma": ' + '{"tuple": [' * 5000 + "1" + "]}" * 5000)
    with saved.open("w+b") as file, zipfile.ZipFile(file, "w") as archive:
        archive.comment = bytes(modelfile.DIGEST)
        archive.writestr("metric.json", deep)
    seal(saved)
    with pytest.raises(ModelFileError):
        mf.load(saved)


def test_sparse_rows_with_wild_indices_do_not_crash_the_process(tmp_path):
    path = tmp_path / "wine.metric"
    X = sp.csr_array(np.eye(4))
    mf.learn(X, [0, 1, 0, 1], method="euclidean", kernel=RBF(0.5)).save(path)
    for part, wild in ((1, np.array([0, 1, 2**30, 3], dtype=np.int32)), (2, np.array([0, 10**8, 2, 3, 4], np.int32))):
        with zipfile.ZipFile(path) as archive:
            head = json.loads(archive.read("metric.json"))
            arrays = [np.load(archive.open(f"{i}.npy")) for i in range(len(archive.namelist()) - 1)]
        place = dict(head["content"]["dict"])["rows"]["csr"][part]["array"]
        with (tmp_path / f"{part}.metric").open("w+b") as file:
            modelfile._write_zip(file, head, [wild if i == place else a for i, a in enumerate(arrays)])
        with pytest.raises(ModelFileError, match="cannot rebuild"):
            mf.load(tmp_path / f"{part}.metric")


def test_a_header_cannot_ask_for_more_memory_than_the_file_has(saved):
    with zipfile.ZipFile(saved) as archive:
        head = archive.read("metric.json")
        names = archive.namelist()[1:]
        arrays = {n: archive.read(n) for n in names}
    huge = arrays["0.npy"].replace(b"(30, 4), }", b"(9999999999, 4), }")
    assert huge != arrays["0.npy"]
    with saved.open("w+b") as file, zipfile.ZipFile(file, "w") as archive:
        archive.comment = bytes(modelfile.DIGEST)
        archive.writestr("metric.json", head)
        for name in names:
            archive.writestr(name, huge if name == "0.npy" else arrays[name])
    seal(saved)
    with pytest.raises(ModelFileError, match="damaged"):
        mf.load(saved)


def test_named_tuples_come_back_as_tuples(tmp_path):
    from collections import namedtuple

    point = namedtuple("point", "x y")(1, 2)
    Metric(Linear(), Report({"method": "t", "p": point}), rows=points()).save(tmp_path / "a.metric")
    assert mf.load(tmp_path / "a.metric").report.p == (1, 2)


def test_links_and_folders_and_nonsense(saved, tmp_path):
    link = tmp_path / "link.metric"
    link.symlink_to(saved)
    mf.learn(points(), np.arange(30) % 2, method="euclidean", kernel=RBF(7.0)).save(link)
    assert link.is_symlink()
    assert mf.load(saved).kernel == RBF(7.0)
    with pytest.raises(InputError, match="it is a folder; give the name of a file"):
        mf.load(saved).save(tmp_path)
    with pytest.raises(InputError, match="path must be the name of a file"):
        mf.load(None)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.metric", "wine.metric"]


def test_what_cannot_be_embedded_can_still_be_saved(tmp_path):
    metric = mf.learn(["", "a", "ab"], [0, 1, 0], method="euclidean", kernel=Spectrum(3))
    metric.save(tmp_path / "a.metric")
    assert mf.load(tmp_path / "a.metric").kernel == Spectrum(3)


# ---------------------------------------------------------------------------------- fields of format 2, missing plugins


@dataclass(frozen=True)
class Doubling(mf.Solver):
    """Doubles the kernel; an option with an array, to be kept in the file."""

    table: object = None
    accepts = (mf.Constraint,)

    def _solve(self, problem):
        return mf.Solution(2 * problem.kernel, mf.Status.OPTIMAL, 0.0, 0.0, "closed form", outcome={"twice": True})

    def update(self, metric, X, constraint):
        return self._solve(SimpleNamespace(kernel=metric.kernel))


@dataclass(frozen=True)
class Shifted(mf.Kernel):
    """A kernel of the same plugin."""

    shift: float = 1.0

    def block(self, X, Y):
        return X @ Y.T + self.shift


def doubled(plugged, path, kernel=None):
    """Save a metric whose solver, and perhaps start kernel, are gone when it is loaded."""
    names = np.array(["x", "yy"], dtype=object)
    table = {"a": np.arange(6.0).reshape(2, 3), "names": names, "csr": sp.eye(3, format="csr")}
    options = (table, [1, 2.5, float("inf")], RBF(2.0))
    with plugged(
        plugin="twice",
        solver={"doubling": Doubling},
        kernel={"shifted": Shifted},
        method={"doubling": mf.Method(mf.Labels, Linear(), Doubling())},
    ):
        kernel = kernel or RBF(0.5)
        metric = mf.learn(points(), np.arange(30) % 2, method="doubling", kernel=kernel, table=options)
        metric.save(path)
    return metric


def test_start_columns_and_outcome_are_kept(tmp_path):
    frame = pd.DataFrame(points(), columns=list("abcd"))
    metric = mf.learn(frame, np.arange(30) % 2, method="krca")
    metric.save(tmp_path / "a.metric")
    copy = mf.load(tmp_path / "a.metric")
    assert copy.start == metric.start == Standardized(by="range").resolve(points(), seed=0)
    assert copy.columns == metric.columns == ("a", "b", "c", "d")
    assert dict(copy.report.outcome) == dict(metric.report.outcome)
    assert "epsilon" in copy.report.outcome
    assert copy.report.certificate == metric.report.certificate
    assert copy.report.certificate.kind == "residual"
    assert head_of(tmp_path / "a.metric")["format"] == 2
    assert copy.missing == {}


def head_of(path):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("metric.json"))


def test_a_start_that_shares_its_arrays_with_the_kernel_takes_no_room(tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 40))
    first = mf.learn(X, np.arange(300) % 2, method="krca")
    second = mf.learn(X, np.arange(300) % 2, method="krca", kernel=first)
    second.save(tmp_path / "a.metric")
    mf.load(tmp_path / "a.metric").save(tmp_path / "b.metric")
    assert (tmp_path / "a.metric").read_bytes() == (tmp_path / "b.metric").read_bytes()
    assert mf.load(tmp_path / "a.metric").start == first.kernel
    with zipfile.ZipFile(tmp_path / "a.metric") as archive:
        contents = [archive.read(name) for name in archive.namelist()]
    assert len(set(contents)) == len(contents)


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_shared_only_if_every_byte_is_the_same(tmp_path, order):
    A = np.asarray(np.arange(6.0).reshape(2, 3), order=order)
    others = {"copy": A.copy(order), "turned": A.copy("F" if order == "C" else "C"), "single": A.astype(np.float32)}
    others |= {"zero": np.zeros(2), "negative zero": -np.zeros(2), "flat": A.ravel(), "scalar": np.array(3.0)}
    Metric(Linear(), Report({"method": "t", "A": A, **others}), rows=points()).save(tmp_path / "a.metric")
    copy = mf.load(tmp_path / "a.metric").report
    for name, value in {"A": A, **others}.items():
        assert copy[name].tobytes("A") == value.tobytes("A")
        assert copy[name].flags.c_contiguous == value.flags.c_contiguous
    assert copy["copy"] is copy.A
    assert copy["turned"] is not copy.A


def test_a_metric_loads_without_the_plugin_that_trained_it(plugged, tmp_path):
    path = tmp_path / "a.metric"
    metric = doubled(plugged, path)
    copy = mf.load(path)
    assert copy.solver is None
    assert copy.start == RBF(0.5)
    assert copy.report.twice
    assert np.array_equal(copy.distance(points()), metric.distance(points()))
    assert np.array_equal(copy.transform(points()), metric.transform(points()))
    said = r"a\.metric' needs solver 'doubling' of plugin 'twice', which is not installed; install it, or register it"
    with pytest.raises(MissingPluginError, match=said):
        copy.update(points(3), [0, 1, 1])
    with pytest.raises(InputError, match="sum of metrics cannot be updated"):
        (0.5 * copy).update(points(3), [0, 1, 1])


def test_what_is_missing_is_saved_again_as_it_was(plugged, tmp_path):
    metric = doubled(plugged, tmp_path / "a.metric")
    mf.load(tmp_path / "a.metric").save(tmp_path / "b.metric")
    assert head_of(tmp_path / "b.metric")["plugins"] == head_of(tmp_path / "a.metric")["plugins"]
    with plugged(plugin="twice", solver={"doubling": Doubling}):
        copy = mf.load(tmp_path / "b.metric")
        assert copy.missing == {}
        (table, numbers, kernel), (same, *_) = copy.solver.table, metric.solver.table
        assert np.array_equal(table["a"], same["a"])
        assert table["names"].tolist() == ["x", "yy"]
        assert (table["csr"] != same["csr"]).nnz == 0
        assert (numbers, kernel) == ([1, 2.5, float("inf")], RBF(2.0))
        assert copy.update(points(3), [0, 1, 1]).report.updates == 1


def test_a_missing_start_is_kept_and_a_missing_kernel_is_an_error(plugged, tmp_path):
    metric = doubled(plugged, tmp_path / "a.metric", kernel=Shifted(3.0))
    with pytest.raises(MissingPluginError, match="needs kernel 'shifted' of plugin 'twice'"):
        mf.load(tmp_path / "a.metric")
    with plugged(plugin="twice", solver={"doubling": Doubling}, kernel={"shifted": Shifted}):
        replace(metric, kernel=2 * Linear()).save(tmp_path / "b.metric")
    copy = mf.load(tmp_path / "b.metric")
    assert copy.start is None
    assert sorted(copy.missing) == ["solver", "start"]
    copy.save(tmp_path / "c.metric")
    with plugged(plugin="twice", solver={"doubling": Doubling}, kernel={"shifted": Shifted}):
        assert mf.load(tmp_path / "c.metric").start == Shifted(3.0)


def test_a_solver_whose_requirements_are_missing_is_not_needed_to_load(tmp_path, monkeypatch):
    path = tmp_path / "a.metric"
    y = np.arange(30) % 2
    metric = mf.learn(points(), mf.Triplets.from_labels(y, n_triplets=50), method="lpdesign")
    metric.save(path)
    monkeypatch.setattr(type(registry.entry("solver", "lpdesign")), "missing", property(lambda entry: entry.requires))
    copy = mf.load(path)
    assert np.array_equal(copy.distance(points()), metric.distance(points()))
    with pytest.raises(MissingPluginError, match="'lpdesign' of plugin 'lpdesign', which needs highspy; pip install"):
        copy.update(points(3), [0, 1, 1])


def test_a_start_that_cannot_be_saved_is_left_out_with_a_note(tmp_path):
    metric = mf.learn(points(), np.arange(30) % 2, method="krca", kernel="linear")
    replace(metric, start=Shifted(2.0)).save(tmp_path / "a.metric")
    copy = mf.load(tmp_path / "a.metric")
    assert copy.start is None
    assert copy.report.notes[-1].startswith("not saved: start: Shifted is not registered")
    assert np.array_equal(copy.distance(points()), metric.distance(points()))


def test_a_pipe_or_a_device_is_not_replaced(tmp_path):
    metric = mf.learn([[0.0], [1.0], [2.0]], [0, 0, 1], method="euclidean")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    for name in ("pipe", "null"):
        with pytest.raises(InputError, match="it is a pipe or a device; give the name of a file"):
            metric.save(tmp_path / name)


def test_a_signal_while_a_member_is_closed_is_not_replaced_by_an_error_of_the_archive(tmp_path, monkeypatch):
    metric = mf.learn(np.eye(4), [0, 0, 1, 1], method="krca")

    def interrupted(member):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(zipfile._ZipWriteFile, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            metric.save(tmp_path / "a.metric")
    assert list(tmp_path.iterdir()) == []
    metric.save(tmp_path / "a.metric")
    assert np.array_equal(mf.load(tmp_path / "a.metric").distance(np.eye(4)), metric.distance(np.eye(4)))
