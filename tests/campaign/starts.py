"""Kernels of every kind, with extreme parameters or broken contracts; options of methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import metricforge as mf
from metricforge import kernels as k

from .rows import Rng, pick

GAMMAS = ["median", "median", 0.5, 1e-3, 1e3, 1e-12, 1e12, 1e-300, 1e300, 5e-324]
BAD_NUMBERS = [0, -1, float("nan"), float("inf"), "x", None, True, [1], 1 + 1j, np.array([1.0, 2.0])]
BAD_NUMBERS += [np.array(3.0), np.array([]), 10**400, -(10**400), {}, object(), 1e-320, b"x"]


class Planted(Exception):  # noqa: N818
    """Raised by a kernel of the campaign; the library must propagate it."""


@dataclass(frozen=True)
class Constant(mf.Kernel):
    """The same value for all pairs of rows."""

    value: float = 1.0

    def block(self, X: Any, Y: Any) -> Any:
        return np.full((X.shape[0], Y.shape[0]), self.value)


@dataclass(frozen=True)
class NotFinite(mf.Kernel):
    """Is NaN between some rows."""

    def block(self, X: Any, Y: Any) -> Any:
        K = np.asarray(k.RBF(1.0).block(X, Y)).copy()
        K[:, ::3] = np.nan
        return K


@dataclass(frozen=True)
class Skewed(mf.Kernel):
    """Is not symmetric."""

    def block(self, X: Any, Y: Any) -> Any:
        G = X @ Y.T
        return np.asarray(G.toarray() if hasattr(G, "toarray") else G) + np.arange(Y.shape[0])


@dataclass(frozen=True)
class Indefinite(mf.Kernel):
    """Is symmetric, and no kernel."""

    def block(self, X: Any, Y: Any) -> Any:
        return -np.asarray(k.RBF(0.1).block(X, Y))


@dataclass(frozen=True)
class Raises(mf.Kernel):
    """Raises an exception of its own."""

    def block(self, X: Any, Y: Any) -> Any:
        raise Planted("as planned")


@dataclass(frozen=True)
class Whole(mf.Kernel):
    """Returns whole numbers."""

    def block(self, X: Any, Y: Any) -> Any:
        return np.rint(4 * np.asarray(k.RBF(0.1).block(X, Y))).astype(int)


@dataclass
class Start:
    """A function that creates a kernel; ``psd``: whether it is positive semidefinite on any rows."""

    make: Callable[[], Any]
    description: str
    takes: str = "vectors"
    psd: bool = True
    reference: str = ""


def _number(rng: Rng, good: list[Any], bad: list[Any] = BAD_NUMBERS, share: float = 0.08) -> Any:
    return pick(rng, bad if rng.random() < share else good)


def _none(rng: Rng, d: int) -> Start:
    return Start(lambda: None, "the method's own kernel")


def _name(rng: Rng, d: int) -> Start:
    name = pick(rng, ["linear", "rbf", "cauchy", "laplacian", "polynomial", "rbg", "", "weak", "learned", 3, k.RBF])
    return Start(lambda: name, f"kernel={name!r}")


def _linear(rng: Rng, d: int) -> Start:
    return Start(k.Linear, "Linear()", reference="linear")


def _gamma(cls: Any, reference: str) -> Callable[[Rng, int], Start]:
    def make(rng: Rng, d: int) -> Start:
        gamma = _number(rng, GAMMAS)
        return Start(lambda: cls(gamma), f"{cls.__name__}({gamma!r})", reference=reference)

    return make


def _polynomial(rng: Rng, d: int) -> Start:
    degree, coef0 = _number(rng, [1, 2, 3, 7, 50]), _number(rng, [0, 1.0, 1e-9, 1e300])
    return Start(lambda: k.Polynomial(degree, coef0), f"Polynomial({degree!r}, {coef0!r})")


def _weak(rng: Rng, d: int) -> Start:
    inner = simple(rng, d)
    feature = pick(rng, [0, d - 1, d, -1, 10**12, 0.5, None]) if rng.random() < 0.4 else 0
    return Start(lambda: k.Weak(inner.make(), feature=feature), f"Weak({inner.description}, feature={feature!r})")


def _mixture(rng: Rng, d: int) -> Start:
    parts = [simple(rng, d) for _ in range(int(rng.integers(1, 4)))]
    weights = [_number(rng, [1.0, 0.5, 0.0, 1e-300, 1e300, -1.0]) for _ in parts]
    psd = all(isinstance(w, int | float) and w >= 0 for w in weights)
    description = f"Mixture([{', '.join(p.description for p in parts)}], {weights!r})"
    return Start(lambda: k.Mixture([p.make() for p in parts], weights), description, psd=psd)


def _product(rng: Rng, d: int) -> Start:
    a, b = simple(rng, d), simple(rng, d)
    return Start(lambda: a.make() * b.make(), f"{a.description} * {b.description}")


def _normalized(rng: Rng, d: int) -> Start:
    inner = simple(rng, d)
    return Start(lambda: inner.make().normalized(), f"{inner.description}.normalized()")


def _standardized(rng: Rng, d: int) -> Start:
    inner = simple(rng, d)
    return Start(lambda: k.Standardized(inner.make()), f"Standardized({inner.description})")


def _over(rng: Rng, d: int) -> Start:
    inner, gamma = simple(rng, d), pick(rng, GAMMAS)
    return Start(lambda: k.RBF(gamma, base=inner.make()), f"RBF({gamma!r}, base={inner.description})")


def _nested(rng: Rng, d: int) -> Start:
    inner = pick(rng, [_mixture, _product, _normalized, _standardized, _over])(rng, d)
    outer = pick(rng, ["normalized", "standardized", "scaled", "rbf"])
    makes: dict[str, Callable[[], Any]] = {
        "normalized": lambda: inner.make().normalized(),
        "standardized": lambda: k.Standardized(inner.make()),
        "scaled": lambda: 1e-3 * inner.make(),
        "rbf": lambda: k.RBF("median", base=inner.make()),
    }
    return Start(makes[outer], f"{outer}({inner.description})", psd=inner.psd)


def _learned(rng: Rng, d: int) -> Start:
    method = pick(rng, ["euclidean", "krca", "idealized"])
    A = np.random.default_rng(0).normal(size=(20, d))
    return Start(lambda: mf.learn(A, np.arange(20) % 2, method=method), f"a metric of {method} on other rows")


def _foreign(rng: Rng, d: int) -> Start:
    cls = pick(rng, [Constant, Constant, NotFinite, Skewed, Indefinite, Raises, Whole])
    return Start(cls, f"{cls.__name__}, a kernel of our own", psd=cls is Constant)


def _spectrum(rng: Rng, d: int) -> Start:
    size = _number(rng, [1, 2, 3, 3, 100, 10**9])
    form = pick(rng, ["plain", "normalized", "over", "sum"])
    makes: dict[str, Callable[[], Any]] = {
        "plain": lambda: k.Spectrum(size),
        "normalized": lambda: k.Spectrum(size).normalized(),
        "over": lambda: k.RBF("median", base=k.Spectrum(size)),
        "sum": lambda: k.Spectrum(1) + 0.5 * k.Spectrum(size),
    }
    return Start(makes[form], f"Spectrum({size!r}), {form}", takes="strings")


def _precomputed(rng: Rng, d: int) -> Start:
    return Start(k.Precomputed, "Precomputed()", takes="gram")


SIMPLE = [
    _linear,
    _gamma(k.RBF, "rbf"),
    _gamma(k.Laplacian, "laplacian"),
    _gamma(k.Cauchy, "cauchy"),
    _polynomial,
]
ALL = [
    *[_none] * 8,
    _name,
    *SIMPLE * 2,
    _weak,
    _mixture,
    _product,
    _normalized,
    _standardized,
    _standardized,
    _over,
    _nested,
    _learned,
    _foreign,
    *[_spectrum] * 2,
    *[_precomputed] * 2,
]


def simple(rng: Rng, d: int) -> Start:
    return pick(rng, SIMPLE)(rng, d)


def draw(rng: Rng, d: int = 3, among: Any = ALL) -> Start:
    return pick(rng, among)(rng, d)


def valid(rng: Rng, d: int) -> Start:
    """Draw a kernel whose parameters are usual and that takes rows of numbers."""
    gamma = pick(rng, ["median", 0.5, 1e-3, 1e3])
    makes: dict[str, Callable[[], Any]] = {
        "Linear()": k.Linear,
        f"RBF({gamma!r})": lambda: k.RBF(gamma),
        f"Laplacian({gamma!r})": lambda: k.Laplacian(gamma),
        f"Cauchy({gamma!r})": lambda: k.Cauchy(gamma),
        "Polynomial(2, 1.0)": lambda: k.Polynomial(2, 1.0),
        "Weak(RBF(), feature=0)": lambda: k.Weak(k.RBF(1.0), feature=0),
        "Linear() + 0.5 * RBF()": lambda: k.Linear() + 0.5 * k.RBF(gamma),
        "Linear() * RBF()": lambda: k.Linear() * k.RBF(gamma),
        "Polynomial(3, 1.0).normalized()": lambda: k.Polynomial(3, 1.0).normalized(),
        "Standardized(Linear())": lambda: k.Standardized(k.Linear()),
        "RBF(base=Laplacian())": lambda: k.RBF("median", base=k.Laplacian("median")),
        "Constant, a kernel of our own": Constant,
        "'rbf'": lambda: "rbf",
    }
    what = pick(rng, makes)
    return Start(makes[what], what, reference="linear" if what == "Linear()" else "")


# -------------------------------------------------------------------------------------------------------------- options

WORDS = {
    "psd": ["exact", "project", "paper"],
    "cone": ["nonneg", "dd", "change-of-basis"],
    "loss": ["linear", "squared_hinge", "hinge"],
    "graph": ["mutual", "union"],
    "pair_weights": ["degree", "uniform"],
    "extension": ["ridge", "nystrom"],
    "eigensolver": ["auto", "lanczos", "primme", "arpack", "dense"],
    "pairs": ["auto", "all", "random", "neighbors"],
    "bandwidth": ["auto", "joint", "validated"],
    "bound": ["hinge", "logistic"],
    "bases": ["weak", "weak+directions", [k.Linear()], [k.RBF(1.0), k.RBF(10.0)], [], [3], None, [k.Spectrum(2)]],
    "rows": ["all", "triples"],
    "groups": [None, [0], [0, 0], range(3), "a", [None]],
    "M": [None, np.eye(3), -np.eye(3), np.zeros((2, 2)), k.RBF(1.0), "x", np.full((3, 3), np.nan)],
    "widths": [(1.0,), (), (0.0,), (-1.0,), (1e300,), (1e-300,), "x", (float("nan"),), 1.0],
    "n_pairs": [1, 2, 3, 5, 10, 50, None, 0],
    "radius": ["median", None, 0, 1e-9, 1.0, 1e300, -1, "x"],
    "epsilon": ["auto", 0, 1e-300, 1e-20, 1e-12, 1e-6, 1e-3, 1.0, 1e6, 1e300],
    "active": [None, 1.0, 0.5, 1e-9, 0.0, 2],
    "n_components": [1, 2, 6, None, 10**9, 0],
    "n_neighbors": ["auto", 1, 2, 5, 10**9, 0],
    "nu": [0, 1, 0.5, 1e-12, 1 - 1e-12, 2, -1],
}
"""Values of options whose default does not show their range; others are drawn by the type of their default."""
FLOATS = [0, 1e-300, 1e-12, 1e-6, 1e-3, 0.5, 1, 2.0, 1e3, 1e12, 1e300, np.float32(0.3), np.int64(2)]
WHOLES = [0, 1, 2, 3, 10, 1000, 10**9, 10**30, np.int8(3), 2.0]


@cache
def fields(method: str) -> dict[str, Any]:
    """Return the options of a method and their defaults, as scikit-learn's shell shows them."""
    found = mf.MetricLearner(method=method).get_params()
    return {name.removeprefix("solver__"): value for name, value in found.items() if name.startswith("solver__")}


