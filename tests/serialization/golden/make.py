"""Write the golden files: one small saved metric for each method, each kernel and each way to come by a metric.

They were written once, by version 0.1.0 in model file format 1, so that every later version can be tested to load them
and to measure the same distances.  Never run this again on a later version to overwrite them: files of a new format are
further files, written by a script of their own, and these stay.

How it was run, from a clean clone of version 0.1.0 with its development extras installed::

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python make.py FOLDER

FOLDER must hold no saved metric yet.  It receives one ``.metric`` file for each metric, and ``expected.json``: the
queries, and what each metric answered before it was saved.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import scipy.sparse as sp

import metricforge as mf
from metricforge.kernels import (
    RBF,
    Cauchy,
    Laplacian,
    Linear,
    Mixture,
    Polynomial,
    Precomputed,
    Product,
    Spectrum,
    Standardized,
    Weak,
)

VERSION, FORMAT = "0.1.0", 1
MOST_BYTES = 30_000
KINDS = ("kernel", "method", "solver")
NEIGHBORS = 3
TIE = 1e-6
"""Distances closer than this, relative to the largest, are a tie: their order is not asked for."""

# ---------------------------------------------------------------------------------------------------------------- data


def points(n, seed):
    """Return n rows of four columns in three classes that overlap, with two decimals."""
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0, 0.0, 0.0], [1.5, 0.0, -1.0, 0.0], [0.0, 2.0, 1.0, 0.0]])
    return np.round(rng.normal(size=(n, 4)) * [1.0, 0.6, 1.4, 1.0] + centres[np.arange(n) % 3], 2)


def words(n, seed):
    """Return n strings in three classes, with letters beyond ASCII."""
    rng = np.random.default_rng(seed)
    alphabets = ("ACD", "ACé", "CD漢")
    return np.array(["".join(rng.choice(list(alphabets[i % 3]), size=8 + i % 3)) for i in range(n)], dtype=object)


def thinned(X):
    """Return the rows with two fifths of their values set to zero."""
    return np.where(np.random.default_rng(2).random(X.shape) < 3 / 5, X, 0.0)


N = 24
X, Q, MORE = points(N, 0), points(6, 1), points(6, 3)
Y = np.arange(N) % 3
STRINGS, ASKED, LONGER = words(N, 0), words(6, 1), words(6, 3)
SPARSE = thinned(X)
COLUMNS = ["length", "width", "größe", "weight in kg"]
GROUPS = [0, 0, 0, 1, 1, 1]
GRAM_KERNEL = RBF(0.3)

QUERIES = {
    "vectors": {"kind": "array", "dtype": "float64", "rows": Q, "more": MORE},
    "single": {"kind": "array", "dtype": "float32", "rows": Q, "more": MORE},
    "sparse": {"kind": "csr", "dtype": "float64", "rows": thinned(Q), "more": thinned(MORE)},
    "frame": {"kind": "frame", "dtype": "float64", "columns": COLUMNS, "rows": Q, "more": MORE},
    "strings": {"kind": "strings", "rows": ASKED, "more": LONGER},
    "gram": {"kind": "array", "dtype": "float64", "rows": GRAM_KERNEL(Q, X), "more": GRAM_KERNEL(MORE, X)},
}


def ask(name, which="rows"):
    """Return one of the sets of queries as rows that `metricforge.Metric` takes."""
    asked = QUERIES[name]
    if asked["kind"] == "strings":
        return np.array(asked[which], dtype=object)
    rows = np.asarray(asked[which], dtype=asked["dtype"])
    if asked["kind"] == "csr":
        return sp.csr_array(rows)
    return pd.DataFrame(rows, columns=asked["columns"]) if asked["kind"] == "frame" else rows


LABELS = mf.Labels(Y)
PAIRS = mf.Pairs(
    similar=[(i, i + 3) for i in range(18)], dissimilar=[(i, i + 1) for i in range(0, 22, 2)] + [(0, 23)], n=N
)
CHUNKLETS = mf.Chunklets(Y)
TRIPLETS = mf.Triplets([(i, (i + 3) % N, (i + s) % N) for i in range(N) for s in (1, 2)], n=N)


def solver(name, **options):
    """Return a registered solver."""
    entries = [entry for plugin in mf.plugins() for entry in plugin.entries]
    return next(e for e in entries if (e.kind, e.name) == ("solver", name)).load()(**options)


# ------------------------------------------------------------------------------------------------------------- metrics


def methods():
    """Yield every method with its own kernel, and with the options that lead to other kernels or solvers."""
    yield "euclidean", mf.learn(X, LABELS, method="euclidean")
    # the default weights learn nothing on these rows; with others the optimum is indefinite where it may be
    weights = {"c_similar": 10.0, "c_dissimilar": 100.0, "nu": 0.2}
    yield "idealized-unchanged", mf.learn(X, PAIRS, method="idealized")
    yield "idealized", mf.learn(X, PAIRS, method="idealized", **weights)
    yield "idealized-labels", mf.learn(X, LABELS, method="idealized", c_similar=10.0, c_dissimilar=10.0, nu=0.8)
    yield "idealized-project", mf.learn(X, PAIRS, method="idealized", psd="project", **weights)
    yield "idealized-paper", mf.learn(X, PAIRS, method="idealized", psd="paper", **weights)
    yield "idealized-from-matrix", mf.learn(X, PAIRS, method="idealized", M=np.diag([1.0, 2.0, 0.5, 1.0]))
    yield "idealized-from-kernel", mf.learn(X, PAIRS, method="idealized", M=RBF(0.2), kernel=RBF("median"))
    yield "kcr", mf.learn(X, LABELS, method="kcr")
    yield "kcr-logistic", mf.learn(X, LABELS, method="kcr", kernel="linear", bound="logistic", bandwidth="validated")
    yield "krca", mf.learn(X, CHUNKLETS, method="krca")
    yield "krca-linear", mf.learn(X, CHUNKLETS, method="krca", kernel="linear")
    yield "krca-plain", mf.learn(X, CHUNKLETS, method="krca", kernel="linear", epsilon=0.0)
    yield "lpdesign", mf.learn(X, TRIPLETS, method="lpdesign")
    yield "lpdesign-directions", mf.learn(X, TRIPLETS, method="lpdesign", bases="weak+directions", n_directions=5)
    yield "lpdesign-dominance", mf.learn(X, TRIPLETS, method="lpdesign", cone="dd", widths=(8.0, 64.0))
    yield "lpdesign-change-of-basis", mf.learn(X, TRIPLETS, method="lpdesign", cone="change-of-basis", widths=(1.0,))
    bases = [RBF(0.5), Linear(), Polynomial(2), Laplacian(0.4), Cauchy(0.3)]
    groups = ["decaying", "flat", "flat", "decaying", "decaying"]
    yield "lpdesign-bases", mf.learn(X, TRIPLETS, method="lpdesign", bases=bases, groups=groups)
    bases = [RBF(1.0), RBF(4.0), Laplacian(2.0)]
    printed = solver("lpdesign-printed", cone="dd", white=False, bases=bases, sparsity=0.1, trace=0.001)
    yield "lpdesign-printed", mf.learn(X, TRIPLETS, method="lpdesign", solver=printed)
    yield "simplenpkl", mf.learn(X, PAIRS, method="simplenpkl")
    yield "simplenpkl-linear", mf.learn(X, PAIRS, method="simplenpkl", kernel="linear", normalize=False)
    yield "simplenpkl-nystrom", mf.learn(X, PAIRS, method="simplenpkl", extension="nystrom", n_neighbors=3)
    yield "simplenpkl-hinge", mf.learn(X, PAIRS, method="simplenpkl", loss="hinge", n_neighbors=5, B=100.0)
    yield (
        "simplenpkl-squared-hinge",
        mf.learn(X, PAIRS, method="simplenpkl", loss="squared_hinge", n_neighbors=3, extension="nystrom"),
    )


def kernels():
    """Yield every kernel that is not a method's own, under the method that leaves it as it is."""
    weak = [Weak(kernel, feature=i) for i, kernel in enumerate((Laplacian(0.7), Linear(), RBF(9.0), Cauchy(2.0)))]
    small = mf.space.represent(RBF(0.25), X[:6], "exact").map
    made = {
        "rbf": RBF("median"),
        "rbf-number": RBF(0.25),
        "rbf-over-polynomial": RBF("median", base=Polynomial(2)),
        "polynomial": Polynomial(3, 0.5),
        "laplacian": Laplacian("median"),
        "cauchy": Cauchy("median"),
        "weak": weak[0],
        "mixture": Mixture(weak, (0.5, 0.0, 1e-3, 3.0)),
        "mixture-with-linear": RBF(0.25) + 0.1 * Linear(),
        "mixture-indefinite": Mixture((RBF(0.25), Linear()), (4.0, -1e-3)),
        "product": Product(RBF(0.1), Polynomial(2)),
        "normalized": Polynomial(2, 0.5).normalized(),
        "learned": mf.space.LearnedKernel(small, np.diag(np.arange(1.0, 7.0)), 0.5),
        "standardized": Standardized(),
        "standardized-rbf": Standardized(RBF("median")),
    }
    for name, kernel in made.items():
        yield f"kernel-{name}", mf.learn(X, LABELS, method="euclidean", kernel=kernel)


