"""MetricLearner, the scikit-learn estimator: stores parameters, validates rows, and calls learn()."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from .. import rows as _rows
from ..constraints import Constraint, Distances, Labels
from ..errors import InputError, InputTypeError, NotUpdatableError, UnknownNameError
from ..kernels import Kernel
from ..learning import learn_named
from ..metric import Metric
from ..resolve import as_constraint, find_kernel, find_method, find_solver, method_of
from ..solver import Solver
from ..validation import nearest, shown

LONGEST = 300
"""Characters of a message that are shown."""
OTHER_NAMES = "The feature names should match"
"""How scikit-learn's error for other column names than in fit begins."""


def validated(estimator: Any, X: Any, *y: Any, reset: bool = True) -> Any:
    """Return what scikit-learn's ``validate_data`` does, for rows of numbers; the errors name rows and columns."""
    if _rows.is_sparse(X):
        X = _rows.as_vectors(X)  # before compiled code meets invalid indices
    with own_errors():
        try:
            return validate_data(estimator, X, *y, accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset)
        except Exception as error:
            # scikit-learn asks for a TypeError of its own where cells are no numbers
            if not isinstance(error, TypeError) or isinstance(X, dict):
                _rows.as_vectors(X)
            if type(error) in (ValueError, TypeError):
                raise
            raise InputError(f"X: {error}") from None  # for instance two columns of one name


def one_column(y: Any) -> Any:
    """Return labels as a 1-d array; a column is flattened with scikit-learn's warning."""
    with own_errors():
        return column_or_1d(y, warn=True)


def check_lengths(*arrays: Any) -> None:
    """Raise InputError if arrays have different numbers of rows."""
    with own_errors():
        check_consistent_length(*arrays)


@contextmanager
def own_errors() -> Iterator[None]:
    """Turn errors of scikit-learn's checks into the library's.

    The error for other column names is left as it is: scikit-learn's battery reads its lines, and `InputError` has one.
    """
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # scikit-learn adds up all cells
            yield
    except (ValueError, TypeError) as error:
        if type(error) not in (ValueError, TypeError) or str(error).startswith(OTHER_NAMES):
            raise
        raise (InputTypeError if isinstance(error, TypeError) else InputError)(_short(str(error))) from None


