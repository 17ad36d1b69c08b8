"""Folders of indexes, damaged in one file: opened again, they answer as before or are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import metricforge as mf
from metricforge import kernels as k

from .rows import JUNK, Rng, pick
from .trial import Trial, Verdict


def attack(trial: Trial, rng: Rng) -> None:
    """Build an index in a folder, damage one of its files before or after it is opened, and search."""
    n, d = int(pick(rng, [rng.integers(3, 80), rng.integers(80, 1500)])), int(rng.integers(1, 7))
    X = rng.normal(size=(n, d))
    metric = mf.learn(X, np.arange(n) % 2, method="euclidean", kernel=k.Linear())
    path, by = trial.folder / "index", pick(rng, ["distance", "kernel"])
    size, recall = int(rng.integers(1, 4)), float(rng.choice([1.0, 0.9]))
    shutil.rmtree(path, ignore_errors=True)
    try:
        options = {"k": size, "by": by, "path": path, "recall": recall}
        made = trial.call(f"metric.index(k={size}, by={by!r}, recall={recall}) of {n} × {d}", metric.index, **options)
        before, estimate = made.search(X, size), made.recall
        file = pick(rng, sorted(file for file in path.rglob("*") if file.is_file()))
        what = pick(rng, [*DAMAGES, *SAME_SIZE * 3])
        late = what in SAME_SIZE and rng.random() < 0.3
        trial.describe(f"{file.name}: {what}{', after it is opened' if late else ''}")
        made = trial.call("metric.index(path=)", metric.index, **options) if late else None
        (DAMAGES | SAME_SIZE_DAMAGES)[what](rng, file)
        made = made or trial.call("metric.index(path=)", metric.index, **options)
        after = trial.call("index.search(X)", made.search, X, size)
        same = all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))
        trial.check(same, Verdict.WRONG, f"an index with damaged {file.name} has other answers", what)
        trial.check(0 < made.recall <= 1, Verdict.WRONG, "an index has an impossible recall", repr(made.recall))
        if file.suffix == ".npy":
            trial.check(made.recall == estimate, Verdict.WRONG, "a damaged index has another recall")
        trial.passed = True
    finally:
        shutil.rmtree(path, ignore_errors=True)


# -------------------------------------------------------------------------------------------------------------- damages


def _block(rng: Rng, raw: bytearray) -> slice:
    """Return some consecutive bytes of a file, behind the header of an array."""
    first = min(128, len(raw) - 1)
    start = int(rng.integers(first, len(raw)))
    return slice(start, min(len(raw), start + int(rng.choice([1, 8, 64, 512, 4096]))))


def _zeroed(rng: Rng, raw: bytearray) -> None:
    where = _block(rng, raw)
    raw[where] = bytes(where.stop - where.start)


def _flipped(rng: Rng, raw: bytearray) -> None:
    where = _block(rng, raw)
    raw[where] = bytes(byte ^ 0xFF for byte in raw[where])


def _overwritten(rng: Rng, raw: bytearray) -> None:
    """Copy a block of the file over another one."""
    one, two = _block(rng, raw), _block(rng, raw)
    size = min(one.stop - one.start, two.stop - two.start)
    raw[one.start : one.start + size] = raw[two.start : two.start + size]


def _bits(rng: Rng, raw: bytearray) -> None:
    for _ in range(int(rng.integers(1, 4))):
        raw[int(rng.integers(len(raw)))] ^= 1 << int(rng.integers(8))


def _in_place(change: Callable[[Rng, bytearray], None]) -> Callable[[Rng, Path], None]:
    def damage(rng: Rng, file: Path) -> None:
        raw = bytearray(file.read_bytes())
        change(rng, raw)
        with file.open("r+b") as out:  # the same file, which may be mapped
            out.write(raw)

    return damage


def _cut(rng: Rng, file: Path) -> None:
    raw = file.read_bytes()
    file.write_bytes(raw[: int(rng.integers(len(raw)))])


def _array(change: Callable[[Any, Rng], Any]) -> Callable[[Rng, Path], None]:
    def damage(rng: Rng, file: Path) -> None:
        if file.suffix != ".npy":
            return _json(rng, file)
        A = np.load(file)
        with np.errstate(all="ignore"), file.open("wb") as out:
            np.save(out, change(A, rng))
        return None

    return damage


def _json(rng: Rng, file: Path) -> None:
    """Replace a value of a JSON file; other files are cut."""
    try:
        found = json.loads(file.read_text())
    except (UnicodeDecodeError, ValueError):
        return _cut(rng, file)
    if isinstance(found, dict) and found and rng.random() < 0.8:
        found[pick(rng, found)] = pick(rng, JUNK)
    else:
        found = pick(rng, JUNK)
    file.write_text(json.dumps(found))
    return None


def _entry(A: Any, value: float) -> Any:
    copy = A.copy()
    if copy.size and copy.dtype.kind in "fiu":
        top = np.iinfo(copy.dtype) if copy.dtype.kind in "iu" else None
        copy.flat[copy.size // 2] = value if top is None else int(np.clip(np.nan_to_num(value), top.min, top.max))
    return copy


def _as_folder(rng: Rng, file: Path) -> None:
    file.unlink()
    file.mkdir()


SAME_SIZE_DAMAGES: dict[str, Callable[[Rng, Path], None]] = {
    "zeroed bytes": _in_place(_zeroed),
    "inverted bytes": _in_place(_flipped),
    "bytes of another place": _in_place(_overwritten),
    "flipped bits": _in_place(_bits),
}
SAME_SIZE = list(SAME_SIZE_DAMAGES)
DAMAGES: dict[str, Callable[[Rng, Path], None]] = {
    "cut": _cut,
    "empty": lambda rng, file: file.write_text("") and None,
    "gone": lambda rng, file: file.unlink(),
    "a folder": _as_folder,
    "other JSON": _json,
    "NaN": _array(lambda A, rng: _entry(A, np.nan)),
    "a huge entry": _array(lambda A, rng: _entry(A, 1e18)),
    "a negative entry": _array(lambda A, rng: _entry(A, -5)),
    "one row less": _array(lambda A, rng: A[:-1]),
    "one column less": _array(lambda A, rng: A[..., :-1]),
    "no rows": _array(lambda A, rng: A[:0]),
    "another type": _array(lambda A, rng: A.astype(pick(rng, ["f2", "i1", "c16", "U", "?"]))),
    "shuffled": _array(lambda A, rng: rng.permutation(A)),
    "doubled": _array(lambda A, rng: np.concatenate([A, A])),
}
