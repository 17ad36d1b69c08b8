"""The data sets: interface, bundled, synthetic, and read from a folder."""

from __future__ import annotations

import csv
import gzip
import hashlib
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from metricforge_cases.data import DATA, needs_data

from metricforge import datasets
from metricforge.datasets import _content_sum, _Facts, _facts
from metricforge.errors import InputError, UnknownNameError

KNOWN = _facts()
FILE_SETS = [name for name, facts in KNOWN.items() if facts.kind == "file"]
SYNTHETIC = [name for name, facts in KNOWN.items() if facts.kind == "synthetic"]
BUNDLED = [name for name, facts in KNOWN.items() if facts.kind == "bundled"]


def nearest_other(X: np.ndarray) -> np.ndarray:
    distance = ((X[:, None] - X) ** 2).sum(axis=2)
    np.fill_diagonal(distance, np.inf)
    return distance.argmin(axis=1)


# --- the interface ----------------------------------------------------------------------------------------------


def test_a_set_unpacks_and_has_attributes() -> None:
    wine = datasets.load("wine")
    X, y = wine
    assert X is wine.X
    assert y is wine.y
    assert (wine.name, wine.source, wine.groups) == ("wine", "scikit-learn", None)
    assert "cultivars" in wine.description


@pytest.mark.parametrize("name", ["wnie", "", None, 3])
def test_unknown_name(name: Any) -> None:
    with pytest.raises(UnknownNameError, match=r"[Kk]nown: .*wine"):
        datasets.load(name)


def test_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'satimage'"):
        datasets.load("satimages")


def test_table_lists_every_name_with_its_facts() -> None:
    lines = {entry.name: entry for entry in datasets.table()}
    assert list(lines) == datasets.names()
    assert (lines["letter"].n, lines["letter"].d, lines["letter"].classes) == (20000, 16, 26)
    assert lines["scop40"].d is None
    assert {entry.kind for entry in lines.values()} == {"bundled", "synthetic", "file"}
    assert all(lines[name].available for name in BUNDLED + SYNTHETIC)


