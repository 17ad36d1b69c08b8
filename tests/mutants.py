"""Mutants: change one operator, sign, comparison or number of numerical code, and see whether the tests notice.

``python tests/mutants.py [--seed S] [--number N] [--out FILE]`` draws N changes (``make mutants SEED=S N=N``) and runs
the tests of the package against each change, in a temporary copy of the tree.  A test that fails kills a mutant, if it
passes without a change; what exceeds the time limit is listed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
SECONDS = 420
"""Time limit of the tests of one mutant; on an idle core and without a change they take less than half."""
TOO_LONG = "too long"
PACKAGES = {
    "metricforge/kernels": ["tests/kernels", "tests/test_composition.py"],
    "metricforge/space": ["tests/test_space.py", "tests/test_components.py", "tests/test_composition.py"],
    "metricforge/eigen": ["tests/eigen"],
    "metricforge/neighbors": ["tests/neighbors", "tests/test_index.py"],
    "metricforge/constraints": ["tests/constraints"],
    "metricforge/tasks": ["tests/tasks"],
    "metricforge/psd.py": ["tests/test_psd.py"],
    "plugins/metricforge_plugins": ["tests/methods/test_{folder}*.py", "tests/test_conformance.py"],
}
_CHANGES = (
    "Add + -, Sub - +, Mult * /, Div / *, FloorDiv // *, Mod % *, Pow ** *, Lt < <=, LtE <= <, Gt > >=, GtE >= >, "
)
_CHANGES += "Eq == !=, NotEq != ==, BitAnd & |, BitOr | &, And and or, Or or and"
OPERATORS = {name: (old, new) for name, old, new in map(str.split, _CHANGES.split(", "))}
NAMES = {"minimum": "maximum", "min": "max", "argmin": "argmax", "any": "all", "zeros": "ones", "floor": "ceil"}
NAMES |= {new: old for old, new in NAMES.items()}
NOT_NUMERICAL = re.compile(r"cost|seconds|memory|bytes|repr|describe|notes?$|warn|check|help|metadata|^step$")
"""Functions, and callees with their arguments, that are not about answers: forecasts, messages, progress."""
ONLY_SPEED = {"costs", "choice", "tiles", "budget"}
"""Modules that choose between ways to the same answer."""


@dataclass(frozen=True)
class Mutant:
    """One change: the text from ``start`` to ``end`` of a file becomes ``new``."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} (character {self.start}): {self.old} -> {self.new}"


