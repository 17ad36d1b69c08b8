"""Checks of any metric: finite numbers, valid distances, a PSD kernel, consistent methods, files."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import metricforge as mf

from .rows import Rng
from .trial import Trial, Verdict, finite

ROUNDING_NOTE = re.compile("digit|rounding|precision|cancel", re.IGNORECASE)
INDEFINITE_NOTE = re.compile("semidefinite|indefinite|negative|not a kernel|no kernel|no embedding|psd", re.IGNORECASE)
"""Terms by which a note mentions rounding, or that the learned kernel is not PSD."""
ROUNDED = 8
"""Rounding of a coordinate of size sqrt(k(x, x)), in units of the precision: no distance is known better."""
STATUSES = {str(s) for s in mf.Status}


def count(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def in_memory(value: Any) -> Any:
    return value.compute() if hasattr(value, "compute") else value


def check_report(trial: Trial, metric: Any) -> None:
    """Check the report of a fit: a known status, finite figures, a nonnegative gap."""
    report = metric.report
    if "status" not in report:
        return
    trial.check(str(report["status"]) in STATUSES, Verdict.WRONG, f"status {report['status']!r} is unknown")
    figures = {name: report[name] for name in ("objective", "gap", "n_iter", "seconds") if name in report}
    trial.check(finite(figures), Verdict.NAN, "objective or gap is not finite", repr(figures))
    if finite(figures):
        slack = 1e-9 * max(1.0, abs(report["objective"]))
        trial.check(report["gap"] >= -slack, Verdict.CERTIFICATE, "the gap is negative", repr(figures))
    trial.check(finite(dict(report)), Verdict.NAN, "something in the report is not finite", _first_bad(report))


def _first_bad(report: Any) -> str:
    return ", ".join(name for name, value in report.items() if not finite(value))[:300]


def check_metric(
    trial: Trial, metric: Any, X: Any, rng: Rng, *, psd: bool, single: bool = False, exact: bool = True
) -> Any:
    """Use a metric in every way on its training rows; return their distances.

    Parameters
    ----------
    psd : bool
        Whether the base kernel is positive semidefinite, so that the learned kernel must be.
    single : bool
        Whether the rows are in single precision.
    exact : bool
        Whether distances of ``transform(X)`` must equal the metric's.
    """
    n = count(X)
    notes = " ".join(map(str, metric.report.get("notes", ())))
    D = in_memory(trial.call("metric.distance(X)", metric.distance, X))
    if not trial.check(finite(D), Verdict.NAN, "distance is not finite"):
        return D
    top = float(D.max()) if D.size else 0.0
    # squares of smaller distances underflow in the precision of the rows
    tol = (1e-4 if single else 1e-6) * top + (1e-18 if single else 1e-153)
    trial.check(D.shape == (n, n), Verdict.WRONG, f"distance has shape {D.shape}")
    trial.check((D >= 0).all(), Verdict.WRONG, "a distance is negative")
    skew = float(np.abs(D - D.T).max(initial=0))
    trial.check(skew <= tol or not psd, Verdict.WRONG, "distance is not symmetric", f"by {skew:.3g} of {top:.3g}")
    trial.check(np.abs(D.diagonal()).max(initial=0) <= tol, Verdict.WRONG, "a row has a distance from itself")
    K = in_memory(trial.call("metric.kernel(X)", metric.kernel, X))
    if not trial.check(finite(K), Verdict.NAN, "the kernel is not finite"):
        return D
    scale = float(np.abs(K).max(initial=0))
    tol += ROUNDED * float(np.finfo(np.float32 if single else np.float64).eps) * float(np.sqrt(scale))
    check_psd(trial, K, notes, psd=psd, single=single)

    back = np.arange(n)[::-1]
    paired = in_memory(trial.call("metric.paired_distance(X, X[::-1])", metric.paired_distance, X, _taken(X, back)))
    if trial.check(finite(paired), Verdict.NAN, "paired_distance is not finite"):
        off = float(np.abs(paired - D[np.arange(n), back]).max(initial=0))
        kind = "" if ROUNDING_NOTE.search(notes) else "distance and paired_distance differ"
        if kind and off > 100 * tol and psd:
            trial.find(Verdict.WRONG, kind, f"by {off:.3g}, largest distance {top:.3g}, k(x, x) {scale:.3g}")
    _check_embedding(trial, metric, X, D, notes, scale, tol, psd=psd, exact=exact)
    if metric.rows is not None:
        # landmarks omit directions below 1e-12 of the largest k(x, x)
        _check_neighbors(trial, metric, X, D, tol + 1e-6 * np.sqrt(scale), psd=psd and not ROUNDING_NOTE.search(notes))
    _check_file(trial, metric, X, D)
    return D


def check_psd(trial: Trial, K: Any, notes: str, *, psd: bool, single: bool) -> None:
    if not psd or not K.size or INDEFINITE_NOTE.search(notes) or ROUNDING_NOTE.search(notes):
        return
    scale = float(np.abs(K).max())
    if scale == 0:
        return
    K = np.asarray(K, dtype=np.float64) / scale
    smallest = float(np.linalg.eigvalsh((K + K.T) / 2)[0])
    allowed = (1e-4 if single else 1e-7) * len(K)
    trial.check(smallest >= -allowed, Verdict.NOT_PSD, "the kernel is not PSD", f"{smallest:.3g} of the largest entry")


def _taken(X: Any, index: Any) -> Any:
    if hasattr(X, "iloc"):
        return X.iloc[index]
    if isinstance(X, list | tuple):
        return [X[i] for i in index]
    if hasattr(X, "tocsr"):
        return X.tocsr()[index]
    return X[index]


def _check_embedding(
    trial: Trial, metric: Any, X: Any, D: Any, notes: str, scale: float, tol: float, *, psd: bool, exact: bool
) -> None:
    try:
        E = in_memory(trial.call("metric.transform(X)", metric.transform, X))
    except Exception:  # an indefinite kernel has no embedding: a refusal is correct
        if trial.findings:
            raise
        trial.refusal = ""
        return
    if not trial.check(finite(E), Verdict.NAN, "transform is not finite"):
        return
    if not psd or not exact or ROUNDING_NOTE.search(notes) or INDEFINITE_NOTE.search(notes):
        return
    E = np.asarray(E, dtype=np.float64)
    largest = float(np.abs(E).max(initial=0)) or 1.0
    between = largest * np.sqrt(np.square((E[:, None] - E[None]) / largest).sum(axis=-1))
    off = float(np.abs(between - D).max(initial=0))
    # landmarks omit directions below 1e-12 of the largest k(x, x)
    allowed = 100 * tol + 1e-5 * np.sqrt(scale)
    trial.check(off <= allowed, Verdict.WRONG, "transform and distance differ", f"by {off:.3g}, {D.max():.3g}")


def _check_neighbors(trial: Trial, metric: Any, X: Any, D: Any, tol: float, *, psd: bool) -> None:
    n = count(metric.rows)
    k = min(3, n)
    found = trial.call(f"metric.neighbors(X, k={k})", metric.neighbors, X, k=k)
    indices, near = (in_memory(part) for part in found)
    ok = indices.shape == near.shape == (len(D), k) and ((indices >= 0) & (indices < n)).all()
    if not trial.check(ok, Verdict.WRONG, "neighbors names rows that are not there"):
        return
    trial.check(finite(near), Verdict.NAN, "neighbors: a distance is not finite")
    if n == len(D) and psd:
        off = float(np.abs(near - np.sort(D, axis=1)[:, :k]).max(initial=0))
        trial.check(off <= 100 * tol, Verdict.WRONG, "neighbors and distance differ", f"by {off:.3g} of {D.max():.3g}")


def _check_file(trial: Trial, metric: Any, X: Any, D: Any) -> None:
    path = trial.folder / "case.metric"
    trial.call("metric.save", metric.save, path)
    copy = trial.call("mf.load", mf.load, path)
    again = in_memory(trial.call("distance of the loaded copy", copy.distance, X))
    same = np.array_equal(again, D)
    if not same and again.shape == D.shape:
        off = float(np.abs(again - D).max(initial=0))
        trial.check(off == 0, Verdict.WRONG, "a loaded copy measures other distances", f"by {off:.3g} of {D.max():.3g}")
    repr(copy), repr(copy.report)


def check_reference(trial: Trial, D: Any, truth: Any, *, single: bool, what: str, slack: float = 0.0) -> None:
    """Compare distances with a reference in extended precision."""
    D = np.asarray(D, dtype=np.longdouble)
    top = float(np.abs(truth).max(initial=0))
    if not np.isfinite(top):
        return
    off = float(np.abs(D - truth).max(initial=0))
    allowed = (1e-4 if single else 1e-6) * top + slack + (1e-18 if single else 1e-153)  # squares underflow
    trial.check(off <= allowed, Verdict.WRONG, what, f"off by {off:.4g} where the largest is {top:.4g}")