def test_available_is_about_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def available() -> set[str]:
        return {entry.name for entry in datasets.table() if entry.kind == "file" and entry.available}

    monkeypatch.setenv("METRICFORGE_DATA", str(tmp_path))
    assert available() == set()
    (tmp_path / "lymphoma.csv.gz").touch()
    (tmp_path / "sonar").mkdir()  # fetched originals count in the cache folder only
    assert available() == {"lymphoma"}  # lymphoma9 needs a second file
    (tmp_path / "lymphoma_samples.csv.gz").touch()
    assert available() == {"lymphoma", "lymphoma9"}
    monkeypatch.delenv("METRICFORGE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "metricforge" / "sonar").mkdir(parents=True)
    assert available() == {"sonar"}


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"METRICFORGE_DATA": "/data", "XDG_CACHE_HOME": "/cache"}, "/data"),
        ("linux", {"XDG_CACHE_HOME": "/cache"}, "/cache/metricforge"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/me/.cache/metricforge"),
        ("linux", {"METRICFORGE_DATA": ""}, "/home/me/.cache/metricforge"),
        ("darwin", {}, "/home/me/Library/Caches/metricforge"),
    ],
)
def test_folder(platform: str, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("METRICFORGE_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in {"HOME": "/home/me", **variables}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr("sys.platform", platform)
    assert datasets.folder() == Path(expected)


# --- bundled ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled(name: str) -> None:
    X, y = datasets.load(name)
    facts = KNOWN[name]
    assert X.shape == (facts.n, facts.d)
    assert (X.dtype, y.dtype) == (np.float64, np.int64)
    assert np.array_equal(np.unique(y), np.arange(facts.classes))


@needs_data
@pytest.mark.parametrize("name", ["iris", "wine", "wdbc"])
def test_bundled_equals_the_file_of_the_data_folder(name: str) -> None:
    X, y = datasets.load(name)
    rows = np.loadtxt(Path(str(DATA)) / f"{name}.csv.gz", delimiter=",", skiprows=1)
    assert np.array_equal(X, rows[:, :-1])
    assert np.array_equal(y, rows[:, -1])


# --- synthetic --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYNTHETIC)
def test_synthetic_shapes_and_seeds(name: str) -> None:
    first, again, other = (datasets.load(name, seed=seed) for seed in (3, 3, 4))
    facts = KNOWN[name]
    assert first.X.shape == (facts.n, facts.d)
    assert (first.X.dtype, first.y.dtype) == (np.float64, np.int64)
    assert np.bincount(first.y).tolist() == [facts.n // facts.classes] * facts.classes
    assert np.array_equal(first.X, again.X)
    assert not np.any(first.X == other.X)
    direct = getattr(datasets, name)(seed=3)
    assert np.array_equal(direct.X, first.X)
    assert direct.source == "generated from seed 3"


@pytest.mark.parametrize("name", SYNTHETIC)
def test_synthetic_sizes(name: str) -> None:
    draw: Callable[..., datasets.Dataset] = getattr(datasets, name)
    parts = 4 if name == "xor" else KNOWN[name].classes
    assert [len(draw(n).y) for n in (1, 7)] == [parts, 7 * parts]
    with pytest.raises(InputError, match=r"n_per_(class|cluster) must be a whole number of at least 1, got 0"):
        draw(0)


def test_toy_moments() -> None:
    X, y = datasets.toy(20000, seed=1)
    assert X[y == 0, 0].mean() == pytest.approx(3.0, abs=0.03)
    assert X[y == 1, 0].mean() == pytest.approx(-3.0, abs=0.03)
    assert X[y == 0, 0].var() == pytest.approx(1.0, rel=0.04)
    assert np.abs(X[:, 1:].mean(axis=0)).max() < 0.12
    assert X[:, 1:].var(axis=0) == pytest.approx(25.0, rel=0.04)
    assert np.abs(np.corrcoef(np.column_stack([X, y]).T)[1:11, [0, 11]]).max() < 0.03


def test_toy_is_as_hard_as_in_the_paper() -> None:
    # Table 2 prints 28.25 % for 1-NN; N(0, 25) read as standard deviation 25 would give 49 %.
    errors = [np.mean(y[nearest_other(X)] != y) for X, y in (datasets.toy(seed=s) for s in range(20))]
    assert np.mean(errors) == pytest.approx(0.2825, abs=0.03)


def test_xor_defeats_every_linear_map_but_not_a_gaussian_kernel() -> None:
    from sklearn.cluster import KMeans
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import adjusted_rand_score
    from sklearn.model_selection import cross_val_score
    from sklearn.svm import SVC

    data = datasets.xor(seed=2)
    X, y = data
    assert data.groups is not None
    assert np.bincount(data.groups).tolist() == [30] * 4
    for cluster in range(4):
        assert len(set(y[data.groups == cluster])) == 1
        assert np.ptp(np.sign(X[data.groups == cluster]), axis=0).max() == 0.0  # in its own quadrant
    assert np.array_equal(y == 0, X[:, 0] * X[:, 1] > 0)

    # Linear RCA: whiten by the covariance inside the clusters; the classes stay mixed.
    inside = X - np.array([X[data.groups == c].mean(axis=0) for c in range(4)])[data.groups]
    rca = X @ np.linalg.inv(np.linalg.cholesky(inside.T @ inside / len(X))).T
    assert adjusted_rand_score(y, KMeans(2, n_init=5, random_state=0).fit_predict(rca)) < 0.05
    assert LogisticRegression().fit(rca, y).score(rca, y) < 0.7
    assert cross_val_score(SVC(kernel="rbf", gamma=1.0), X, y, cv=5).min() == 1.0


def test_chessboard_colours() -> None:
    X, y = datasets.chessboard(seed=5)
    field = np.floor(X).astype(int)
    assert np.array_equal(field.sum(axis=1) % 2, y)
    _, counts = np.unique(field, axis=0, return_counts=True)
    assert len(counts) == 16
    assert set(counts.tolist()) == {6, 7}


def test_double_spiral_is_two_separate_curves() -> None:
    from sklearn.linear_model import LogisticRegression

    X, y = datasets.double_spiral(seed=5)
    assert np.array_equal(y[nearest_other(X)], y)
    assert LogisticRegression().fit(X, y).score(X, y) < 0.75
    # Both arms share radius and height.
    assert np.hypot(X[:, 0], X[:, 1]) == pytest.approx(X[:, 2], abs=0.6)
    assert X[y == 0, 2].mean() == pytest.approx(X[y == 1, 2].mean(), abs=0.1)


def test_three_gaussians_moments() -> None:
    X, y = datasets.three_gaussians(20000, seed=1)
    means = [(0.0, 0.0), (3.0, 0.0), (1.5, 2.5)]
    covariances = [[(1.0, 0.6), (0.6, 1.0)], [(0.49, -0.49), (-0.49, 1.49)], [(2.25, 0.0), (0.0, 0.25)]]
    for c in range(3):
        assert X[y == c].mean(axis=0) == pytest.approx(np.array(means[c]), abs=0.05)
        assert np.cov(X[y == c].T) == pytest.approx(np.array(covariances[c]), abs=0.08)


# --- files, generated twins -------------------------------------------------------------------------------------

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Write gzip files into a data folder and make `twin` the set that they hold."""

    def write(form: str, d: int | None, **files: bytes) -> None:
        for file, text in files.items():
            (tmp_path / file).write_bytes(gzip.compress(text))
        sums = {file: hashlib.sha256((tmp_path / file).read_bytes()).hexdigest() for file in files}
        twin = _Facts("file", 2, d, 2, "a twin", form, sums)
        monkeypatch.setattr(datasets, "_facts", lambda: {"twin": twin})
        monkeypatch.setenv("METRICFORGE_DATA", str(tmp_path))

    return write


def test_twin_csv(install: Install) -> None:
    install("csv", 3, rows=b"f0,f1,f2,label\n1,-2.5,3e-2,1\n-0,0.1,7,0\n")
    twin = datasets.load("twin")
    assert twin.X.tolist() == [[1.0, -2.5, 0.03], [0.0, 0.1, 7.0]]
    assert not np.signbit(twin.X[1, 0])
    assert twin.y.tolist() == [1, 0]
    assert (twin.X.dtype, twin.y.dtype, twin.source) == (np.float64, np.int64, "rows")


def test_twin_csv_with_labels_of_a_second_file(install: Install) -> None:
    install("csv relabelled", 2, rows=b"f0,f1,label\n1,2,0\n3,4,1\n", samples=b"s,m,c\nDLCL 4,1,8\nTonsil B,0,3\n")
    X, y = datasets.load("twin")
    assert X.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert y.tolist() == [8, 3]


def test_twin_libsvm_keeps_the_stated_width(install: Install) -> None:
    install("libsvm", 6, rows=b"-1 2:1 5:0.5\n+1 1:1\n")
    X, y = datasets.load("twin")
    assert sp.issparse(X)
    assert X.format == "csr"
    assert X.dtype == np.float64
    assert X.toarray().tolist() == [[0, 1, 0, 0, 0.5, 0], [1, 0, 0, 0, 0, 0]]
    assert y.tolist() == [-1, 1]


def test_twin_fasta(install: Install) -> None:
    install("fasta", None, rows=b">d1 b.2.10.4\nACD\nEF\n>d2 a.1.1.1\nGG\n>d3 b.2.10.7\nW\n")
    X, y = datasets.load("twin")
    assert X == ["ACDEF", "GG", "W"]
    assert y.tolist() == [1, 0, 1]


def test_twin_idx(install: Install) -> None:
    images = struct.pack(">4B3i", 0, 0, 8, 3, 2, 2, 3) + bytes([*range(250, 256), *range(6)])
    labels = struct.pack(">4Bi", 0, 0, 8, 1, 2) + bytes([9, 4])
    install("idx", 6, images=images, labels=labels)
    X, y = datasets.load("twin")
    assert X.tolist() == [[250, 251, 252, 253, 254, 255], [0, 1, 2, 3, 4, 5]]
    assert (X.dtype, y.tolist()) == (np.float64, [9, 4])


def test_a_damaged_file_is_refused(install: Install, tmp_path: Path) -> None:
    install("csv", 1, rows=b"f0,label\n1,0\n")
    damaged = bytearray((tmp_path / "rows").read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "rows").write_bytes(damaged)
    with pytest.raises(InputError, match=r"rows has sha256 .* instead of .*replace it with a fresh copy"):
        datasets.load("twin")


def test_a_missing_file_is_named_with_its_folder(install: Install, tmp_path: Path) -> None:
    install("idx", 1, images=b"", labels=b"")
    (tmp_path / "labels").unlink()
    with pytest.raises(InputError, match=rf"'twin': labels not found in {tmp_path}, .*METRICFORGE_DATA") as caught:
        datasets.load("twin")
    assert "unset" not in str(caught.value)  # nothing to fetch it from


def test_rows_in_canonical_order_dense_and_sparse() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(40, 3)).astype(float)
    y = rng.integers(0, 2, size=40)
    expected = sorted((*row, label) for row, label in zip(X.tolist(), y.tolist(), strict=True))
    for rows in (X, sp.csr_matrix(X)):
        X_sorted, y_sorted = datasets._in_row_order(rows, y)
        dense = X_sorted if isinstance(X_sorted, np.ndarray) else X_sorted.toarray()
        assert np.column_stack([dense, y_sorted]).tolist() == [list(row) for row in expected]


@pytest.mark.parametrize("X", [np.eye(3), sp.csr_matrix(np.eye(3)), ["AC", "D", "E"]])
def test_content_sum_sees_every_change(X: Any) -> None:
    y = np.arange(3)
    before = _content_sum(X, y)
    assert before == _content_sum(X.copy(), y.astype(np.int32))
    assert before != _content_sum(X, y[::-1])
    changed = X.copy()
    if isinstance(changed, list):
        changed[1] = "DD"
    else:
        changed[1, 1] = np.nextafter(1.0, 2.0)
    assert before != _content_sum(changed, y)


# --- files, the real ones ---------------------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize("name", FILE_SETS)
def test_file_set_is_what_the_table_says(name: str) -> None:
    facts = KNOWN[name]
    X, y = datasets.load(name)
    if facts.d is None:
        assert len(X) == facts.n
        assert all(X)
    else:
        assert X.shape == (facts.n, facts.d)
        assert X.dtype == np.float64
        assert np.isfinite(X.data if sp.issparse(X) else X).all()
    codes = np.array([-1, 1]) if facts.format == "libsvm" else np.arange(facts.classes)
    assert (y.shape, y.dtype) == ((facts.n,), np.int64)
    assert np.array_equal(np.unique(y), codes)
    assert _content_sum(X, y) == facts.content


@needs_data
@pytest.mark.parametrize(
    "name", [n for n in FILE_SETS if KNOWN[n].format == "csv" and KNOWN[n].n * (KNOWN[n].d or 0) < 50000]
)
def test_csv_equals_a_plain_reader(name: str) -> None:
    with gzip.open(Path(str(DATA)) / f"{name}.csv.gz", "rt") as text:
        rows = [[float(cell) for cell in row] for row in list(csv.reader(text))[1:]]
    if KNOWN[name].in_row_order:
        rows.sort()
    X, y = datasets.load(name)
    assert np.column_stack([X, y]).tolist() == rows


@needs_data
def test_real_sets_agree_with_what_is_known_of_them() -> None:
    positives = {"a1a": 395, "a2a": 572, "a3a": 773, "a4a": 1188, "a5a": 1569, "a9a.t": 3846}
    assert {name: int(np.sum(datasets.load(name).y == 1)) for name in positives} == positives
    assert np.bincount(datasets.load("colon").y).tolist() == [22, 40]
    assert np.bincount(datasets.load("lymphoma").y).tolist() == [34, 62]
    assert np.bincount(datasets.load("protein").y).tolist() == [19, 16, 32, 15, 18, 16]
    assert np.bincount(datasets.load("usps.t").y).tolist() == [359, 264, 198, 166, 200, 160, 170, 147, 166, 177]
    assert np.sum(np.bincount(datasets.load("scop40").y) >= 10) == 244
    X, y = datasets.load("balance_scale")
    left, right = X[:, 0] * X[:, 1], X[:, 2] * X[:, 3]
    assert np.array_equal(y, np.select([left > right, left < right], [1, 2], 0))
