"""Load model files that are damaged, or forged with a valid digest.

A metric that loads is used in every way: each use must succeed with finite numbers or raise an error of the library.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import metricforge as mf
from metricforge import kernels as k
from metricforge.serialization.model import FORMAT

from .battery import in_memory
from .rows import Rng, pick
from .trial import Ended, Trial, Verdict, finite

DIGEST = hashlib.sha256().digest_size
SAVED: dict[str, bytes] = {}
"""Contents of valid files, by name."""
QUERIES: dict[str, Any] = {}


def prepare(folder: Path) -> None:
    """Save a metric of every method, and of kernels of every kind."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(14, 3)), np.arange(14) % 2
    words = np.array(["".join(rng.choice(list("ACGT"), size=9)) for _ in range(14)], dtype=object)
    S = sparse.csr_array(np.where(rng.random((14, 6)) < 0.5, rng.normal(size=(14, 6)), 0))
    made: dict[str, tuple[Any, Any]] = {}
    for entry in mf.methods():
        made[entry.name] = mf.learn(X, y, method=entry.name), X
    made["landmarks"] = mf.learn(X, y, method="krca", rank=4), X
    made["nystrom"] = mf.learn(X, y, method="simplenpkl", extension="nystrom"), X
    made["paper"] = mf.learn(X, y, method="idealized", psd="paper", kernel=k.RBF(0.5)), X
    made["strings"] = mf.learn(words, y, method="krca", kernel=k.Spectrum(2).normalized()), words
    made["sparse"] = mf.learn(S, y, method="krca", kernel=k.Linear()), S
    made["sparse matrix"] = mf.learn(sparse.csr_matrix(S), y, method="kcr"), S
    made["gram"] = mf.learn(X @ X.T, y, method="krca", kernel=k.Precomputed()), X @ X.T
    composite = (k.RBF(0.1) + 2 * k.Linear()) * k.Cauchy(1 / 3)
    made["composite"] = mf.learn(X, y, method="euclidean", kernel=composite), X
    made["standardized"] = mf.learn(X, y, method="euclidean", kernel=k.Standardized(k.RBF(0.1, base=k.Linear()))), X
    made["sum"] = 0.7 * made["krca"][0] + 0.3 * made["idealized"][0], X
    for name, (metric, rows) in made.items():
        path = folder / "prepared.metric"
        metric.transform(rows) if name != "paper" else None
        metric.save(path)
        SAVED[name], QUERIES[name] = path.read_bytes(), rows
    _find_core_plugin()


def _find_core_plugin() -> None:
    """Insert the name under which files refer to the core's own kernels into the forged nodes."""
    head, _ = unpacked(SAVED["euclidean"])
    found = (_at(head, path) for path in nodes(head))
    core = next(node["plugin"] for node in found if isinstance(node, dict) and node.get("component") == "kernel")
    for node in JUNK:
        if isinstance(node, dict) and node.get("plugin") == CORE:
            node["plugin"] = core


