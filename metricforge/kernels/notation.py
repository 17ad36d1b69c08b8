"""Kernels as text: "rbf", "rbf(gamma=0.5)", "standardized(rbf(gamma=0.5))".

Text is what a shell command, a configuration file or ``mf.learn(..., kernel="rbf(gamma=0.5)")`` gives.  The ``repr`` of
a kernel of plain values reads back as that kernel.  Nothing in the text is executed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from ..errors import InputError, UnknownNameError
from ..validation import nearest, shown
from .interface import Kernel

Lookup = Callable[[str], Any]
"""Returns the kernel class (or kernel) of a name, or raises UnknownNameError."""

_EXAMPLE = "write for instance rbf or rbf(gamma=0.5)"
_HYPHEN = "ǀ"
"""Stands for a hyphen inside a name while Python's parser reads the text: a letter that no name contains."""
_HYPHENATED = re.compile(r"(?<=[A-Za-z0-9_])-(?=[A-Za-z_])")


def parse_kernel(text: str, lookup: Lookup) -> Kernel:
    """Return the kernel that a text denotes.

    Parameters
    ----------
    text : str
        A name, or a name with parameters, which may themselves be kernels: ``"rbf(base=polynomial(degree=2))"``.
    lookup : callable
        Returns the kernel class of a name.
    """
    try:
        tree = ast.parse(_HYPHENATED.sub(_HYPHEN, text.strip()), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        try:
            return _made(lookup(text.strip()), text.strip(), (), {}, text)  # a name of unusual characters
        except UnknownNameError:
            raise InputError(f"kernel={shown(text)} cannot be read; {_EXAMPLE}") from None
    if isinstance(tree, ast.Name):
        return _made(lookup(_plain(tree.id)), _plain(tree.id), (), {}, text)
    found = _value(tree, text, lookup)
    if not isinstance(found, Kernel):
        raise InputError(f"kernel={shown(text)} is not a kernel; {_EXAMPLE}")
    return found


def parse_value(text: str) -> Any:
    """Return the number, tuple, truth value or None that a text stands for; any other text as it is."""
    known = {"true": True, "false": False, "none": None}
    if text.lower() in known:
        return known[text.lower()]
    try:
        return ast.literal_eval(text.strip())
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return text


def _value(node: ast.expr, text: str, lookup: Lookup) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and all(k.arg for k in node.keywords):
        name = _plain(node.func.id)
        arguments = tuple(_value(a, text, lookup) for a in node.args)
        options = {str(k.arg): _value(k.value, text, lookup) for k in node.keywords}
        return _made(lookup(name), name, arguments, options, text)
    if isinstance(node, ast.Name):
        name = _plain(node.id)
        try:
            found = lookup(name)
        except UnknownNameError:
            return name  # a plain word, such as median
        return _made(found, name, (), {}, text)
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_value(part, text, lookup) for part in node.elts)
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        raise InputError(
            f"kernel={shown(text)} holds more than names and numbers; write for instance rbf(gamma=0.5)"
        ) from None
    return _plain(value) if isinstance(value, str) else value


def _made(found: Any, name: str, arguments: tuple[Any, ...], options: dict[str, Any], text: str) -> Kernel:
    """Return a kernel of a class that was looked up; an instance takes no parameters."""
    if isinstance(found, Kernel):
        if arguments or options:
            raise InputError(f"kernel={shown(text)}: {name} takes no parameters; write {name}")
        return found
    own = [f for f in fields(found) if f.init] if is_dataclass(found) else []
    known = [f.name for f in own]
    unknown = next((option for option in options if option not in known), None)
    if own and unknown is not None:
        raise UnknownNameError(f"kernel={shown(text)}: {name} has no parameter {unknown!r}; {nearest(unknown, known)}")
    given = {*options, *(f.name for f, _ in zip((f for f in own if not f.kw_only), arguments, strict=False))}
    missing = [f.name for f in own if f.default is f.default_factory is MISSING and f.name not in given]
    if missing:
        example = ", ".join(f"{p}=..." for p in missing)
        raise InputError(f"kernel={shown(text)}: {name} needs {' and '.join(missing)}; write {name}({example})")
    try:
        made: Kernel = found(*arguments, **options)
    except TypeError as error:
        raise InputError(f"kernel={shown(text)}: {' '.join(str(error).split())}") from None
    return made


def _plain(name: str) -> str:
    return name.replace(_HYPHEN, "-")