def rows():
    """Yield metrics learned on rows of every kind: strings, Gram matrices, CSR, single precision, frames, dask."""
    yield "strings-spectrum", mf.learn(STRINGS, LABELS, method="euclidean", kernel=Spectrum(2)), "strings"
    shaped = RBF("median", base=Spectrum(2).normalized())
    yield "strings-rbf", mf.learn(STRINGS, LABELS, method="euclidean", kernel=shaped), "strings"
    yield "strings-krca", mf.learn(STRINGS, CHUNKLETS, method="krca", kernel=shaped), "strings"
    K = GRAM_KERNEL(X)
    yield "gram-euclidean", mf.learn(K, LABELS, method="euclidean", kernel=Precomputed()), "gram"
    yield "gram-krca", mf.learn(K, CHUNKLETS, method="krca", kernel="precomputed"), "gram"
    csr = sp.csr_array(SPARSE)
    yield "csr-rbf", mf.learn(csr, LABELS, method="euclidean", kernel="rbf"), "sparse"
    yield "csr-krca", mf.learn(csr, CHUNKLETS, method="krca"), "sparse"
    yield "csr-standardized", mf.learn(csr, LABELS, method="euclidean", kernel=Standardized(RBF(0.5))), "sparse"
    yield "csr-matrix", mf.learn(sp.csr_matrix(SPARSE), LABELS, method="euclidean", kernel=Laplacian(0.3)), "sparse"
    single = X.astype(np.float32)
    yield "float32-rbf", mf.learn(single, LABELS, method="euclidean", kernel="rbf"), "single"
    yield "float32-krca", mf.learn(single, CHUNKLETS, method="krca"), "single"
    yield "float32-asked-in-double", mf.learn(single, LABELS, method="kcr"), "vectors"
    frame = pd.DataFrame(X, columns=COLUMNS)
    yield "frame-krca", mf.learn(frame, CHUNKLETS, method="krca", kernel="linear"), "frame"
    yield "frame-lpdesign", mf.learn(frame, TRIPLETS, method="lpdesign"), "frame"
    lazy = da.from_array(X, chunks=(10, -1))
    yield "dask-rbf", mf.learn(lazy, LABELS, method="euclidean", kernel="rbf"), "vectors"
    yield "dask-krca", mf.learn(lazy, CHUNKLETS, method="krca"), "vectors"
    yield "dask-krca-linear", mf.learn(lazy, CHUNKLETS, method="krca", kernel="linear"), "vectors"
    yield "dask-simplenpkl", mf.learn(lazy, PAIRS, method="simplenpkl"), "vectors"


