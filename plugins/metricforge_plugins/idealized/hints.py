"""From rows and hints to the convex program: which pairs, their differences, their distances before learning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metricforge import psd
from metricforge import rows as _rows
from metricforge.constraints import Labels, Pairs
from metricforge.errors import InputError
from metricforge.kernels import Kernel
from metricforge.problem import Problem

from .differences import Differences, differences
from .ideal import entry_alignment
from .program import Program
from .selection import closest_pairs, pairs_from_labels

if TYPE_CHECKING:
    from .solver import Idealized

Array = NDArray[Any]

FROM_LABELS = 5
"""What ``neighbors="auto"`` takes of each kind for each row when pairs are built from labels."""
DEFAULT_C = 1000.0
"""C_S and C_D where none is given, in units of 1 / mean ‖z‖²."""


@dataclass(frozen=True, eq=False)
class Hints:
    """Pairs over the rows that occur in them.

    Attributes
    ----------
    rows : (n,) int array
        Their numbers in X.
    Phi : (n, m) array
        Their features.
    i, j : (N,) int arrays
        The pairs, counted in ``rows``.
    dissimilar : (N,) bool array
    codes : (n,) int array or None
        The classes of the rows, where the hints were labels.
    zeros : int
        How many pairs were dropped because their rows have equal features.
    notes : tuple of str
    """

    rows: Array
    Phi: Array
    i: Array
    j: Array
    dissimilar: Array
    codes: Array | None = None
    zeros: int = 0
    notes: tuple[str, ...] = ()

    @property
    def pairs(self) -> Array:
        """The pairs as an (N, 2) array, counted in ``rows``."""
        return np.stack([self.i, self.j], axis=1)

    def only(self, keep: Array) -> Hints:
        """Return these hints with some of the pairs."""
        return replace(self, i=self.i[keep], j=self.j[keep], dissimilar=self.dissimilar[keep])


@dataclass(frozen=True, eq=False)
class Prepared:
    """A program, what it was made of, and the (m, p) basis of the features that its matrices are written in.

    ``aligned`` is the alignment of a kernel M with the ideal kernel on the pairs; other M are matrices on the features.
    """

    hints: Hints
    program: Program
    basis: Array | None
    aligned: float | None = None

    def matrix(self, B: Array) -> Array:
        """Return a matrix of the program as one on the features."""
        full = B if self.basis is None else self.basis @ B @ self.basis.T
        return np.asarray((full + full.T) / 2)


def prepare(solver: Idealized, problem: Problem) -> Prepared:
    """Return the program that a solver's options make of a problem."""
    constraint = problem.constraint
    hints = (
        _from_labels(solver, problem, constraint) if isinstance(constraint, Labels) else _from_pairs(solver, problem)
    )
    hints, z, basis = _nonzero(hints)
    mean = float(z.squares.mean())
    program = Program(
        z,
        hints.dissimilar,
        _distances_before(solver, problem, hints, z),
        c_similar=DEFAULT_C / mean if solver.c_similar is None else float(solver.c_similar),
        c_dissimilar=DEFAULT_C / mean if solver.c_dissimilar is None else float(solver.c_dissimilar),
        nu=float(solver.nu),
    )
    return Prepared(hints, program, basis, _aligned_before(solver, problem, hints))


def _from_labels(solver: Idealized, problem: Problem, labels: Labels) -> Hints:
    if len(labels.classes) < 2:
        raise InputError(
            f"constraints: the labels have {len(labels.classes)} class(es), so no pair is dissimilar; "
            "idealized needs at least two classes"
        )
    rows = np.flatnonzero(labels.codes >= 0)
    codes = labels.codes[rows]
    Phi = problem.space.map.of_rows(problem.rows, rows, copies=2)
    neighbors: Any = FROM_LABELS if solver.neighbors == "auto" else solver.neighbors
    chosen = pairs_from_labels(_embedded(solver, Phi), codes, neighbors, solver.radius, seed=problem.seed)
    note = f"{len(chosen.similar)} similar and {len(chosen.dissimilar)} dissimilar pairs were built from labels"
    hints = Hints(rows, Phi, *_stacked(chosen.similar, chosen.dissimilar), codes, notes=(note, *chosen.notes))
    return hints if neighbors is not None else _closest(solver, hints, None)


def _from_pairs(solver: Idealized, problem: Problem) -> Hints:
    pairs = problem.constraint
    assert isinstance(pairs, Pairs)
    if not len(pairs.dissimilar):
        raise InputError(
            "constraints: Pairs holds no dissimilar pair, and without one the optimum is B = 0; add dissimilar pairs, "
            'or learn from similar ones alone with method="krca"'
        )
    return _closest(solver, hints_of(problem, pairs), None if solver.neighbors == "auto" else solver.neighbors)


