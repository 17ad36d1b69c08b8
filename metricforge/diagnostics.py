"""Notes on data that are unusual but valid, and on what a fit left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import rows as _rows
from .constraints import Distances
from .kernels import Kernel, Standardized
from .resolve import Plan, declared_methods, find_kernel, with_options
from .rows import Array
from .space import BUDGET, FactoredKernel, Space
from .validation import first_rows

if TYPE_CHECKING:
    from .fitting import Solved

DIGITS_ROWS = 200
"""Rows on which the digits of the kernel are counted."""
NEARLY_EQUAL = 1e-9
"""Squared distances below this share of k(x, x) have lost nine of their digits in features."""
ONE_POINT = 1e-12
"""Rows that a map moves apart by less than this share of its norm times theirs have lost all but four digits."""
WIDE = 30
"""A column whose deviation is this many times that of the median column is noted."""


def remarks(plan: Plan, solved: Solved, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the notes on a fit."""
    space = solved.space
    given = solved.relations.given
    return (
        *_left_out(plan, solved),
        *_lost_digits(space),
        *_constant_columns(space, columns),
        *_wide_columns(plan, space.kernel, solved.deviations, columns),
        *(() if _rows.is_dask(space.rows) else given.remarks(Distances(space.kernel, space.rows, space.seed))),
        *_one_point(solved),
    )


def column_deviations(rows: Any, kernel: Kernel) -> Array | None:
    """Return the standard deviation of every dense column, or None where resolving the kernel measures the columns.

    On dask this is the pass that checks every cell.
    """
    measured = isinstance(kernel, Standardized) and kernel.spread is None
    if measured or kernel.takes != "vectors" or _rows.is_sparse(rows):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        return _rows.moments(rows)[1]


def scaling(kernel: Kernel) -> str:
    """Return what was done to the columns before learning, and how unlike they were."""
    if kernel.takes != "vectors":
        return "rows have no columns"
    if not isinstance(kernel, Standardized):
        return "columns as they are" if not kernel.scale_free else "columns scaled by the kernel"
    noun, plural = {"std": ("standard deviation", "standard deviations"), "range": ("range", "ranges")}[kernel.by]
    ratio = kernel.unlikeness()
    return f"columns divided by their {noun} ({plural} differed up to {ratio:{',.0f' if ratio >= 10 else '.2g'}}-fold)"


def on_one_line(kernel: Kernel) -> str:
    """Return the repr of a kernel on one line; of the matrices of a learned kernel only the corners are shown."""
    with np.printoptions(threshold=6, edgeitems=1):
        return " ".join(repr(kernel).split())


def _left_out(plan: Plan, solved: Solved) -> tuple[str, ...]:
    """Return a note on what ``rank="auto"`` gave up where it took landmarks or components."""
    space = solved.space
    if space.width is not None and space.has_map:
        embedding = solved.solution.kernel.embedding()
        keeps = embedding is not None and not embedding.exact
        rest = ", which distance counts with the weight of the start kernel and transform leaves out" if keeps else ""
        wanted = getattr(plan.solver, "n_components", None)
        fewer = f" (fewer than n_components={wanted})" if wanted is not None and wanted > space.rank else ""
        return (
            f'rank="auto" took {space.rank} components of {space.width} features{fewer}, as many as {BUDGET:g} '
            f"forecast CPU seconds allow, at least 100; chosen from the rows and the relations, they leave out "
            f"{space.left_out():.2g} of the variance{rest}; status and certificate are about the problem on the "
            'components; rank="exact" keeps all features',
        )
    if not (space.automatic and space.representation == "landmarks" and space.has_map):
        return ()
    lost = "" if _rows.is_dask(space.rows) else f"; they leave out {space.left_out():.2g} of k(x, x)"
    return (
        f'rank="auto" took {space.rank} landmarks of {space.n} rows, the most within {BUDGET:g} forecast CPU '
        f'seconds{lost}; rank="exact" keeps all rows',
    )