def ways():
    """Yield metrics with landmarks, with a stored map, after an update, and made of other metrics."""
    yield "landmarks-rbf", mf.learn(X, LABELS, method="euclidean", kernel="rbf", rank=20, seed=7)
    yield "landmarks-kcr", mf.learn(X, LABELS, method="kcr", rank=20)
    yield "landmarks-krca", mf.learn(X, CHUNKLETS, method="krca", rank=20)
    used = mf.learn(X, LABELS, method="euclidean", kernel="rbf")
    used.transform(X)
    yield "map-rbf", used
    used = mf.learn(X, LABELS, method="euclidean", kernel="rbf", rank=20)
    used.transform(X)
    yield "map-landmarks", used
    used = mf.learn(X, CHUNKLETS, method="krca")
    used.transform(X)
    yield "map-krca", used
    used = mf.learn(X, LABELS, method="euclidean", kernel=RBF(0.25) + 0.1 * Linear())
    used.transform(X)
    yield "map-stacked", used

    krca = mf.learn(X, CHUNKLETS, method="krca")
    linear = mf.learn(X, CHUNKLETS, method="krca", kernel="linear")
    new, groups = points(9, 4), np.arange(9) % 3
    yield "updated-krca", krca.update(new, mf.Chunklets(groups))
    yield "updated-krca-epsilon", krca.update(new, mf.Chunklets(groups), hold="epsilon")
    yield (
        "updated-krca-linear",
        linear.update(new, mf.Chunklets(groups)).update(points(4, 5), mf.Chunklets([0, 0, 1, 1])),
    )

    kcr = mf.learn(X, LABELS, method="kcr")
    other = mf.learn(points(20, 6), np.arange(20) % 3, method="krca")
    yield "scaled", 2.5 * kcr
    yield "sum-same-rows", 0.7 * kcr + 0.3 * krca
    yield "sum-of-three", sum([kcr, krca, linear])
    yield "sum-other-rows", 0.7 * kcr + 0.3 * other
    yield "scaled-sum-other-rows", 0.5 * (kcr + other)

    yield "over-krca", mf.learn(X, LABELS, method="kcr", kernel=krca)
    idealized = mf.learn(X, PAIRS, method="idealized", M=np.diag([1.0, 2.0, 0.5, 1.0]))
    yield "over-idealized", mf.learn(X, CHUNKLETS, method="krca", kernel=idealized)
    yield "over-simplenpkl", mf.learn(X, PAIRS, method="idealized", kernel=mf.learn(X, PAIRS, method="simplenpkl"))
    yield "over-sum", mf.learn(X, PAIRS, method="idealized", kernel=0.7 * idealized + 0.3 * linear)
    yield "over-rbf", mf.learn(X, LABELS, method="euclidean", kernel=RBF("median", base=linear.kernel))