def hints_of(problem: Problem, pairs: Pairs) -> Hints:
    """Return pairs over the rows that occur in them, with the features of those rows."""
    rows, place = np.unique(np.concatenate([pairs.similar, pairs.dissimilar]), return_inverse=True)
    similar, dissimilar = np.split(place.reshape(-1, 2), [len(pairs.similar)])
    Phi = problem.space.map.of_rows(problem.rows, rows, copies=2)
    return Hints(rows, Phi, *_stacked(similar, dissimilar))


def _closest(solver: Idealized, hints: Hints, neighbors: Any) -> Hints:
    """Return the hints with the pairs that ``neighbors`` and ``radius`` leave."""
    radius = None if neighbors is None and solver.radius == "median" else solver.radius
    if neighbors is None and radius is None:
        return hints
    distance = np.sqrt(differences(_embedded(solver, hints.Phi), hints.i, hints.j).squares)
    keep, notes = closest_pairs(hints.pairs, hints.dissimilar, distance, neighbors, radius)
    note = f"{np.count_nonzero(~keep)} of {len(keep)} pairs were left out by neighbors and radius"
    return replace(hints.only(keep), notes=(*hints.notes, note, *notes))


def _nonzero(hints: Hints) -> tuple[Hints, Differences, Array | None]:
    """Return the pairs that are no zeros, their differences, and the basis of the features that these are written in.

    Rows are taken from their mean first, so that a large offset costs no digits.  Where there are fewer of them than
    features, their span is all that B can live on: differences come in a basis of it (None otherwise).  A difference
    that is zero to rounding has no distance that a metric could change.
    """
    Phi = hints.Phi - hints.Phi.mean(axis=0)
    basis = None
    if Phi.shape[0] <= Phi.shape[1]:
        basis = np.linalg.qr(Phi.T)[0]  # (m, n)
        Phi = Phi @ basis
    z = differences(Phi, hints.i, hints.j)
    keep = z.squares > 1e-24 * z.squares.max(initial=0.0)
    if not (keep & hints.dissimilar).any():
        raise InputError(
            "constraints: every dissimilar pair joins rows with equal features, which no metric can tell apart; "
            "give other pairs, or a kernel that tells these rows apart"
        )
    if keep.all():
        return hints, z, basis
    return replace(hints.only(keep), zeros=int(np.count_nonzero(~keep))), z.select(np.flatnonzero(keep)), basis


def _distances_before(solver: Idealized, problem: Problem, hints: Hints, z: Differences) -> Array:
    """Return d_t² under M."""
    if solver.M is None:
        return z.squares
    if isinstance(solver.M, Kernel):
        kernel = _base_kernel(solver.M, problem)
        base = _rows.map_relations(kernel.paired_squared_distance, _rows.take(problem.rows, hints.rows), hints.pairs)
    else:
        base = differences(_embedded(solver, hints.Phi), hints.i, hints.j).squares
    if not base.max() > 0:
        raise InputError("M gives every pair the distance 0; give a metric that tells the rows of the pairs apart")
    return base


def _aligned_before(solver: Idealized, problem: Problem, hints: Hints) -> float | None:
    if not isinstance(solver.M, Kernel):
        return None
    X, kernel = _rows.take(problem.rows, hints.rows), _base_kernel(solver.M, problem)
    return entry_alignment(kernel.diag(X), _rows.map_relations(kernel.paired, X, hints.pairs), hints.dissimilar)


def _base_kernel(M: Kernel, problem: Problem) -> Kernel:
    """Return a kernel M with what it takes from the rows, such as a median width."""
    return M.resolve(M.check(problem.rows, "M"), seed=problem.seed)


def _embedded(solver: Idealized, Phi: Array) -> Array:
    """Return rows whose Euclidean distances are those before learning (those of the features for a kernel M)."""
    M = solver.M
    if M is None or isinstance(M, Kernel):
        return Phi
    if len(M) != Phi.shape[1]:
        raise InputError(
            f"M must have one row and column for each of the kernel's {Phi.shape[1]} features, got shape {M.shape}"
        )
    return np.asarray(Phi @ psd.factor(M))


def _stacked(similar: Array, dissimilar: Array) -> tuple[Array, Array, Array]:
    pairs = np.concatenate([similar, dissimilar]).astype(np.int64)
    return pairs[:, 0], pairs[:, 1], np.repeat([False, True], [len(similar), len(dissimilar)])
