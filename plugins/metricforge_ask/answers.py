"""The file of answers: JSON lines that are only ever appended, by one person or by several.

The first line names the data.  Every other line is one answer, takes one back (``{"undo": 17}``), or names the group of
a row (``{"group": "id4", "name": "red"}``).  Rows are named by their ids, so that a file stays valid if rows are sorted
or added.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metricforge.errors import InputError

from .questions import Question

FORMAT, VERSION = "metricforge-answers", 1
MOST_BYTES = 256 * 2**20
"""The largest file that is read."""
ROWS = {"pair": range(2, 3), "lineup": range(2, 1000), "triplet": range(3, 4)}
"""How many rows an answer of each kind names."""


@dataclass(frozen=True)
class Answer:
    """One answer, with row ids.

    Attributes
    ----------
    n : int
        The number of the answer in its file.
    by : str
        The person.
    kind, rows, answer, why, p, opens, joins : as in `metricforge_ask.questions.Question`
    """

    n: int
    by: str
    kind: str
    rows: tuple[str, ...]
    answer: str | int
    why: str = ""
    p: float = 0.5
    opens: bool = False
    joins: bool = False

    @property
    def held_out(self) -> bool:
        """Whether the answer is kept out of learning."""
        return self.why == "random"


@dataclass(frozen=True)
class Header:
    """What a file says about the data that its answers are about."""

    rows: int
    columns: tuple[str, ...]
    sha256: str
    id: str | None = None

    def line(self) -> dict[str, Any]:
        """Return the first line of a file."""
        about = {"rows": self.rows, "columns": list(self.columns), "sha256": self.sha256, "id": self.id}
        return {"format": FORMAT, "version": VERSION, **about}


@dataclass
class Log:
    """The lines of a file, read as far as they are complete.

    A log without a path keeps its lines in memory.  Lines that another process appends are seen by `refresh`.
    """

    path: Path | None
    header: Header
    entries: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _read: int = 0

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None, header: Header) -> Log:
        """Open a file of answers, or create it; raise InputError if it is about other data."""
        log = cls(None if path is None else Path(path), header)
        if log.path is None:
            return log
        if log.path.exists() and not log.path.is_file():
            raise InputError(f"{str(path)!r} is a folder, a pipe or a device; give the name of a file")
        with _locked(log.path):
            log.notes += _mend(log.path, header)
        found = log.refresh()
        assert found is not None
        log.notes += _compare(found, header, log.path)
        return log

    def refresh(self) -> Header | None:
        """Read what has been appended since the last call; return the header when it is read."""
        if self.path is None:
            return None
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > MOST_BYTES:
                    raise InputError(
                        f"{str(self.path)!r} is larger than {MOST_BYTES >> 20} MB; it is no file of answers"
                    )
                file.seek(self._read)
                content = file.read()
        except OSError as error:
            raise _unusable(self.path, error.strerror) from None
        if size < self._read:
            raise _unusable(self.path, "lines that were in it are gone")
        whole, newline, _ = content.rpartition(b"\n")
        if not newline:
            return None
        first, found = self._read == 0, None
        for number, line in enumerate(whole.split(b"\n")):
            entry = _parsed(line, self.path, number + 1 if first else None)
            if first and number == 0:
                found = _header(entry, self.path)
            else:
                self.entries.append(entry)
        self._read += len(whole) + 1
        return found

    def append(self, entry: dict[str, Any]) -> int:
        """Append an answer or an undo; returns its number."""
        if self.path is None:
            self.entries.append(entry | {"n": len(self.entries) + 1})
            return len(self.entries)
        with _locked(self.path):
            self.refresh()
            number = len(self.entries) + 1
            _append(self.path, self._read, entry | {"n": number})
        self.refresh()
        return number

    def answers(self) -> list[Answer]:
        """Return the answers that were not taken back, in order."""
        gone = {entry["undo"] for entry in self.entries if type(entry.get("undo")) is int}
        lines = enumerate(self.entries, start=1)
        return [_answer(e, n) for n, e in lines if "undo" not in e and "name" not in e and n not in gone]

    def names(self) -> list[tuple[str, str]]:
        """Return (id, name) for every name that was given to the group of a row, in order."""
        return [(str(e.get("group")), str(e["name"])) for e in self.entries if "name" in e]


def read_answers(path: str | os.PathLike[str]) -> tuple[Header, list[Answer], list[str]]:
    """Return header, answers and notes of a file that is only read."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{str(path)!r} is no file; give the file that metricforge ask wrote")
    log = Log(path, Header(0, (), ""))
    found = log.refresh()
    if found is None:
        raise InputError(f"{str(path)!r} holds no complete line; it is no file of answers")
    torn = path.stat().st_size - log._read
    notes = [f"{path.name}: the last line is not complete and was left out"] if torn else []
    return found, log.answers(), notes


def entry_of(
    kind: str, rows: Sequence[str], answer: str | int, *, by: str, why: str, p: float, opens: bool, joins: bool, ms: int
) -> dict[str, Any]:
    """Return the line of an answer, without its number."""
    return {
        "t": round(time.time(), 3),
        "by": by,
        "kind": kind,
        "rows": list(rows),
        "answer": answer,
        "why": why,
        "p": round(float(p), 4),
        "opens": bool(opens),
        "joins": bool(joins),
        "ms": int(ms),
    }


