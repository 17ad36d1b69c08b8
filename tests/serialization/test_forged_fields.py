"""Every number, text and flag in the kernels of a model file, forged: refused on loading, or harmless in use."""

from __future__ import annotations

import copy
import json
import re
import warnings
import zipfile
from dataclasses import fields

import numpy as np
import pytest

import metricforge as mf
from metricforge import kernels as k
from metricforge.errors import ConvergenceWarning, InputError, ModelFileError
from metricforge.registry import registry
from metricforge.serialization import model as modelfile

X = np.random.default_rng(0).normal(size=(14, 3))
Y = np.arange(14) % 2
WORDS = np.array(["ACGTAC", "CCGT", "GATTACA", "TTAG", "ACCA", "GGTC"], dtype=object)
FORGED = [
    *(None, True, False, -1, 0, 2**70, 10**400, -2.5, 1e300, 1e-300, "x", ""),
    *({"float": "nan"}, {"float": "inf"}, {"list": []}, {"tuple": []}, {"dict": []}),
]


def saved_metrics():
    """Return metrics, each with its rows, whose files contain a number, text or flag of every registered kernel."""
    made = [(mf.learn(X, Y, method=entry.name), X) for entry in mf.methods()]
    base = (k.RBF(0.1) + 2 * k.Linear()) * k.Cauchy(1 / 3)
    kernels = [base, k.Standardized(k.Polynomial(2)), k.Laplacian(0.5), k.RBF(0.1, base=k.Linear())]
    made += [(mf.learn(X, Y, method="euclidean", kernel=kernel), X) for kernel in kernels]
    made += [
        (mf.learn(X, Y, method="krca", rank=4, kernel=k.RBF(0.5)), X),
        (mf.learn(X, Y, method="krca-weighted"), X),
        (mf.learn(X, Y, method="simplenpkl", extension="nystrom"), X),
        (mf.learn(X, Y, method="idealized", psd="paper", kernel=k.RBF(0.5)), X),
        (mf.learn(WORDS, np.arange(6) % 2, method="krca", kernel=k.Spectrum(2).normalized()), WORDS),
        (mf.learn(X @ X.T, Y, method="krca", kernel=k.Precomputed()), X @ X.T),
    ]
    return made


def leaves(tree, owner="metric", path=()):
    """Return the name and the place of every number, text, flag and None in a stored metric.

    Entries of a list or tuple share a name, so that one of them stands for all.
    """
    if tree is None or isinstance(tree, bool | int | float | str):
        yield owner, path
    elif isinstance(tree, dict) and "fields" in tree:
        part = tree.get("name", tree.get("plain"))
        for key, value in tree["fields"].items():
            yield from leaves(value, f"{part}.{key}", (*path, "fields", key))
    elif isinstance(tree, dict) and "dict" in tree:
        for i, (key, value) in enumerate(tree["dict"]):
            yield from leaves(value, f"{owner}.{key}", (*path, "dict", i, 1))
    elif isinstance(tree, dict):
        for kind in tree.keys() & {"list", "tuple"}:
            yield owner, path
            for i, value in enumerate(tree[kind]):
                yield from leaves(value, f"{owner}[]", (*path, kind, i))


def kernel_leaves(content):
    at = next(i for i, (key, _) in enumerate(content["dict"]) if key == "kernel")
    return leaves(content["dict"][at][1], "kernel", ("dict", at, 1))


def forged(tree, path, value):
    """Return a copy of a stored metric with one place replaced."""
    if not path:
        return value
    changed = copy.copy(tree)
    changed[path[0]] = forged(tree[path[0]], path[1:], value)
    return changed


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("metrics") / "saved.metric"
    found = []
    for metric, rows in saved_metrics():
        metric.save(path)
        with zipfile.ZipFile(path) as archive:
            arrays = [np.load(archive.open(name)) for name in archive.namelist()[1:]]
            found.append((json.loads(archive.read("metric.json")), arrays, rows))
    return found


def test_no_forged_value_of_a_kernel_fails_in_use(stored, tmp_path):
    path = tmp_path / "forged.metric"
    done, failures = set(), []
    for head, arrays, rows in stored:
        for name, place in kernel_leaves(head["content"]):
            if name in done:
                continue
            done.add(name)
            for value in FORGED:
                with path.open("w+b") as file:
                    modelfile._write_zip(file, head | {"content": forged(head["content"], place, value)}, arrays)
                failures += [f"{name} = {value!r:.30}: {what}" for what in use(path, rows)]
    assert not failures, "\n".join(failures)
    assert done >= numbers_of_kernels()


def numbers_of_kernels():
    """Return the names of those fields of registered kernels that are numbers, texts or flags."""
    found = set()
    for entry in registry.entries("kernel"):
        for field in fields(entry.load()):
            if field.init and {"bool", "int", "float", "str"} & set(re.findall(r"\w+", field.type)):
                found.add(f"{entry.name}.{field.name}")
    return found


def use(path, rows):
    """Load a metric and use it; return what went wrong."""
    try:
        metric = mf.load(path)
    except ModelFileError:
        return
    calls = {
        "distance": lambda: metric.distance(rows),
        "paired_distance": lambda: metric.paired_distance(rows, rows[::-1]),
        "kernel": lambda: metric.kernel(rows),
        "transform": lambda: metric.transform(rows),
        "neighbors": lambda: metric.neighbors(rows, k=2)[1],
        "start": lambda: mf.learn(rows, np.arange(len(rows)) % 2, method="euclidean", kernel=metric).distance(rows),
        "save": lambda: metric.save(path.with_name("again.metric")) or 0,
        "arithmetic": lambda: (0.5 * metric + metric).distance(rows),
        "repr": lambda: len(repr(metric) + repr(metric.kernel)),
        "update": lambda: metric.update(rows, np.arange(len(rows)) % 2).distance(rows),
    }
    for name, call in calls.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", ConvergenceWarning)
                if not np.isfinite(np.asarray(call(), dtype=float)).all():
                    yield f"{name} is not finite"
        except InputError:
            continue
        except Exception as error:
            yield f"{name}: {type(error).__name__}: {error}"