def metrics():
    """Yield the name of every file, its metric and the queries to ask it."""
    for name, metric in (*methods(), *kernels()):
        yield name, metric, "vectors"
    yield from rows()
    for name, metric in ways():
        yield name, metric, "vectors"


# ------------------------------------------------------------------------------------------------------------- answers


def answers(metric, copy, queries):
    """Return what a metric says: distances and values of its kernel, embedding, neighbours, update, report."""
    asked, report = ask(queries), metric.report
    told = {
        "queries": queries,
        "method": report["method"],
        "status": report.get("status"),
        "objective": report.get("objective"),
        "parts": [part["method"] for part in report.get("parts", ())],
        "report": list(report),
        "rank": metric.rank,
        "seed": metric.seed,
        "width": metric.width,
        "distance": metric.distance(asked),
        "kernel": metric.kernel(asked),
        **embedded(metric, copy, asked),
    }
    if copy.rows is not None:
        told["neighbors"] = neighbours(copy, asked)
    if report["method"] == "krca" and metric.solver is not None:
        updated = metric.update(ask(queries, "more"), mf.Chunklets(GROUPS))
        told["updated"] = updated.distance(asked)
    return told


def embedded(metric, copy, asked):
    """Return the columns of the embedding and the distances in it; where the file holds the map, also the embedding."""
    try:
        E = metric.transform(asked)
    except mf.errors.InputError:
        return {"columns": None, "embedded": None}
    if copy.stored_map is not None:
        return {"columns": E.shape[1], "embedded": between(E), "embedding": E}
    # landmarks that are drawn when they are first asked for depend on NumPy's generator
    drawn = isinstance(metric.rank, int) and metric.kernel.embedding() is None
    return {"columns": E.shape[1], "embedded": None if drawn else between(E)}