def name_entry(row: str, name: str, *, by: str) -> dict[str, Any]:
    """Return the line that names the group of a row, without its number."""
    return {"t": round(time.time(), 3), "by": by, "group": row, "name": name}


# ------------------------------------------------------------------------------------------------------------- reading


def _parsed(line: bytes, path: Path, number: int | None) -> dict[str, Any]:
    where = f"line {number} of {str(path)!r}" if number is not None else f"a line of {str(path)!r}"
    try:
        entry = json.loads(line)
    except (UnicodeDecodeError, ValueError, RecursionError):
        raise InputError(f"{where} is not JSON; {str(path)!r} is no file of answers, or was edited") from None
    if not isinstance(entry, dict):
        raise InputError(f"{where} is not an object; {str(path)!r} is no file of answers, or was edited")
    return entry


def _header(entry: Mapping[str, Any], path: Path) -> Header:
    if entry.get("format") != FORMAT:
        raise InputError(f"{str(path)!r} is no file of answers: its first line has no format {FORMAT!r}")
    if entry.get("version") != VERSION:
        raise InputError(f"{str(path)!r} has version {entry.get('version')!r}; this release reads version {VERSION}")
    rows, columns, digest, name = (entry.get(key) for key in ("rows", "columns", "sha256", "id"))
    texts = isinstance(columns, list) and all(isinstance(column, str) for column in columns)
    if not (isinstance(rows, int) and rows > 0 and texts and isinstance(digest, str)):
        raise InputError(f"the first line of {str(path)!r} is damaged: rows, columns or sha256 are not as written")
    assert isinstance(columns, list)
    return Header(rows, tuple(columns), digest, name if isinstance(name, str) else None)


def _answer(entry: Mapping[str, Any], n: int) -> Answer:
    given, kind = entry.get("rows"), str(entry.get("kind"))
    rows = [row for row in given if isinstance(row, str)] if isinstance(given, list) else []
    if rows != given or len(rows) not in ROWS.get(kind, ()) or len(set(rows)) < len(rows):
        raise InputError(f"answer {n} has no kind and rows as metricforge ask writes them; the file was edited")
    try:
        answer = Question(kind, tuple(range(len(rows))), "").check(entry.get("answer"))
    except (InputError, TypeError) as error:  # TypeError: a list or a dict
        raise InputError(f"answer {n} is none to its question; the file was edited ({error})") from None
    p = entry.get("p", 0.5)
    return Answer(
        n=n,
        by=str(entry.get("by", "")),
        kind=kind,
        rows=tuple(rows),
        answer=answer,
        why=str(entry.get("why", "")),
        p=float(p) if isinstance(p, int | float) and 0 <= p <= 1 else 0.5,
        opens=entry.get("opens") is True,
        joins=entry.get("joins") is True,
    )


def _compare(found: Header, given: Header, path: Path) -> list[str]:
    """Return a note if the data changed in a way that ids survive; raise if they are other data."""
    if found.sha256 == given.sha256:
        return []
    if found.id is None or found.id != given.id:
        raise InputError(
            f"{str(path)!r} holds answers about other data: {found.rows} rows, columns {', '.join(found.columns[:5])}; "
            "give another file, or name rows by an id column (--id), which survives changes of the data"
        )
    return [f"the data have changed since {path.name} was begun; rows are found by their {found.id!r}"]


# ------------------------------------------------------------------------------------------------------------- writing


def _line(entry: Mapping[str, Any]) -> bytes:
    return (json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n").encode("utf-8", "surrogatepass")


def _append(path: Path, end: int, entry: Mapping[str, Any], *, create: bool = False) -> None:
    """Append a line after the last complete one, which ends at byte ``end``, and wait until it is on disk.

    The caller holds the lock: whatever follows that byte was cut off by a crash or a full disk, and is dropped.
    """
    line = _line(entry)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | (os.O_CREAT if create else 0), 0o600)
        try:
            os.ftruncate(handle, end)
            written = os.write(handle, line)
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise _unusable(path, error.strerror) from None
    if written != len(line):
        raise InputError(f"{str(path)!r} could not be written whole: the disk is full; free some room")


def _mend(path: Path, header: Header) -> list[str]:
    """Begin a file of answers, or drop a last line that was cut off by a crash; returns a note about it."""
    content = b""
    if path.exists():
        content = path.read_bytes() if path.stat().st_size <= MOST_BYTES else b"\n"
    whole, newline, torn = content.rpartition(b"\n")
    if not newline and _line(header.line()).startswith(torn):  # empty, or cut off when it was begun
        _append(path, 0, header.line(), create=True)
        return []
    if not newline:
        raise InputError(f"{str(path)!r} holds no complete line; it is no file of answers")
    if not torn:
        return []
    os.truncate(path, len(whole) + 1)
    return [f"the last line of {path.name} was not complete and was dropped"]


def _unusable(path: Path, why: str | None) -> InputError:
    return InputError(f"{str(path)!r} cannot be used ({why}); put it back from a copy, or start metricforge ask again")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file of answers, so that two processes do not write at once."""
    import fcntl

    lock = path.with_name(path.name + ".lock")
    try:
        handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
