"""Check that the parts of a loaded metric work together, by using them on a few rows.

A class checks the values that it is built from.  A file can also combine parts that no fit would combine: landmarks of
another width than the rows, text where numbers should be.  Such parts raise errors of any type when they are used, so
they are used once while the file is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import rows as _rows
from ..errors import InputError
from ..kernels import Kernel
from ..solver import Certificate

ROWS = 2
"""Rows that the parts are tried on."""
MOST_COLUMNS = 10**7
"""The widest rows that are made up for a metric without training rows."""
REPORT: dict[str, Any] = {
    **dict.fromkeys(("method", "status", "ranks_by"), str | None),
    **dict.fromkeys(("objective", "gap", "seconds"), float | int | None),
    **dict.fromkeys(("n", "n_iter", "relations", "dropped", "updates"), int | None),
    **dict.fromkeys(("notes", "converted"), tuple | list | None),
    "parts": tuple,
    "certificate": Certificate | str | None,
}
"""The types of those fields of a report that the library uses."""
ADDED = {**dict.fromkeys(("n", "relations", "dropped"), int), **dict.fromkeys(("notes", "converted"), tuple | list)}
"""The fields that an update adds to, which the report of a metric with a solver has."""


def check_report(report: Mapping[Any, Any], *, updatable: bool = False) -> None:
    """Raise InputError if a field of a report has a wrong type; if ``updatable``, also where one is missing."""
    for name, value in report.items():
        if not isinstance(name, str) or not isinstance(value, REPORT.get(name, object)):
            raise InputError(f"report: the field {name!r} has the wrong type {type(value).__name__}")
    for name, kind in ADDED.items() if updatable else ():
        if not isinstance(report.get(name), kind):
            raise InputError(f"report: the field {name!r}, to which an update adds, is missing or has a wrong type")
    for name in ("notes", "converted"):
        if not all(isinstance(text, str) for text in report.get(name) or ()):
            raise InputError(f"report: {name} holds something else than strings")
    if not all(isinstance(part, dict) for part in report.get("parts", ())):
        raise InputError("report: parts holds something else than reports")
    certificate = report.get("certificate")
    if isinstance(certificate, Certificate):
        str(certificate)
        certificate.describe()


def check_kernel(kernel: Kernel, rows: Any, width: int | None) -> None:
    """Raise if a kernel does not return the similarities of a few rows.

    Parameters
    ----------
    kernel : Kernel
    rows : training rows, or None
    width : int or None
        The number of columns of a row, if there are no training rows.
    """
    X = _sample(kernel, rows, width)
    if X is None:
        return
    n = _rows.count(X)
    try:
        with np.errstate(all="ignore"):
            found = {"block": (kernel.block(X, X), (n, n)), "paired": (kernel.paired(X, X), (n,))}
    except InputError:
        return  # it refuses these rows with a message of its own, as it may
    for name, (values, shape) in found.items():
        _check_numbers(values, shape, f"{type(kernel).__name__}.{name}")
        if rows is not None and not np.isfinite(values).all():
            raise InputError(f"{type(kernel).__name__}.{name} of the training rows is not finite")


def check_map(features: Any, kernel: Kernel, rows: Any, width: int | None) -> None:
    """Raise if a feature map does not return the features of a few rows of a kernel."""
    X = _sample(kernel, rows, width)
    if X is None:
        return
    with np.errstate(all="ignore"):
        found = features.block(X)
    _check_numbers(found, (_rows.count(X), features.columns), type(features).__name__)
    if rows is not None and not np.isfinite(found).all():
        raise InputError("the features of the training rows are not finite")


def _check_numbers(values: Any, shape: tuple[int, ...], name: str) -> None:
    if not isinstance(values, np.ndarray) or values.shape != shape or values.dtype.kind not in "biuf":
        raise InputError(f"{name} returned {type(values).__name__} of shape {np.shape(values)} instead of {shape}")


def _sample(kernel: Kernel, rows: Any, width: int | None) -> Any:
    """Return a few rows that a kernel takes, or None where none are known."""
    if kernel.takes not in ("vectors", "strings", "gram"):
        return None
    if rows is not None:
        if kernel.takes != "strings" and rows.dtype.kind not in "biuf":
            raise InputError(f"the training rows hold {rows.dtype}, not numbers")
        return kernel.check(_rows.take(rows, np.arange(min(ROWS, _rows.count(rows)))), "rows")
    if kernel.takes == "strings":
        return kernel.check(["a", "ab"], "rows")
    if width is None or width > MOST_COLUMNS:
        return None
    return kernel.check(np.outer(np.linspace(1, 2, ROWS), np.ones(width)), "rows")
