"""Atomic writing: a file is complete, or it is not there."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ..errors import InputError


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces ``path`` when the block ends without an exception.

    Until then it is a hidden file in the same folder, which is removed if the block raises, so that an interrupted
    writer leaves the old file as it was.
    """
    target = Path(path).resolve()  # replace the target of a link, not the link
    check_writable(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    try:  # a signal may arrive as soon as the file exists
        # permissions of any new file; mkstemp would make it private
        with os.fdopen(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        temporary.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):  # a full disk
            raise _refusal(target, error) from None
        raise


def write(path: str | os.PathLike[str], content: bytes) -> None:
    """Write bytes to ``path``, atomically."""
    with writing(path) as file:
        file.write(content)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise if a file cannot be written; called before the work begins, so that no result is lost."""
    target = Path(path)
    if target.is_dir():
        raise InputError(f"cannot write {str(path)!r}: it is a folder; give the name of a file")
    if target.exists() and not target.is_file():
        raise InputError(f"cannot write {str(path)!r}: it is a pipe or a device; give the name of a file")
    if not target.parent.is_dir():
        raise InputError(f"cannot write {str(path)!r}: there is no folder {str(target.parent)!r}; create it first")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {str(path)!r}: permission denied; choose a folder that you may write to")


def _refusal(target: Path, error: OSError) -> InputError:
    return InputError(f"cannot write {str(target)!r}: {error.strerror}; choose another folder")
