"""Read invalid, malicious and unusual tables, settings and arguments through the command line."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import metricforge as mf

from . import binary, shell
from .rows import Rng, pick
from .trial import Trial, Verdict


def prepare(folder: Path) -> None:
    """Save a metric for the commands that use one."""
    X = np.random.default_rng(0).normal(size=(20, 3))
    mf.learn(X, np.arange(20) % 2, method="krca").save(folder / "saved.metric")
    mf.learn(X, np.arange(20) % 2, method="relevance").save(folder / "scores.metric")
    # a metric that knows its table: categories, dates, missing cells, labels and identifiers
    rows = [f"r{i},{v[0]:.4g},{v[1]:.4g},{'uvw'[i % 3]},2020-01-{i + 1:02d},k{i % 2}" for i, v in enumerate(X)]
    rows[3] = rows[3].replace(",v,", ",,") if ",v," in rows[3] else rows[3]
    (folder / "learned.csv").write_text("\n".join(["id,a,b,kind,day,class", *rows]) + "\n")
    known = ["--label", "class", "--id", "id", "--method", "krca", "-o", str(folder / "table.metric")]
    shell.quietly("learn", str(folder / "learned.csv"), *known)
    import pyarrow.parquet  # noqa: F401
    import zarr  # noqa: F401


def attack(trial: Trial, rng: Rng) -> None:
    """Write a hostile file and pass it to the command line."""
    folder = trial.folder / "tables"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        pick(rng, ATTACKS)(trial, rng, folder)
    finally:
        part = shell.left_behind(folder)
        trial.check(not part, Verdict.STATE, "temporary files are left behind", ", ".join(part))
        trial.check(not (folder / binary.MARK).exists(), Verdict.WRONG, "code from a file was run")
        if not os.environ.get("HOSTILE_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)


def hand_over(trial: Trial, rng: Rng, path: Path, label: str = "class") -> None:
    """Read a file of rows with one of the commands."""
    out = str(path.parent / "out.metric")
    what = pick(rng, ["learn", "learn", "learn", "learn", "transform", "neighbors", "distance"])
    saved = str(trial.folder / "saved.metric")
    if what == "learn":
        more = pick(
            rng, [[], ["--standardize"], ["--drop", "a"], ["--json"], ["--groups", label], ["--option", "tol=1e-3"]]
        )
        hint = ["--label", label] if "--groups" not in more else []
        method = pick(rng, [[], ["--method", "krca"], ["--method", "euclidean"], ["--kernel", "linear"]])
        shell.run(trial, "learn", str(path), *hint, "-o", out, *more, *method)
        trial.passed = True
    elif what == "neighbors":
        shell.run(trial, "neighbors", saved, str(path), "-k", str(pick(rng, [1, 3, 0, -1, 10**9])))
    else:
        to = pick(
            rng, [[], ["-o", str(path.parent / "out.npy")], ["-o", str(path.parent / "out.csv")], ["-o", "x.xyz"]]
        )
        shell.run(trial, what, saved, str(path), *to, *pick(rng, [[], ["--json"]]))


def _plain(rng: Rng, n: int = 12, d: int = 3) -> tuple[list[str], list[list[str]]]:
    names = [*"abcdefghijklmnopqrstuvwxyz"[:d], "class"]
    cells = [[f"{v:.4g}" for v in rng.normal(size=d)] + [f"k{i % 2}"] for i in range(n)]
    return names, cells


def _text(names: list[str], cells: list[list[str]], mark: str = ",", end: str = "\n") -> str:
    return end.join(mark.join(line) for line in [names, *cells]) + end


# ----------------------------------------------------------------------------------------------------------------- text

CELLS = [
    "",
    " ",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "1e400",
    "1e-400",
    "?",
    "NA",
    "null",
    "1,5",
    "1_000",
    "0x1F",
    "1.2.3",
    "٣",
    "３",
    "1%",
    "$5",
    "5 kg",
    "true",
    "yes",
    "2020-01-01",
    "x" * 200_000,
    "9" * 400,
    "\0",
    "\u202e",
    "=cmd|' /C calc'!A0",
    "1e308",
    "<script>alert(1)</script>",
    '"',
]


def cells(trial: Trial, rng: Rng, folder: Path) -> None:
    """Write unusual cells into a plain table."""
    names, rows = _plain(rng)
    for _ in range(int(rng.integers(1, 4))):
        cell = pick(rng, CELLS)
        rows[int(rng.integers(len(rows)))][int(rng.integers(4))] = cell
        trial.describe(f"cell {cell[:30]!r}")
    mark = pick(rng, [",", ",", ";", "\t"])
    path = folder / pick(rng, ["rows.csv", "rows.txt"])
    path.write_text(_text(names, rows, mark), encoding="utf-8", errors="surrogatepass")
    hand_over(trial, rng, path)


def structure(trial: Trial, rng: Rng, folder: Path) -> None:
    """Break the structure of a delimited file."""
    names, rows = _plain(rng)
    what = pick(rng, STRUCTURES)
    trial.describe(what)
    raw = STRUCTURES[what](rng, names, rows)
    path = folder / pick(rng, ["rows.csv", "rows.csv", "rows.tsv", "rows.txt", "rows.dat", "rows"])
    path.write_bytes(raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass"))
    hand_over(trial, rng, path)


def _ragged(rng: Rng, names: list[str], rows: list[list[str]]) -> str:
    rows[3] = rows[3][: int(rng.integers(0, 4))] if rng.random() < 0.5 else [*rows[3], "1"]
    return _text(names, rows)


STRUCTURES: dict[str, Callable[[Rng, list[str], list[list[str]]], Any]] = {
    "random bytes": lambda rng, names, rows: rng.bytes(int(rng.integers(1, 5000))),
    "random text": lambda rng, names, rows: "".join(rng.choice(list("ab1,;\t\n\"'. -"), size=2000)),
    "empty": lambda rng, names, rows: "",
    "blank": lambda rng, names, rows: " \n\n \t\n",
    "names only": lambda rng, names, rows: _text(names, []),
    "one row": lambda rng, names, rows: _text(names, rows[:1]),
    "one cell": lambda rng, names, rows: "1",
    "no names": lambda rng, names, rows: _text(rows[0], rows[1:]),
    "a BOM": lambda rng, names, rows: "\ufeff" + _text(names, rows),
    "UTF-16": lambda rng, names, rows: _text(names, rows).encode("utf-16"),
    "UTF-32": lambda rng, names, rows: _text(names, rows).encode("utf-32"),
    "Latin-1": lambda rng, names, rows: _text([*names[:2], "größe", "class"], rows).encode("latin-1"),
    "NUL": lambda rng, names, rows: _text(names, rows).replace("1", "\0"),
    "ragged": _ragged,
    "an open quote": lambda rng, names, rows: _text(names, rows).replace("k0", '"k0', 1),
    "two columns of one name": lambda rng, names, rows: _text(["a", "a", "c", "class"], rows),
    "a column without a name": lambda rng, names, rows: _text(["", "b", "c", "class"], rows),
    "no label column": lambda rng, names, rows: _text(["a", "b", "c", "kind"], rows),
    "labels only": lambda rng, names, rows: _text(["class"], [row[-1:] for row in rows]),
    "CR": lambda rng, names, rows: _text(names, rows, end="\r"),
    "mixed ends": lambda rng, names, rows: _text(names, rows, end="\r\n") + _text(rows[0], rows[1:], end="\n"),
    "a comma at every end": lambda rng, names, rows: _text(names, rows, end=",\n"),
    "comments": lambda rng, names, rows: "# made by hand\n# twice\n" + _text(names, rows),
    "one long line": lambda rng, names, rows: ",".join(["1"] * 300_000),
    "constant": lambda rng, names, rows: _text(names, [["1", "2", "3", row[-1]] for row in rows]),
    "all one class": lambda rng, names, rows: _text(names, [[*row[:-1], "k"] for row in rows]),
    "no classes": lambda rng, names, rows: _text(names, [[*row[:-1], ""] for row in rows]),
    "gzip": lambda rng, names, rows: __import__("gzip").compress(_text(names, rows).encode()),
    "HTML": lambda rng, names, rows: "<html><body>404, not found</body></html>",
    "JSON": lambda rng, names, rows: json.dumps({"a": [1, 2], "class": [0, 1]}),
    "semicolons and decimal commas": lambda rng, names, rows: _text(names, rows, ";").replace(".", ","),
}


def wide(trial: Trial, rng: Rng, folder: Path) -> None:
    """A table of tens of thousands of columns, such as gene expressions."""
    d = int(pick(rng, [20_000, 50_000, 50_000]))
    names = [f"gene{i}" for i in range(d)] + ["class"]
    if rng.random() < 0.3:
        names[-2] = names[0]
    trial.describe(f"{d} columns")
    X = rng.integers(0, 9, size=(6, d)).astype(str)
    lines = [",".join(row) + f",k{i % 2}" for i, row in enumerate(X.tolist())]
    path = folder / "genes.csv"
    path.write_text("\n".join([",".join(names), *lines]) + "\n")
    shell.run(trial, "learn", str(path), "--label", "class", "-o", str(folder / "o.metric"), "--method", "euclidean")


def thousands(trial: Trial, rng: Rng, folder: Path) -> None:
    """Numbers with a thousands separator: the advice to write 1.234 would divide by a thousand."""
    names, rows = _plain(rng)
    rows[2][0] = '"1,234"'
    if rng.random() < 0.5:
        rows[4][0] = '"12,345,678"'
    path = folder / "rows.csv"
    path.write_text(_text(names, rows))
    trial.describe("a cell 1,234")
    try:
        shell.run(trial, "learn", str(path), "--label", "class", "-o", str(folder / "o.metric"))
    finally:
        bad = "1.234" in trial.refusal and "1234" not in trial.refusal
        trial.check(not bad, Verdict.MESSAGE, "1,234 is advised to become 1.234", trial.refusal)


def row_numbers(trial: Trial, rng: Rng, folder: Path) -> None:
    """A column that counts the rows of a file sorted by class reveals the class: a note must mention it."""
    n = int(rng.integers(20, 60))
    name = pick(rng, ["id", "row", "index", "nr"])
    first = pick(rng, [0, 1, 1000])
    lines = [f"{first + i},{v[0]:.4g},{v[1]:.4g},k{2 * i // n}" for i, v in enumerate(rng.normal(size=(n, 2)))]
    path = folder / "rows.csv"
    path.write_text("\n".join([f"{name},a,b,class", *lines]) + "\n")
    trial.describe(f"a column {name!r} that counts {n} sorted rows")
    out, err = shell.run(trial, "learn", str(path), "--label", "class", "-o", str(folder / "o.metric"))
    lines = [line for line in (out + err).splitlines() if repr(name) in line]
    notes = [line for line in lines if any(term in line for term in ("count", "number", "identif", "order"))]
    trial.check(notes, Verdict.WRONG, "a column that counts rows is used without a note", "\n".join(lines)[:300])


def names(trial: Trial, rng: Rng, folder: Path) -> None:
    """File names that a shell would split must be quoted in the command that is printed."""
    name = pick(
        rng, ["my rows.csv", "it's.csv", "a&b.csv", "$(touch x).csv", "ро́ws.csv", "-rows.csv", "a\nb.csv", "~.csv"]
    )
    head, cells_ = _plain(rng)
    path = folder / name
    path.write_text(_text(head, cells_))
    out, _ = shell.run(trial, "learn", str(path), "--label", "class", "-o", str(folder / "my out.metric"))
    line = next((line for line in out.splitlines() if line.startswith("next:")), None)
    if line is None:
        return
    whole = out[out.index("next:") + 5 :]
    try:
        words = shlex.split(whole)
    except ValueError:
        words = []
    ok = str(path) in words and str(folder / "my out.metric") in words
    trial.check(ok, Verdict.MESSAGE, "the line that says what to type next is not quoted", line)


def other_files(trial: Trial, rng: Rng, folder: Path) -> None:
    """Files that are no plain text."""
    path, label = pick(rng, binary.MAKERS)(trial, rng, folder)
    hand_over(trial, rng, path, label)


def no_file(trial: Trial, rng: Rng, folder: Path) -> None:
    """Paths that are missing, or are no regular files."""
    suffix = pick(rng, [".csv", ".npy", ".npz", ".svm", ".fasta", ".parquet", ".zarr", ".tsv"])
    path = folder / f"rows{suffix}"
    what = pick(
        rng, ["missing", "a folder", "a FIFO", "/dev/null", "/dev/zero", "a link to itself", "/proc/self/status"]
    )
    trial.describe(f"{what} as {path.name}")
    if what == "a folder":
        path.mkdir()
    elif what == "a FIFO":
        os.mkfifo(path)
    elif what == "a link to itself":
        path.symlink_to(path)
    elif what.startswith("/"):
        path.symlink_to(what)
    hand_over(trial, rng, path)


# ------------------------------------------------------------------------------------------------- relations, settings


RELATIONS = {
    "23 digits": "i,j,similar\n12345678901234567890123,1,1\n",
    "negative": "i,j,similar\n-1,1,1\n0,2,0\n",
    "beyond": "i,j,similar\n0,99,1\n",
    "floats": "i,j,similar\n0.0,1.0,1\n",
    "halves": "i,j,similar\n0.5,1,1\n",
    "words": "i,j,similar\na,b,1\n",
    "maybe": "i,j,similar\n0,1,maybe\n",
    "empty cells": "i,j,similar\n,1,1\n",
    "no column j": "i,k,similar\n0,1,1\n",
    "names only": "i,j,similar\n",
    "empty": "",
    "ragged": "i,j,similar\n0,1\n",
    "itself": "i,j,similar\n1,1,1\n",
    "both": "i,j,similar\n0,1,1\n0,1,0\n",
    "1e300": "i,j,similar\n1e300,1,1\n",
    "2**63": "i,j,similar\n9223372036854775808,1,1\n",
    "NUL": "i,j,similar\n\0,1,1\n",
    "plain": "i,j,similar\n0,2,1\n0,1,0\n3,5,1\n3,4,0\n",
    "no names": "0,2,1\n0,1,0\n",
    "one name twice": "i,i,similar\n0,1,1\n",
    "underscores": "i,j,similar\n0_1,2,1\n",
    "Arabic digits": "i,j,similar\n٠,٢,1\n",
    "huge float similar": "i,j,similar\n0,2,1e400\n",
}


def relations(trial: Trial, rng: Rng, folder: Path) -> None:
    names_, cells_ = _plain(rng)
    data = folder / "rows.csv"
    data.write_text(_text(names_[:-1], [row[:-1] for row in cells_]))
    what = pick(rng, RELATIONS)
    flag = pick(rng, ["--pairs", "--pairs", "--triplets", "--label", "--groups"])
    trial.describe(f"{flag}: {what}")
    text = RELATIONS[what]
    if flag == "--triplets":
        text = text.replace("similar", "k")
    suffix = pick(rng, [".csv", ".csv", ".csv", ".npy", ".parquet"])
    path = folder / f"hint{suffix}"
    if suffix == ".npy":
        arrays = [
            np.array([[0, 1, 2]]),
            np.array([[0.5, 1, 2]]),
            np.zeros((2, 0)),
            np.array([[10**18, 0, 1]]),
            np.arange(3),
        ]
        path.write_bytes(
            pick(rng, [*map(binary.npy_bytes, arrays), binary.header("(1000000000, 1000)") + bytes(50), b""])
        )
    else:
        path.write_text(text)
    method = pick(rng, [[], ["--method", "krca"], ["--method", "simplenpkl"]])
    shell.run(trial, "learn", str(data), flag, str(path), "-o", str(folder / "o.metric"), *method)


SETTINGS = [
    "",
    "x",
    "data = 3",
    "data = []",
    'data = "rows.csv"\nlabel = 3',
    'data = "rows.csv"\nlabel = "class"\nseed = "x"',
    'data = "rows.csv"\nlabel = "class"\nseed = -1',
    'data = "rows.csv"\nlabel = "class"\nrank = 0.5',
    'data = "rows.csv"\nlabel = "class"\ndrop = "a"',
    'data = "rows.csv"\nlabel = "class"\ndrop = [3]',
    'data = "rows.csv"\nlabel = "class"\noption = 3',
    'data = "rows.csv"\nlabel = "class"\n[option]\nepsilon = "x"',
    'data = "rows.csv"\nlabel = "class"\n[option]\nepsilon = [1]',
    'data = "rows.csv"\nlabel = "class"\nmethod = []',
    'data = "rows.csv"\nlabel = "class"\nkernel = 3',
    'data = "rows.csv"\nlabel = "class"\nkernel = "rbf(gamma=1e999)"',
    'data = "rows.csv"\nlabel = "class"\nstandardize = "yes"',
    'data = "rows.csv"\nlabel = "class"\nout = 3',
    'data = "rows.csv"\nlabel = "class"\nreport = "rows.csv"',
    'data = "rows.csv"\nlabel = "class"\nnonsense = 1',
    'data = "rows.csv"\nlabel = "class"\nscheduler = "tcp://nowhere.invalid:1"',
    'data = "rows.csv"\nlabel = "class"\nscheduler = "ftp://x"',
    "a = " + "[" * 5000,
    "a = 1\na = 2",
    'data = "\\ud800"',
    "[a.b.c.d]\nx = 1979-05-27",
    'data = "rows.csv"\nlabel = "class"\nmethod = "krca"',
]


def settings(trial: Trial, rng: Rng, folder: Path) -> None:
    names_, cells_ = _plain(rng)
    (folder / "rows.csv").write_text(_text(names_, cells_))
    text = pick(rng, SETTINGS) if rng.random() < 0.9 else rng.bytes(200).decode("latin-1")
    trial.describe(f"settings {text[:100]!r}")
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    shell.run(trial, "learn", "--config", str(path), "-o", str(folder / "o.metric"))


def typed(trial: Trial, rng: Rng, folder: Path) -> None:
    """Arguments that make no sense."""
    names_, cells_ = _plain(rng)
    data = str(folder / "rows.csv")
    Path(data).write_text(_text(names_, cells_))
    base = ["learn", data, "--label", "class"]
    out = ["-o", str(folder / "o.metric")]
    odd = pick(
        rng,
        [
            [*base, *out, "--seed", "x"],
            [*base, *out, "--seed", "-1"],
            [*base, *out, "--seed", "9" * 30],
            [*base, *out, "--rank", "0"],
            [*base, *out, "--rank", "[1]"],
            [*base, *out, "--rank", "9" * 30],
            [*base, *out, "--kernel", "rbf(" * 300],
            [*base, *out, "--kernel", "weak(linear, feature=99)"],
            [*base, *out, "--kernel", "precomputed"],
            [*base, *out, "--kernel", "spectrum"],
            [*base, *out, "--option", "x"],
            [*base, *out, "--option", "=1"],
            [*base, *out, "--option", "tol=" + "9" * 5000],
            [*base, *out, "--option", "tol=(" + "1," * 3000 + ")"],
            [*base, *out, "--method", ""],
            [*base, *out, "--drop", "class"],
            [*base, *out, "--drop", "nothing"],
            [*base, "-o", folder.as_posix()],
            [*base, "-o", "/nonexistent/x.metric"],
            [*base, "-o", data],
            [*base, *out, "--report", "x.pdf"],
            [*base, *out, "--pairs", data],
            ["learn"],
            ["nonsense"],
            ["transform", data, data],
            ["neighbors", data],
            ["distance", str(trial.folder / "saved.metric"), data, "--paired"],
            ["datasets", "nonsense"],
            ["datasets", "wine", "-o", str(folder / "wine.csv")],
            [*base, *out, "--label", "class", "--label", "a"],
            [*base, *out, "--report", str(folder / "page.html")],
            ["reproduce", "nonsense"],
        ],
    )
    shell.run(trial, *odd)


def verbs(trial: Trial, rng: Rng, folder: Path) -> None:
    """Use saved metrics on a later table that has odd cells, rows or columns, with hints and odd options."""
    n = int(pick(rng, [1, 2, 3, 12, 12, 12, 40]))
    head = ["id", "a", "b", "kind", "day", "class"]
    table = [
        [f"r{i}", *(f"{v:.4g}" for v in rng.normal(size=2)), "uvw"[i % 3], f"2020-02-{i % 28 + 1:02d}", f"k{i % 2}"]
        for i in range(n)
    ]
    for _ in range(int(rng.choice([0, 0, 1, 2]))):
        cell = pick(rng, CELLS)
        table[int(rng.integers(n))][int(rng.integers(6))] = cell
        trial.describe(f"cell {cell[:30]!r}")
    if rng.random() < 0.2:
        change = pick(rng, ["a column less", "columns in another order", "one name twice", "another name", "no names"])
        trial.describe(change)
        order = [*range(6)] if change != "columns in another order" else rng.permutation(6).tolist()
        order = order[:-2] if change == "a column less" else order
        head = [["a" if change == "one name twice" and c == 2 else head[c] for c in order]][0]
        head = ["z" if change == "another name" and name == "b" else name for name in head]
        table = [[row[c] for c in order] for row in table]
        head, table = (table[0], table[1:] or table) if change == "no names" else (head, table)
    data = folder / "later.csv"
    data.write_text(_text(head, table), encoding="utf-8", errors="surrogatepass")
    pairs = folder / "pairs.csv"
    pairs.write_text(RELATIONS[pick(rng, [*["plain"] * 8, *RELATIONS])])
    metric = str(trial.folder / pick(rng, [*["table.metric"] * 6, "saved.metric", "scores.metric"]))
    hint = pick(rng, [["--label", "class"], ["--pairs", str(pairs)], ["--groups", "class"], ["--target", "a"], []])
    size = str(pick(rng, [*[1, 2, 3, n] * 3, n + 1, 0, -1, 10**9, "x"]))
    known = str(trial.folder / "learned.csv")
    ids = pick(rng, [*[[]] * 5, *[["--id", "id"]] * 5, ["--id", "nothing"]])
    more = pick(rng, [[], ["--exclude-self"], ["--by", "kernel"]])
    commands: dict[str, list[str]] = {
        "evaluate": ["evaluate", metric, str(data), *hint, *pick(rng, [[], ["--by", "kernel"]])],
        "classify": ["classify", metric, str(data), "-k", size],
        "classify among": ["classify", metric, str(data), "-k", size, "--among", known, "--label", "class"],
        "classify by kernel": [
            *("classify", metric, str(data), "--rule", "kernel", "--radius"),
            str(pick(rng, ["1.0", "0", "-1", "nan", "learned", "none", "1e300", "x"])),
        ],
        "cluster": ["cluster", metric, str(data), "-k", size, *hint],
        "cluster, any number": ["cluster", metric, str(data), *hint],
        "match": [
            *("match", metric, str(data), "--pairs", str(pairs), "-k", size),
            *("--precision", str(pick(rng, ["0.1", "0.5", "0.95", "0", "2", "nan", "x"]))),
            *pick(rng, [[], ["--confidence", "0"], ["--confidence", "2"]]),
        ],
        "neighbors": ["neighbors", metric, str(data), "-k", size, *more],
        "neighbors among": ["neighbors", metric, str(data), "-k", size, "--among", known],
        "transform": ["transform", metric, str(data)],
        "distance": ["distance", metric, str(data), *pick(rng, [[], [known], [str(data), "--paired"], ["--paired"]])],
        "index": ["index", metric, str(data), "-k", size, "--folder", str(folder / "index")],
        "info": ["info", pick(rng, [metric, str(data), str(folder)])],
        "compare": ["compare", str(data), *hint, "--folds", pick(rng, ["2", "0", "1", "x"]), "--kernel", "linear"],
    }
    what = pick(rng, commands)
    words = commands[what]
    if what not in ("evaluate", "info", "compare"):
        suffix = pick(rng, [*[".csv", ".npy", ".parquet", ".tsv"] * 3, ".xyz"])
        words += pick(rng, [[], [], ["-o", str(folder / f"out{suffix}")]])
    if what not in ("info", "compare"):
        words += ids
    shell.run(trial, *words, *pick(rng, [[], [], ["--json"]]))
    trial.passed = True


def page(trial: Trial, rng: Rng, folder: Path) -> None:
    """Markup in names and labels must be escaped in the report."""
    evil = "<script>alert(1)</script>"
    _, cells_ = _plain(rng, 16)
    names_ = [f"a{evil}", 'b"onload="x', "c&amp;", "class"]
    cells_ = [[*row[:-1], row[-1] + evil] for row in cells_]
    data = folder / "rows.csv"
    data.write_text(_text([f'"{n.replace(chr(34), chr(34) * 2)}"' for n in names_], cells_))
    html = folder / "page.html"
    method = pick(rng, ["krca", "lpdesign", "kcr"])
    trial.describe("markup in names and labels")
    out = str(folder / "o.metric")
    shell.run(trial, "learn", str(data), "--label", "class", "-o", out, "--report", str(html), "--method", method)
    trial.check(evil not in html.read_text(), Verdict.WRONG, "markup of a table becomes markup of the report")


ATTACKS = [
    *[cells] * 5,
    *[structure] * 5,
    wide,
    thousands,
    row_numbers,
    names,
    *[other_files] * 16,
    *[no_file] * 2,
    *[relations] * 4,
    *[settings] * 3,
    *[typed] * 3,
    *[verbs] * 16,
    page,
]