def _lost_digits(space: Space) -> tuple[str, ...]:
    """Return a note if values of the kernel are so nearly equal that features computed from them lose digits."""
    if _rows.is_dask(space.rows) or space.representation in ("explicit", "components"):
        return ()
    kernel, sample = space.kernel, _rows.draw(space.n, DIGITS_ROWS, space.seed)
    pairs = np.stack([sample, sample[::-1]], axis=1)
    apart = _rows.map_relations(kernel.paired_squared_distance, space.rows, pairs, widest=kernel.widest)
    size = _rows.map_relations(lambda X, _: kernel.diag(X), space.rows, pairs, widest=kernel.widest)
    ratio = float(apart.max(initial=0.0)) / (float(np.abs(size).max(initial=0.0)) or 1.0)
    if not 0 < ratio < NEARLY_EQUAL:
        return ()
    return (
        f"squared distances under the start kernel are about {ratio:.1g} of k(x, x), so rounding leaves about "
        f"{max(0, round(np.log10(ratio / np.finfo(np.float64).eps)))} digits of what is computed from its values; "
        "choose one under which rows differ more, such as one with a larger gamma",
    )


def _one_point(solved: Solved) -> tuple[str, ...]:
    """Return a note if a learned map sends all rows to one point, so that distances are rounding."""
    kernel, space = solved.solution.kernel, solved.space
    if not isinstance(kernel, FactoredKernel) or _rows.is_dask(space.rows) or space.n < 2:
        return ()
    features = kernel.map.block(_rows.take(space.rows, _rows.draw(space.n, DIGITS_ROWS, space.seed)))
    apart = np.abs((features - features[:1]) @ kernel.L.T).max()
    if apart >= ONE_POINT * np.abs(features).max() * np.abs(kernel.L).max() > 0:
        return ()
    return (
        "all rows are at one point under the learned metric, up to rounding: it tells no rows apart; give other "
        "relations, or columns that say more about them",
    )


def _constant_columns(space: Space, columns: tuple[str, ...]) -> tuple[str, ...]:
    X = space.rows
    if space.n < 2 or space.kernel.takes != "vectors":
        return ()
    if isinstance(space.kernel, Standardized):  # it has measured them
        constant = np.flatnonzero(space.kernel.spread == 0)
    elif _rows.is_dask(X):
        return ()
    else:
        low, high = _rows.column_range(X)
        constant = np.flatnonzero(low == high)
    if not len(constant):
        return ()
    where = first_rows(constant).replace("row", "column")
    if columns:
        where = ", ".join(repr(columns[c]) for c in constant[:5]) + ", ..." * (len(constant) > 5)
    return (f"{len(constant)} feature(s) are constant and carry no information ({where})",)


def _wide_columns(plan: Plan, kernel: Kernel, deviations: Array | None, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return a note if one column dominates the distances and neither kernel nor method corrects for it."""
    if deviations is None or kernel.scale_free or plan.method.ignores_scales(kernel, plan.solver):
        return ()
    widest, typical = int(deviations.argmax()), float(np.median(deviations))
    if not 0 < WIDE * typical < deviations[widest] < np.inf:
        return ()
    column = f"column {columns[widest]!r}" if columns else f"column {widest}"
    others = _scale_free_methods()
    choice = f", or choose a method that does not depend on scales ({'; '.join(others)})" if others else ""
    return (
        f"{column} spreads {deviations[widest] / typical:.0f} times as wide as the typical one and decides most "
        f"distances; if that is not meant, scale the columns (kernel=mf.kernels.Standardized({type(kernel).__name__}"
        f'(...), by="range"), or --standardize in the shell){choice}',
    )


def _scale_free_methods() -> list[str]:
    """Return the methods, with settings, that declare that they do not depend on the scales of the columns."""
    found = []
    for name, method in declared_methods()[0].items():
        for setting in ({}, *method.settings):
            options = {option: value for option, value in setting.items() if option not in ("kernel", "rank")}
            kernel = find_kernel(setting.get("kernel", method.kernel))
            if method.ignores_scales(kernel, with_options(method.solver, options, name)):
                given = ", ".join(f"{option}={value!r}" for option, value in setting.items())
                found.append(f"{name} with {given}" if given else name)
    return found
