"""Estimators that learn from labels, numbers or groups of rows."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import check_array

import metricforge as mf
from metricforge.errors import InputError
from metricforge.estimators.learner import check_lengths, one_column, own_errors

from .constraints import Constraints, default_number
from .mahalanobis import PointsTransformer
from .priors import start_factor
from .rows import Array
from .tuples import learn_pairs, learn_quadruplets


class Supervised(PointsTransformer):
    """Learns from one value per row."""

    def _rows(self, X: Any, y: Any, *, numbers: bool = False) -> tuple[Array, Array]:
        if y is None:
            raise InputError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        self._start()
        X = self._points(X)
        with own_errors():
            y = check_array(y, ensure_2d=False, dtype=np.float64 if numbers else None)
        y = one_column(y)
        check_lengths(X, y)
        if len(X) < 2:
            raise InputError(f"X has {len(X)} row (n_samples={len(X)}); give at least 2")
        try:
            classes = np.unique(y)
        except TypeError:
            raise InputError("y mixes classes that cannot be ordered, or has none for some rows; give str") from None
        if not numbers and len(classes) < 2:
            raise InputError("y has one class, so nothing is known to be different; give at least two classes")
        return X, y

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class LMNN(Supervised):
    """Large margin nearest neighbours: see the method ``lmnn``.

    The problem is convex in M, so ``init`` only matters with ``n_components``; target neighbours are those of X.

    Parameters
    ----------
    init : str or array
        Checked; the start is the identity, or principal axes.
    n_neighbors : int
        Target neighbours of a row; classes with fewer other rows use all of these.
    min_iter, learn_rate, verbose
        Ignored.
    max_iter : int
    regularization : float in (0, 1)
        The weight of the distances to targets; that of the margins is one minus it.
    convergence_tol : float
        The duality gap to reach, relative to the objective.
    preprocessor : array or callable, optional
    n_components : int, optional
    random_state : int or RandomState, optional
    kernel : metricforge Kernel or name, optional
        Default: linear.
    """

    ignored: ClassVar[dict[str, Any]] = {"min_iter": 50, "learn_rate": 1e-7, "verbose": False}

    def __init__(
        self,
        init: Any = "auto",
        n_neighbors: int = 3,
        min_iter: int = 50,
        max_iter: int = 1000,
        learn_rate: float = 1e-7,
        regularization: float = 0.5,
        convergence_tol: float = 0.001,
        verbose: bool = False,
        preprocessor: Any = None,
        n_components: int | None = None,
        random_state: Any = None,
        kernel: Any = None,
    ) -> None:
        self.init = init
        self.n_neighbors = n_neighbors
        self.min_iter = min_iter
        self.max_iter = max_iter
        self.learn_rate = learn_rate
        self.regularization = regularization
        self.convergence_tol = convergence_tol
        self.verbose = verbose
        self.preprocessor = preprocessor
        self.n_components = n_components
        self.random_state = random_state
        self.kernel = kernel

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows and their classes."""
        X, y = self._rows(X, y)
        n = self._check_components(X.shape[1])
        if self.kernel is None:
            start_factor(self.init, X, y, n, self.random_state, True)
        return self._learn(
            X,
            mf.Labels(y),
            "lmnn",
            k=self.n_neighbors,
            mu=1 - self.regularization,
            n_components=n,
            ridge="least",
            tol=self.convergence_tol,
            max_iter=self.max_iter,
        )


