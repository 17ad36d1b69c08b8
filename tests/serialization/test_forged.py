"""Model files that pass the digest, but that metric.save did not write: refused on loading, with one sentence."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pytest

import metricforge as mf
from metricforge.errors import InputError, ModelFileError, SolverError
from metricforge.serialization import model as modelfile

X = np.random.default_rng(0).normal(size=(30, 4))
Y = np.arange(30) % 3


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Saved metrics: explicit features, landmarks, a sum, a combination of columns, and two without training rows."""
    folder = tmp_path_factory.mktemp("metrics")
    made = {
        "linear": mf.learn(X, Y, method="krca", kernel="linear"),
        "rbf": mf.learn(X, Y, method="kcr", kernel=mf.kernels.RBF(0.5)),
        "sum": mf.learn(X, Y, method="euclidean", kernel=mf.kernels.RBF(0.5) + mf.kernels.Linear()),
        "design": mf.learn(X, Y, method="lpdesign"),
    }
    for name, metric in list(made.items()):
        metric.transform(X[:2])  # so that the map is saved as well
        metric.save(folder / f"{name}.metric")
        if name in ("linear", "rbf"):
            replace(metric, rows=None).save(folder / f"{name} without rows.metric")
    return folder


def content_of(path):
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".npy")]
        return json.loads(archive.read("metric.json")), [np.load(archive.open(name)) for name in names]


def forge(path, head, arrays):
    with path.open("w+b") as file:
        modelfile._write_zip(file, head, arrays)
    return path


def refused(path):
    with pytest.raises(ModelFileError) as caught:
        mf.load(path)
    text = str(caught.value)
    assert "\n" not in text
    assert path.name in text
    return text


# ------------------------------------------------------------------------------------------------------- the container


def forge_zip(path, head, members, compression=zipfile.ZIP_STORED):
    with path.open("w+b") as file:
        with zipfile.ZipFile(file, "w", compression) as archive:
            archive.comment = bytes(modelfile.DIGEST)
            archive.writestr("metric.json", json.dumps(head))
            for name, content in members:
                archive.writestr(name, content)
        end = file.seek(-modelfile.DIGEST, os.SEEK_END)
        digest = modelfile._digest(file, end)
        file.seek(end)
        file.write(digest)
    return path


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return [(name, archive.read(name)) for name in archive.namelist() if name != "metric.json"]


def test_what_the_writer_writes_is_accepted(originals, tmp_path):
    for path in originals.iterdir():
        mf.load(path)
        mf.load(forge(tmp_path / "same.metric", *content_of(path)))
        mf.load(forge_zip(tmp_path / "same.metric", content_of(path)[0], members_of(path)))


