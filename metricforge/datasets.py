"""The data sets of the five papers, by name.

There are three kinds of data sets.  *Bundled* sets come with scikit-learn, *synthetic* sets are generated from a seed,
and *file* sets are read from a folder: the one that the environment variable ``METRICFORGE_DATA`` names, or else the
cache folder of the user.  ``METRICFORGE_DATA`` is never written to.  Into the cache folder a missing set is downloaded
from its public archive, if one is known.

Every file is verified: files of ``METRICFORGE_DATA`` by their sha256, downloads by the sha256 of the parsed rows and
labels.  A set is therefore the same to the last bit, whatever its source.

``datasets.json``, next to this file, lists sizes, checksums, archives and file formats.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import logging
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .errors import InputError, UnknownNameError
from .validation import nearest, whole_number

_log = logging.getLogger(__name__)

_TIMEOUT = 30.0  # seconds without data from the server
_MAX_BYTES = 1 << 26  # the largest file, the MNIST images, unpacks to 47 MB

_Floats = NDArray[np.float64]
_Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows with their labels; ``X, y = load("wine")`` unpacks it.

    Attributes
    ----------
    name : str
        The name that ``load`` takes.
    X : array (n, d), CSR matrix (n, d) or list of n str
        float64; sparse for Adult, strings for protein sequences.
    y : array (n,) of int64
        0 .. classes - 1; Adult keeps the -1 and +1 of its files.
    description, source : str
        What the rows are, and where they were read from.
    groups : array (n,) of int64, optional
        A finer partition than y, if there is one: the clusters of ``xor``.
    """

    name: str
    X: Any
    y: _Labels
    description: str
    source: str
    groups: _Labels | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.X, self.y))


@dataclass(frozen=True)
class Entry:
    """One entry of ``table()``; ``available`` means that loading needs no network."""

    name: str
    n: int
    d: int | None
    classes: int
    kind: str
    available: bool
    description: str


@dataclass(frozen=True)
class _Archive:
    """Public addresses of the original files of a set, and their format."""

    urls: Sequence[str]
    format: str
    members: Sequence[str] = ()  # of a zip file, in the order of the rows
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Facts:
    """The entry of a set in ``datasets.json``; d is None for sequences."""

    kind: str
    n: int
    d: int | None
    classes: int
    description: str
    format: str = ""
    files: Mapping[str, str] = field(default_factory=dict)  # name -> sha256
    content: str = ""  # sha256 of the parsed rows and labels
    in_row_order: bool = False  # sort the rows: their order differs between public copies
    archive: _Archive | None = None


@cache
def _facts() -> dict[str, _Facts]:
    def entry(archive: Mapping[str, Any] | None = None, **rest: Any) -> _Facts:
        return _Facts(archive=_Archive(**archive) if archive else None, **rest)

    known = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return {name: entry(**facts) for name, facts in known.items()}


def names() -> list[str]:
    """Return the names that ``load`` takes."""
    return list(_facts())


def table() -> list[Entry]:
    """Return size, kind and availability of every set, without reading data."""
    return [
        Entry(name, f.n, f.d, f.classes, f.kind, _available(name, f), f.description) for name, f in _facts().items()
    ]


def load(name: str, *, seed: int = 0) -> Dataset:
    """Return a data set by its name.

    A file set that is not in the cache folder is downloaded from its public archive.  If ``METRICFORGE_DATA`` is set,
    nothing is downloaded and nothing is written.

    Parameters
    ----------
    name : str
        One of ``names()``.
    seed : int
        Seed of the synthetic sets; the others do not depend on it.

    Notes
    -----
    Time is that of one pass over the file: less than half a second, one to three seconds for USPS and MNIST.  The
    largest set, ``mnist``, takes 376 MB as float64.
    """
    if not isinstance(name, str) or name not in _facts():
        raise UnknownNameError(f"unknown data set {name!r}: {nearest(str(name), _facts())}")
    facts = _facts()[name]
    if facts.kind == "synthetic":
        return _SYNTHETIC[name](seed=seed)
    X, y, source = _bundled(name) if facts.kind == "bundled" else _from_files(name, facts)
    return Dataset(name, X, y, facts.description, source)


