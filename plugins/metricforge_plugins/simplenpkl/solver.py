"""Simple non-parametric kernel learning: pairs spread along a neighbour graph."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metricforge import eigen
from metricforge import rows as _rows
from metricforge.constraints import Constraint, Pairs
from metricforge.errors import ConvergenceWarning, InputError, UnknownNameError, nearest, whole_number
from metricforge.kernels import RBF, is_number
from metricforge.problem import Method, Problem, Solution, Solver, Status
from metricforge.space import FeatureMap, Space, check_memory, represent

from .extension import Extension, GraphExtension, ridge, unit_rows
from .graph import Graph, neighbor_graph
from .hinge import Dual
from .pairs import Signed, signed, uncertain
from .spectrum import PositivePart, positive_part

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = NDArray[Any]

NEIGHBORS = 20
"""n_neighbors="auto"; on few rows a twentieth of them, or the graph has no parts."""
LANDMARKS = 500
"""Features for the ridge regression at the most where the kernel has no explicit ones: more fit the training rows."""
CHOICES = {
    "loss": ("linear", "squared_hinge", "hinge"),
    "graph": ("mutual", "union"),
    "pair_weights": ("degree", "uniform"),
    "extension": ("ridge", "nystrom"),
    "eigensolver": ("auto", "lanczos", "primme", "arpack", "dense"),
}
CERTIFICATE = {
    "linear": "objective minus a lower bound on the optimum over kernels of any rank",
    "hinge": "duality gap over kernels of any rank",
}


@dataclass(frozen=True)
class SimpleNPKL(Solver):
    """Learn the kernel matrix K on n rows that follows a neighbour graph and agrees with pairs.

    Over K ⪰ 0 with tr(KK) ≤ B, minimise tr(LK) + Σ_pairs loss(t_ij K_ij): L is the normalised Laplacian of the graph,
    t_ij = +1 for similar and −1 for dissimilar pairs, w_ij their weights.

    - linear: −C w t_ij K_ij.  With A = C Σ w t_ij (E_ij + E_ji)/2 − L the optimum is K = sqrt(B) A₊/‖A₊‖_F: one sparse
      eigenproblem.
    - squared_hinge: (C/2) w max(0, 1 − t_ij K_ij)², and hinge: C w max(0, 1 − t_ij K_ij), by bundles on the dual, an
      eigenproblem a step.

    K is held as an embedding E with K = EE' of ``n_components`` columns, never as n × n.  ``transform``, ``distance``
    and ``kernel`` use its extension, on training and new rows alike; ``report.embedding`` is E itself.

    Parameters
    ----------
    loss : {"linear", "squared_hinge", "hinge"}
    C : float > 0
        The weight of the pairs.  With degree weights the matrix of the pairs has a norm of at most C/2, that of the
        graph's at most 1.
    B : float > 0, optional
        The bound on tr(KK); default n.  With the linear loss it only scales K.
    n_neighbors : "auto" or int
        Of the graph; "auto" is 20, or n/20 where that is less.
    graph : {"mutual", "union"}
        Whether two rows must list each other or one suffices.
    pair_weights : {"degree", "uniform"}
        w_ij = 1/sqrt(l_i l_j), l_i the number of pairs at row i, or 1.
    normalize : bool
        Divide the rows of E by their norms.
    n_components : int, optional
        The most eigenvectors in E; None keeps every positive one.
    extension : {"ridge", "nystrom"}
        How e(x) is found for any row: regression on the features of the base kernel, or a sum over the nearest
        training rows.
    active : float in (0, 1], optional
        Use this share of the pairs only: those at the rows that the base kernel leaves most undecided.
    eigensolver : {"auto", "lanczos", "primme", "arpack", "dense"}
    tol : float > 0
        Hinge losses: the relative gap to reach.  Linear: a hundredth of the residual of the eigenvectors, whose square
        goes into the objective.
    max_iter : int
        Eigenproblems of the hinge losses at the most.

    Notes
    -----
    Certificate: K is feasible, so its value is an upper bound; the lower bound adds to the eigenvalues found a bound on
    those left out (see `metricforge_plugins.simplenpkl.spectrum`), so a truncated spectrum never looks optimal.

    Cost beside the neighbour search: O(nk + p) memory for graph and pairs, some 2r + 64 vectors in float32 for r
    eigenvectors, and n r numbers for E.

    References
    ----------
    J. Zhuang, I. W. Tsang, S. C. H. Hoi. SimpleNPKL: simple non-parametric kernel learning. ICML 2009, eqs. (1)-(14).
    """

    loss: str = "linear"
    C: float = 2.0
    B: float | None = None
    n_neighbors: int | str = "auto"
    graph: str = "mutual"
    pair_weights: str = "degree"
    normalize: bool = True
    n_components: int | None = 6
    extension: str = "ridge"
    active: float | None = None
    eigensolver: str = "auto"
    tol: float = 1e-5
    max_iter: int = 200

    accepts: ClassVar[tuple[type[Constraint], ...]] = (Pairs,)

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            value = getattr(self, name)
            if value not in known:
                raise UnknownNameError(f"{name} {value!r} is unknown; {nearest(str(value), known)}")
        for name, value, most in (("C", self.C, np.inf), ("B", self.B, np.inf), ("active", self.active, 1.0)):
            optional = name != "C" and value is None
            number = float(value) if value is not None and is_number(value) else np.nan
            if not optional and not (0 < number <= most and number < np.inf):
                limit = "above 0" if most == np.inf else "above 0 and at most 1"
                raise InputError(f"{name} must be a finite number {limit}, got {value!r}")
        if not (is_number(self.tol) and 0 < self.tol <= 0.01):
            raise InputError(f"tol must be a number above 0 and at most 0.01, got {self.tol!r}")
        if self.n_neighbors != "auto":
            whole_number(self.n_neighbors, "n_neighbors")
        if self.n_components is not None:
            whole_number(self.n_components, "n_components")
        if not isinstance(self.normalize, bool | np.bool_):
            raise InputError(f"normalize must be True or False, got {self.normalize!r}")
        whole_number(self.max_iter, "max_iter")

    @classmethod
    def paper(cls, **options: Any) -> SimpleNPKL:
        """Return the setting of the publication: 50 mutual neighbours, equal weights, C = 1, every eigenvector."""
        printed: dict[str, Any] = {
            "C": 1.0,
            "n_neighbors": 50,
            "graph": "mutual",
            "pair_weights": "uniform",
            "normalize": False,
            "n_components": None,
        }
        return cls(**{**printed, **options})

    def _solve(self, problem: Problem) -> Solution:
        assert isinstance(problem.constraint, Pairs)
        k, notes = self._neighbors(problem.n)
        pairs = signed(problem.constraint, self.pair_weights)
        if self.active is not None:
            kept = uncertain(problem, pairs, self.active)
            pairs = signed(_subset(problem.constraint, kept), self.pair_weights)
        problem.step(0, None)
        graph = neighbor_graph(problem.space, k, self.graph, problem.seed)  # type: ignore[arg-type]
        placed = pairs.placed(graph.placed(np.arange(problem.n)))
        found = self._spectrum(problem, graph, placed)
        E = _embedding(found, self.n_components)
        # eigenvectors vanish there; what is left is rounding, and would be normalised to a direction
        E[~reached(graph.laplacian, placed)] = 0.0
        if self.normalize:
            E = unit_rows(E)
        E = graph.by_row(E)
        kernel, told = self._extended(problem, graph, found, E, k)
        part, r = found.part, E.shape[1]
        report = {
            "embedding": E,
            "eigenvalues": part.w[:r].copy(),
            "positive_eigenvalues": len(part.w),
            "complete": part.complete,
            "missed": part.missed,
            "lower_bound": found.lower,
            "eigensolver": part.solver,
            "products": found.products,
            "n_neighbors": k,
            "edges": int(graph.degrees.sum()) // 2,
            "isolated": graph.isolated,
            "pairs": pairs.p,
            "B": self._bound(problem.n),
            "B_share": self._bound(problem.n) / problem.n**2,
            **told,
        }
        return Solution(
            kernel,
            Status.OPTIMAL if found.reached else Status.ITERATION_LIMIT,
            found.value,
            max(0.0, found.value - found.lower),
            CERTIFICATE["linear" if self.loss == "linear" else "hinge"],
            n_iter=len(found.trace),
            trace=tuple(found.trace),
            report=report,
            notes=(*notes, *self._remarks(graph, found, E)),
        )

    # -- the parts -----------------------------------------------------------------------------------------------

    def _neighbors(self, n: int) -> tuple[int, tuple[str, ...]]:
        """Return the number of neighbours for n rows, and what to say about it."""
        if n < 2:
            raise InputError("X has 1 sample; a neighbour graph takes at least two rows")
        if isinstance(self.n_neighbors, str):
            return min(NEIGHBORS, max(2, n // 20), n - 1), ()
        if self.n_neighbors >= n:
            return n - 1, (f"n_neighbors={self.n_neighbors} was lowered to {n - 1}: there are no more other rows",)
        return int(self.n_neighbors), ()

    def _bound(self, n: int) -> float:
        return float(n) if self.B is None else float(self.B)

    def _spectrum(self, problem: Problem, graph: Graph, pairs: Signed) -> Spectrum:
        B = self._bound(problem.n)
        find = partial(positive_part, solver=self.eigensolver, seed=problem.seed)
        A = pairs.matrix(self.C * pairs.w) - graph.laplacian
        if self.loss == "linear":
            part = find(A, self.n_components, tol=100 * self.tol)
            problem.step(1, 1)
            if not len(part.w):
                raise self._nothing(graph, pairs)
            value, lower = -float(np.sqrt(B)) * part.norm, -float(np.sqrt(B)) * part.upper
            factor = np.sqrt(B) / part.norm
            trace = [(value, value - lower)]
            return Spectrum(part, factor, value, lower, trace, part.n_products, part.converged)
        # at K = 0 the dual is at α = Cw, so A tells whether K = 0 is optimal
        if not len(find(A, 1, tol=self.tol / 10).w):
            raise self._nothing(graph, pairs)

        def step(count: int, value: float, gap: float) -> None:
            problem.step(count, self.max_iter, objective=value, gap=gap)

        squared = self.loss == "squared_hinge"
        search = partial(find, tol=max(1e-9, self.tol / 10))
        dual = Dual(graph.laplacian, pairs, self.C, B, squared, search, self.tol, step)
        closed = dual.solve(self.max_iter)
        assert dual.best is not None
        if not closed:
            warnings.warn(
                f"simplenpkl stopped after {len(dual.trace)} eigenproblems with a gap of {dual.gap:.2g} "
                f"(value {dual.upper:.6g}); raise max_iter or tol, or lower B or C",
                ConvergenceWarning,
                stacklevel=4,
            )
        return Spectrum(*dual.best, dual.upper, dual.lower, dual.trace, dual.products, closed)

    def _nothing(self, graph: Graph, pairs: Signed) -> InputError:
        """Return the error for K = 0, with the smallest C that gives more."""
        least = smallest_weight(graph.laplacian, pairs, self.C)
        return InputError(
            f"C={self.C:g} is too small for these pairs: A = C T − L has no positive eigenvalue, so K = 0 is optimal "
            f"and all distances are 0; the smallest C that gives a kernel is about {least:.3g}, or add similar pairs"
        )

    def _extended(
        self, problem: Problem, graph: Graph, found: Spectrum, E: Array, k: int
    ) -> tuple[Extension, dict[str, Any]]:
        n, r = E.shape
        # one column of norm 1 would know two places only
        unit = bool(self.normalize) and r > 1
        if self.extension == "ridge":
            kernel, explained = ridge(_features(problem.space), problem.rows, E, unit)
            return kernel, {"explained": explained}
        X = problem.rows
        if _rows.is_dask(X):
            size = 8 * n * (_rows.width(X) or 1)
            check_memory(size, f"{n} training rows in memory", 'use extension="ridge", which keeps none')
            X = _rows.gathered(X)
        lam = found.part.w[:r]
        scale = np.zeros(n)
        touched = graph.degrees > 0
        scale[touched] = 1 / np.sqrt(graph.degrees[touched])
        U = found.part.V[:, :r] * (np.sqrt(found.factor * lam) / (1 + lam)) * scale[:, None]
        return GraphExtension(problem.kernel, X, graph.by_row(U), k, unit), {}

    def _remarks(self, graph: Graph, found: Spectrum, E: Array) -> tuple[str, ...]:
        said = []
        if graph.isolated:
            said.append(f"{graph.isolated} row(s) have no neighbour in the {self.graph} graph; pairs alone place them")
        blank = int(np.count_nonzero(~E.any(axis=1)))
        if blank:
            said.append(f"{blank} row(s) are at the origin of the embedding: neither neighbours nor pairs reach them")
        if E.shape[1] < 2 and self.normalize:
            said.append(
                "the embedding has one column, so after normalisation every distance between training rows is 0 or 2; "
                f"a larger C (now {self.C:g}) or a smaller n_neighbors gives more"
            )
        if not found.part.complete and self.loss == "linear":
            said.append(
                f"the embedding is optimal among those of rank {len(found.part.w)}; the gap is to the optimum of any "
                "rank, which n_components=None gives"
            )
        return tuple(said)


def _features(space: Space) -> FeatureMap:
    """Return the features to regress on: those of the space, or of some landmarks where it holds every row."""
    if space.representation == "exact" and space.rank > LANDMARKS:
        return represent(space.kernel, space.rows, LANDMARKS, seed=space.seed).map
    return space.map


class Spectrum(NamedTuple):
    """What a loss leaves: K = V diag(factor · w) V', its value and a lower bound on the optimum."""

    part: PositivePart
    factor: float
    value: float
    lower: float
    trace: list[tuple[float, float]]
    products: int
    reached: bool