def options(rng: Rng, method: str, *, extreme: bool = True) -> dict[str, Any]:
    """Draw none, one or a few options, mostly of the right type; without ``extreme`` one that is probably valid."""
    if method == "auto" or not (known := fields(method)):
        return {"nonsense": 1} if rng.random() < 0.02 else {}
    if not extreme:
        name = pick(rng, known)
        return {name: _valid_value(rng, name, known[name])}
    names = [pick(rng, known) for _ in range(int(rng.choice([0, 1, 1, 2, 3])))]
    return {name: _value(rng, name, known[name]) for name in names}


def _valid_value(rng: Rng, name: str, default: Any) -> Any:
    if name in WORDS:
        return pick(rng, [value for value in WORDS[name] if isinstance(value, str)] or [default])
    if isinstance(default, bool):
        return not default
    if isinstance(default, int) or name.startswith(("n_", "max_")):
        return pick(rng, [1, 2, 3, 10, 1000])
    return pick(rng, [0.01, 0.1, 0.5, 0.9, default]) if isinstance(default, float) else default


def _value(rng: Rng, name: str, default: Any) -> Any:
    if rng.random() < 0.1:
        return pick(rng, BAD_NUMBERS)
    if name in WORDS:
        return pick(rng, WORDS[name])
    if isinstance(default, bool):
        return pick(rng, [True, False])
    if isinstance(default, int) or name.startswith(("n_", "max_")):
        return pick(rng, WHOLES)
    return pick(rng, [*FLOATS, default])


RANKS = ["auto"] * 8 + ["exact", 1, 2, 5] * 4 + [10**9, 0, -1, 2.5, True, "all", None]
SEEDS = [0] * 24 + [1, 2**31, 2**63, -1, 1.5, None, "x", np.int64(3), True]
