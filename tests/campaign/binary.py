"""Files of rows that are no plain text: arrays, sparse matrices, LIBSVM, FASTA, Parquet and zarr; damaged or forged."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from .rows import Rng, pick
from .trial import Trial

MARK = "code-from-a-file-ran"
"""What a pickle inside a hostile file would leave behind."""


class _Payload:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (self.path, "w"))


def header(shape: str, dtype: str = "<f8") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def npy_bytes(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def npy(trial: Trial, rng: Rng, folder: Path) -> tuple[Path, str]:
    """Arrays that declare what they do not hold, of odd types, or with code inside."""
    X = rng.normal(size=(12, 3))
    bad = X.copy()
    bad[3, 1] = pick(rng, [np.nan, np.inf])
    choices: dict[str, Any] = {
        "declares 7 TiB": header("(1000000000, 1000)") + bytes(100),
        "declares 2**62 rows": header("(4611686018427387904, 2)") + bytes(100),
        "declares -1 rows": header("(-1, 3)") + bytes(100),
        "declares 10**18 strings": header("(1000000000000000000,)", "<U8") + bytes(100),
        "a pickle": npy_bytes(np.array([_Payload(str(folder / MARK))], dtype=object)),
        "objects": npy_bytes(np.array([[1, "a"], [2, None]], dtype=object)),
        "plain": npy_bytes(X),
        "NaN": npy_bytes(bad),
        "one axis": npy_bytes(X[:, 0]),
        "three axes": npy_bytes(X[None]),
        "complex": npy_bytes(X + 1j),
        "float16": npy_bytes(X.astype("f2")),
        "longdouble": npy_bytes(X.astype("longdouble")),
        "records": npy_bytes(np.zeros(5, dtype=[("a", "f8"), ("b", "U3")])),
        "no rows": npy_bytes(X[:0]),
        "no columns": npy_bytes(X[:, :0]),
        "a number": npy_bytes(np.float64(3)),
        "strings": npy_bytes(np.array(["ACGT", "ACG"])),
        "dates": npy_bytes(np.zeros((4, 2), dtype="M8[D]")),
        "truncated": npy_bytes(X)[: int(rng.integers(1, 200))],
        "version 9": b"\x93NUMPY\x09\x00" + bytes(60),
        "junk": rng.bytes(300),
        "empty": b"",
        "a bomb of a header": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b" " * 100,
        "code in its header": header("__import__('os').system('touch x')"),
    }
    what = pick(rng, choices)
    trial.describe(f".npy: {what}")
    path = folder / "rows.npy"
    path.write_bytes(choices[what])
    y = folder / "y.npy"
    hostile_labels = rng.random() < 0.3
    y.write_bytes(choices[what] if hostile_labels else npy_bytes(np.arange(12) % 2))
    if hostile_labels:
        path.write_bytes(npy_bytes(X))
    return path, str(y)


NPZ = [
    "beyond",
    "beyond",
    "negative",
    "indptr",
    "indptr long",
    "shape",
    "huge shape",
    "format",
    "missing",
    "dense",
    "pickle",
    "junk",
    "NaN",
    "plain",
    "bomb",
    "float indices",
    "csc beyond",
    "coo beyond",
    "strings",
    "bsr",
]
PARQUET = [
    "plain",
    "nulls",
    "nested",
    "dates",
    "decimals",
    "category",
    "no rows",
    "no columns",
    "text",
    "NaN",
    "int96",
    "truncated",
    "junk",
    "folder",
    "folder of two kinds",
    "empty folder",
    "one name twice",
    "huge integers",
    "binary",
]


def npz(trial: Trial, rng: Rng, folder: Path) -> tuple[Path, str]:
    """Sparse matrices with wild indices, bombs, and archives of something else."""
    n, d = 12, 5
    S = sparse.random_array((n, d), density=0.5, rng=rng, format="csr")
    if not S.nnz:
        S = sparse.csr_array(np.eye(n, d))
    parts = {"indices": S.indices, "indptr": S.indptr, "format": b"csr", "shape": np.array([n, d]), "data": S.data}
    what = pick(rng, NPZ)
    trial.describe(f".npz: {what}")
    path = folder / "rows.npz"
    parts = {name: np.array(value) for name, value in parts.items()}
    if what == "beyond":
        parts["indices"][0] = pick(rng, [d, 10**6, 2**31 - 1])
    elif what == "negative":
        parts["indices"][0] = pick(rng, [-1, -(10**6), -(2**31)])
    elif what == "indptr":
        parts["indptr"] = parts["indptr"][::-1].copy()
    elif what == "indptr long":
        parts["indptr"][-1] = 10**9
    elif what == "shape":
        parts["shape"] = np.array([n, -d])
    elif what == "huge shape":
        parts["shape"] = np.array([n, 2**40])
    elif what == "format":
        parts["format"] = np.array(pick(rng, [b"xyz", b"dia", 3]))
    elif what == "missing":
        del parts[pick(rng, list(parts))]
    elif what == "dense":
        parts = {"X": S.toarray(), "y": np.arange(n)}
    elif what == "pickle":
        parts["data"] = np.array([_Payload(str(folder / MARK))] * len(S.data), dtype=object)
    elif what == "NaN":
        parts["data"][0] = np.nan
    elif what == "float indices":
        parts["indices"] = parts["indices"] + 0.5
    elif what == "strings":
        parts["data"] = parts["data"].astype("U")
    elif what == "csc beyond":
        C = S.tocsc()
        parts |= {"indices": C.indices.copy(), "indptr": C.indptr, "data": C.data, "format": np.array(b"csc")}
        parts["indices"][0] = 10**6
    elif what == "coo beyond":
        C = S.tocoo()
        row = C.coords[0].copy()
        row[0] = 10**6
        parts = {"row": row, "col": C.coords[1], "data": C.data, "shape": np.array([n, d]), "format": np.array(b"coo")}
    elif what == "bsr":
        parts["format"] = np.array(b"bsr")
    if what == "junk":
        path.write_bytes(pick(rng, [b"", b"PK\x03\x04"]) + rng.bytes(200))
    elif what == "bomb":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, value in parts.items():
                # without 480 MB in this process, whose memory is measured
                value = np.broadcast_to(0.0, (60_000_000,)) if name == "data" else value
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, value)
    else:
        np.savez(path, **parts)
    y = folder / "y.csv"
    y.write_text("kind\n" + "\n".join(str(i % 2) for i in range(n)) + "\n")
    return path, str(y)


LIBSVM = [
    "1 2000000000:1",
    "1 4294967296:1",
    "1 99999999999999999999999:1",
    "1 0:1 1:2",
    "1 -1:3",
    "1 3:1 2:1",
    "1 1:1 1:2",
    "1 1:nan",
    "1 1:inf",
    "1 1:1e999",
    "nan 1:1",
    "1,2 1:1",
    "1 qid:3 1:1",
    "1",
    "# a comment",
    "x 1:1",
    "1 1",
    "1 :1",
    "1 1:",
    "1 1:1:1",
    "\0",
    "1 1:0x10",
    "é 1:1",
]


def libsvm(trial: Trial, rng: Rng, folder: Path) -> tuple[Path, str]:
    lines = [f"{i % 2} " + " ".join(f"{c + 1}:{rng.normal():.3g}" for c in range(3)) for i in range(10)]
    for _ in range(int(rng.integers(1, 3))):
        line = pick(rng, LIBSVM)
        trial.describe(f"LIBSVM: {line!r}")
        lines[int(rng.integers(len(lines)))] = line
    path = folder / "rows.svm"
    path.write_bytes("\n".join(lines).encode() if rng.random() < 0.95 else rng.bytes(500))
    return path, "label"


def fasta(trial: Trial, rng: Rng, folder: Path) -> tuple[Path, str]:
    contents: dict[str, Any] = {
        "no heading": "ACGT\nACG\n",
        "headings only": ">a\n>b\n",
        "empty": "",
        "plain": "".join(f">{'ab'[i % 2]} x\n{''.join(rng.choice(list('ACGT'), size=20))}\n" for i in range(10)),
        "one": ">a\nACGT\n",
        "identical": ">a\nACGT\n>b\nACGT\n>a\nACGT\n>b\nACGT\n",
        "short": ">a\nA\n>b\nC\n>a\nA\n>b\nG\n",
        "bytes": rng.bytes(400),
        "NUL": ">a\nAC\0GT\n>b\nACGT\n",
        "long": ">a\n" + "ACGT" * 50_000 + "\n>b\n" + "ACGA" * 50_000 + "\n",
        "blank heading": ">\nACGT\n>\nACGA\n",
    }
    what = pick(rng, contents)
    trial.describe(f"FASTA: {what}")
    path = folder / "rows.fasta"
    path.write_bytes(contents[what] if isinstance(contents[what], bytes) else contents[what].encode())
    return path, pick(rng, ["id", "description", "label"])


def parquet(trial: Trial, rng: Rng, folder: Path) -> tuple[Path, str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    n = 12
    columns: dict[str, Any] = {
        "a": rng.normal(size=n),
        "b": rng.normal(size=n),
        "class": [f"k{i % 2}" for i in range(n)],
    }
    what = pick(rng, PARQUET)
    trial.describe(f"Parquet: {what}")
    path = folder / "rows.parquet"
    table = pa.table(columns)
    if what == "nulls":
        table = pa.table({**columns, "a": [None, *columns["a"][1:]]})
    elif what == "nested":
        table = pa.table({**columns, "a": [[1.0, 2.0]] * n})
    elif what == "dates":
        table = pa.table({**columns, "a": np.arange(n).astype("M8[s]")})
    elif what == "decimals":
        import decimal

        table = pa.table({**columns, "a": [decimal.Decimal("1.5")] * n})
    elif what == "category":
        table = pa.table({**columns, "a": pa.array(["u", "v"] * (n // 2)).dictionary_encode()})
    elif what == "no rows":
        table = table.slice(0, 0)
    elif what == "no columns":
        table = pa.table({})
    elif what == "text":
        table = pa.table({**columns, "a": ["x"] * n})
    elif what == "NaN":
        table = pa.table({**columns, "a": np.full(n, np.nan)})
    elif what == "huge integers":
        table = pa.table({**columns, "a": np.full(n, 2**63, dtype=np.uint64)})
    elif what == "binary":
        table = pa.table({**columns, "a": [b"\0\1"] * n})
    elif what == "one name twice":
        table = pa.Table.from_arrays([pa.array(columns["a"])] * 2, names=["a", "a"])
    if what.startswith("folder") or what == "empty folder":
        path.mkdir()
        if what != "empty folder":
            pq.write_table(table, path / "0.parquet")
            other = table if what == "folder" else table.drop_columns(["b"])
            pq.write_table(other, path / "1.parquet")
    elif what == "junk":
        path.write_bytes(b"PAR1" + rng.bytes(300) + b"PAR1")
    else:
        pq.write_table(table, path, use_deprecated_int96_timestamps=what == "int96")
        if what == "truncated":
            raw = path.read_bytes()
            path.write_bytes(raw[: int(rng.integers(1, len(raw)))])
    return path, "class"


def zarr(trial: Trial, rng: Rng, folder: Path) -> tuple[Path, str]:
    import zarr as z

    what = pick(rng, ["plain", "empty", "three axes", "text in its metadata", "a chunk gone", "huge", "a file", "NaN"])
    trial.describe(f"zarr: {what}")
    path = folder / "rows.zarr"
    if what == "a file":
        path.write_bytes(b"x")
    elif what == "empty":
        path.mkdir()
    elif what == "huge":
        z.open_array(str(path), mode="w", shape=(10**9, 1000), chunks=(1000, 1000), dtype="f8")
    else:
        shape = (12, 3, 2) if what == "three axes" else (12, 3)
        A = z.open_array(str(path), mode="w", shape=shape, chunks=tuple(max(1, s // 2) for s in shape), dtype="f8")
        A[:] = rng.normal(size=shape) if what != "NaN" else np.nan
        if what == "text in its metadata":
            next(path.glob("*.json"), path / "zarr.json").write_text(pick(rng, ["{", "{}", "[]", "null"]))
        elif what == "a chunk gone":
            next(p for p in path.rglob("*") if p.is_file() and p.suffix != ".json").write_bytes(b"junk")
    y = folder / "y.csv"
    y.write_text("kind\n" + "\n".join(str(i % 2) for i in range(12)) + "\n")
    return path, str(y)


MAKERS: list[Callable[[Trial, Rng, Path], tuple[Path, str]]] = [
    *[npy] * 3,
    *[npz] * 4,
    *[libsvm] * 3,
    fasta,
    *[parquet] * 3,
    *[zarr] * 2,
]
"""Each makes a file in a folder, and returns it with the name of the column, or file, of its labels."""