def folder() -> Path:
    """Return the folder of the data files: ``METRICFORGE_DATA``, or the user's cache folder."""
    if given := os.environ.get("METRICFORGE_DATA"):
        return Path(given).expanduser()
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache_home.is_absolute():  # unset; the XDG specification ignores relative paths
        cache_home = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return cache_home / "metricforge"


# --- synthetic ---------------------------------------------------------------------------------------------------


def _generated(name: str, X: _Floats, y: _Labels, seed: int, groups: _Labels | None = None) -> Dataset:
    return Dataset(name, X, y, _facts()[name].description, f"generated from seed {seed}", groups)


def _repeat(n_each: int, parts: int, argument: str) -> _Labels:
    """Return the labels 0, .., 0, 1, .., 1, ..: n_each of each."""
    return np.repeat(np.arange(parts), whole_number(n_each, argument))


def toy(n_per_class: int = 50, *, seed: int = 0) -> Dataset:
    """Generate one relevant feature, N(3, 1) or N(-3, 1) by class, and ten irrelevant ones, each N(0, 25).

    References
    ----------
    Learning with idealized kernels, Section 4; 25 is the variance.
    """
    rng = np.random.default_rng(seed)
    y = _repeat(n_per_class, 2, "n_per_class")
    X = rng.normal(scale=5.0, size=(len(y), 11))
    X[:, 0] = rng.normal(loc=np.where(y == 0, 3.0, -3.0))
    return _generated("toy", X, y, seed)


def xor(n_per_cluster: int = 30, *, seed: int = 0) -> Dataset:
    """Generate four round clusters on the corners of a square; opposite corners form a class.

    No linear map separates the classes, so linear RCA fails; a Gaussian kernel separates them.  ``groups`` are the
    clusters.

    References
    ----------
    Kernel relevant component analysis, Fig. 1 and Section IV-A: four clusters of thirty.  The paper does not give the
    centres and the standard deviation; here they are (+-1, +-1) and 1/4.
    """
    rng = np.random.default_rng(seed)
    corner = _repeat(n_per_cluster, 4, "n_per_cluster")
    centres = np.array([(1.0, 1.0), (-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0)])
    X = centres[corner] + rng.normal(scale=0.25, size=(len(corner), 2))
    return _generated("xor", X, corner // 2, seed, groups=corner)


def chessboard(n_per_class: int = 50, *, seed: int = 0) -> Dataset:
    """Generate points uniformly on the fields of a 4 by 4 board; black and white are the classes.

    References
    ----------
    SimpleNPKL, Table 1, which gives only the size: 100 rows, 2 features, 2 classes.
    """
    rng = np.random.default_rng(seed)
    y = _repeat(n_per_class, 2, "n_per_class")
    row, half = np.divmod(np.arange(len(y)) % n_per_class % 8, 2)  # the eight fields of a colour in turn
    column = 2 * half + (row + y) % 2
    X = np.column_stack([row, column]) + rng.uniform(size=(len(y), 2))
    return _generated("chessboard", X, y, seed)


def double_spiral(n_per_class: int = 50, *, seed: int = 0) -> Dataset:
    """Generate two interleaved spirals in space; the third feature, the height, does not separate them.

    References
    ----------
    SimpleNPKL, Table 1, which gives only the size: 100 rows, 3 features, 2 classes.  The curve here has one and a half
    turns, the angle as radius and height, and noise of standard deviation 0.1.
    """
    rng = np.random.default_rng(seed)
    y = _repeat(n_per_class, 2, "n_per_class")
    angle = np.tile(np.linspace(0.5 * np.pi, 3.5 * np.pi, n_per_class), 2)
    arm = angle + np.pi * y
    X = np.column_stack([angle * np.cos(arm), angle * np.sin(arm), angle])
    X += rng.normal(scale=0.1, size=X.shape)
    return _generated("double_spiral", X, y, seed)


def three_gaussians(n_per_class: int = 50, *, seed: int = 0) -> Dataset:
    """Generate three overlapping Gaussian classes in the plane, each with its own mean and covariance.

    References
    ----------
    Metric embedding for kernel classification rules, Fig. 1, which gives no means and covariances.
    """
    rng = np.random.default_rng(seed)
    y = _repeat(n_per_class, 3, "n_per_class")
    means = np.array([(0.0, 0.0), (3.0, 0.0), (1.5, 2.5)])
    factors = np.array([[(1.0, 0.0), (0.6, 0.8)], [(0.7, 0.0), (-0.7, 1.0)], [(1.5, 0.0), (0.0, 0.5)]])
    z = rng.normal(size=(len(y), 2))
    X = means[y] + np.einsum("nij,nj->ni", factors[y], z)  # covariance of a class: factor factor'
    return _generated("three_gaussians", X, y, seed)


_SYNTHETIC: dict[str, Callable[..., Dataset]] = {
    f.__name__: f for f in (toy, xor, chessboard, double_spiral, three_gaussians)
}


# --- bundled, and read from files -------------------------------------------------------------------------------


def _bundled(name: str) -> tuple[_Floats, _Labels, str]:
    from sklearn import datasets

    loader = {"wdbc": "load_breast_cancer"}.get(name, f"load_{name}")
    X, y = getattr(datasets, loader)(return_X_y=True)
    return np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.int64), "scikit-learn"