def _embedding(found: Spectrum, most: int | None) -> Array:
    """Return E with EE' = K, or its best part of ``most`` columns."""
    r = len(found.part.w) if most is None else min(most, len(found.part.w))
    return np.asarray(found.part.V[:, :r] * np.sqrt(found.factor * found.part.w[:r]))


def reached(laplacian: csr_array, pairs: Signed) -> Array:
    """Tell which rows are joined to a pair by the graph and the pairs; elsewhere A = −L ⪯ 0, so K is 0."""
    from scipy.sparse.csgraph import connected_components

    _, component = connected_components(pairs.matrix(np.ones(pairs.p)) - laplacian, directed=False)
    there = np.zeros(component.max() + 1, dtype=bool)
    there[component[pairs.i]] = True
    return np.asarray(there[component])


def _subset(constraint: Pairs, kept: Array) -> Pairs:
    s = len(constraint.similar)
    return Pairs(constraint.similar[kept[kept < s]], constraint.dissimilar[kept[kept >= s] - s], n=constraint.n)


def smallest_weight(laplacian: csr_array, pairs: Signed, C: float) -> float:
    """Return the least weight above C, to three digits, at which C T − L has a positive eigenvalue.

    The largest eigenvalue is convex in C, 0 at C = 0 and without bound, since T is symmetric with a zero trace.
    """
    T = pairs.matrix(pairs.w)

    def positive(c: float) -> bool:
        A = c * T - laplacian
        return bool(eigen.top(A, 1, tol=1e-8)[0][0] > 1e-9 * max(1.0, c))

    low, high = C, 2 * C
    while not positive(high):
        low, high = high, 2 * high
    while high > 1.002 * low:
        middle = np.sqrt(low * high)
        low, high = (low, middle) if positive(middle) else (middle, high)
    return float(high)


METHOD = Method(Pairs, RBF("median"), SimpleNPKL())
