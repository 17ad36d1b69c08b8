"""Run the command line in this process and check its exit code and messages."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from pathlib import Path
from typing import Any

from metricforge.cli.program import main

from .trial import Ended, Trial, Verdict, site_of

FRAME = re.compile(r'File "([^"]+)", line \d+, in (\S+)')


class _Frame:
    def __init__(self, filename: str, name: str) -> None:
        self.filename, self.name = filename, name


def run(trial: Trial, *words: str) -> tuple[str, str]:
    """Run a command; return its standard output and standard error.

    Exit code 2 with one sentence is a refusal; any other code than 0 is a finding.  Both end the case.
    """
    trial.describe("metricforge " + " ".join(words)[:500])
    code, out, err = _run(*words)
    lines = [line for line in err.splitlines() if line.strip()]
    if code == 0:
        _check_lines(trial, lines, most=None)
        return out, err
    if code == 2:
        trial.refusal = lines[-1][:400] if lines else "no message"
        _check_lines(trial, lines, most=1)
        trial.check_message("standard error", trial.refusal, "the shell")
    else:
        where, kind = _site(*words)
        trial.find(Verdict.RAW, f"exit {code}: {kind} at {where}", err[-600:])
    raise Ended


def _run(*words: str) -> tuple[int | str, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        try:
            code: Any = main(list(words))
        except SystemExit as error:
            code = error.code
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            code = type(error).__name__
            err.write(f"{code}: {error}")
    return code, out.getvalue(), err.getvalue()


def quietly(*words: str) -> None:
    """Run a command that must succeed."""
    code, _, err = _run(*words)
    if code != 0:
        raise RuntimeError(f"exit {code}: {err}")


def _site(*words: str) -> tuple[str, str]:
    """Return where a fault comes from, by running the command once more with its traceback."""
    _, _, err = _run(*words, "--debug")
    frames = [_Frame(*found) for found in FRAME.findall(err)]
    kinds = re.findall(r"^(\w[\w.]*(?:Error|Exception|Warning|Interrupt))\b", err, flags=re.MULTILINE)
    return site_of(frames), kinds[-1].rpartition(".")[2] if kinds else "?"


def _check_lines(trial: Trial, lines: list[str], most: int | None) -> None:
    odd = [line for line in lines if not line.startswith("metricforge: ")]
    if odd:
        trial.find(Verdict.MESSAGE, f"standard error has a line of its own: {_shape(odd[0])}", "\n".join(lines)[:600])
    elif most is not None and len(lines) > most:
        trial.find(Verdict.MESSAGE, f"{len(lines)} lines on standard error", "\n".join(lines)[:600])


def _shape(line: str) -> str:
    return re.sub(r"\d+", "#", re.sub(r"'[^']*'", "'…'", " ".join(line.split())))[:60]


def left_behind(folder: Path) -> list[str]:
    """Return the temporary files in a folder, which another process may remove meanwhile."""
    while True:
        try:
            return sorted(p.name for p in folder.rglob("*") if p.name.endswith(".part") or ".part" in p.suffixes)
        except FileNotFoundError:  # a folder is gone: look again
            continue