def between(E):
    """Return the Euclidean distances of rows, by differences."""
    return np.linalg.norm(E[:, None].astype(np.float64) - E[None], axis=-1)


def neighbours(metric, asked):
    """Return the nearest training rows and their distances; without the rows of a query that has two as near."""
    indices, distances = metric.neighbors(asked, k=NEIGHBORS + 1)
    tied = (np.diff(distances, axis=1) < TIE * distances.max()).any(axis=1)
    known = [None if tie else row[:NEIGHBORS].tolist() for tie, row in zip(tied, indices, strict=True)]
    return {"indices": known, "distances": distances[:, :NEIGHBORS]}


# --------------------------------------------------------------------------------------------------------------- files


def text(value, indent=""):
    """Return JSON in which dicts have a line for each key and lists are on one line, with floats in full."""
    if not isinstance(value, dict):
        plain = value.tolist() if isinstance(value, np.ndarray) else value
        return json.dumps(plain, ensure_ascii=False, allow_nan=False)
    deeper = indent + " "
    lines = [f"{deeper}{json.dumps(name)}: {text(part, deeper)}" for name, part in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def check(copy, told, queries, path):
    """Raise unless a file is small, and answers at once what its metric did, nothing of which is rounding."""
    D = told["distance"]
    np.testing.assert_array_equal(copy.distance(ask(queries)), D)
    assert D[np.triu_indices(len(D), 1)].min() > 1e-3 * D.max(), f"{path.name}: two queries are next to each other"
    assert path.stat().st_size < MOST_BYTES, f"{path.name} is large"


def main(folder):
    """Save every metric into the folder, and what it answers."""
    if mf.__version__ != VERSION:
        raise SystemExit(f"these files are of metricforge {VERSION}; this is {mf.__version__}")
    folder.mkdir(exist_ok=True)
    if any(folder.glob("*.metric")) or (folder / "expected.json").exists():
        raise SystemExit(f"{folder} holds golden files already, which are never overwritten")
    registered = {
        kind: sorted(
            e.name for p in mf.plugins() if p.distribution == "metricforge" for e in p.entries if e.kind == kind
        )
        for kind in KINDS
    }
    files = {}
    for name, metric, queries in metrics():
        path = folder / f"{name}.metric"
        metric.save(path)
        copy = mf.load(path)
        files[path.name] = {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            **answers(metric, copy, queries),
        }
        check(copy, files[path.name], queries, path)
    expected = {
        "metricforge": VERSION,
        "format": FORMAT,
        "registered": registered,
        "groups": GROUPS,
        "queries": QUERIES,
        "files": files,
    }
    (folder / "expected.json").write_text(text(expected) + "\n", encoding="utf-8")


if __name__ == "__main__":
    warnings.simplefilter("error")  # a fit that does not converge makes no golden file
    main(Path(sys.argv[1]))
