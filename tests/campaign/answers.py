"""Files of answers: two people at once, answers taken back or lost, lines cut off at any byte, odd lines."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import metricforge as mf
from metricforge import kernels as k

from . import rows
from .battery import in_memory
from .rows import JUNK, Rng, pick
from .trial import Ended, Trial, Verdict, finite


def attack(trial: Trial, rng: Rng) -> None:
    pick(rng, [dropped, dropped, cut, cut, torn, torn, together, odd_lines, odd_rows])(trial, rng)


# ----------------------------------------------------------------------------------------------------------- two people


class Pair:
    """Two people with one file of answers about the same rows; each may answer a question that is no longer current."""

    def __init__(self, trial: Trial, rng: Rng) -> None:
        n = int(rng.integers(5, 25))
        self.trial, self.rng = trial, rng
        self.X, self.y = rng.normal(size=(n, 2)), rng.integers(0, int(rng.integers(2, 5)), size=n)
        self.X += 3 * self.y[:, None]
        self.options: dict[str, Any] = {"rule": pick(rng, ["groups", "groups", "groups", "triplets", "random"])}
        self.options["lineup"] = bool(rng.random() < 0.7)
        self.path = _clean(trial)
        trial.describe(f"{n} rows of classes {self.y.tolist()}, {self.options}")
        self.sessions = [self.open(by) for by in ("ann", "bob")]
        self.shown: list[Any] = [None, None]
        self.kept = 0
        """Answers that were acknowledged and not taken back."""

    def open(self, by: str = "ann") -> Any:
        return self.trial.call("Session(X, path)", mf.ask.Session, self.X, self.path, by=by, **self.options)

    def step(self, undo: float = 0.1) -> None:
        """Let one of them look at a question, answer one that may be old, or take an answer back."""
        who = int(self.rng.integers(2))
        session = self.sessions[who]
        if self.rng.random() < undo:
            self.kept -= self.trial.call(f"{session.by}: undo()", session.undo) is not None
        elif self.shown[who] is None:
            self.shown[who] = self.trial.call(f"{session.by}: next()", session.next)
        else:
            question, self.shown[who] = self.shown[who], None
            answer = self.say(question)
            self.trial.call(f"{session.by}: answer({question.rows}, {answer!r})", session.answer, question, answer)
            self.kept += 1

    def say(self, question: Any) -> Any:
        """Return the true answer, sometimes another one."""
        said = _said(question, self.y)
        return said[0] if self.rng.random() < 0.8 else pick(self.rng, said)

    def check(self, session: Any, count: int | None = None) -> None:
        """Check that groups and members agree, that a file opened anew has the same, and that it can be continued."""
        trial = self.trial
        progress = trial.call("progress()", session.progress)
        if count is not None:
            detail = f"{progress.answers} instead of {count}"
            trial.check(progress.answers == count, Verdict.WRONG, "answers are lost, or come from nowhere", detail)
        groups = trial.call("groups()", session.groups)
        sizes = sorted(np.bincount(groups[groups >= 0])) if (groups >= 0).any() else []
        fits = sorted(progress.groups) == [size for size in sizes if size] and progress.placed == (groups >= 0).sum()
        trial.check(fits, Verdict.WRONG, "groups and their members differ", f"{progress.groups}, {groups.tolist()}")
        trial.check(finite(vars(progress)), Verdict.NAN, "the progress of a session is not finite")
        again = self.open(session.by)
        same = again.hints() == session.hints() and np.array_equal(again.groups(), groups)
        trial.check(same, Verdict.WRONG, "a file that is opened again has other hints or groups")
        question = trial.call("next()", again.next)
        if question is not None:
            trial.check(question == session.next(), Verdict.WRONG, "a file that is opened again asks something else")
            trial.call("answer", again.answer, question, self.say(question))
        trial.passed = True


def dropped(trial: Trial, rng: Rng) -> None:
    """Take any answers back, or remove their lines, and open the file."""
    pair = Pair(trial, rng)
    for _ in range(int(rng.integers(5, 60))):
        pair.step()
    lines = pair.path.read_bytes().splitlines(keepends=True)
    gone = rng.random(len(lines)) < rng.choice([0.05, 0.3, 0.7])
    gone[0] = False
    if rng.random() < 0.5:
        trial.describe(f"take back the answers {np.flatnonzero(gone).tolist()}")
        lines += [json.dumps({"undo": int(n), "by": "bob", "t": 1.0}).encode() + b"\n" for n in np.flatnonzero(gone)]
    else:
        trial.describe(f"without the lines {np.flatnonzero(gone).tolist()}")
        lines = [line for line, without in zip(lines, gone, strict=True) if not without]
    pair.path.write_bytes(b"".join(lines))
    pair.check(pair.open())


def cut(trial: Trial, rng: Rng) -> None:
    """Cut the file off at many bytes, and continue each."""
    pair = Pair(trial, rng)
    for _ in range(int(rng.integers(3, 12))):
        pair.step()
    whole = pair.path.read_bytes()
    del trial.description[1:]
    for size in sorted(set(rng.integers(0, len(whole), size=12).tolist())):
        steps = len(trial.description)
        trial.describe(f"cut at byte {size} of {len(whole)}")
        pair.path.write_bytes(whole[:size])
        entries = [json.loads(line) for line in whole[:size].split(b"\n")[1:-1]]
        undone = {entry["undo"] for entry in entries if "undo" in entry}
        pair.check(pair.open(), sum("undo" not in entry for entry in entries) - len(undone))
        if trial.findings:
            return
        del trial.description[steps:]


def torn(trial: Trial, rng: Rng) -> None:
    """Let writes of lines fail after some bytes, as on a full disk; the other person continues."""
    pair, write = Pair(trial, rng), os.write
    for _ in range(int(rng.integers(3, 25))):
        if rng.random() < 0.7:
            pair.step()
            continue
        sent = int(rng.integers(0, 150))
        question = pair.shown[0] or trial.call("ann: next()", pair.sessions[0].next)
        if question is None:
            continue
        how = pick(rng, ["short", "ENOSPC"])
        trial.describe(f"ann answers; {how} after {sent} bytes")

        def failing(handle: int, data: bytes, sent: int = sent, how: str = how) -> int:
            written = write(handle, data[:sent])
            if how == "ENOSPC" and sent < len(data):
                raise OSError(28, "No space left on device")
            return written

        before = len(trial.findings)
        with mock.patch("os.write", failing), contextlib.suppress(Ended):
            trial.call("ann: answer", pair.sessions[0].answer, question, pair.say(question))
            pair.kept += 1
        trial.refusal = ""
        if len(trial.findings) > before:
            return
        pair.shown[0] = None
    for session in pair.sessions:
        trial.call("progress()", session.progress)
    pair.check(pair.sessions[1], pair.kept)


def together(trial: Trial, rng: Rng) -> None:
    """Let two people answer at the same moment, from two threads."""
    pair = Pair(trial, rng)
    errors: list[BaseException] = []
    counts = [0, 0]

    def answer(who: int, seeds: Any) -> None:
        try:
            for seed in seeds:
                question = pair.sessions[who].next()
                if question is not None:
                    said = _said(question, pair.y)
                    pair.sessions[who].answer(question, said[seed % len(said)])
                    counts[who] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=answer, args=(who, rng.integers(0, 10, size=5).tolist())) for who in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        trial.judge("two threads answer", error)
    pair.check(pair.sessions[0], sum(counts))


def _said(question: Any, y: Any) -> list[Any]:
    """Return the answers that a question allows, the true one first."""
    i, *others = question.rows
    if question.kind == "pair":
        alike = ["alike", "unlike"]
        return [*(alike if y[i] == y[others[0]] else alike[::-1]), "skip"]
    if question.kind == "triplet":
        return ["first" if y[i] == y[others[0]] else "second", "first", "second", "skip"]
    true = next((place for place, other in enumerate(others, 1) if y[other] == y[i]), "none")
    return [true, *range(1, len(others) + 1), "none", "skip"]


def _clean(trial: Trial) -> Path:
    for path in trial.folder.glob("answers.jsonl*"):
        path.unlink()
    return trial.folder / "answers.jsonl"


# --------------------------------------------------------------------------------------------------- odd lines and rows


def odd_rows(trial: Trial, rng: Rng) -> None:
    """Ask about difficult rows with odd options, answer at random, take answers back, and learn."""
    data = rows.draw(rng) if rng.random() < 0.3 else rows.mild(rng, n=int(rng.integers(4, 30)))
    trial.describe(f"X: {data.description}")
    options: dict[str, Any] = {"rule": pick(rng, ["groups", "groups", "triplets", "random"])}
    if rng.random() < 0.3:
        name = pick(rng, ["rule", "ids", "held_out", "seed", "by", "select", "kernel", "lineup", "columns"])
        options[name] = pick(rng, [*JUNK, [str(i) for i in range(data.n)], ["a"] * data.n, k.RBF(1.0), 0.2])
    path = _clean(trial)
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


def odd_lines(trial: Trial, rng: Rng) -> None:
    """Change a line of a file by hand, and open it or learn from it."""
    pair = Pair(trial, rng)
    for _ in range(14):
        pair.step(undo=0)
    lines = pair.path.read_bytes().splitlines()
    at = int(rng.integers(len(lines)))
    what = pick(rng, ["junk", "a value", "a field less", "cut", "bytes", "an undo", "twice", "deep", "another header"])
    trial.describe(f"line {at} of {len(lines)}: {what}")
    entry = json.loads(lines[at])
    if what == "junk":
        lines[at] = json.dumps(pick(rng, JUNK)).encode()
    elif what in ("a value", "another header"):
        at = 0 if what == "another header" else at
        entry = json.loads(lines[at])
        name, value = pick(rng, entry), pick(rng, [*JUNK, 10**400])
        trial.describe(f"{name} = {value!r}"[:60])
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
    pair.path.write_bytes(b"\n".join(lines) + (b"\n" if rng.random() < 0.7 else b""))
    again = pair.open()
    question = trial.call("session.next()", again.next)
    if question is not None:
        trial.call("session.answer('skip')", again.answer, question, "skip")
    trial.call("session.progress()", again.progress)
    trial.call("session.hints()", again.hints)
    trial.passed = True