def _available(name: str, facts: _Facts) -> bool:
    place = folder()
    return (
        facts.kind != "file"
        or all((place / file).is_file() for file in facts.files)
        or (not os.environ.get("METRICFORGE_DATA") and (place / name).is_dir())
    )


def _from_files(name: str, facts: _Facts) -> tuple[Any, _Labels, str]:
    place = folder()
    missing = [file for file in facts.files if not (place / file).is_file()]
    if not missing:
        texts = [text for file, expected in facts.files.items() for text in _verified(place / file, expected)]
        return *_parsed(facts, facts.format, texts, {}), ", ".join(facts.files)
    archive = facts.archive
    if os.environ.get("METRICFORGE_DATA"):
        unset = ", or unset METRICFORGE_DATA to download the set" if archive else ""
        raise InputError(
            f"data set {name!r}: {', '.join(missing)} not found in {place}, the folder that METRICFORGE_DATA"
            f" names; copy the file there{unset}"
        )
    if archive is None:
        raise InputError(
            f"data set {name!r} cannot be downloaded, because it has no known public archive; copy"
            f" {', '.join(missing)} to a folder and set METRICFORGE_DATA to that folder"
        )
    cached = place / name
    X, y = _from_cache(name, facts, archive, cached) if cached.is_dir() else _fetched(name, facts, archive, cached)
    return X, y, ", ".join(archive.urls)


def _verified(path: Path, expected: str) -> list[bytes]:
    """Return the texts of a file, or raise if its sha256 is not the expected one."""
    raw = path.read_bytes()
    found = hashlib.sha256(raw).hexdigest()
    if found != expected:
        raise InputError(
            f"{path} has sha256 {found} instead of {expected}: it is damaged or another version;"
            f" replace it with a fresh copy"
        )
    return _unpacked(raw)


def _unpacked(raw: bytes, members: Sequence[str] = ()) -> list[bytes]:
    """Return the members of a zip file, or the single text of a gzip or plain file."""
    if members:
        with zipfile.ZipFile(io.BytesIO(raw)) as packed:
            return [_bounded(packed.open(member)) for member in members]
    if raw.startswith(b"\x1f\x8b"):
        return [_bounded(gzip.open(io.BytesIO(raw)))]
    return [raw]


def _bounded(stream: IO[bytes] | gzip.GzipFile) -> bytes:
    with stream:
        text = stream.read(_MAX_BYTES + 1)
    if len(text) > _MAX_BYTES:
        raise ValueError(f"unpacks to more than {_MAX_BYTES} bytes")
    return text