def attack(trial: Trial, rng: Rng) -> None:
    name = pick(rng, SAVED)
    how = pick(rng, ATTACKS)
    trial.describe(f"the file of {name!r}, {how}")
    content = ATTACKS[how](trial, rng, SAVED[name])
    path = trial.folder / "hostile.metric"
    path.unlink(missing_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        content(path)
    if os.environ.get("HOSTILE_KEEP"):
        trial.describe(f"kept as {path}")
    try:
        metric = trial.call("mf.load", mf.load, path)
    finally:
        if not os.environ.get("HOSTILE_KEEP"):
            path.unlink(missing_ok=True)
    if how in MUST_REFUSE:
        trial.find(Verdict.WRONG, f"loads a file with {how}")
        return
    trial.passed = True
    use(trial, metric, QUERIES[name])


def use(trial: Trial, metric: Any, X: Any) -> None:
    """Use a loaded metric in every way; refusals are accepted, because a forged file may expect other rows."""
    uses: dict[str, Callable[[], Any]] = {
        "distance": lambda: metric.distance(X),
        "paired_distance": lambda: metric.paired_distance(X, X),
        "kernel": lambda: metric.kernel(X),
        "transform": lambda: metric.transform(X),
        "neighbors": lambda: metric.neighbors(X, k=2),
        "repr": lambda: (repr(metric), repr(metric.report), dict(metric.report), metric.kernel == metric.kernel),
        "update": lambda: metric.update(X, np.arange(X.shape[0]) % 2),
        "arithmetic": lambda: 0.5 * metric + metric,
        "save": lambda: metric.save(trial.folder / "again.metric"),
        "as a start": lambda: mf.learn(X, np.arange(X.shape[0]) % 2, method="euclidean", kernel=metric),
    }
    for what, call in uses.items():
        try:
            answer = trial.call(f"loaded: {what}", call)
        except Ended:
            continue
        parts = answer if isinstance(answer, tuple) else (answer,)
        arrays = [in_memory(part) for part in parts if hasattr(part, "shape")]
        bad = not all(finite(np.asarray(part)) for part in arrays if not sparse.issparse(part))
        if bad:
            trial.find(Verdict.NAN, f"loaded: {what} is not finite")
    trial.refusal = ""


# --------------------------------------------------------------------------------------------------------------- damage


def _flip(trial: Trial, rng: Rng, content: bytes) -> bytes:
    raw = bytearray(content)
    for _ in range(int(rng.integers(1, 9))):
        raw[int(rng.integers(len(raw)))] ^= 1 << int(rng.integers(8))
    return bytes(raw)


def _flip_signed(trial: Trial, rng: Rng, content: bytes) -> bytes:
    return signed(_flip(trial, rng, content[:-DIGEST] + bytes(DIGEST))[:-DIGEST] + bytes(DIGEST))


def _truncate(trial: Trial, rng: Rng, content: bytes) -> bytes:
    return content[: int(rng.integers(len(content)))]


def _truncate_signed(trial: Trial, rng: Rng, content: bytes) -> bytes:
    at = int(rng.integers(len(content)))
    at -= at == len(content) - DIGEST  # without its digest only, the file would be signed as it was
    return signed(content[:at] + bytes(DIGEST))


def _insert(trial: Trial, rng: Rng, content: bytes) -> bytes:
    at = int(rng.integers(len(content)))
    return content[:at] + rng.bytes(int(rng.integers(1, 100))) + content[at:]


def _zero(trial: Trial, rng: Rng, content: bytes) -> bytes:
    at, size = int(rng.integers(len(content))), int(rng.integers(1, 500))
    return content[:at] + bytes(size) + content[at + size :]


def _append(trial: Trial, rng: Rng, content: bytes) -> bytes:
    return content + rng.bytes(int(rng.integers(1, 2000)))


def _random(trial: Trial, rng: Rng, content: bytes) -> bytes:
    return pick(rng, [b"", b"PK\x03\x04", b"PK\x05\x06" + bytes(18)]) + rng.bytes(int(rng.integers(0, 3000)))


def _swap(trial: Trial, rng: Rng, content: bytes) -> bytes:
    a, b = sorted(rng.integers(0, len(content), size=2).tolist())
    return content[b:] + content[a:b] + content[:a]


def _fifo(trial: Trial, rng: Rng, content: bytes) -> Any:
    return os.mkfifo


def _folder(trial: Trial, rng: Rng, content: bytes) -> Any:
    def make(path: Path) -> None:
        path.symlink_to(path.parent)

    return make


def _device(trial: Trial, rng: Rng, content: bytes) -> Any:
    name = pick(rng, ["/dev/zero", "/dev/null", "/dev/full", "/proc/self/mem", "/proc/self/status"])
    trial.describe(name)
    return lambda path: path.symlink_to(name)


def _loop(trial: Trial, rng: Rng, content: bytes) -> Any:
    return lambda path: path.symlink_to(path)


# -------------------------------------------------------------------------------------------------------------- forgery


def signed(content: bytes) -> bytes:
    """Return a file whose last bytes are the digest of those before."""
    return content[:-DIGEST] + hashlib.sha256(content[:-DIGEST]).digest()


def unpacked(content: bytes) -> tuple[dict[str, Any], list[Any]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        head = json.loads(archive.read("metric.json"))
        arrays = [np.load(io.BytesIO(archive.read(f"{i}.npy"))) for i in range(len(archive.namelist()) - 1)]
    return head, arrays


def packed(
    head: Any, arrays: list[Any], *, compression: int = zipfile.ZIP_STORED, extra: dict[str, bytes] | None = None
) -> bytes:
    """Return the bytes of a model file with a valid digest; arrays may be given as raw bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression, compresslevel=1) as archive:
        archive.comment = bytes(DIGEST)
        archive.writestr("metric.json", head if isinstance(head, str | bytes) else json.dumps(head))
        for i, array in enumerate(arrays):
            with archive.open(f"{i}.npy", "w") as member:
                if isinstance(array, bytes):
                    member.write(array)
                else:
                    np.lib.format.write_array(member, np.asarray(array), allow_pickle=True)
        for name, raw in (extra or {}).items():
            archive.writestr(name, raw)
    return signed(out.getvalue())


def _npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asarray(array), allow_pickle=True)
    return out.getvalue()


def nodes(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all nodes of a JSON tree."""
    found = [path]
    if isinstance(tree, dict):
        for key, value in tree.items():
            found += nodes(value, (*path, key))
    elif isinstance(tree, list):
        for i, value in enumerate(tree):
            found += nodes(value, (*path, i))
    return found


def replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of a tree with one node replaced."""
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


CORE = "plugin of the core"
JUNK: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    -5,
    1,
    2,
    10**6,
    10**12,
    10**30,
    0.5,
    -0.5,
    1e308,
    1e-308,
    "",
    "x",
    "../../x",
    "\ud800",
    [],
    {},
    [1, 2, 3],
    {"a": 1},
    {"float": "nan"},
    {"float": "inf"},
    {"float": "-inf"},
    {"float": "x"},
    {"list": []},
    {"tuple": [1, "x"]},
    {"dict": [[{"list": []}, 1]]},
    {"dict": [[1]]},
    {"array": 0},
    {"array": -1},
    {"array": 10**6},
    {"array": True},
    {"array": "0"},
    {"strings": [{"array": 0}, {"array": 0}], "shape": [1]},
    {"csr": [{"array": 0}, {"array": 0}, {"array": 0}], "shape": [2, 2], "class": "csr_array"},
    {"csr": [], "shape": [10**12, 10**12], "class": "x"},
    {"plain": "feature-map", "fields": {}},
    {"plain": "x", "fields": {}},
    {"component": "kernel", "name": "linear", "plugin": CORE, "fields": {}},
    {"component": "kernel", "name": "rbf", "plugin": CORE, "fields": {"gamma": 0.5}},
    {"component": "kernel", "name": "spectrum", "plugin": CORE, "fields": {"k": 3}},
    {"component": "kernel", "name": "precomputed", "plugin": CORE, "fields": {}},
    {"component": "solver", "name": "krca", "plugin": "krca", "fields": {}},
    {"component": "constraint", "name": "labels", "plugin": CORE, "fields": {"y": {"list": [1]}}},
    {"component": "command", "name": "x", "plugin": "x", "fields": {}},
    {"component": "kernel", "name": "x; rm -rf /", "plugin": "$(reboot)", "fields": {}},
]


def _node(trial: Trial, rng: Rng, content: bytes) -> bytes:
    """Replace one to three nodes of the tree."""
    head, arrays = unpacked(content)
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        path = pick(rng, [p for p in nodes(head) if p])
        value = pick(rng, JUNK)
        trial.describe(f"{'.'.join(map(str, path))} = {value!r}")
        head = replaced(head, path, value)
    return packed(head, arrays)


def _swapped_nodes(trial: Trial, rng: Rng, content: bytes) -> bytes:
    head, arrays = unpacked(content)
    a, b = (pick(rng, [p for p in nodes(head) if p]) for _ in range(2))
    one, other = _at(head, a), _at(head, b)
    trial.describe(f"{'.'.join(map(str, a))} and {'.'.join(map(str, b))} swapped")
    try:
        return packed(replaced(replaced(head, a, other), b, one), arrays)
    except (KeyError, IndexError, TypeError):
        return packed(replaced(head, a, other), arrays)


def _at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _missing_node(trial: Trial, rng: Rng, content: bytes) -> bytes:
    head, arrays = unpacked(content)
    path = pick(rng, [p for p in nodes(head) if p])
    parent = _at(head, path[:-1])
    copy = dict(parent) if isinstance(parent, dict) else list(parent)
    del copy[path[-1]]
    trial.describe(f"without {'.'.join(map(str, path))}")
    return packed(replaced(head, path[:-1], copy), arrays)


def _extra_field(trial: Trial, rng: Rng, content: bytes) -> bytes:
    head, arrays = unpacked(content)
    path = pick(rng, [p for p in nodes(head) if isinstance(_at(head, p), dict)])
    copy = {**_at(head, path), pick(rng, ["x", "list", "array", "component", "fields", "__class__"]): pick(rng, JUNK)}
    return packed(replaced(head, path, copy), arrays)


def _number(trial: Trial, rng: Rng, content: bytes) -> bytes:
    """Change one number of the tree."""
    head, arrays = unpacked(content)
    paths = [p for p in nodes(head) if isinstance(_at(head, p), int | float) and not isinstance(_at(head, p), bool)]
    path = pick(rng, paths)
    value = pick(rng, [0, -1, 1, 2, 3, 1000, 10**9, 2**31, 2**63, 10**30, -0.0, 1e308, -1e308, 5e-324, 0.5])
    trial.describe(f"{'.'.join(map(str, path))} = {value!r}")
    return packed(replaced(head, path, value), arrays)


def _array(trial: Trial, rng: Rng, content: bytes) -> bytes:
    """Change one array: its numbers, type, shape or order."""
    head, arrays = unpacked(content)
    if not arrays:
        return content
    at = int(rng.integers(len(arrays)))
    A = arrays[at]
    changes: dict[str, Callable[[], Any]] = {
        "NaN": lambda: _with(A, np.nan),
        "infinity": lambda: _with(A, np.inf),
        "1e300": lambda: _with(A, 1e300),
        "-1": lambda: _with(A, -1),
        "2**40": lambda: _with(A, 2**40),
        "negated": lambda: -A if A.dtype.kind in "fi" else ~A if A.dtype.kind in ("b", "u") else A[::-1],
        "transposed": lambda: A.T,
        "one row less": lambda: A[:-1],
        "one column less": lambda: A[..., :-1] if A.ndim else A,
        "empty": lambda: A[:0],
        "one axis more": lambda: A[None],
        "flat": lambda: A.ravel(),
        "a scalar": lambda: A.flat[0] if A.size else A,
        "int8": lambda: np.nan_to_num(A).astype("i1") if A.dtype.kind in "fiu" else A.astype("S"),
        "float16": lambda: A.astype("f2") if A.dtype.kind in "fiu" else A,
        "complex": lambda: A.astype("c16") if A.dtype.kind in "fiu" else A,
        "text": lambda: A.astype("U"),
        "dates": lambda: np.zeros(A.shape, dtype="M8[s]"),
        "records": lambda: np.zeros(A.shape, dtype=[("a", "f8"), ("b", "i4")]),
        "objects": lambda: A.astype(object),
        "Fortran order": lambda: np.asfortranarray(A),
        "big endian": lambda: A.astype(A.dtype.newbyteorder(">")),
        "zeros": lambda: np.zeros_like(A),
        "doubled": lambda: np.concatenate([A, A]) if A.ndim else A,
        "shuffled": lambda: rng.permutation(A) if A.ndim else A,
    }
    what = pick(rng, changes)
    trial.describe(f"array {at} of shape {A.shape}, {A.dtype}: {what}")
    import warnings

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays[at] = changes[what]()
    return packed(head, arrays)


def _with(A: Any, value: float) -> Any:
    copy = A.copy()
    if copy.size and copy.dtype.kind in "fiu":
        info = np.iinfo(copy.dtype) if copy.dtype.kind in "iu" else None
        if info is not None:
            value = int(np.clip(np.nan_to_num(value, nan=1e18), -1e18, 1e18))
            value = max(int(info.min), min(int(info.max), value))
        copy.flat[copy.size // 2] = value
    return copy


def _exchanged(trial: Trial, rng: Rng, content: bytes) -> bytes:
    head, arrays = unpacked(content)
    if len(arrays) < 2:
        return content
    a, b = rng.choice(len(arrays), 2, replace=False).tolist()
    arrays[a], arrays[b] = arrays[b], arrays[a]
    trial.describe(f"arrays {a} and {b} exchanged")
    return packed(head, arrays)


def _wild_csr(trial: Trial, rng: Rng, content: bytes) -> bytes:
    """Replace training rows or landmarks by a sparse matrix with invalid indices."""
    head, arrays = unpacked(content)
    n, d = 14, 6
    indptr, indices = np.arange(n + 1), np.zeros(n, dtype=int)
    what = pick(rng, ["beyond", "negative", "decreasing", "long", "float", "shape", "huge shape"])
    shape: list[Any] = [n, d]
    if what == "beyond":
        indices[3] = 2**30
    elif what == "negative":
        indices[3] = -(2**30)
    elif what == "decreasing":
        indptr = indptr[::-1].copy()
    elif what == "long":
        indptr[-1] = 10**9
    elif what == "float":
        indices = indices.astype(float) + 0.5  # type: ignore[assignment]
    elif what == "shape":
        shape = [n, -d]
    elif what == "huge shape":
        shape = [2**40, 2**40]
    first = len(arrays)
    arrays += [np.ones(n), indices.astype(np.int64 if what != "float" else float), indptr]
    value = {"csr": [{"array": first + i} for i in range(3)], "shape": shape, "class": "csr_array"}
    pairs = [p for p in nodes(head) if p and p[-1] in ("rows", "landmarks")]
    entries = [(*p[:-1], 1) for p in nodes(head) if p and _at(head, p) == "rows" and p[-1] == 0]
    path = pick(rng, pairs + entries)
    trial.describe(f"{'.'.join(map(str, path))} = a sparse matrix: {what}")
    return packed(replaced(head, path, value), arrays)


def _format(trial: Trial, rng: Rng, content: bytes) -> bytes:
    head, arrays = unpacked(content)
    head["format"] = pick(rng, [-5, True, 0, 1.0, "1", FORMAT + 1, 10**30, None, [1]])
    trial.describe(f"format {head['format']!r}")
    return packed(head, arrays)


def _deflate(trial: Trial, rng: Rng, content: bytes) -> bytes:
    """Compress the members; sometimes one is a bomb."""
    head, arrays = unpacked(content)
    if arrays and rng.random() < 0.2:
        arrays[0] = np.broadcast_to(0.0, (2000, 30_000))  # without 480 MB in this process, whose memory is measured
        trial.describe("the first array inflates to 480 MB")
        return packed(head, arrays, compression=zipfile.ZIP_DEFLATED)
    return packed(head, arrays, compression=pick(rng, [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]))


def _declared(trial: Trial, rng: Rng, content: bytes) -> bytes:
    """Write an array header that does not match the data."""
    head, arrays = unpacked(content)
    if not arrays:
        return content
    shape = pick(rng, ["(10**12, 10**3)", "(-1,)", "(2**62, 2**62)", "(0, 10**18)", "((1,),)", "5", "()", "(1e3,)"])
    dtype = pick(rng, ["<f8", "|O", "<U100000000", "<M8[ns]", "|V8", "x", ">f8", "[('a', '|O')]"])
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    version = pick(rng, [b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"])
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(text))
    trial.describe(f"the first array declares {dtype}, {shape}")
    return packed(head, [b"\x93NUMPY" + version + size + text + bytes(64), *arrays[1:]])


def _deep(trial: Trial, rng: Rng, content: bytes) -> bytes:
    head, arrays = unpacked(content)
    depth = int(pick(rng, [100, 900, 5000, 100_000]))
    kind = pick(rng, ['{"list": [', '{"tuple": [', '{"dict": [["a", '])
    close = {'{"list": [': "]}", '{"tuple": [': "]}", '{"dict": [["a", ': "]]}"}[kind]
    trial.describe(f"a tree {depth} deep")
    text = json.dumps(replaced(head, ("content",), "MARK"))
    return packed(text.replace('"MARK"', kind * depth + "1" + close * depth), arrays)


def _deep_kernel(trial: Trial, rng: Rng, content: bytes) -> bytes:
    """Nest valid kernels, possibly deeper than the stack allows."""
    head, arrays = unpacked(content)
    depth = int(pick(rng, [50, 300, 900, 3000]))
    inner = next(node for node in JUNK if isinstance(node, dict) and node.get("name") == "linear")
    opening = f'{{"component": "kernel", "name": "normalized", "plugin": "{inner["plugin"]}", "fields": {{"kernel": '
    text = json.dumps(_with_kernel(head, "MARK"))
    trial.describe(f"a kernel of {depth} kernels")
    return packed(text.replace('"MARK"', opening * depth + json.dumps(inner) + "}}" * depth), arrays)


def _with_kernel(head: Any, value: Any) -> Any:
    path = next((p for p in nodes(head) if p[-2:] == (0, 0) and _at(head, p) == "kernel"), None)
    if path is None:
        return replaced(head, ("content",), {"dict": [["kernel", value]]})
    return replaced(head, (*path[:-1], 1), value)


def _members(trial: Trial, rng: Rng, content: bytes) -> bytes:
    head, arrays = unpacked(content)
    what = pick(
        rng, ["extra", "traversal", "twice", "fewer", "no head", "many", "not JSON", "NaN in JSON", "huge number"]
    )
    trial.describe(f"members: {what}")
    if what == "extra":
        return packed(head, arrays, extra={"readme.txt": b"x"})
    if what == "traversal":
        return packed(head, arrays, extra={"../../../hostile": b"x"})
    if what == "twice":
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return packed(head, arrays, extra={"metric.json": b"{}"})
    if what == "fewer":
        return packed(head, arrays[:-1])
    if what == "no head":
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.comment = bytes(DIGEST)
            archive.writestr("0.npy", _npy(np.zeros(3)))
        return signed(out.getvalue())
    if what == "many":
        return packed(head, arrays, extra={f"{i}.npy": b"" for i in range(len(arrays), len(arrays) + 20_000)})
    if what == "not JSON":
        return packed(pick(rng, [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"format": 1}', b"3"]), arrays)
    text = json.dumps(replaced(head, ("content",), "MARK"))
    return packed(text.replace('"MARK"', "NaN" if what == "NaN in JSON" else "1" * 100_000), arrays)


def _empty_report(trial: Trial, rng: Rng, content: bytes) -> bytes:
    head, arrays = unpacked(content)
    path = next(p for p in nodes(head) if p[-1:] == (0,) and _at(head, p) == "report")
    value = pick(
        rng,
        [
            {"dict": []},
            {"dict": [["method", 3]]},
            {"dict": [[1, 2]]},
            {"dict": [["method", "x"], ["notes", 5], ["columns", 7]]},
            {"dict": [["method", "x"], ["columns", {"tuple": [1, 2, 3]}]]},
            {"dict": [["method", "x"], ["parts", 3], ["status", None]]},
        ],
    )
    trial.describe(f"report = {value!r}")
    return packed(replaced(head, (*path[:-1], 1), value), arrays)


ATTACKS: dict[str, Callable[[Trial, Rng, bytes], Any]] = {
    **{f"flipped bits {i}": _flip for i in range(2)},
    "flipped bits and a new digest": _flip_signed,
    "a truncation": _truncate,
    "a truncation and a new digest": _truncate_signed,
    "bytes inserted": _insert,
    "bytes made zero": _zero,
    "bytes appended": _append,
    "random bytes": _random,
    "parts swapped": _swap,
    "a FIFO in its place": _fifo,
    "a folder in its place": _folder,
    "a device in its place": _device,
    "a link to itself": _loop,
    **{f"a node replaced {i}": _node for i in range(6)},
    "nodes swapped": _swapped_nodes,
    "a node missing": _missing_node,
    "a field too many": _extra_field,
    **{f"a number changed {i}": _number for i in range(3)},
    **{f"an array changed {i}": _array for i in range(5)},
    "arrays exchanged": _exchanged,
    "wild CSR indices": _wild_csr,
    "another format": _format,
    "compressed members": _deflate,
    "an array that declares more": _declared,
    "a deep tree": _deep,
    "a deep kernel": _deep_kernel,
    "odd members": _members,
    "another report": _empty_report,
}
MUST_REFUSE = (
    "flipped bits 0",
    "flipped bits 1",
    "a truncation",
    "a truncation and a new digest",
    "bytes inserted",
    "bytes appended",
    "random bytes",
    "a FIFO in its place",
    "a folder in its place",
    "a device in its place",
    "a link to itself",
    "another format",
    "compressed members",
    "an array that declares more",
    "a deep tree",
)
"""Attacks that must not load."""
