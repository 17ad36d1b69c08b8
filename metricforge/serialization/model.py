"""The file of a saved metric: a zip of one JSON tree and plain NumPy arrays, with a digest over every byte.

Nothing in the file is executed: components are stored as a registered name and the values of their fields, and loading
builds them with the installed classes.  A file is written under a temporary name and then renamed, so that a failure
leaves the old file intact.

The digest detects damage.  It does not show who wrote a file, so that loading accepts only what `write` writes: stored
members with the expected names, no larger than the file, and parts that work on a few rows (`probe`).

Format 2 has the fields of format 1 and "start", "columns" and "outcome"; format 3 also has "origin", the table that was
learned from.  Older formats are read as if they had these fields.  A metric without an origin is written in format 2,
which older versions read.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..errors import InputError, MissingPluginError, ModelFileError, UnknownNameError
from ..files import atomic as files
from ..files.untrusted import as_csr, check_array_size, check_regular
from ..kernels import Kernel
from ..registry import registry
from ..rows import check_memory, is_dask, is_sparse
from ..solver import Certificate
from ..space import FeatureMap, Stacked
from ..tables.preparation import Origin, Preparation

FORMAT = 3
KINDS = ("kernel", "solver", "constraint")
PLAIN = {
    "certificate": Certificate,
    "feature-map": FeatureMap,
    "stacked-maps": Stacked,
    "origin": Origin,
    "preparation": Preparation,
}
NUMERIC = (Kernel, FeatureMap, Stacked)
"""Parts whose arrays are finite numbers, or strings as Python objects."""
OPTIONAL = ("solver", "start")
"""Parts without which a metric can be used: their plugins may be missing."""
CORE_1 = (
    "method", "kernel", "solver", "status", "objective", "gap", "certificate", "n_iter", "trace", "n", "representation",
    "rank", "seconds", "peak_memory", "relations", "converted", "dropped", "seed", "notes", "version", "columns",
    "updates", "parts",
)  # fmt: skip
"""Fields of the core in the reports of format 1; the other fields are the outcome of the method."""
DIGEST = hashlib.sha256().digest_size
END_RECORD = 22
"""Bytes of the record that ends a zip archive, before its comment, which holds the digest."""
ARRAYS = "biufUSM"
"""The kinds of arrays that a file may hold: numbers, strings and dates."""


@dataclass(frozen=True, eq=False)
class MissingPart:
    """A part of a saved metric that needs a plugin which is not installed, as it is in the file.

    Attributes
    ----------
    message : str
        Names the file, the component, its plugin and the repair.
    tree, arrays, plugins
        The stored form, which `write` writes again.
    """

    message: str
    tree: Any
    arrays: list[Any]
    plugins: Mapping[str, dict[str, str]]


# -------------------------------------------------------------------------------------------------------------- writing


def write(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write a tree of numbers, strings, arrays and components to ``path``, atomically."""
    packer = _Packer()
    tree = packer.pack(content, "metric")
    version = FORMAT if content.get("origin") is not None else 2
    head = {"format": version, "metricforge": __version__, "plugins": packer.plugins, "content": tree}
    with files.writing(path) as file:
        _write_zip(file, head, packer.arrays)


def obstacle(value: Any, path: str) -> str:
    """Return why a value cannot be saved, or ''."""
    try:
        _Packer().pack(value, path)
    except InputError as error:
        return str(error)
    return ""


def _write_zip(file: Any, head: dict[str, Any], arrays: list[Any]) -> None:
    with _archive(file) as archive:
        archive.comment = bytes(DIGEST)
        archive.writestr(_member("metric.json"), json.dumps(head, allow_nan=False))
        for i, array in enumerate(arrays):
            with archive.open(_member(f"{i}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    # The digest of everything before it replaces the zeros that end the file.
    end = file.seek(-DIGEST, os.SEEK_END)
    file.write(_digest(file, end))


@contextmanager
def _archive(file: Any) -> Iterator[zipfile.ZipFile]:
    """Write a ZIP archive; after an exception, which a signal can raise anywhere, it is given up instead of closed.

    ``close`` would raise another exception while a member is open, and so would the destructor.
    """
    archive = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)
    try:
        yield archive
        archive.close()
    finally:
        archive.fp = None


def _member(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))  # the same metric gives the same bytes


def _digest(file: Any, end: int) -> bytes:
    state = hashlib.sha256()
    file.seek(0)
    left = end
    while left and (chunk := file.read(min(left, 2**20))):
        state.update(chunk)
        left -= len(chunk)
    return state.digest()


