"""Kernels as text, with the names that are registered."""

from __future__ import annotations

from typing import Any

from ..kernels import Kernel
from ..kernels.notation import parse_kernel
from .components import registry


def read_kernel(text: str) -> Kernel:
    """Return the kernel that a text such as "rbf" or "rbf(gamma=0.5)" denotes among the registered ones."""
    return parse_kernel(text, kernel_named)


def kernel_named(name: str) -> Any:
    """Return the registered kernel class of a name; the name of the class, as in a ``repr``, is a name too."""
    entries = registry.entries("kernel")
    found = (
        next((e for e in entries if e.name == name), None)
        or next((e for e in entries if str(e.target).rpartition(":")[2] == name), None)
        or next((e for e in entries if e.name == name.lower()), None)
    )
    if found is None:
        # a kernel that cannot be loaded here is offered too: loading it then says what is missing
        offered = [e.name for e in entries if e.missing or getattr(e.load(), "offered", True)]
        raise registry.unknown("kernel", name, offered)
    return found.load()
