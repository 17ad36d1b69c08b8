"""The scikit-learn shell: stores parameters, checks, and calls learn()."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from . import rows as _rows
from .constraints import Constraint, Labels
from .errors import InputError, NotUpdatableError, UnknownNameError, nearest
from .kernels import Kernel
from .learning import as_constraint, find_kernel, find_method, learn, method_of
from .problem import Solver

COMPONENTS = ("kernel", "solver")


def _updates(learner: MetricLearner) -> bool:
    """Tell whether partial_fit is there, as far as that is known before the data; scikit-learn shows the reason."""
    solver = learner._component("solver")
    if solver is None:
        if not hasattr(learner, "metric_"):
            return True  # method="auto" is open until a fit, and the first call is one
        solver = learner.metric_.solver
    if not solver.can_update:
        raise NotUpdatableError(f"a metric learned by {type(solver).__name__} cannot be updated; fit on all rows again")
    return True


class MetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learn a metric and transform rows into its Euclidean embedding.

    Side information travels as ``constraints`` through scikit-learn's metadata routing (switch it on with
    ``sklearn.set_config(enable_metadata_routing=True)``): constraints slice by row, so every fold receives the
    relations inside its rows, renumbered, and ``metric_.report.dropped`` says how many were left out.

    Parameters
    ----------
    method : str, default="auto"
        A registered method; "auto" chooses by the kind of hint.
    kernel : Kernel or name, optional
        What to start from; default: the method's own.  Its fields can be tuned as ``kernel__gamma``.
    solver : Solver, optional
        A configured solver; default: the method's own.  Its fields can be tuned as ``solver__tol``.
    rank : "auto", "exact" or int
        How the kernel is represented.
    random_state : int, RandomState or None

    Attributes
    ----------
    metric_ : Metric
        The learned metric.
    n_features_in_ : int
        The number of features seen during fit, where rows have features.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"constraints": True}
    __metadata_request__partial_fit: ClassVar[dict[str, bool]] = {"constraints": True}

    def __init__(
        self,
        method: str = "auto",
        *,
        kernel: Kernel | str | None = None,
        solver: Solver | None = None,
        rank: str | int = "auto",
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.kernel = kernel
        self.solver = solver
        self.rank = rank
        self.random_state = random_state

    # -- fitting -------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, constraints: Any = None) -> Self:
        """Learn the metric from ``constraints`` or, without them, from the labels ``y``.

        A fit that fails or is interrupted leaves the previous one as it was.
        """
        with self._kept_on_failure():
            kernel = self._component("kernel")
            X = self._rows(X, kernel, reset=True)
            relations = self._relations(X, y, constraints)
            self.metric_ = learn(
                X,
                relations,
                method=self.method,
                kernel=self.kernel,
                solver=self.solver,
                rank=self.rank,
                seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            )
        return self

    @available_if(_updates)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, *, constraints: Any = None) -> Self:
        """Learn from further rows and their own hints; the first call is a fit.

        Only there for methods whose metrics can be updated (krca), and for method="auto" until it has chosen one that
        cannot.  As with `Metric.update`, hints are about the rows of this call, and parameters set since the fit do
        not count.  A call that fails leaves what was learned before as it was.
        """
        if not hasattr(self, "metric_"):
            return self.fit(X, y, constraints=constraints)
        with self._kept_on_failure():
            X = self._rows(X, self.metric_.kernel, reset=False)
            self.metric_ = self.metric_.update(X, self._relations(X, y, constraints))
        return self

    def transform(self, X: Any) -> Any:
        """Return the (n, m) embedding of X, whose Euclidean distances are the metric's."""
        check_is_fitted(self)
        return self.metric_.transform(self._rows(X, self.metric_.kernel, reset=False))

    @property
    def _n_features_out(self) -> int:
        return self.metric_.embedding.columns

    @contextmanager
    def _kept_on_failure(self) -> Iterator[None]:
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _rows(self, X: Any, kernel: Kernel | None, *, reset: bool) -> Any:
        takes = "vectors" if kernel is None else kernel.takes
        if _rows.is_dask(X) or takes not in ("vectors", "gram"):
            if reset:
                self._forget_columns(X)
            return X  # learn and Metric check these themselves; check_array would compute a whole dask array
        try:
            return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset)
        except ValueError:
            if _rows.column_names(X):
                _rows.as_vectors(X)  # names the column that holds text
            raise

    def _forget_columns(self, X: Any) -> None:
        """Drop what an earlier fit knew about columns, and learn their number where there are any."""
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        if _rows.is_dask(X) and _rows.width(X) is not None:
            self.n_features_in_ = _rows.width(X)

    def _relations(self, X: Any, y: Any, constraints: Any) -> Constraint:
        if constraints is not None:
            return as_constraint(constraints, "constraints")
        if y is None:
            raise InputError(
                "y and constraints are None: this MetricLearner requires y to be passed, but the target y is None; "
                "give class labels y, or constraints=mf.Pairs(...)"
            )
        relations = y if isinstance(y, Constraint) else Labels(column_or_1d(y, warn=True))
        check_consistent_length(X, relations)
        return relations

    # -- parameters ----------------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with ``deep`` also the fields of the resolved kernel and solver."""
        params: dict[str, Any] = super().get_params(deep=False)
        if deep:
            for name in COMPONENTS:
                with suppress(InputError):  # an unknown name: the fit will say so
                    params.update(_fields_of(self._component(name), name))
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__gamma=0.5`` rebuilds the kernel with that field."""
        direct = {name: value for name, value in params.items() if "__" not in name}
        known = super().get_params(deep=False)
        with self._kept_on_failure():
            for name, value in direct.items():
                if name not in known:
                    raise UnknownNameError(f"Invalid parameter {name!r} for MetricLearner; {nearest(name, known)}")
                setattr(self, name, value)
            # the outer ones first: kernel__base before kernel__base__degree
            for name in sorted(params.keys() - direct.keys(), key=lambda name: (name.count("__"), name)):
                first, _, rest = name.partition("__")
                if first not in COMPONENTS:
                    close = nearest(first, COMPONENTS)
                    raise UnknownNameError(f"Invalid parameter {name!r} for MetricLearner; {close}")
                setattr(self, first, _replaced(self._component(first), rest, params[name], name))
        return self

    def _component(self, name: str) -> Any:
        """Return the kernel or solver that a fit would use, as far as that is known before the data."""
        given = getattr(self, name)
        if name == "kernel" and given is not None:
            return find_kernel(given)
        if given is not None:
            return given
        method = method_of(self.solver) if self.method == "auto" and self.solver is not None else self.method
        return None if method in (None, "auto") else getattr(find_method(method), name)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        try:
            kernel = self._component("kernel")
        except InputError:
            kernel = None  # the fit will say what is wrong
        takes = "vectors" if kernel is None else kernel.takes
        tags.input_tags.sparse = takes in ("vectors", "gram")
        tags.input_tags.pairwise = takes == "gram"
        tags.input_tags.string = takes == "strings"
        tags.input_tags.two_d_array = takes in ("vectors", "gram")
        tags.input_tags.one_d_array = not tags.input_tags.two_d_array
        return tags


def _fields_of(component: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield (prefix__field, value) for every option of a component, and of the kernels inside it."""
    if not is_dataclass(component):
        return
    for field in fields(component):
        if field.init:
            value = getattr(component, field.name)
            yield f"{prefix}__{field.name}", value
            if isinstance(value, Kernel):
                yield from _fields_of(value, f"{prefix}__{field.name}")


def _replaced(component: Any, path: str, value: Any, name: str) -> Any:
    """Return the component with the field at ``path`` set."""
    first, _, rest = path.partition("__")
    if component is None:
        raise InputError(
            f"{name} cannot be set while the kernel and method are left open; name a method or give a kernel"
        )
    known = [f.name for f in fields(component) if f.init]
    if first not in known:
        raise UnknownNameError(
            f"Invalid parameter {name!r}: {type(component).__name__} has no {first!r}; {nearest(first, known)}"
        )
    inner = _replaced(getattr(component, first), rest, value, name) if rest else value
    return replace(component, **{first: inner})