def _parsed(facts: _Facts, form: str, texts: Sequence[bytes], options: Mapping[str, Any]) -> tuple[Any, _Labels]:
    X, y = _FORMATS[form](texts, facts.d, **options)
    return _in_row_order(X, y) if facts.in_row_order else (X, y)


def _in_row_order(X: Any, y: _Labels) -> tuple[Any, _Labels]:
    rows = X if isinstance(X, np.ndarray) else X.toarray()
    order = np.lexsort((y, *rows.T[::-1]))
    return X[order], y[order]


def _content_sum(X: Any, y: _Labels) -> str:
    """Return the sha256 of rows and labels, independent of the file format."""
    if isinstance(X, list):
        parts: list[Any] = ["\n".join(X).encode()]
    elif isinstance(X, np.ndarray):
        parts = [np.ascontiguousarray(X, "<f8")]
    else:
        parts = [X.indptr.astype("<i8"), X.indices.astype("<i8"), X.data.astype("<f8")]
    digest = hashlib.sha256()
    for part in (*parts, np.ascontiguousarray(y, "<i8")):
        digest.update(part)
    return digest.hexdigest()


# --- fetching ---------------------------------------------------------------------------------------------------


def _download(url: str, path: Path) -> None:
    """Download ``url`` to ``path``; a failed download leaves no file."""
    import http.client
    import urllib.request

    part = path.with_name(path.name + ".part")
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer, part.open("wb") as out:
            size = 0
            while block := answer.read(1 << 16):
                size += len(block)
                if size > _MAX_BYTES:
                    raise OSError(f"the file is larger than {_MAX_BYTES} bytes")
                out.write(block)
            promised = answer.headers.get("Content-Length")
        # http.client does not report a body that ends early if it is read in blocks.
        if promised is not None and promised.strip() != str(size):
            raise OSError(f"the connection ended after {size} of {promised} bytes")
        part.replace(path)
    except (OSError, http.client.HTTPException) as error:
        raise InputError(
            f"cannot download {url} ({error}); try again later, or set METRICFORGE_DATA to a folder that contains the"
            f" data files"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _fetched(name: str, facts: _Facts, archive: _Archive, cached: Path) -> tuple[Any, _Labels]:
    """Download the original files, verify them, and move them to the folder ``cached``."""
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=cached.parent) as staging:
            fresh = Path(staging) / "originals"
            fresh.mkdir()
            for url in archive.urls:
                _log.info("fetching %s", url)
                _download(url, fresh / _file_name(url))
            X, y = _originals(
                facts,
                archive,
                fresh,
                f"data set {name!r}: {', '.join(archive.urls)} served other content than expected (%s), which was"
                f" discarded; copy {', '.join(facts.files)} to a folder and set METRICFORGE_DATA to that folder",
            )
            try:
                fresh.replace(cached)
            except OSError:
                if not cached.is_dir():  # otherwise another process was faster, with the same content
                    raise
            return X, y
    except OSError as error:
        raise InputError(
            f"cannot store data set {name!r} in {cached.parent} ({error}); set XDG_CACHE_HOME to a writable folder, or"
            f" METRICFORGE_DATA to one that contains the data files"
        ) from error


def _from_cache(name: str, facts: _Facts, archive: _Archive, cached: Path) -> tuple[Any, _Labels]:
    return _originals(
        facts,
        archive,
        cached,
        f"data set {name!r}: the copy in {cached} is damaged (%s); delete that folder and load the set again",
    )


def _originals(facts: _Facts, archive: _Archive, place: Path, message: str) -> tuple[Any, _Labels]:
    """Parse and verify the original files; ``message`` is the error, with a %s for the reason."""
    try:
        texts = [
            text for url in archive.urls for text in _unpacked((place / _file_name(url)).read_bytes(), archive.members)
        ]
        X, y = _parsed(facts, archive.format, texts, archive.options)
    except Exception as error:  # a damaged file can make a parser raise anything
        raise InputError(message % f"{type(error).__name__}: {error}") from error
    found = _content_sum(X, y)
    if found != facts.content:
        raise InputError(message % f"content sha256 {found} instead of {facts.content}")
    return X, y