class _Packer:
    def __init__(self) -> None:
        self.arrays: list[Any] = []
        self.plugins: dict[str, dict[str, str]] = {}

    def pack(self, value: Any, path: str) -> Any:
        if value is None or isinstance(value, bool | str):
            return str(value) if isinstance(value, str) else value
        if isinstance(value, np.bool_ | np.integer | np.floating):
            value = value.item()
        if isinstance(value, int | bool):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, list | tuple):
            return {
                "list" if isinstance(value, list) else "tuple": [
                    self.pack(v, f"{path}[{i}]") for i, v in enumerate(value)
                ]
            }
        if isinstance(value, dict):
            return {"dict": [[self.pack(k, path), self.pack(v, f"{path}.{k}")] for k, v in value.items()]}
        if isinstance(value, np.ndarray):
            return self._array(value, path)
        if is_sparse(value):
            parts = [self._array(part, path) for part in (value.data, value.indices, value.indptr)]
            return {"csr": parts, "shape": list(value.shape), "class": type(value).__name__}
        if isinstance(value, MissingPart):
            return self._again(value.tree, value)
        if is_dataclass(value) and not isinstance(value, type):
            return self._component(value, path)
        if is_dask(value):
            raise InputError(f"{path} is a dask array and cannot be saved; compute it first")
        raise InputError(f"{path} holds a {type(value).__name__}, which cannot be saved")

    def _array(self, array: Any, path: str) -> Any:
        if array.dtype == object:
            if not all(isinstance(s, str) for s in array.ravel()):
                raise InputError(f"{path} holds Python objects, which cannot be saved; only numbers and strings can")
            encoded = [s.encode("utf-8", "surrogatepass") for s in array.ravel()]
            text = np.frombuffer(b"".join(encoded), dtype=np.uint8)
            ends = np.cumsum([len(s) for s in encoded], dtype=np.int64)
            return {"strings": [self._array(text, path), self._array(ends, path)], "shape": list(array.shape)}
        if array.dtype.hasobject or array.dtype.kind not in ARRAYS:
            raise InputError(f"{path} has dtype {array.dtype}, which cannot be saved")
        # the start kernel often shares its arrays with the learned one
        known = next((i for i, other in enumerate(self.arrays) if _same_array(array, other)), len(self.arrays))
        if known == len(self.arrays):
            self.arrays.append(array)
        return {"array": known}

    def _again(self, tree: Any, part: MissingPart) -> Any:
        """Return a stored tree with its arrays added to this file."""
        if not isinstance(tree, dict):
            return tree
        if "array" in tree:
            return self._array(part.arrays[tree["array"]], "")
        if "dict" in tree:
            return {"dict": [[self._again(v, part) for v in pair] for pair in tree["dict"]]}
        if "component" in tree:
            self.plugins[tree["plugin"]] = part.plugins.get(tree["plugin"], {})
        if "fields" in tree:
            return tree | {"fields": {name: self._again(v, part) for name, v in tree["fields"].items()}}
        lists = {
            key: [self._again(v, part) for v in tree[key]] for key in ("list", "tuple", "strings", "csr") if key in tree
        }
        return tree | lists

    def _component(self, value: Any, path: str) -> Any:
        names = [f.name for f in fields(value) if f.init]
        inside = {name: self.pack(getattr(value, name), f"{path}.{name}") for name in names}
        for name, plain in PLAIN.items():
            if type(value) is plain:
                return {"plain": name, "fields": inside}
        for kind in KINDS:
            entry = registry.entry_of(kind, type(value))
            if entry is not None:
                plugin = registry.plugin(entry.plugin)
                about = {"distribution": plugin.distribution, "version": plugin.version}
                self.plugins[entry.plugin] = about
                return {"component": kind, "name": entry.name, "plugin": entry.plugin, "fields": inside}
        raise InputError(
            f"{path}: {type(value).__name__} is not registered, so a saved file could not name it; "
            "register it first with mf.register(...)"
        )


def _same_array(a: Any, b: Any) -> bool:
    """Return whether two arrays have the same bytes in the same order."""
    if a is b:
        return True
    if (a.dtype, a.shape, a.flags.c_contiguous, a.flags.f_contiguous) != (
        b.dtype,
        b.shape,
        b.flags.c_contiguous,
        b.flags.f_contiguous,
    ):
        return False
    first, second = (np.ravel(x.T if a.flags.f_contiguous else x).view(np.uint8) for x in (a, b))
    return np.array_equal(first, second)


