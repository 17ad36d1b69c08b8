"""Kernels as text: what a shell command, a configuration file or a report's ``kernel`` says.

``rbf`` is the registered kernel of that name, ``rbf(gamma=0.5)`` one with parameters, and they nest:
``rbf(base=polynomial(degree=2))``.  What ``repr`` prints of a kernel of plain values reads back as that kernel.
"""

from __future__ import annotations

import ast
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from .errors import InputError, UnknownNameError, nearest
from .kernels import Kernel
from .learning import find_kernel
from .registry import Entry, registry


def parse_kernel(text: str) -> Kernel:
    """Return the kernel that a text names; nothing in it is executed."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise InputError(f"kernel={text!r} cannot be read; write for instance rbf or rbf(gamma=0.5)") from None
    found = _value(tree, text)
    if isinstance(found, str):
        found = find_kernel(_registered(found))
    if not isinstance(found, Kernel):
        raise InputError(f"kernel={text!r} is no kernel; write for instance rbf or rbf(gamma=0.5)")
    return found


def parse_value(text: str) -> Any:
    """Return the number, tuple, truth value, None or word that a text stands for."""
    known = {"true": True, "false": False, "none": None}
    if text.lower() in known:
        return known[text.lower()]
    try:
        return ast.literal_eval(text.strip())
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return text


def _value(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and all(k.arg for k in node.keywords):
        cls = registry.get("kernel", _registered(node.func.id))
        given = {str(k.arg): _value(k.value, text) for k in node.keywords}
        known = [f.name for f in fields(cls) if f.init] if is_dataclass(cls) else list(given)
        unknown = next((name for name in given if name not in known), None)
        if unknown is not None:
            raise UnknownNameError(
                f"kernel={text!r}: {node.func.id} has no parameter {unknown!r}; {nearest(unknown, known)}"
            )
        try:
            return cls(*(_value(a, text) for a in node.args), **given)
        except TypeError as error:
            raise InputError(f"kernel={text!r}: {' '.join(str(error).split())}") from None
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_value(part, text) for part in node.elts)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        raise InputError(
            f"kernel={text!r} holds more than names and numbers; write for instance rbf(gamma=0.5)"
        ) from None


def _registered(word: str) -> str:
    """Return the registered name for what may be one, or may be the name of its class."""
    entries = registry.entries("kernel")
    if any(e.name == word for e in entries):
        return word
    of_class = (e.name for e in entries if str(e.target).rpartition(":")[2] == word)
    lower = (e.name for e in entries if e.name == word.lower())
    found = next(of_class, None) or next(lower, None)
    if found is None:
        raise UnknownNameError(f"kernel={word!r} is unknown; {nearest(word, filter(None, map(_written, entries)))}")
    return found


def _written(entry: Entry) -> str:
    """Return the name of a kernel that people write; "" for one that only a fit makes, from arrays."""
    if str(entry.target).startswith("metricforge.kernels:") or entry.missing:
        return entry.name
    cls = entry.load()
    own = fields(cls) if is_dataclass(cls) else ()
    needed = any(f.init and f.default is MISSING and f.default_factory is MISSING for f in own)
    return "" if needed else entry.name
