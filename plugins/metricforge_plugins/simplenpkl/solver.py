"""Simple non-parametric kernel learning: pairs propagated along a neighbour graph."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from metricforge import eigen
from metricforge import rows as _rows
from metricforge.constraints import Constraint, Labels, Pairs, Triplets
from metricforge.distributed.cluster import despite_losses
from metricforge.errors import InputError
from metricforge.kernels import RBF, Standardized
from metricforge.kernels.arithmetic import inverse_root
from metricforge.rows import Array
from metricforge.solver import Certificate, Method, Problem, Solution, Solver, Status, Use
from metricforge.space import FeatureMap, Size, Space, check_memory, represent, rows_seconds, space_bytes
from metricforge.validation import flag, number, number_or, one_of, whole_number, whole_number_or

from . import hinge
from .chunked_graph import ChunkedGraph
from .extension import Extension, GraphExtension, ridge
from .graph import NeighborGraph, neighbor_graph
from .laplacian import Laplacian
from .pairs import SignedPairs, signed_pairs, uncertain_pairs
from .similarity import check_similarity, edges, similarity_graph
from .spectrum import SpectralSolution, positive_part
from .weight import smallest_weight

NEIGHBORS = 20
"""n_neighbors="auto"; n/20 on few rows, where more would connect everything."""
LOOSEST_RESIDUAL = 1e-2
"""The largest relative residual of the eigenvectors of the linear loss, whatever ``tol`` is."""
LANDMARKS = 500
"""Maximal number of landmark features in the ridge regression: more of them overfit the training rows."""
GATHERED_BYTES = 1600
"""Bytes per row of a graph and its eigenvectors in this process, as measured for the forecast of a fit."""
RESTARTS = 2
"""How often a fit solves again after a worker was lost with eigenvectors that no task can compute again."""
UNBOUNDED = "unbounded"
CHOICES = {
    "steps": ("bundle", *hinge.RULES),
    "loss": ("linear", "squared_hinge", "hinge"),
    "graph": ("mutual", "union"),
    "pair_weights": ("degree", "uniform"),
    "extension": ("ridge", "nystrom"),
}
CERTIFICATE = {
    "linear": ("bound", "objective minus a lower bound on the optimum over kernels of any rank"),
    "hinge": ("gap", "duality gap over kernels of any rank"),
}
"""Kind and definition of the certificate; squared_hinge has that of hinge."""


@dataclass(frozen=True)
class SimpleNPKL(Solver):
    """Learn the kernel matrix K on n rows that is smooth on a neighbour graph and agrees with pairs.

    Over K ⪰ 0 with tr(KK) ≤ B, minimise tr(LK) + Σ_pairs loss(t_ij K_ij): L is the normalised Laplacian of the graph,
    t_ij = +1 for similar and −1 for dissimilar pairs, w_ij their weights.

    - linear: −C w t_ij K_ij.  With A = C Σ w t_ij (E_ij + E_ji)/2 − L the optimum is K = sqrt(B) A₊/‖A₊‖_F: one sparse
      eigenproblem.
    - squared_hinge: (C/2) w max(0, 1 − t_ij K_ij)², and hinge: C w max(0, 1 − t_ij K_ij), by a bundle method on the
      dual with one eigenproblem per step.

    K is represented by an embedding E with K = EE' of ``n_components`` columns, never as n × n.  ``transform``,
    ``distance`` and ``kernel`` use its extension for training and new rows alike; ``report.embedding`` is E itself.

    Parameters
    ----------
    loss : {"linear", "squared_hinge", "hinge"}
    C : float > 0
        The weight of the pairs.  With degree weights the matrix of the pairs has a norm of at most C/2, and that of
        the graph a norm of at most 1.
    B : float > 0 or "unbounded", optional
        The bound on tr(KK); default n.  With the linear loss it only scales K.  "unbounded" solves eq. (4), which has
        no bound and a solution for the hinge losses: the bound is raised until K has at most half of it.
    n_neighbors : "auto" or int
        Neighbours per row in the graph; "auto" is 20, or n/20 where that is less.
    recall : float in (0, 1]
        The share of true neighbours that the search finds where there are too many rows to compare all; 1 compares
        all.  The outcome has the estimate.
    graph : {"mutual", "union"}
        Whether two rows are connected if each is among the nearest of the other, or if one is.
    similarity : (n, n) sparse matrix, optional
        S of eq. (3), any symmetric weights >= 0 between the rows, in place of the graph of nearest neighbours.
    pair_weights : {"degree", "uniform"}
        w_ij = 1/sqrt(l_i l_j), l_i the number of pairs at row i, or 1.
    normalize : bool
        Divide the rows of E by their norms.
    n_components : int, optional
        The maximal number of eigenvectors in E; None keeps every positive one.
    extension : {"ridge", "nystrom"}
        How e(x) is computed for any row: by regression on the features of the base kernel, or as a sum over the
        nearest training rows.
    active : float in (0, 1], optional
        Use only this share of the pairs: those at the rows where the base kernel has the smallest margins.
    eigensolver : {"auto", "lanczos", "primme", "arpack", "dense"}, or the name of a registered eigensolver
    tol : float > 0
        Hinge losses: the gap to reach, relative to the objective (to 1/1000 of the loss at K = 0 where the objective
        is less).  Linear: 1/100 of the residual of the eigenvectors, which enters the
        objective squared.
    max_iter : int
        The maximal number of eigenproblems of the hinge losses.
    steps : {"bundle", "harmonic", "best-response"}
        How the hinge losses choose the next eigenproblem.  The last two are published, in Algorithm 1 with η_t = 1/t
        and in eq. (14); they are here for comparison, and often leave the gap open.

    Notes
    -----
    Certificate: K is feasible, so its value is an upper bound.  The lower bound uses the computed eigenvalues and a
    bound on the others (see `metricforge_plugins.simplenpkl.spectrum`), so a truncated spectrum is not reported as
    optimal.

    Cost besides the neighbour search: O(nk + p) memory for graph and pairs, about 2r + 64 vectors in float32 for r
    eigenvectors, and n r numbers for E.

    References
    ----------
    J. Zhuang, I. W. Tsang, S. C. H. Hoi. SimpleNPKL: simple non-parametric kernel learning. ICML 2009, eqs. (1)-(14).
    """

    loss: str = "linear"
    C: float = 8.0
    B: float | str | None = None
    n_neighbors: int | str = "auto"
    graph: str = "mutual"
    pair_weights: str = "degree"
    normalize: bool = True
    n_components: int | None = 12
    extension: str = "ridge"
    active: float | None = None
    eigensolver: str = "auto"
    tol: float = 1e-5
    max_iter: int = 200
    recall: float = 0.95
    similarity: Any = field(default=None, compare=False)  # matrices have no single truth value
    steps: str = "bundle"

    accepts: ClassVar[tuple[type[Constraint], ...]] = (Pairs,)

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            one_of(getattr(self, name), name, known)
        eigen.check_name(self.eigensolver, "eigensolver")
        number(self.C, "C", above=0, most=1e100)  # its square is finite
        number_or(self.B, "B", [None, UNBOUNDED], above=0)
        number_or(self.active, "active", [None], above=0, most=1)
        number(self.recall, "recall", above=0, most=1)
        number(self.tol, "tol", above=0, most=0.01)
        whole_number_or(self.n_neighbors, "n_neighbors", ["auto"])
        whole_number_or(self.n_components, "n_components", [None])
        flag(self.normalize, "normalize")
        whole_number(self.max_iter, "max_iter")
        if self.B == UNBOUNDED and self.loss == "linear":
            raise InputError(
                'B="unbounded" has no solution with loss="linear"; give B a number, or choose a hinge loss'
            )
        if self.similarity is not None:
            check_similarity(self.similarity)
            if self.extension == "nystrom":
                raise InputError(
                    'extension="nystrom" needs the neighbour graph, because new rows have no similarity; use "ridge"'
                )

    @classmethod
    def paper(cls, **options: Any) -> SimpleNPKL:
        """Return the settings of the publication: 50 mutual neighbours, equal weights, C = 1, every eigenvector."""
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
        pairs = signed_pairs(problem.constraint, self.pair_weights)
        if self.active is not None:
            kept = uncertain_pairs(problem, pairs, self.active)
            pairs = signed_pairs(_subset(problem.constraint, kept), self.pair_weights)
        problem.step(0, None)
        graph: NeighborGraph | ChunkedGraph
        if self.similarity is None:
            kind: Any = self.graph  # one of CHOICES
            graph = neighbor_graph(problem.space, k, kind, problem.seed, self.recall)
        else:
            graph = similarity_graph(self.similarity, problem.rows)
        placed = graph.placed(pairs)
        found, E, (kernel, fitted) = despite_losses(
            lambda: self._embedded(problem, graph, placed, k), RESTARTS, "simplenpkl solves again"
        )
        part, r = found.part, E.shape[1]
        sort, definition = CERTIFICATE["linear" if self.loss == "linear" else "hinge"]
        outcome = {
            "embedding": E,
            "eigenvalues": part.w[:r].copy(),
            "positive_eigenvalues": len(part.w),
            "complete": part.complete,
            "missed": part.missed,
            "lower_bound": found.lower,
            "eigensolver": part.solver,
            "products": found.products,
            "n_neighbors": k,
            "edges": graph.edges if self.similarity is None else edges(self.similarity),
            "isolated": graph.isolated,
            "recall": graph.recall,
            "pairs": pairs.p,
            "B": found.B,
            "B_share": found.B / problem.n**2,
            **fitted,
        }
        return Solution(
            kernel,
            self._status(found),
            found.value,
            certificate=Certificate(sort, max(0.0, found.value - found.lower), abs(found.value), definition),
            n_iter=len(found.trace),
            trace=tuple(found.trace),
            outcome=outcome,
            notes=(*notes, *self._notes(graph, found, E)),
        )

    # -- the parts -----------------------------------------------------------------------------------------------

    def _neighbors(self, n: int) -> tuple[int, tuple[str, ...]]:
        """Return the number of neighbours for n rows, and notes."""
        if n < 2:
            raise InputError("X has 1 sample; a neighbour graph needs at least two rows")
        if isinstance(self.n_neighbors, str):
            return min(NEIGHBORS, max(2, n // 20), n - 1), ()
        if self.n_neighbors >= n:
            return n - 1, (f"n_neighbors={self.n_neighbors} was lowered to {n - 1}, the number of other rows",)
        return int(self.n_neighbors), ()

    def _status(self, found: SpectralSolution) -> Status:
        if found.converged and found.short:
            return Status.TRUNCATED
        if found.converged:
            return Status.OPTIMAL
        return Status.ITERATION_LIMIT if len(found.trace) >= self.max_iter or self.loss == "linear" else Status.STALLED

    def _bound(self, n: int) -> float:
        """Return B, or the first bound that stands for none: the less it exceeds tr(KK), the better the certificate."""
        return float(n) if self.B is None or isinstance(self.B, str) else float(self.B)

    def _embedded(
        self, problem: Problem, graph: NeighborGraph | ChunkedGraph, pairs: SignedPairs, k: int
    ) -> tuple[SpectralSolution, Any, tuple[Extension, dict[str, Any]]]:
        """Return the solution, the embedding of the rows, and the extension to new ones with what it reports."""
        found = self._spectrum(problem, graph, pairs)
        E = graph.embedded(found.part.V, _scale(found, self.n_components), pairs, self.normalize)
        return found, E, self._extended(problem, graph, found, E, k)

    def _spectrum(self, problem: Problem, graph: NeighborGraph | ChunkedGraph, pairs: SignedPairs) -> SpectralSolution:
        B = self._bound(problem.n)
        find = partial(positive_part, solver=self.eigensolver, seed=problem.seed)
        L = graph.operator
        A = L.matrix(pairs, self.C * pairs.w)
        if self.loss == "linear":
            part = find(A, self.n_components, tol=min(100 * self.tol, LOOSEST_RESIDUAL))
            problem.step(1, 1)
            if not len(part.w):
                raise self._zero_is_optimal(L, pairs)
            value, lower = -float(np.sqrt(B)) * part.norm, -float(np.sqrt(B)) * part.upper
            factor = np.sqrt(B) / part.norm
            trace = [(value, value - lower)]
            rest = part.n_products, part.converged, not part.complete
            return SpectralSolution(part, factor, value, lower, trace, *rest, B, B)
        # the dual point of K = 0 is α = Cw, so K = 0 is optimal exactly if this A has no positive eigenvalue
        if not len(find(A, 1, tol=self.tol / 10).w):
            raise self._zero_is_optimal(L, pairs)

        return hinge.solve(self, problem, L, pairs, B, find)

    def _zero_is_optimal(self, L: Laplacian, pairs: SignedPairs) -> InputError:
        """Return the error for K = 0, with the smallest C for which K is not 0 where that takes no rounds of tasks."""
        repair = "raise C"
        if L.here:
            repair = f"the smallest C that gives a kernel is about {smallest_weight(L, pairs, self.C):.3g}"
        return InputError(
            f"C={self.C:g} is too small for these pairs: A = C T − L has no positive eigenvalue, so K = 0 is optimal "
            f"and all distances are 0; {repair}, or add similar pairs"
        )

    def _extended(
        self, problem: Problem, graph: NeighborGraph | ChunkedGraph, found: SpectralSolution, E: Any, k: int
    ) -> tuple[Extension, dict[str, Any]]:
        n, r = E.shape
        # a single column divided by its norm has only two values
        unit = bool(self.normalize) and r > 1
        if self.extension == "ridge":
            kernel, explained = ridge(_features(problem.space), problem.rows, E, unit)
            return kernel, {"explained": explained}
        X = problem.rows
        if _rows.is_dask(X):
            size = 8 * n * ((_rows.width(X) or 1) + r)
            check_memory(size, f"{n} training rows in memory", 'use extension="ridge", which keeps none')
            X = _rows.gathered(X)
        lam = found.part.w[:r]
        V = np.asarray(_rows.gathered(found.part.V))[:, :r]
        U = V * (np.sqrt(found.factor * lam) / (1 + lam)) * inverse_root(graph.degrees)[:, None]
        return GraphExtension(problem.kernel, X, graph.by_row(U), k, unit), {}

    def _notes(self, graph: NeighborGraph | ChunkedGraph, found: SpectralSolution, E: Any) -> tuple[str, ...]:
        notes = []
        if graph.isolated:
            kind = f"{self.graph} graph" if self.similarity is None else "similarity"
            notes.append(f"{graph.isolated} row(s) have no neighbour in the {kind}; only pairs embed them")
        if self.B == UNBOUNDED:
            reached = 2 * found.squares <= found.B
            notes.append(
                f"K is optimal within tr(KK) <= {found.B:.3g} and has {found.squares:.3g}, so "
                + ("the bound is not active" if reached else "it may still be active: there may be no bounded solution")
            )
        blank = int(_rows.fold(_zero_rows, sum, E))
        if blank:
            notes.append(f"{blank} row(s) are at the origin of the embedding: no path connects them with a pair")
        if E.shape[1] < 2 and self.normalize:
            notes.append(
                "the embedding has one column, so after normalisation every distance between training rows is 0 or 2; "
                f"a larger C (now {self.C:g}) or a smaller n_neighbors gives more columns"
            )
        if found.short:
            what = (
                "is optimal among"
                if self.loss == "linear"
                else "has the largest eigenvectors of the optimum, as one of"
            )
            notes.append(
                f"the embedding {what} those of rank {E.shape[1]}; the gap is to the optimum of any rank, which "
                "n_components=None gives"
            )
        return tuple(notes)


def _features(space: Space) -> FeatureMap:
    """Return the features to regress on: those of the space, or of landmarks where the space has every row."""
    if space.representation == "exact" and space.rank > LANDMARKS:
        return represent(space.kernel, space.rows, LANDMARKS, seed=space.seed).map
    return space.map


def _scale(found: SpectralSolution, most: int | None) -> Array:
    """Return the factors of the columns of E with EE' = K, or of the first ``most``."""
    r = len(found.part.w) if most is None else min(most, len(found.part.w))
    return np.asarray(np.sqrt(found.factor * found.part.w[:r]))


