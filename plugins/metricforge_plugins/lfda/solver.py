"""Local Fisher discriminant analysis: separate classes without merging clusters of one class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metricforge.constraints import Constraint, Labels
from metricforge.errors import InputError
from metricforge.kernels import Linear, Standardized
from metricforge.rows import Array, blocks
from metricforge.solver import Certificate, Method, Problem, Solution, Solver, Status
from metricforge.space import LearnedKernel
from metricforge.validation import number, one_of, whole_number, whole_number_or

EMBEDDINGS = ("weighted", "plain", "orthonormalized")
ARRAYS = 5
"""Arrays of the size of a block of distances inside a class: their products, scales, affinities and temporaries."""
DEFINITION = "largest ‖S_b v − λ S_w v‖ / ‖S_b v‖ of the directions"


@dataclass(frozen=True)
class LFDA(Solver):
    """Learn directions with a large ratio of local scatter between classes to local scatter within classes.

    With φ the features of the base kernel, A_ij = exp(−‖φ_i − φ_j‖² / (σ_i σ_j)), σ_i the distance of row i to its
    ``k``-th nearest row of the class, and n_c the size of the class,

        S_w = ½ Σ_ij (A_ij / n_c) (φ_i − φ_j)(φ_i − φ_j)'  over pairs of one class,
        S_b = ½ Σ_ij w_ij (φ_i − φ_j)(φ_i − φ_j)',  w_ij = A_ij (1/n − 1/n_c) for pairs of one class, else 1/n.

    L has the solutions v of S_b v = λ S_w v with the largest λ, v'S_w v = 1, as rows.  The problem has a closed form;
    the certificate is its residual.

    Cost: O(Σ n_c² m + n m² + m³) time; memory 24 m² bytes, 16 n m bytes and a block of affinities.

    Parameters
    ----------
    k : int
        Which neighbour sets the local scale σ; the furthest in smaller classes.
    n_components : int, optional
        The number of directions; default: all in which S_w varies.
    embedding : {"weighted", "plain", "orthonormalized"}
        "weighted" multiplies v by √λ, "orthonormalized" makes the directions orthonormal, one after the other.
    null : float in (0, 1)
        Directions in which S_w is below this share of its largest eigenvalue are left out: λ is not defined there.

    References
    ----------
    M. Sugiyama. Dimensionality reduction of multimodal labeled data by local Fisher discriminant analysis. JMLR 8,
    2007, eqs. (9)-(13).  L. Zelnik-Manor, P. Perona. Self-tuning spectral clustering. NIPS 2004, for σ.
    """

    k: int = 7
    n_components: int | None = None
    embedding: str = "weighted"
    null: float = 1e-9

    accepts: ClassVar[tuple[type[Constraint], ...]] = (Labels,)

    def __post_init__(self) -> None:
        whole_number(self.k, "k")
        whole_number_or(self.n_components, "n_components", [None])
        one_of(self.embedding, "embedding", EMBEDDINGS)
        number(self.null, "null", above=0, below=1)

    def _solve(self, problem: Problem) -> Solution:
        assert isinstance(problem.constraint, Labels)
        labels = problem.constraint
        labels.check_two_classes()
        rows = np.flatnonzero(labels.codes >= 0)
        Phi = problem.space.map.of_rows(problem.rows, rows, copies=2, gather=True)
        Sw, Sb = scatters(Phi, labels.codes[rows], self.k)
        ratios, V, left_out = discriminant(Sw, Sb, float(self.null))
        keep = len(ratios) if self.n_components is None else min(int(self.n_components), len(ratios))
        ratios, V = ratios[:keep], V[:, :keep]
        residual = Sb @ V - (Sw @ V) * ratios
        size = np.maximum(np.linalg.norm(Sb @ V, axis=0), 1e-12 * np.linalg.norm(Sb, 2) * np.linalg.norm(V, axis=0))
        worst = float((np.linalg.norm(residual, axis=0) / np.maximum(size, 1e-300)).max())
        if self.embedding == "weighted":
            V = V * np.sqrt(np.maximum(ratios, 0))
        elif self.embedding == "orthonormalized":
            V = np.linalg.qr(V)[0]
        note = (f"{left_out} direction(s) in which no class varies were left out",) if left_out else ()
        outcome: dict[str, Any] = {"ratios": ratios, "left_out_directions": left_out}
        problem.step(1, 1)
        return Solution(
            kernel=LearnedKernel.of_factor(problem.space.map, np.ascontiguousarray(V.T)),
            status=Status.OPTIMAL,
            objective=float(ratios.sum()),
            certificate=Certificate("residual", worst, None, DEFINITION),
            outcome=outcome,
            notes=note,
        )


def scatters(Phi: Array, codes: Array, k: int) -> tuple[Array, Array]:
    """Return S_w and S_b (m, m).

    S_w + S_b has the weights A_ij / n inside classes and 1/n between them, so it is the scatter of all rows, less that
    of the pairs inside classes, plus that of the pairs inside classes weighted by A.
    """
    n, m = Phi.shape
    centred = Phi - Phi.mean(axis=0)
    within = np.zeros((m, m))
    mixture = centred.T @ centred
    for c in range(int(codes.max()) + 1):
        F = centred[codes == c]
        if not len(F):
            continue
        local = _local_scatter(F, k)
        total = F.sum(axis=0)
        within += local / len(F)
        mixture += (local - len(F) * (F.T @ F) + np.outer(total, total)) / n
    Sw, Sb = (within + within.T) / 2, mixture - within
    return Sw, (Sb + Sb.T) / 2


def _local_scatter(F: Array, k: int) -> Array:
    """Return ½ Σ_ij A_ij (f_i − f_j)(f_i − f_j)' = F'(D − A)F over the rows of one class."""
    n = len(F)
    norms = np.square(F).sum(axis=1)

    def squared(part: slice) -> Array:
        return np.asarray(np.maximum(norms[part, None] + norms - 2 * F[part] @ F.T, 0))

    parts = list(blocks(n, ARRAYS * 8 * n))
    place = min(k, n - 1)
    scale = np.sqrt(np.concatenate([np.partition(squared(part), place, axis=1)[:, place] for part in parts]))
    S = np.zeros((F.shape[1],) * 2)
    for part in parts:
        product = scale[part, None] * scale
        with np.errstate(divide="ignore", invalid="ignore"):
            A = np.where(product > 0, np.exp(-squared(part) / product), 0.0)  # identical rows add nothing
        S += F[part].T @ (A.sum(axis=1)[:, None] * F[part]) - F[part].T @ (A @ F)
    return S


def discriminant(Sw: Array, Sb: Array, null: float) -> tuple[Array, Array, int]:
    """Return λ descending, the V with V'S_w V = I as columns, and the number of directions left out."""
    w, U = np.linalg.eigh(Sw)
    if not w[-1] > 0:
        raise InputError(
            "y: no class varies (each has one row, or identical rows), so the scatter within classes is 0; label more "
            "rows of each class"
        )
    if w[-1] < np.finfo(float).tiny:
        raise InputError("X: its scatter is too small for floating-point numbers; rescale X")
    keep = w > null * w[-1]
    white = U[:, keep] / np.sqrt(w[keep])
    ratios, V = np.linalg.eigh(white.T @ Sb @ white)
    return ratios[::-1], white @ V[:, ::-1], int(np.count_nonzero(~keep))


METHOD = Method(
    constraint=Labels,
    kernel=Standardized(Linear(), by="range"),
    solver=LFDA(),
    rank=200,
    cost={"nn": 7, "nnm": 0.05, "mmm": 1},
    memory={"mm": 96, "nm": 24},
)