def test_compressed_members_are_refused_before_they_are_read(originals, tmp_path):
    head, arrays = content_of(originals / "rbf.metric")
    assert "damaged" in refused(
        forge_zip(tmp_path / "f.metric", head, members_of(originals / "rbf.metric"), zipfile.ZIP_DEFLATED)
    )
    size = 2**27  # bytes, 130 kB in the file
    large = io.BytesIO()
    np.save(large, np.zeros(size // 8))
    members = [*members_of(originals / "rbf.metric"), (f"{len(arrays)}.npy", large.getvalue())]
    bomb = forge_zip(tmp_path / "bomb.metric", head, members, zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 2**20
    code = (
        "import sys, resource, metricforge as mf\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    mf.load(sys.argv[1])\nexcept mf.errors.ModelFileError:\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", code, bomb], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2**16  # KiB; the member expands to twice that


@pytest.mark.parametrize("change", ["another name", "twice", "missing", "another order", "one more"])
def test_members_with_other_names_are_refused(originals, tmp_path, change):
    path = originals / "rbf.metric"
    head, members = content_of(path)[0], members_of(path)
    first, *others = members
    changed = {
        "another name": [("../0.npy", first[1]), *others],
        "twice": [first, first, *others[1:]],
        "missing": others,
        "another order": [*others, first],
        "one more": [*members, ("readme.txt", b"hello")],
    }[change]
    with pytest.warns(UserWarning, match="Duplicate name") if change == "twice" else contextlib.nullcontext():
        forge_zip(tmp_path / "f.metric", head, changed)
    assert "damaged" in refused(tmp_path / "f.metric")


def test_members_that_share_their_bytes_are_refused(originals, tmp_path):
    path = tmp_path / "f.metric"
    head, _ = content_of(originals / "rbf.metric")
    with path.open("w+b") as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.comment = bytes(modelfile.DIGEST)
            archive.writestr("metric.json", json.dumps(head))
            archive.writestr("0.npy", bytes(2**16))
            shared = archive.getinfo("0.npy")
            for i in range(1, 200):  # entries of the directory that all point to the same member
                again = copy.copy(shared)
                again.filename = f"{i}.npy"
                archive.filelist.append(again)
                archive.NameToInfo[again.filename] = again
        end = file.seek(-modelfile.DIGEST, os.SEEK_END)
        digest = modelfile._digest(file, end)
        file.seek(end)
        file.write(digest)
    assert "damaged" in refused(path)


@pytest.mark.parametrize("version", [-5, 0, True, 1.0, "2", None])
def test_the_format_is_one_or_two(originals, tmp_path, version):
    head, arrays = content_of(originals / "rbf.metric")
    refused(forge(tmp_path / "f.metric", head | {"format": version}, arrays))


def test_an_array_is_followed_by_nothing(originals, tmp_path):
    path = originals / "rbf.metric"
    head, members = content_of(path)[0], members_of(path)
    longer = [(name, content + bytes(8)) for name, content in members]
    assert "damaged" in refused(forge_zip(tmp_path / "f.metric", head, longer))


def test_an_error_of_the_disk_is_said(monkeypatch, originals):
    def fails(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(modelfile, "_digest", fails)
    assert refused(originals / "rbf.metric").endswith("rbf.metric': Input/output error")


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "f.metric")
    code = "import sys, metricforge as mf; mf.load(sys.argv[1])"
    command = [sys.executable, "-c", code, tmp_path / "f.metric"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "ModelFileError" in done.stderr
    assert "is a pipe or a device, not a file" in done.stderr


# ------------------------------------------------------------------------------------------------------------ the tree


def kernel_of(head):
    return dict(head["content"]["dict"])["kernel"]


def part(head, name):
    return next(pair for pair in head["content"]["dict"] if pair[0] == name)


def field_of_report(head, name):
    return next(pair for pair in part(head, "report")[1]["dict"] if pair[0] == name)


FORGED = {
    "negative seed": lambda head: part(head, "seed").__setitem__(1, -3),
    "report of a wrong type": lambda head: part(head, "report").__setitem__(1, {"dict": [["n", "many"]]}),
    "parts that are no reports": lambda head: part(head, "report").__setitem__(1, {"dict": [["parts", 3]]}),
    "parts that are no mappings": lambda head: part(head, "report").__setitem__(
        1, {"dict": [["parts", {"tuple": [3]}]]}
    ),
    "report with keys that are no names": lambda head: part(head, "report").__setitem__(1, {"dict": [[7, "x"]]}),
    "report without notes": lambda head: field_of_report(head, "notes").__setitem__(0, "nothing"),
    "report whose notes are None": lambda head: field_of_report(head, "notes").__setitem__(1, None),
    "report whose counts are None": lambda head: field_of_report(head, "dropped").__setitem__(1, None),
    "columns that are no names": lambda head: part(head, "columns").__setitem__(1, {"tuple": [1, 2, 3, 4]}),
    "certificate that cannot be shown": lambda head: part(head, "report").__setitem__(
        1, {"dict": [["certificate", {"plain": "certificate", "fields": {"kind": "gap", "value": "small"}}]]}
    ),
    "width of other rows": lambda head: part(head, "width").__setitem__(1, 7),
    "array by a negative number": lambda head: part(head, "rows").__setitem__(1, {"array": -1}),
    "bare list": lambda head: part(head, "columns").__setitem__(1, [1, 2]),
    "kernel without a kernel inside": lambda head: part(head, "kernel").__setitem__(
        1,
        {
            "component": "kernel",
            "name": "learned",
            "plugin": kernel_of(head)["plugin"],
            "fields": {"map": {"plain": "feature-map", "fields": {"kernel": 3, "landmarks": None, "mix": None}}},
        },
    ),
    "map over nothing": lambda head: part(head, "map").__setitem__(
        1,
        {
            "plain": "feature-map",
            "fields": {"kernel": "rbf", "landmarks": None, "mix": None, "columns": 3, "exact": True},
        },
    ),
}


@pytest.mark.parametrize("name", ["rbf", "rbf without rows"])
@pytest.mark.parametrize("case", FORGED)
def test_forged_parts_are_refused_on_loading(originals, tmp_path, case, name):
    head, arrays = content_of(originals / f"{name}.metric")
    FORGED[case](head)
    refused(forge(tmp_path / "f.metric", head, arrays))


CHANGES = {
    "text": lambda a: a.astype("U"),
    "dates": lambda a: a.astype(np.int64).astype("M8[s]"),
    "flat": lambda a: a.ravel(),
    "narrow": lambda a: a[..., :-1],
    "empty": lambda a: np.zeros((0,) * a.ndim),
    "nan": lambda a: np.full(a.shape, np.nan),
    "complex": lambda a: a.astype(complex),
}


@pytest.mark.parametrize("change", CHANGES)
def test_forged_arrays_never_give_a_raw_error(originals, tmp_path, change):
    for path in originals.iterdir():
        head, arrays = content_of(path)
        for i in range(len(arrays)):
            changed = [CHANGES[change](a) if i == k else a for k, a in enumerate(arrays)]
            use(forge(tmp_path / "f.metric", head, changed))


JUNK = [
    *(None, True, -1, 0, 3, 10**6, 1e308, -2.5, "x", "", [1, 2], {}),
    *({"list": []}, {"tuple": []}, {"dict": []}, {"array": 0}, {"array": 1}, {"array": -1}),
    *({"float": "nan"}, {"float": "inf"}, {"plain": "feature-map", "fields": {}}),
    {"plain": "certificate", "fields": {"kind": 3, "value": "x"}},
    {"strings": [{"array": 0}, {"array": 0}], "shape": [1]},
]


def places(tree):
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield tree, key
        yield from places(value)


def test_no_forged_tree_gives_a_raw_error(originals, tmp_path):
    rng = np.random.default_rng(20)
    known = [content_of(path) for path in sorted(originals.iterdir())]
    n_refused = 0
    for _ in range(250):
        head, arrays = copy.deepcopy(known[rng.integers(len(known))])
        found = list(places(head["content"]))
        tree, key = found[rng.integers(len(found))]
        tree[key] = copy.deepcopy(JUNK[rng.integers(len(JUNK))])
        n_refused += use(forge(tmp_path / "f.metric", head, arrays))
    assert 100 < n_refused < 250


def use(path):
    """Load a metric and use it; return whether it was refused on loading.  No other exception may leave the library."""
    try:
        metric = mf.load(path)
    except ModelFileError:
        return True
    calls = (
        lambda: metric.distance(X[:3]),
        lambda: metric.transform(X[:3]),
        lambda: metric.neighbors(X[:3], k=1),
        lambda: repr(metric),
        lambda: metric.save(path.with_name("again.metric")),
    )
    for call in calls:
        try:
            with np.errstate(all="ignore"):
                call()
        except (InputError, SolverError):
            pass
    return False


def test_an_update_of_parts_that_no_fit_combined_is_refused(originals, tmp_path):
    head, arrays = content_of(originals / "linear.metric")
    linear = part(head, "start")[1]
    part(head, "kernel")[1] = linear | {"name": "normalized", "fields": {"kernel": linear}}
    with pytest.raises(InputError, match="the kernel of this metric is a Normalized, which krca did not learn"):
        mf.load(forge(tmp_path / "f.metric", head, arrays)).update(X, mf.Chunklets(Y))
    head, arrays = content_of(originals / "linear.metric")
    part(head, "outcome")[1] = {"dict": [["chunklets", "many"]]}
    with pytest.raises(InputError, match=r"^report\.\w+ must be a whole number"):
        mf.load(forge(tmp_path / "f.metric", head, arrays)).update(X, mf.Chunklets(Y))