class NCA(Supervised):
    """Neighbourhood components analysis: see the method ``nca``.

    Parameters
    ----------
    init : {"auto", "identity", "pca", "lda", "random"} or (n_components, d) array
    n_components : int, optional
    max_iter : int
    tol : float, optional
        See the method; None means 1e-3.
    verbose : bool
        Ignored.
    preprocessor : array or callable, optional
    random_state : int or RandomState, optional
    kernel : metricforge Kernel or name, optional
        Default: linear.
    """

    ignored: ClassVar[dict[str, Any]] = {"verbose": False}

    def __init__(
        self,
        init: Any = "auto",
        n_components: int | None = None,
        max_iter: int = 100,
        tol: float | None = None,
        verbose: bool = False,
        preprocessor: Any = None,
        random_state: Any = None,
        kernel: Any = None,
    ) -> None:
        self.init = init
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.preprocessor = preprocessor
        self.random_state = random_state
        self.kernel = kernel

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows and their classes."""
        X, y = self._rows(X, y)
        return self._iterate(X, y, mf.Labels(y), "nca", classes=True)

    def _iterate(self, X: Array, y: Array, constraint: mf.Constraint, method: str, classes: bool) -> Self:
        n = self._check_components(X.shape[1])
        options: dict[str, Any] = {"max_iter": self.max_iter, "tol": 1e-3 if self.tol is None else self.tol}
        options["queries"] = len(X)
        if self.kernel is None:
            start = start_factor(self.init, X, y, n, self.random_state, classes)
            options["start"] = tuple(map(tuple, start.tolist()))
        elif n is not None:
            options["n_components"] = n
        return self._learn(X, constraint, method, **options)


class MLKR(NCA):
    """Metric learning for kernel regression: see the method ``mlkr``.

    Parameters
    ----------
    n_components : int, optional
    init : {"auto", "identity", "pca", "random"} or (n_components, d) array
    tol : float, optional
        See the method; None means 1e-3.
    max_iter : int
    verbose : bool
        Ignored.
    preprocessor : array or callable, optional
    random_state : int or RandomState, optional
    kernel : metricforge Kernel or name, optional
        Default: linear.
    """

    def __init__(
        self,
        n_components: int | None = None,
        init: Any = "auto",
        tol: float | None = None,
        max_iter: int = 1000,
        verbose: bool = False,
        preprocessor: Any = None,
        random_state: Any = None,
        kernel: Any = None,
    ) -> None:
        super().__init__(init, n_components, max_iter, tol, verbose, preprocessor, random_state, kernel)

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows and a number for each."""
        X, y = self._rows(X, y, numbers=True)
        return self._iterate(X, y, mf.Targets(y), "mlkr", classes=False)


class LFDA(Supervised):
    """Local Fisher discriminant analysis: see the method ``lfda``.

    Parameters
    ----------
    n_components : int, optional
    k : int, optional
        Which neighbour sets the local scale; default: 7, and less than the number of features.
    embedding_type : {"weighted", "orthonormalized", "plain"}
    preprocessor : array or callable, optional
    kernel : metricforge Kernel or name, optional
        Default: linear.
    """

    def __init__(
        self,
        n_components: int | None = None,
        k: int | None = None,
        embedding_type: str = "weighted",
        preprocessor: Any = None,
        kernel: Any = None,
    ) -> None:
        self.n_components = n_components
        self.k = k
        self.embedding_type = embedding_type
        self.preprocessor = preprocessor
        self.kernel = kernel

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows and their classes."""
        X, y = self._rows(X, y)
        n = self._check_components(X.shape[1])
        k = max(1, min(7, X.shape[1] - 1)) if self.k is None else self.k
        return self._learn(X, mf.Labels(y), "lfda", k=k, n_components=n, embedding=self.embedding_type)


class ITML_Supervised(Supervised):  # noqa: N801
    """ITML on pairs drawn from labels.

    Parameters
    ----------
    gamma, max_iter, tol, prior, verbose, preprocessor, random_state, kernel
        As in `ITML`.
    n_constraints : int, optional
        Pairs of each kind; default: 20 times the squared number of classes.
    """

    ignored: ClassVar[dict[str, Any]] = {"verbose": False}

    def __init__(
        self,
        gamma: float = 1.0,
        max_iter: int = 1000,
        tol: float = 1e-3,
        n_constraints: int | None = None,
        prior: Any = "identity",
        verbose: bool = False,
        preprocessor: Any = None,
        random_state: Any = None,
        kernel: Any = None,
    ) -> None:
        self.gamma = gamma
        self.max_iter = max_iter
        self.tol = tol
        self.n_constraints = n_constraints
        self.prior = prior
        self.verbose = verbose
        self.preprocessor = preprocessor
        self.random_state = random_state
        self.kernel = kernel

    def fit(self, X: Any, y: Any, bounds: Any = None) -> Self:
        """Learn from rows and their classes; ``bounds`` as in `ITML.fit`."""
        X, y = self._rows(X, y)
        a, b, c, d = _drawn(self, y)
        pairs = np.concatenate([X[np.column_stack([a, b])], X[np.column_stack([c, d])]])
        learn_pairs(self, pairs, np.repeat([1, -1], [len(a), len(c)]), bounds)
        return self


class LSML_Supervised(Supervised):  # noqa: N801
    """LSML on quadruplets drawn from labels.

    Parameters
    ----------
    tol, max_iter, prior, verbose, preprocessor, random_state, kernel
        As in `LSML`.
    n_constraints : int, optional
        Quadruplets; default: 20 times the squared number of classes.
    weights : (n_constraints,) array, optional
    """

    ignored: ClassVar[dict[str, Any]] = {"verbose": False}

    def __init__(
        self,
        tol: float = 1e-3,
        max_iter: int = 1000,
        prior: Any = "identity",
        n_constraints: int | None = None,
        weights: Any = None,
        verbose: bool = False,
        preprocessor: Any = None,
        random_state: Any = None,
        kernel: Any = None,
    ) -> None:
        self.tol = tol
        self.max_iter = max_iter
        self.prior = prior
        self.n_constraints = n_constraints
        self.weights = weights
        self.verbose = verbose
        self.preprocessor = preprocessor
        self.random_state = random_state
        self.kernel = kernel

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows and their classes."""
        X, y = self._rows(X, y)
        learn_quadruplets(self, X[np.column_stack(_drawn(self, y, same_length=True))], self.weights)
        return self


