"""Entries of the API part that keep state on disk beside models: indexes in folders, files of answers, adapters."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import metricforge as mf
from metricforge import kernels as k

from . import hints, rows
from .battery import count, in_memory
from .rows import Rng, pick
from .trial import Ended, Trial, Verdict, finite

JUNK: list[Any] = [None, True, -1, 0, 1.5, 10**30, float("nan"), "", "x", "\ud800", [], {}, [1, 2], {"a": 1}, [[]]]


def _clean(trial: Trial, name: str) -> Path:
    path = trial.folder / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return path


# -------------------------------------------------------------------------------------------------------------- indexes


def damaged_index(trial: Trial, rng: Rng) -> None:
    """Build an index in a folder, damage one of its files, open it again and search."""
    n, d = int(rng.integers(3, 80)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d))
    metric = mf.learn(X, np.arange(n) % 2, method="euclidean", kernel=k.Linear())
    path = _clean(trial, "index")
    by = pick(rng, ["distance", "kernel"])
    trial.call(f"metric.index(by={by!r}) of {n} × {d}", lambda: metric.index(k=2, by=by, path=path))
    files = sorted(file for file in path.rglob("*") if file.is_file())
    file = pick(rng, files)
    what = pick(rng, DAMAGES)
    trial.describe(f"{file.name}: {what}")
    DAMAGES[what](rng, file)
    try:
        made = trial.call("metric.index(path=)", lambda: metric.index(k=2, by=by, path=path))
        found, D = trial.call("index.search(X, 2)", made.search, X, 2)
        trial.check(finite(D), Verdict.NAN, "a damaged index: distances are not finite")
        trial.check(((found >= 0) & (found < n)).all(), Verdict.WRONG, "a damaged index finds rows that do not exist")
        trial.passed = True
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _flip(rng: Rng, file: Path) -> None:
    raw = bytearray(file.read_bytes())
    for _ in range(int(rng.integers(1, 4))):
        raw[int(rng.integers(len(raw)))] ^= 1 << int(rng.integers(8))
    file.write_bytes(raw)


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


DAMAGES: dict[str, Callable[[Rng, Path], None]] = {
    "flipped bits": _flip,
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


# -------------------------------------------------------------------------------------------------------------- answers


def answers(trial: Trial, rng: Rng) -> None:
    """Ask about difficult rows, answer at random, take answers back, and learn."""
    data = rows.draw(rng) if rng.random() < 0.3 else rows.mild(rng, n=int(rng.integers(4, 30)))
    trial.describe(f"X: {data.description}")
    options: dict[str, Any] = {"rule": pick(rng, ["groups", "groups", "triplets", "random"])}
    if rng.random() < 0.3:
        name = pick(rng, ["rule", "ids", "held_out", "seed", "by", "select", "kernel", "lineup", "columns"])
        options[name] = pick(rng, [*JUNK, [str(i) for i in range(data.n)], ["a"] * data.n, k.RBF(1.0), 0.2])
    path = _clean(trial, "answers.jsonl")
    words = ", ".join(f"{name}={value!r}"[:80] for name, value in options.items())
    session = trial.call(f"mf.ask.Session(X, path, {words})", mf.ask.Session, data.X, path, **options)
    y = rng.integers(0, 3, size=data.n)
    for _ in range(int(rng.integers(1, 12))):
        question = trial.call("session.next()", session.next)
        if question is None:
            break
        said = pick(rng, _said(question, y)) if rng.random() < 0.95 else pick(rng, JUNK)
        progress = trial.call(f"session.answer({said!r})", session.answer, question, said)
        trial.check(finite(vars(progress)), Verdict.NAN, "the progress of a session is not finite")
        if rng.random() < 0.1:
            trial.call("session.undo()", session.undo)
    trial.passed = True
    other = trial.call("the same file again", mf.ask.Session, data.X, path, **options)
    same = other.hints() == session.hints()
    trial.check(same, Verdict.WRONG, "a session that is continued has other hints")
    with contextlib.suppress(Ended):
        trial.call("export", other.export, trial.folder / "hints.csv", pick(rng, ["hints", "groups"]))
    metric = trial.call("session.metric()", other.metric)
    D = in_memory(trial.call("distance", metric.distance, data.X))
    trial.check(finite(D), Verdict.NAN, "distances learned from answers are not finite")


def _said(question: Any, y: Any) -> list[Any]:
    """Return answers: the true one and others that the question allows."""
    i, *others = question.rows
    if question.kind == "pair":
        return ["alike" if y[i] == y[others[0]] else "unlike", "alike", "unlike", "skip"]
    if question.kind == "triplet":
        return ["first", "second", "skip"]
    return [*range(1, len(others) + 1), "none", "skip"]


def damaged_answers(trial: Trial, rng: Rng) -> None:
    """Write a file of answers by hand, with odd lines, and open it or learn from it."""
    n = int(rng.integers(4, 20))
    X = rng.normal(size=(n, 2))
    path = _clean(trial, "answers.jsonl")
    session = mf.ask.Session(X, path)
    for _ in range(6):
        question = session.next()
        if question is None:
            break
        session.answer(question, pick(rng, _said(question, np.arange(n) % 2)))
    lines = path.read_bytes().splitlines()
    at = int(rng.integers(len(lines)))
    what = pick(rng, ["junk", "a value", "a field less", "cut", "bytes", "an undo", "twice", "deep", "another header"])
    trial.describe(f"line {at} of {len(lines)}: {what}")
    entry = json.loads(lines[at])
    if what == "junk":
        lines[at] = json.dumps(pick(rng, JUNK)).encode()
    elif what in ("a value", "another header"):
        at = 0 if what == "another header" else at
        entry = json.loads(lines[at])
        name, value = pick(rng, entry), pick(rng, JUNK)
        trial.describe(f"{name} = {value!r}")
        lines[at] = json.dumps(entry | {name: value}).encode()
    elif what == "a field less":
        entry.pop(pick(rng, entry))
        lines[at] = json.dumps(entry).encode()
    elif what == "cut":
        lines[at] = lines[at][: int(rng.integers(len(lines[at])))]
    elif what == "bytes":
        lines[at] = rng.bytes(40).replace(b"\n", b"")
    elif what == "an undo":
        lines.append(json.dumps({"undo": pick(rng, JUNK)}).encode())
    elif what == "twice":
        lines.insert(at, lines[at])
    else:
        lines[at] = b"[" * 5000
    path.write_bytes(b"\n".join(lines) + (b"\n" if rng.random() < 0.7 else b""))
    again = trial.call("mf.ask.Session(X, path)", mf.ask.Session, X, path)
    question = trial.call("session.next()", again.next)
    if question is not None:
        trial.call("session.answer('skip')", again.answer, question, "skip")
    trial.call("session.progress()", again.progress)
    trial.call("session.hints()", again.hints)
    trial.passed = True


# ------------------------------------------------------------------------------------------------- adapters, updates


def adapter(trial: Trial, rng: Rng) -> None:
    """Turn a metric into a linear map, compare it with the kernel, and save it."""
    data = rows.vectors(rng) if rng.random() < 0.3 else rows.mild(rng)
    trial.describe(f"X: {data.description}")
    start = pick(rng, [*[k.Linear(), k.Standardized(k.Linear()), k.Polynomial(1, 1.0), None] * 2, k.RBF("median")])
    method = pick(rng, ["euclidean", "krca", "idealized", "relevance", "lfda"])
    metric = trial.call(
        f"mf.learn by {method}, {start!r}", mf.learn, data.X, np.arange(data.n) % 2, method=method, kernel=start
    )
    side = pick(rng, ["query", "both"])
    size = pick(rng, [*[None] * 9, 1, 2, 0, 10**9, "x"]) if side == "both" or rng.random() < 0.1 else None
    made = trial.call(f"metric.adapter({side!r}, n_components={size!r})", metric.adapter, side, n_components=size)
    trial.check(finite(made.A) and finite(made.b), Verdict.NAN, "the adapter is not finite")
    trial.passed = True
    notes = " ".join(map(str, metric.report.get("notes", ())))
    if data.truth is not None and size is None and "digits" not in notes and not data.single:
        X = np.asarray(data.truth, dtype=float)
        K = np.asarray(in_memory(metric.kernel(X)), dtype=float)
        mapped = made(X)
        own = mapped @ (X.T if side == "query" else mapped.T)
        off = K - own
        if side == "query":
            off -= off.mean(axis=1, keepdims=True)  # what does not depend on x does not change a ranking
        size_of = np.abs(mapped) @ np.abs(X.T if side == "query" else mapped.T)  # of the terms of the sums
        allowed = 1e-6 * np.abs(K).max(initial=0) + 1e-10 * float(size_of.max(initial=0)) + 1e-280
        worst = float(np.abs(off).max(initial=0))
        trial.check(worst <= allowed, Verdict.WRONG, f"the adapter ({side}) is not the kernel", f"{worst:.3g}")
    path = trial.folder / pick(rng, ["map.npy", "map.onnx", "map.txt", "no/folder/map.npy"])
    trial.call(f"adapter.save({path.name!r})", made.save, path)


def update_after_load(trial: Trial, rng: Rng) -> None:
    """Save, load and update: the loaded copy must learn what the metric itself learns, bit by bit."""
    n, d = int(rng.integers(4, 30)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d))
    start = pick(rng, [None, k.Linear(), k.RBF("median"), k.Laplacian("median")])
    weights = pick(rng, ["equal", "total"])
    rank = pick(rng, ["auto", "exact", 3])
    groups = mf.Chunklets(np.arange(n) // 2)
    metric = trial.call(
        f"krca on {n} × {d}, {start!r}, weights={weights!r}, rank={rank!r}",
        lambda: mf.learn(X, groups, method="krca", kernel=start, rank=rank, weights=weights),
    )
    trial.call("save", metric.save, trial.folder / "updated.metric")
    copy = trial.call("load", mf.load, trial.folder / "updated.metric")
    data = rows.vectors(rng, d=d, content=pick(rng, [None, *rows.MILD]))
    trial.describe(f"A: {data.description}")
    hint = hints.draw(rng, data.n) if rng.random() < 0.3 else hints.plain(rng, data.n, "krca")
    constraint = trial.call(f"hint: {hint.description}", hint.make)
    newer = trial.call("update of the loaded copy", copy.update, data.X, constraint)
    own = trial.call("update of the metric", metric.update, data.X, constraint)
    D, truth = (in_memory(trial.call("distance", one.distance, X)) for one in (newer, own))
    trial.check(finite(D), Verdict.NAN, "distance after an update of a loaded metric is not finite")
    trial.check(np.array_equal(D, truth), Verdict.WRONG, "a loaded copy learns something else from an update")
    trial.passed = True
    E = in_memory(trial.call("transform", newer.transform, X))
    trial.check(finite(E), Verdict.NAN, "transform after an update of a loaded metric is not finite")
    trial.call("save again", newer.save, trial.folder / "updated.metric")
    again = trial.call("load again", mf.load, trial.folder / "updated.metric")
    same = np.array_equal(in_memory(again.distance(X)), D)
    trial.check(same, Verdict.WRONG, "a saved copy of an updated metric measures other distances")
    trial.check(count(X) == n, Verdict.STATE, "rows changed")


ENTRIES = [damaged_index, damaged_index, answers, answers, damaged_answers, damaged_answers, adapter, adapter]
ENTRIES += [update_after_load]
