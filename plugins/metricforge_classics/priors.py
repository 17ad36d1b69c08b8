"""Factors of the metric to start from, by metric-learn's names: for ``prior`` and ``init``."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.utils import check_random_state

from metricforge.errors import InputError
from metricforge.estimators.learner import own_errors
from metricforge.validation import one_of

from .rows import Array

PRIORS = ("identity", "covariance", "random")
INITS = ("auto", "identity", "pca", "lda", "random")


class SingularPriorError(InputError, np.linalg.LinAlgError):
    """The prior metric has no inverse; metric-learn raises a ``LinAlgError``."""


def prior_factor(prior: Any, X: Array, random_state: Any) -> Array | None:
    """Return L0 (d, d) with L0'L0 the prior metric, or None for the identity.

    "covariance" is the inverse covariance of the rows, "random" a random positive definite matrix.
    """
    d = X.shape[1]
    if isinstance(prior, str):
        one_of(prior, "prior", PRIORS)
        if prior == "identity":
            return None
        if prior == "random":
            G = check_random_state(random_state).randn(d, d)
            M = G @ G.T + 0.1 * d * np.eye(d)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                C = np.atleast_2d(np.cov(np.unique(X, axis=0), rowvar=False))
            if not np.isfinite(C).all():
                raise InputError("X: its covariance overflows; rescale the columns, or choose another prior")
            w, V = np.linalg.eigh(C)
            if w[0] <= d * np.finfo(float).eps * w[-1]:
                raise SingularPriorError(
                    "prior='covariance': the covariance of the rows is singular; choose another prior, or remove "
                    "columns that depend on others"
                )
            M = (V / w) @ V.T
    else:
        M = np.asarray(prior, dtype=np.float64)
        if M.shape != (d, d):
            raise InputError(f"prior must be a ({d}, {d}) matrix, one row per feature, got shape {M.shape}")
        if not np.allclose(M, M.T):
            raise InputError("prior must be symmetric")
    w, V = np.linalg.eigh((M + M.T) / 2)
    if w[0] < -1e-10 * abs(w[-1]):
        raise InputError(f"prior must be positive definite, it has the eigenvalue {w[0]:.3g}")
    if w[0] <= d * np.finfo(float).eps * w[-1]:
        raise SingularPriorError("prior must be strictly positive definite, it is singular; choose another prior")
    return np.asarray((V * np.sqrt(w)) @ V.T)


def start_factor(init: Any, X: Array, y: Array, n_components: int | None, random_state: Any, classes: bool) -> Array:
    """Return the (r, d) factor that an iteration starts from.

    "auto" is "lda" where there are classes and no more components than it has, else "pca" where there are fewer
    components than features, else "identity".
    """
    d = X.shape[1]
    r = n_components or d
    if not isinstance(init, str):
        L = np.asarray(init, dtype=np.float64)
        if L.ndim != 2 or L.shape[1] != d:
            raise InputError(f"init must have {d} columns, one per feature, got shape {L.shape}")
        if len(L) > d or (n_components is not None and len(L) != n_components):
            raise InputError(f"init must have n_components={r} rows, no more than features ({d}), got {len(L)}")
        return L
    one_of(init, "init", INITS)
    count = len(np.unique(y)) - 1 if classes else 0
    if init == "auto":
        init = (
            "lda"
            if classes and r <= min(count, d) and len(X) > count + 1
            else "pca"
            if r < min(X.shape)
            else "identity"
        )
    if init == "lda" and not classes:
        raise InputError("init='lda' needs classes; choose 'pca' or 'identity'")
    if init == "random":
        return np.asarray(check_random_state(random_state).randn(r, d))
    L = np.eye(r, d)
    if init == "pca":
        axes = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2]
        L[: min(r, len(axes))] = axes[:r]
    elif init == "lda":
        try:
            with np.errstate(all="ignore"), own_errors():
                axes = LinearDiscriminantAnalysis().fit(X, y).scalings_.T[:r]
        except (IndexError, np.linalg.LinAlgError):
            axes = np.empty((0, d))
        if not len(axes) or not np.isfinite(axes).all():
            raise InputError("init: the axes of a linear discriminant analysis overflow or vanish; rescale X")
        L[: len(axes)] = axes
    return L