# -------------------------------------------------------------------------------------------------------------- reading


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content that `write` wrote, in the current format; any damage is a `ModelFileError`."""
    try:
        shown = repr(os.fspath(path))
    except TypeError:
        raise InputError(f"path must be the name of a file, got {path!r}") from None
    try:
        check_regular(Path(path))
        file = Path(path).open("rb")  # noqa: SIM115 - closed by the with below
    except InputError as error:
        raise ModelFileError(f"path: {error}") from None
    except OSError as error:
        raise ModelFileError(f"path: cannot read {shown}: {error.strerror}") from error
    with file:
        try:
            head, arrays = _read_zip(file, shown)
        except OSError as error:  # for instance of a disk, or of a file of the system
            raise ModelFileError(f"path: cannot read {shown}: {error.strerror}") from error
    with rebuilding(path):
        content = _Unpacker(arrays, head["plugins"], shown).content(head["content"])
        if not isinstance(content, dict):
            raise ModelFileError(f"{shown} is not a saved metric")
        return {"origin": None} | (content if head["format"] > 1 else _from_format_1(content))


@contextmanager
def rebuilding(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise every exception as a `ModelFileError`: a file may hold any value in any field."""
    try:
        yield
    except ModelFileError:
        raise
    except Exception as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise ModelFileError(f"{os.fspath(path)!r} holds a model this metricforge cannot rebuild: {why}") from error