def _zero_rows(E: Array) -> int:
    return int(np.count_nonzero(~E.any(axis=1)))


def _subset(constraint: Pairs, kept: Array) -> Pairs:
    s = len(constraint.similar)
    return Pairs(constraint.similar[kept[kept < s]], constraint.dissimilar[kept[kept >= s] - s], n=constraint.n)


def _seconds(size: Size) -> float:
    """Return the forecast CPU seconds of a fit: the graph of neighbours, and the eigenvectors; see docs/scaling.md."""
    return rows_seconds(size) + 1e-9 * (0.21 * size.n**2 * size.d + 1.6e5 * size.n)


def _bytes(size: Size) -> float:
    """Return the forecast peak memory: graph and eigenvectors, while landmarks of the extension are chosen."""
    landmarks = replace(size, m=min(size.m, LANDMARKS), representation="landmarks")
    return GATHERED_BYTES * size.n + 40 * size.p + space_bytes(landmarks)


def _both_kinds(pairs: Pairs) -> bool:
    """Return whether there are similar and dissimilar pairs: with one kind only, the kernel is worse than the start."""
    return bool(len(pairs.similar)) and bool(len(pairs.dissimilar))


def _pairs_of_both_kinds(labels: Labels) -> bool:
    """Return whether two rows share a class, and two do not."""
    return 1 < len(labels.classes) < labels.size


_MEASURED: dict[str, Any] = {"most_rows": 10_000, "takes": ("vectors",), "dask": False}

METHOD = Method(
    constraint=Pairs,
    kernel=Standardized(RBF("median"), by="range"),
    solver=SimpleNPKL(),
    uses=(
        Use(Labels, 1, when=_pairs_of_both_kinds, **_MEASURED),
        Use(Triplets, 1, **_MEASURED),
        Use(Pairs, 1, when=_both_kinds, check_from=2.0, **_MEASURED),
    ),
    cost=_seconds,
    memory=_bytes,
)