class Sites(ast.NodeVisitor):
    """Collect the possible changes of a file."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.bytes, self.found, self.depth = path, text.encode(), list[Mutant](), 0
        self.lines = np.cumsum([0, *map(len, self.bytes.splitlines(keepends=True))]).tolist()

    def _add(self, node: ast.AST, start: int, end: int, new: str) -> None:
        line = sum(offset <= start for offset in self.lines)
        self.found.append(Mutant(self.path, line, start, end, self.bytes[start:end].decode(), new))

    def _span(self, node: ast.expr) -> tuple[int, int]:
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset

    def _between(self, left: ast.expr, operator: ast.AST, right: ast.expr) -> None:
        if self.depth and type(operator).__name__ in OPERATORS:
            old, new = OPERATORS[type(operator).__name__]
            start, end = self._span(left)[1], self._span(right)[0]
            at = self.bytes.find(old.encode(), start, end)
            self._add(left, at, at + len(old), new)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if not NOT_NUMERICAL.search(node.name):
            self.depth += 1
            for each in node.body:
                self.visit(each)
            self.depth -= 1

    def visit_Raise(self, node: ast.Raise) -> None:  # messages
        pass

    visit_JoinedStr = visit_AnnAssign = visit_Assert = visit_Raise  # noqa: N815

    def visit_If(self, node: ast.If) -> None:
        refuses = all(isinstance(each, ast.Raise) for each in node.body)
        for each in node.orelse if refuses else [node.test, *node.body, *node.orelse]:
            self.visit(each)

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func)
        if not NOT_NUMERICAL.search(name.rpartition(".")[2]):
            self.generic_visit(node)
            last = name.rpartition(".")[2]
            if self.depth and last in NAMES:
                end = self._span(node.func)[1]
                self._add(node, end - len(last), end, NAMES[last])

    def generic_visit(self, node: ast.AST) -> None:
        super().generic_visit(node)
        if isinstance(node, ast.BinOp):
            self._between(node.left, node.op, node.right)
        elif isinstance(node, ast.BoolOp):
            self._between(node.values[0], node.op, node.values[1])
        elif isinstance(node, ast.Compare):
            for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                self._between(left, operator, right)
        elif isinstance(node, ast.AugAssign):
            self._between(node.target, node.op, node.value)
        elif isinstance(node, ast.UnaryOp) and self.depth and isinstance(node.op, ast.USub | ast.Not):
            start = self._span(node)[0]
            self._add(node, start, start + (1 if isinstance(node.op, ast.USub) else 3), "")

    def visit_Constant(self, node: ast.Constant) -> None:
        if self.depth and type(node.value) in (int, float):
            new = repr(node.value + 1) if isinstance(node.value, int) else repr(2 * node.value + (node.value == 0))
            self._add(node, *self._span(node), new)


def mutants(package: str) -> Iterator[Mutant]:
    """Yield the possible changes of a package, without those that are not valid Python."""
    files = sorted((ROOT / package).rglob("*.py")) if (ROOT / package).is_dir() else [ROOT / package]
    for file in files:
        if file.stem in ONLY_SPEED:
            continue
        text = file.read_text()
        sites = Sites(file.relative_to(ROOT).as_posix(), text)
        sites.visit(ast.parse(text))
        yield from sorted(set(sites.found), key=lambda mutant: (mutant.start, mutant.new))


def tests(tree: Path, mutant_path: str) -> list[str]:
    """Return the test files for a source file: those of its name first, then those of its package."""
    package = next(name for name in PACKAGES if mutant_path.startswith(name))
    folder = Path(mutant_path).parent.name
    found: list[str] = []
    for pattern in PACKAGES[package]:
        for path in sorted(tree.glob(pattern.format(folder=folder))):
            files = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
            found += [each.relative_to(tree).as_posix() for each in files]
    stem = Path(mutant_path).stem
    return sorted(found, key=lambda file: (Path(file).stem != f"test_{stem}", found.index(file)))


def run(copy: Path, *words: str, numba: Path | None = None) -> tuple[str, list[str]]:
    """Run pytest in the copy; return how it ended and the tests that failed."""
    places = [copy, copy / "plugins", copy / "plugins/metricforge-papers", copy / "tests"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places))}
    environment |= {} if numba is None else {"NUMBA_CACHE_DIR": str(numba)}
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *words]
    process = subprocess.Popen(
        command, cwd=copy, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return TOO_LONG, []
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return "passed" if process.returncode == 0 else f"exit {process.returncode}", failed


def attempt(copy: Path, mutant: Mutant) -> dict[str, Any]:
    """Return what becomes of a mutant."""
    file, parts = copy / mutant.path, Path(mutant.path).parts
    original, words = file.read_bytes(), ["-x", *tests(copy, mutant.path)]
    if parts[0] == "plugins":  # of the tests that run over all methods, those of this one
        words += ["-k", parts[2]]
    changed = original[: mutant.start] + mutant.new.encode() + original[mutant.end :]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        # compiled code of a changed file, and of what calls it, must not come from a cache
        file.write_bytes(changed)
        ended, failed = run(copy, *words, numba=Path(folder) if b"njit" in original else None)
        file.write_bytes(original)
    line = changed.decode().splitlines()[mutant.line - 1].strip()
    seconds = round(time.monotonic() - began)
    return {"mutant": str(mutant), "ended": ended, "failed": failed, "line": line, "seconds": seconds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=120)
    parser.add_argument("--out", metavar="FILE", help="add a line of JSON for each mutant; those it has are skipped")
    arguments = parser.parse_args()
    every = [mutant for package in PACKAGES for mutant in mutants(package)]
    chosen = random.Random(arguments.seed).sample(every, arguments.number)
    print(f"{len(chosen)} of {len(every)} possible changes")
    out = Path(arguments.out or os.devnull)
    done = {entry["mutant"]: entry for entry in map(json.loads, out.read_text().splitlines())} if out.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "tree")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "_build"))
        for number, mutant in enumerate(chosen, 1):
            if str(mutant) not in done:
                done[str(mutant)] = attempt(copy, mutant)
                with out.open("a") as file:
                    file.write(json.dumps(done[str(mutant)]) + "\n")
            each = done[str(mutant)]
            print(f"{number:4} {each['seconds']:4} s  {mutant}: {each['ended']} {each['failed'][:1]}", flush=True)
        results = [done[str(mutant)] for mutant in chosen]
        killers = {test for each in results for test in each["failed"][:1]}
        always = set(run(copy, *killers)[1]) if killers else set()  # they must pass without a change
    alive = [each for each in results if each["ended"] in ("passed", TOO_LONG) or set(each["failed"]) & always]
    for each in alive:
        print(f"{each['ended']}: {each['mutant']}\n    {each['line']}")
    print(*(f"fails without a change: {test}" for test in sorted(always)), sep="\n")
    print(f"{len(results) - len(alive)} of {len(results)} killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