def _from_format_1(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a file of format 1 with the fields that format 2 added."""
    report = content.get("report")
    if not isinstance(report, dict):
        return content
    core = {name: value for name, value in report.items() if name in CORE_1}
    if isinstance(core.get("certificate"), str):
        core["certificate"] = Certificate(core["certificate"], float(core.get("gap", 0.0)))
    outcome = {name: value for name, value in report.items() if name not in CORE_1}
    columns = tuple(report.get("columns", ()))
    return content | {"report": core, "outcome": outcome, "columns": columns, "start": None}


def _read_zip(file: Any, shown: str) -> tuple[dict[str, Any], list[Any]]:
    if file.read(4) != b"PK\x03\x04":
        raise ModelFileError(f"{shown} is not a saved metric; give a file that metric.save wrote")
    damaged = f"{shown} is damaged (truncated or altered) and was not loaded; restore it from a copy, or learn again"
    size = file.seek(0, os.SEEK_END)
    if size < DIGEST:
        raise ModelFileError(damaged)
    check_memory(size, f"loading {shown}", "learn from fewer rows")
    file.seek(size - DIGEST)
    if file.read(DIGEST) != _digest(file, size - DIGEST):
        raise ModelFileError(damaged if _looks_like_ours(file) else f"{shown} is damaged, or not a saved metric")
    try:
        _check_end(file, size)
        with zipfile.ZipFile(file) as archive:
            names = _check_members(archive, size)
            head = json.loads(archive.read("metric.json"))
            if type(head["format"]) is not int or head["format"] < 1 or not isinstance(head["plugins"], dict):
                raise ValueError("the head is of a wrong kind")
            if head["format"] > FORMAT:
                raise ModelFileError(
                    f"{shown} was written by metricforge {head['metricforge']} in a later format ({head['format']}; "
                    f"this one reads up to {FORMAT}); upgrade with pip install --upgrade metricforge"
                )
            arrays = [_read_array(archive, name) for name in names]
    except (ModelFileError, OSError):
        raise
    except Exception as error:  # zipfile, NumPy and json raise errors of many types on such bytes
        raise ModelFileError(damaged) from error
    return head, arrays


def _check_end(file: Any, size: int) -> None:
    """Raise ValueError unless the archive ends with the digest: zipfile also reads those that other bytes follow."""
    file.seek(max(0, size - DIGEST - END_RECORD))
    end = file.read(END_RECORD)
    if end[:4] != b"PK\x05\x06" or int.from_bytes(end[-2:], "little") != DIGEST:
        raise ValueError("the archive does not end where the digest begins")


def _check_members(archive: zipfile.ZipFile, size: int) -> list[str]:
    """Return the names of the arrays; raise ValueError unless the members are such as `_write_zip` writes.

    A compressed member could expand to a thousand times the size of the file, and so could many members that share
    their bytes.
    """
    members = archive.infolist()
    names = [f"{i}.npy" for i in range(len(members) - 1)]
    if [member.filename for member in members] != ["metric.json", *names]:
        raise ValueError("the members have unexpected names")
    if any(m.compress_type != zipfile.ZIP_STORED or m.compress_size != m.file_size for m in members):
        raise ValueError("a member is compressed")
    if sum(member.file_size for member in members) > size:
        raise ValueError("the members declare more bytes than the file has")
    return names


def _read_array(archive: zipfile.ZipFile, name: str) -> Any:
    with archive.open(name) as member:
        check_array_size(member, archive.getinfo(name).file_size, exact=True)
    with archive.open(name) as member:
        array = np.lib.format.read_array(member, allow_pickle=False)
    if array.dtype.kind not in ARRAYS:
        raise ValueError(f"{name} has dtype {array.dtype}")
    return array


def _looks_like_ours(file: Any) -> bool:
    file.seek(0)
    return b"metric.json" in file.read(64)


class _Unpacker:
    def __init__(self, arrays: list[Any], plugins: dict[str, dict[str, str]], shown: str) -> None:
        self.arrays, self.plugins, self.shown = arrays, plugins, shown

    def content(self, tree: Any) -> Any:
        """Return the content of a file; an optional part that needs a missing plugin is a `MissingPart`."""
        if not isinstance(tree, dict) or "dict" not in tree:
            return self.unpack(tree)
        return {self.unpack(name): self._part(self.unpack(name), part) for name, part in tree["dict"]}

    def _part(self, name: Any, tree: Any) -> Any:
        try:
            return self.unpack(tree)
        except (MissingPluginError, UnknownNameError) as error:
            if name not in OPTIONAL:
                raise
            message = str(error)
            if not isinstance(error, MissingPluginError):  # a solver may name a component of another plugin
                message = f"{self.shown}: its {name} cannot be rebuilt; install the plugin that it needs: {message}"
            part = MissingPart(message, tree, self.arrays, self.plugins)
            _Packer().pack(part, name)  # what cannot be written again is not what was written
            return part

    def unpack(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if not isinstance(value, dict):
            raise ValueError("a list stands where a value should be")
        if "float" in value:
            return float(value["float"])
        if "list" in value:
            return [self.unpack(v) for v in value["list"]]
        if "tuple" in value:
            return tuple(self.unpack(v) for v in value["tuple"])
        if "dict" in value:
            return {self.unpack(k): self.unpack(v) for k, v in value["dict"]}
        if "array" in value:
            index = value["array"]
            if type(index) is not int or not 0 <= index < len(self.arrays):
                raise ValueError(f"there is no array {index!r}")
            return self.arrays[index]
        if "strings" in value:
            return self._strings(value)
        if "csr" in value:
            return self._csr(value)
        if "plain" in value:
            return PLAIN[value["plain"]](**self._fields(value, PLAIN[value["plain"]]))
        return self._component(value)

    def _strings(self, value: Any) -> Any:
        text, ends = (self.unpack(part) for part in value["strings"])
        raw, starts = text.tobytes(), [0, *ends.tolist()]
        flat = [raw[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(starts)]
        out = np.empty(len(flat), dtype=object)
        out[:] = flat
        return out.reshape(value["shape"])

    def _csr(self, value: Any) -> Any:
        from scipy import sparse

        kind = sparse.csr_matrix if value["class"] == "csr_matrix" else sparse.csr_array
        return as_csr(kind(tuple(self.unpack(part) for part in value["csr"]), shape=tuple(value["shape"])))

    def _component(self, value: Any) -> Any:
        kind, name, plugin = value["component"], value["name"], value["plugin"]
        if kind not in KINDS:
            raise ModelFileError(f"{self.shown} holds a component of the unknown kind {kind!r}")
        about = self.plugins.get(plugin, {})
        entry = next((e for e in registry.entries(kind) if e.name == name and e.plugin == plugin), None)
        if entry is None:
            package = str(about.get("distribution") or "")
            # the name comes from the file: show it as a command only if it cannot be anything else
            known = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", package)
            repair = f"pip install {package}" if known else "install it, or register it with mf.register"
            raise MissingPluginError(
                f"{self.shown} needs {kind} {name!r} of plugin {plugin!r}, which is not installed; {repair}"
            )
        if entry.missing:
            repair = entry.install or f"pip install {' '.join(entry.missing)}"
            raise MissingPluginError(
                f"{self.shown} needs {kind} {name!r} of plugin {plugin!r}, which needs {', '.join(entry.missing)}; "
                f"{repair}"
            )
        cls = entry.load()
        return cls(**self._fields(value, cls))

    def _fields(self, value: Any, cls: type) -> dict[str, Any]:
        known = {f.name for f in fields(cls) if f.init}
        stray = set(value["fields"]) - known
        if stray:
            raise ModelFileError(
                f"{self.shown}: {cls.__name__} has no field {sorted(stray)[0]!r} in the installed version"
            )
        found = {name: self.unpack(part) for name, part in value["fields"].items()}
        if issubclass(cls, NUMERIC):  # `check_finite` let nothing else out of a solver
            for name, part in found.items():
                if isinstance(part, np.ndarray) and part.dtype != object and not _is_finite(part):
                    raise ValueError(f"{cls.__name__}.{name} is not an array of finite numbers")
        return found


def _is_finite(array: Any) -> bool:
    return array.dtype.kind in "biu" or (array.dtype.kind == "f" and bool(np.isfinite(array).all()))