def _short(message: str) -> str:
    """Return a message of scikit-learn's on one line, without all of the array that it may quote."""
    line = " ".join(message.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."


COMPONENTS = ("kernel", "solver")


def _updates(learner: MetricLearner) -> bool:
    """Return whether partial_fit is available, or raise the reason why not, which scikit-learn shows."""
    solver = learner._component("solver")
    if solver is None:
        if not hasattr(learner, "metric_"):
            return True  # the first call is a fit, which decides what method="auto" is
        solver = learner.metric_.solver
    if solver is None or not solver.can_update:
        name = "this solver" if solver is None else type(solver).__name__
        raise NotUpdatableError(f"a metric learned by {name} cannot be updated; fit on all rows again")
    return True


class MetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learn a metric and transform rows into its Euclidean embedding.

    Side information is passed as ``constraints`` through scikit-learn's metadata routing, which
    ``sklearn.set_config(enable_metadata_routing=True)`` enables.  Constraints slice by row, so every fold receives the
    relations inside its rows, renumbered, and ``metric_.report.dropped`` is the number of the others.

    Parameters
    ----------
    method : str, default="auto"
        A registered method; "auto" chooses by the kind of constraint, as in `learn`.
    kernel : Kernel or name, optional
        The kernel to start from; default: the method's own.  Its fields can be tuned as ``kernel__gamma``.
    solver : Solver or name, optional
        A configured solver, or the name of a registered one; default: the method's own.  Its fields can be tuned as
        ``solver__tol``.
    rank : "auto", "exact" or int
        How the kernel is represented.
    selection : {"guard", "off"}
        Whether ``method="auto"`` checks its choice on held-out relations, as in `learn`.
    candidates : sequence, optional
        The methods that ``method="auto"`` chooses from, as in `learn`.
    n_components : int, optional
        Cut the embedding to this many principal axes; ``metric_.report.kept`` is the share of variance they keep.
    random_state : int, RandomState or None

    Attributes
    ----------
    metric_ : Metric
        The learned metric.
    n_features_in_ : int
        The number of features seen during fit, if rows have features.
    feature_names_in_ : array of str
        The names of the columns seen during fit, if X is a frame; ``metric_.columns`` has them too.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"constraints": True}
    __metadata_request__partial_fit: ClassVar[dict[str, bool]] = {"constraints": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {"constraints": True}

    def __init__(
        self,
        method: str = "auto",
        *,
        kernel: Kernel | str | None = None,
        solver: Solver | str | None = None,
        rank: str | int = "auto",
        selection: str = "guard",
        candidates: Sequence[Any] | None = None,
        n_components: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.kernel = kernel
        self.solver = solver
        self.rank = rank
        self.selection = selection
        self.candidates = candidates
        self.n_components = n_components
        self.random_state = random_state

    # -- fitting -------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, constraints: Any = None) -> Self:
        """Learn the metric from ``constraints`` or, without them, from the labels ``y``.

        If it fails or is interrupted, the previous fit is kept.
        """
        return self._fit(X, y, constraints)

    def _fit(self, X: Any, y: Any, constraints: Any, *, checked: bool = True) -> Self:
        with self._kept_on_failure():
            kernel = self._component("kernel")
            X = self._rows(X, kernel, reset=True)
            relations = self._relations(X, y, constraints)
            metric = learn_named(
                X,
                self.__dict__.get("feature_names_in_"),
                relations,
                method=self.method,
                kernel=self.kernel,
                solver=self.solver,
                rank=self.rank,
                seed=self._seed(),
                options={},
                selection=self.selection if checked else "off",
                candidates=self.candidates,
            )
            self.metric_ = self._truncated(metric)
        return self

    @available_if(_updates)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, *, constraints: Any = None) -> Self:
        """Learn from further rows and constraints over them; the first call is a fit.

        Available only for methods whose metrics can be updated, and for method="auto" until it has chosen one that
        cannot.  As with `Metric.update`, constraints are about the rows of this call, and parameters set since the fit
        have no effect.  If it fails, the previous fit is kept.
        """
        if not hasattr(self, "metric_"):
            # not compared with the start, which could not take the rows of the next call
            return self._fit(X, y, constraints, checked=False)
        with self._kept_on_failure():
            X = self._rows(X, self.metric_.kernel, reset=False)
            self.metric_ = self._truncated(self.metric_.update(X, self._relations(X, y, constraints)))
        return self

    def _seed(self) -> int:
        try:
            return int(check_random_state(self.random_state).randint(2**31 - 1))
        except ValueError as error:
            raise InputError(f"random_state={shown(self.random_state)}: {error}") from None

    def _truncated(self, metric: Metric) -> Metric:
        return metric if self.n_components is None else metric.truncated(self.n_components)

    def transform(self, X: Any) -> Any:
        """Return the (n, m) embedding of X, whose Euclidean distances equal the metric's."""
        check_is_fitted(self)
        return self.metric_.transform(self._rows(X, self.metric_.kernel, reset=False))

    def score(self, X: Any, y: Any = None, *, constraints: Any = None) -> float:
        """Return how well the metric fits hints about rows, in [0, 1]; larger is better.

        Labels: the mean accuracy of one and of five nearest neighbours and of triplets, each row left out once.  Pairs:
        the area under the ROC curve.  Other kinds: `Constraint.score`.  Give rows that the metric was not learned from.
        """
        check_is_fitted(self)
        X = self._rows(X, self.metric_.kernel, reset=False)
        relations = self._relations(X, y, constraints)
        X = self.metric_.kernel.check(X, "X")
        relations.check(_rows.count(X))
        return relations.score(Distances(self.metric_.kernel, X, self.metric_.seed))

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
        if takes == "vectors" and self.kernel is None and _rows.holds_strings(X):
            takes = "strings"  # learn has a kernel for them
        if _rows.is_dask(X) or takes not in ("vectors", "gram"):
            if reset:
                self._forget_columns(X)
            return X  # learn and Metric check it; check_array would compute a whole dask array
        return validated(self, X, reset=reset)

    def _forget_columns(self, X: Any) -> None:
        """Delete the attributes on columns of an earlier fit; set their number for a dask array."""
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
        relations = y if isinstance(y, Constraint) else self._kind().of_values(one_column(y))
        check_lengths(X, relations)
        return relations

    def _kind(self) -> type[Constraint]:
        """Return the kind that the method is meant for, which decides what a bare y is."""
        method = self._method()
        return Labels if method is None else find_method(method).constraint

    # -- parameters ----------------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with ``deep`` also the fields of the resolved kernel and solver."""
        params: dict[str, Any] = super().get_params(deep=False)
        if deep:
            for name in COMPONENTS:
                with suppress(InputError):  # an unknown name is an error of the fit
                    params.update(_fields_of(self._component(name), name))
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__gamma=0.5`` rebuilds the kernel with that field."""
        direct = {name: value for name, value in params.items() if "__" not in name}
        known = super().get_params(deep=False)
        with self._kept_on_failure():
            for name, value in direct.items():
                if name not in known:
                    raise UnknownNameError(
                        f"Invalid parameter {name!r} for MetricLearner; {self._instead(name, known)}"
                    )
                setattr(self, name, value)
            # outer parameters first: kernel__base before kernel__base__degree
            for name in sorted(params.keys() - direct.keys(), key=lambda name: (name.count("__"), name)):
                first, _, rest = name.partition("__")
                if first not in COMPONENTS:
                    close = nearest(first, COMPONENTS)
                    raise UnknownNameError(f"Invalid parameter {name!r} for MetricLearner; {close}")
                setattr(self, first, _replaced(self._component(first), rest, params[name], name))
        return self

    def _instead(self, name: str, known: Iterable[str]) -> str:
        """Return what to write in the place of an unknown parameter: often an option of the method was meant."""
        nested = [path for path in self.get_params() if path.endswith(f"__{name}")]
        return f"write {' or '.join(nested)}" if nested else nearest(name, list(known))

    def _component(self, name: str) -> Any:
        """Return the kernel or solver that a fit would use, or None if that depends on the data."""
        given = getattr(self, name)
        if name == "kernel" and given is not None:
            return find_kernel(given)
        if given is not None:
            return find_solver(given)
        method = self._method()
        return None if method is None else getattr(find_method(method), name)

    def _method(self) -> str | None:
        """Return the name of the method of a fit, or None if that depends on the data."""
        named = self.method == "auto" and self.solver is not None
        method = method_of(find_solver(self.solver)) if named else self.method
        return None if method == "auto" else method

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        try:
            kernel = self._component("kernel")
        except InputError:
            kernel = None  # an error of the fit
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
            f"{name} cannot be set as long as neither a kernel nor a method is given; name a method or give a kernel"
        )
    known = [f.name for f in fields(component) if f.init]
    if first not in known:
        raise UnknownNameError(
            f"Invalid parameter {name!r}: {type(component).__name__} has no {first!r}; {nearest(first, known)}"
        )
    inner = _replaced(getattr(component, first), rest, value, name) if rest else value
    return replace(component, **{first: inner})