def _file_name(url: str) -> str:
    return url.rpartition("/")[2]


# --- file formats -----------------------------------------------------------------------------------------------


def _delimited(
    texts: Sequence[bytes],
    d: int,
    *,
    delimiter: str | None = ",",
    skip: int = 0,
    label: int = -1,
    classes: Sequence[str] | None = None,
    drop: Sequence[int] = (),
    missing: str | None = None,
) -> tuple[_Floats, _Labels]:
    """Parse one row per line: d features, a label, and columns to drop.

    Parameters
    ----------
    delimiter : str or None
        None is white space.
    skip : int
        Header lines of each text.
    label : int
        Column of the label.
    classes : sequence of str, optional
        Label names in the order of their codes; by default the labels are the codes.
    drop : sequence of int
        Columns to drop.
    missing : str, optional
        Marker of missing values; lines that contain it are dropped.
    """
    width = d + 1 + len(drop)
    label %= width
    features = [column for column in range(width) if column != label and column not in drop]
    lines = [line for text in texts for line in text.decode("ascii").splitlines()[skip:]]
    if missing is not None:
        lines = [line for line in lines if missing not in line]
    rows = np.loadtxt(
        lines,
        delimiter=delimiter,
        comments=None,
        usecols=[*features, label],
        converters=None if classes is None else {label: lambda name: float(classes.index(name.strip()))},
        ndmin=2,
    )
    return rows[:, :-1] + 0.0, rows[:, -1].astype(np.int64)  # + 0.0 turns -0 into 0


def _csv(texts: Sequence[bytes], d: int) -> tuple[_Floats, _Labels]:
    return _delimited(texts, d, skip=1)


def _csv_relabelled(texts: Sequence[bytes], d: int) -> tuple[_Floats, _Labels]:
    """Parse rows, and their labels from the last of three columns of a second file."""
    rows, labels = texts
    return _csv([rows], d)[0], _delimited([labels], 1, skip=1, drop=[0])[1]


def _libsvm(texts: Sequence[bytes], d: int) -> tuple[Any, _Labels]:
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(io.BytesIO(b"".join(texts)), n_features=d, zero_based=False)
    return X, y.astype(np.int64)


def _fasta(texts: Sequence[bytes], d: None) -> tuple[list[str], _Labels]:
    """Parse records ``>sid a.b.c.d``; the class is the superfamily a.b.c."""
    records = [record.partition("\n") for text in texts for record in text.decode("ascii").split(">")[1:]]
    sequences = [body.replace("\n", "") for _, _, body in records]
    superfamilies = [heading.split()[1].rpartition(".")[0] for heading, _, _ in records]
    return sequences, np.unique(superfamilies, return_inverse=True)[1].astype(np.int64)


def _idx(texts: Sequence[bytes], d: int) -> tuple[_Floats, _Labels]:
    """Parse images and labels of unsigned bytes, each after a magic number and a big-endian shape."""

    def array(text: bytes) -> NDArray[np.uint8]:
        if text[:3] != b"\0\0\x08":
            raise ValueError("not an IDX file of unsigned bytes")
        axes = text[3]
        return np.frombuffer(text, np.uint8, offset=4 + 4 * axes).reshape(np.frombuffer(text, ">i4", axes, offset=4))

    images, labels = texts
    return array(images).reshape(-1, d).astype(np.float64), array(labels).astype(np.int64)


_FORMATS: dict[str, Callable[..., tuple[Any, _Labels]]] = {
    "csv": _csv,
    "csv relabelled": _csv_relabelled,
    "delimited": _delimited,
    "libsvm": _libsvm,
    "fasta": _fasta,
    "idx": _idx,
}
