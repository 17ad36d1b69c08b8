"""The file of a saved metric: a zip of one JSON tree and plain NumPy arrays, with a digest over every byte.

Nothing in the file is executed: components are stored as a registered name and the values of their fields, and loading
builds them with the classes that are installed.  Writing goes to a temporary file beside the target, which then takes
its place in one step: whoever dies on the way leaves the old file whole.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import os
import re
import zipfile
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__, files
from .errors import InputError, MissingPluginError, ModelFileError
from .registry import registry
from .rows import is_dask, is_sparse
from .space import FeatureMap, Stacked

FORMAT = 1
KINDS = ("kernel", "solver", "constraint")
PLAIN = {"feature-map": FeatureMap, "stacked-maps": Stacked}
DIGEST = hashlib.sha256().digest_size
UNREADABLE = (zipfile.BadZipFile, EOFError, LookupError, OSError, RuntimeError, ValueError, TypeError, MemoryError)
"""What NumPy, zipfile and json raise on bytes that are not theirs."""
UNBUILDABLE = (*UNREADABLE, AttributeError, ArithmeticError)
"""What a class raises when it is built from values that are not its own."""


# -------------------------------------------------------------------------------------------------------------- writing


def write(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write a tree of numbers, strings, arrays and components to ``path``, atomically."""
    packer = _Packer()
    tree = packer.pack(content, "metric")
    head = {"format": FORMAT, "metricforge": __version__, "plugins": packer.plugins, "content": tree}
    with files.writing(path) as file:
        _write_zip(file, head, packer.arrays)


def _write_zip(file: Any, head: dict[str, Any], arrays: list[Any]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = bytes(DIGEST)
        archive.writestr(_member("metric.json"), json.dumps(head, allow_nan=False))
        for i, array in enumerate(arrays):
            with archive.open(_member(f"{i}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    # The digest of everything before it replaces the zeros that end the file.
    end = file.seek(-DIGEST, os.SEEK_END)
    file.write(_digest(file, end))


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
        if array.dtype.hasobject or array.dtype.kind not in "biufUSM":
            raise InputError(f"{path} has dtype {array.dtype}, which cannot be saved")
        self.arrays.append(array)
        return {"array": len(self.arrays) - 1}

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


# -------------------------------------------------------------------------------------------------------------- reading


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what `write` wrote; any damage is one `ModelFileError`."""
    try:
        shown = repr(os.fspath(path))
    except TypeError:
        raise InputError(f"path must be the name of a file, got {path!r}") from None
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - closed by the with below
    except OSError as error:
        raise ModelFileError(f"path: cannot read {shown}: {error.strerror}") from error
    with file:
        head, arrays = _read_zip(file, shown)
    try:
        content = _Unpacker(arrays, head["plugins"], shown).unpack(head["content"])
    except ModelFileError:
        raise
    except UNBUILDABLE as error:
        why = " ".join(str(error).split())[:200]
        raise ModelFileError(f"{shown} holds a model this metricforge cannot rebuild: {why}") from error
    if not isinstance(content, dict):
        raise ModelFileError(f"{shown} is not a saved metric")
    return content


def _read_zip(file: Any, shown: str) -> tuple[dict[str, Any], list[Any]]:
    if file.read(4) != b"PK\x03\x04":
        raise ModelFileError(f"{shown} is not a saved metric; give a file that metric.save wrote")
    damaged = f"{shown} is damaged (truncated or altered) and was not loaded; restore it from a copy, or learn again"
    size = file.seek(0, os.SEEK_END)
    if size < DIGEST:
        raise ModelFileError(damaged)
    file.seek(size - DIGEST)
    if file.read(DIGEST) != _digest(file, size - DIGEST):
        raise ModelFileError(damaged if _looks_like_ours(file) else f"{shown} is damaged, or not a saved metric")
    try:
        with zipfile.ZipFile(file) as archive:
            head = json.loads(archive.read("metric.json"))
            if not isinstance(head["format"], int) or not isinstance(head["plugins"], dict):
                raise ValueError("the head is of a wrong kind")
            if head["format"] > FORMAT:
                raise ModelFileError(
                    f"{shown} was written by metricforge {head['metricforge']} in a later format ({head['format']}; "
                    f"this one reads up to {FORMAT}); upgrade with pip install --upgrade metricforge"
                )
            names = [f"{i}.npy" for i in range(len(archive.namelist()) - 1)]
            arrays = [_read_array(archive, name) for name in names]
    except ModelFileError:
        raise
    except UNREADABLE as error:
        raise ModelFileError(damaged) from error
    return head, arrays


def _read_array(archive: zipfile.ZipFile, name: str) -> Any:
    with archive.open(name) as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(member)
        # a header may ask for any amount of memory; the member says how much there is
        if dtype.hasobject or math.prod(shape) * dtype.itemsize > archive.getinfo(name).file_size:
            raise ValueError(f"{name} is not a plain array")
    with archive.open(name) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _looks_like_ours(file: Any) -> bool:
    file.seek(0)
    return b"metric.json" in file.read(64)


class _Unpacker:
    def __init__(self, arrays: list[Any], plugins: dict[str, dict[str, str]], shown: str) -> None:
        self.arrays, self.plugins, self.shown = arrays, plugins, shown

    def unpack(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if "float" in value:
            return float(value["float"])
        if "list" in value:
            return [self.unpack(v) for v in value["list"]]
        if "tuple" in value:
            return tuple(self.unpack(v) for v in value["tuple"])
        if "dict" in value:
            return {self.unpack(k): self.unpack(v) for k, v in value["dict"]}
        if "array" in value:
            return self.arrays[operator.index(value["array"])]
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
        made = kind(tuple(self.unpack(part) for part in value["csr"]), shape=tuple(value["shape"]))
        made.check_format(full_check=True)  # indices out of range would crash the first product
        return made

    def _component(self, value: Any) -> Any:
        kind, name, plugin = value["component"], value["name"], value["plugin"]
        if kind not in KINDS:
            raise ModelFileError(f"{self.shown} holds a component of the unknown kind {kind!r}")
        about = self.plugins.get(plugin, {})
        entry = next((e for e in registry.entries(kind) if e.name == name and e.plugin == plugin), None)
        if entry is None:
            package = str(about.get("distribution") or "")
            # the name comes from the file: show it as a command only where it can be nothing else
            known = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", package)
            repair = f"pip install {package}" if known else "install it, or register it with mf.register"
            raise MissingPluginError(
                f"{self.shown} needs {kind} {name!r} of plugin {plugin!r}, which is not installed; {repair}"
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
        return {name: self.unpack(part) for name, part in value["fields"].items()}