def _drawn(estimator: Any, y: Array, *, same_length: bool = False) -> tuple[Array, Array, Array, Array]:
    number = default_number(y) if estimator.n_constraints is None else int(estimator.n_constraints)
    drawn = Constraints(y).positive_negative_pairs(number, same_length, random_state=estimator.random_state)
    if not len(drawn[0]) or not len(drawn[2]):
        raise InputError("y: no class has two rows, or there is one class; give more rows of each class")
    return drawn


class RCA(PointsTransformer):
    """Relevant component analysis: the method ``krca`` with a linear kernel and ε = 0.

    Parameters
    ----------
    n_components : int, optional
        Principal axes of the learned space that are kept.
    preprocessor : array or callable, optional
    """

    def __init__(self, n_components: int | None = None, preprocessor: Any = None) -> None:
        self.n_components = n_components
        self.preprocessor = preprocessor

    def fit(self, X: Any, chunks: Any) -> Self:
        """Learn from rows and the number of the chunk of each, −1 for none."""
        self._start()
        return self._whiten(self._points(X), np.asarray(chunks))

    def _whiten(self, X: Array, chunks: Array) -> Self:
        d = X.shape[1]
        n = self._check_components(d)
        try:
            self._learn(X, mf.Chunklets(chunks), "krca", epsilon=0.0)
        except InputError:
            # if some direction does not vary inside chunks, it keeps a small weight instead of an infinite one; what
            # else is wrong is refused again
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused
                spread = float(np.square(X - X.mean(0)).mean())
            self._learn(X, mf.Chunklets(chunks), "krca", epsilon=1e-9 * spread + 1e-12)
        if n is not None and n < d:
            self._conclude(self.metric_.truncated(n), d)
        return self


class RCA_Supervised(RCA):  # noqa: N801
    """RCA on chunks drawn from labels.

    Parameters
    ----------
    n_components : int, optional
    n_chunks, chunk_size : int
    preprocessor : array or callable, optional
    random_state : int or RandomState, optional
    """

    def __init__(
        self,
        n_components: int | None = None,
        n_chunks: int = 100,
        chunk_size: int = 2,
        preprocessor: Any = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(n_components, preprocessor)
        self.n_chunks = n_chunks
        self.chunk_size = chunk_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows and their classes."""
        X, y = Supervised._rows(self, X, y)
        chunks = Constraints(y).chunks(self.n_chunks, self.chunk_size, random_state=self.random_state)
        return self._whiten(X, chunks)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class Covariance(PointsTransformer):
    """The inverse covariance of the rows as metric; no labels are used.

    Parameters
    ----------
    preprocessor : array or callable, optional
    """

    def __init__(self, preprocessor: Any = None) -> None:
        self.preprocessor = preprocessor

    def fit(self, X: Any, y: Any = None) -> Self:
        """Measure the covariance; in directions without variance the metric is 0."""
        self._start()
        X = self._points(X)
        with np.errstate(over="ignore", invalid="ignore"):
            C = np.atleast_2d(np.cov(X, rowvar=False)) if len(X) > 1 else np.zeros((X.shape[1],) * 2)
        if not np.isfinite(C).all():
            raise InputError("X: its covariance overflows; rescale the columns")
        w, V = np.linalg.eigh(C)
        keep = w > len(w) * np.finfo(float).eps * max(w[-1], np.finfo(float).tiny)
        root = np.where(keep, 1 / np.sqrt(np.where(keep, w, 1)), 0)
        labels = mf.Labels(np.arange(len(X)))  # the method learns nothing from them
        return self._learn(X, labels, "euclidean", prior=(V * root) @ V.T)
