"""Conversions between kinds of constraints: the shortest chain of registered functions.

A conversion is registered under the name "source->target", where source and target are names of constraints.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .entries import Entry

if TYPE_CHECKING:
    from ..constraints import Constraint
    from .components import Registry


def convert(
    registry: Registry, constraint: Constraint, kinds: tuple[type[Any], ...], *, seed: int
) -> tuple[Any, tuple[str, ...]]:
    """Convert a constraint to one of ``kinds`` along the shortest chain of conversions.

    Returns
    -------
    converted : Constraint
    steps : tuple of str
        A description of each conversion, with the number of relations before and after.
    """
    edges = path(registry, type(constraint), kinds)
    if edges is None:
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise InputError(
            f"constraints: no conversion leads from {type(constraint).__name__} to {wanted}; "
            f"give {wanted}, or choose a method that accepts {type(constraint).__name__}"
        )
    steps = []
    for edge in edges:
        before = constraint
        constraint = edge.load()(before, seed=seed)
        lost = constraint.dropped - before.dropped
        steps.append(
            f"{type(before).__name__} ({before.size}) → {type(constraint).__name__} ({constraint.size})"
            + (f", {lost} dropped" if lost else "")
        )
    return constraint, tuple(steps)


def path(registry: Registry, kind: type[Any], kinds: tuple[type[Any], ...]) -> Sequence[Entry] | None:
    """Return the shortest chain of conversions from a kind to one of ``kinds``, or None if there is none."""
    if issubclass(kind, kinds):
        return []
    source = registry.entry_of("constraint", kind)
    targets = {e.name for other in kinds if (e := registry.entry_of("constraint", other)) is not None}
    return shortest_path(registry.entries("conversion"), source.name, targets) if source else None


def shortest_path(edges: Iterable[Entry], source: str, targets: set[str]) -> Sequence[Entry] | None:
    """Return the fewest conversions that lead from a kind to one of several, or None where no chain does."""
    edges = list(edges)
    paths: deque[tuple[str, list[Entry]]] = deque([(source, [])])
    visited = {source}
    while paths:
        kind, path = paths.popleft()
        for edge in edges:
            start, _, end = edge.name.partition("->")
            if start != kind or end in visited:
                continue
            if end in targets:
                return [*path, edge]
            visited.add(end)
            paths.append((end, [*path, edge]))
    return None
