"""From rows and hints to the convex program: which pairs, their differences, their distances before learning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from metricforge import psd
from metricforge import rows as _rows
from metricforge.constraints import Labels, Pairs
from metricforge.errors import InputError
from metricforge.kernels import Kernel
from metricforge.kernels.alignment import factor_alignment
from metricforge.rows import Array
from metricforge.solver import Problem
from metricforge.space import (
    DENSE_WIDTH,
    FeatureMap,
    LearnedKernel,
    compact,
    contrast_weights,
    leading_eigenvectors,
    subspace_iteration,
)

from .differences import Differences, differences
from .ideal import entry_alignment, label_alignment, pair_alignment
from .program import Program
from .selection import closest_pairs, pairs_from_labels
from .subspace import directions, leading_directions

if TYPE_CHECKING:
    from .solver import Idealized


FROM_LABELS = 5
"""What ``neighbors="auto"`` takes of each kind for each row when pairs are built from labels."""
DEFAULT_C = 100.0
"""C_S and C_D where none is given, in units of 1 / mean ‖z‖²."""

KEPT_BYTES = 2**26
"""Features of the rows in pairs up to this size are kept; larger explicit ones are computed in blocks."""
SAMPLED_PAIRS, SAMPLE_WORK = 10_000, 1e10
"""Pairs from which directions of features in blocks are computed, and the multiplications that more pairs may cost."""
ALIGNED_ROWS = 1000
"""Labelled rows on which the alignment before learning is computed at least, where all of them would take long."""


@dataclass(frozen=True, eq=False)
class Hints:
    """Pairs over the rows that occur in them.

    Attributes
    ----------
    rows : (n,) int array
        Their numbers in X.
    i, j : (N,) int arrays
        The pairs, counted in ``rows``.
    dissimilar : (N,) bool array
    Phi : (n, m) array or None
        The features of the rows; None where they are too large to keep and computed in blocks.
    codes : (n,) int array or None
        The classes of the rows, where the hints were labels.
    zeros : (int, int)
        How many similar and how many dissimilar pairs are left out because their rows have equal features.
    notes : tuple of str
    """

    rows: Array
    i: Array
    j: Array
    dissimilar: Array
    Phi: Array | None = None
    codes: Array | None = None
    zeros: tuple[int, int] = (0, 0)
    notes: tuple[str, ...] = ()

    @property
    def pairs(self) -> Array:
        """The pairs as an (N, 2) array, counted in ``rows``."""
        return np.stack([self.i, self.j], axis=1)

    @property
    def features(self) -> Array:
        """The features of the rows, where they are kept."""
        assert self.Phi is not None
        return self.Phi

    def only(self, keep: Array) -> Hints:
        """Return these hints with some of the pairs."""
        return replace(self, i=self.i[keep], j=self.j[keep], dissimilar=self.dissimilar[keep])


@dataclass(frozen=True, eq=False)
class Prepared:
    """A program, and how its matrices relate to the features.

    Attributes
    ----------
    hints : Hints
    program : Program
    basis : (m, p) array or None
        Orthonormal columns: a matrix B of the program is basis B basis' on the m features.  None for the identity.
    coordinates : (n, p) array
        The features of the rows in this basis.
    unit : float
        A power of two near the size of the features.  The program is written in it: z_t / unit, d_t² / unit², C unit²,
        α unit².  B and the objective are the same in any unit, and no product overflows.
    squares : (N,) array
        ‖z_t / unit‖² on all features.
    aligned : float
        The alignment of the metric before learning with the ideal kernel.
    by_rows : bool
        Whether that is over all labelled rows; otherwise it is over the entries that pairs determine.
    restriction : Restriction or None
        What the program leaves out; None if it is the full program.
    """

    hints: Hints
    program: Program
    basis: Array | None
    coordinates: Array
    unit: float
    squares: Array
    aligned: float
    by_rows: bool
    restriction: Restriction | None = None

    def matrix(self, B: Array) -> Array:
        """Return a matrix of the program as one on the features."""
        full = B if self.basis is None else self.basis @ B @ self.basis.T
        return np.asarray((full + full.T) / 2)

    def kernel(self, map: FeatureMap, B: Array) -> LearnedKernel:
        """Return the learned kernel of a matrix of the program; a restricted one needs its directions only."""
        if self.restriction is None:
            return LearnedKernel(map, self.matrix(B))
        assert self.basis is not None
        return LearnedKernel(map.rotated(self.basis), (B + B.T) / 2)

    def alignment(self, B: Array) -> float:
        """Return the alignment of a matrix of the program with the ideal kernel."""
        hints = self.hints
        if self.by_rows:
            assert hints.codes is not None
            return label_alignment(self.coordinates, hints.codes, B)[0]
        return pair_alignment(self.coordinates, hints.i, hints.j, hints.dissimilar, B)[0]


def prepare(solver: Idealized, problem: Problem) -> Prepared:
    """Return the program that a solver's options make of a problem."""
    constraint = problem.constraint
    hints = (
        _from_labels(solver, problem, constraint) if isinstance(constraint, Labels) else _from_pairs(solver, problem)
    )
    written = _in_blocks(problem, hints) if hints.Phi is None else _in_memory(problem, hints)
    hints = written.hints
    mean, area = float(written.squares.mean()), written.unit**2
    program = Program(
        written.z,
        hints.dissimilar,
        _distances_before(solver, problem, written),
        c_similar=DEFAULT_C / mean if solver.c_similar is None else area * float(solver.c_similar),
        c_dissimilar=DEFAULT_C / mean if solver.c_dissimilar is None else area * float(solver.c_dissimilar),
        nu=float(solver.nu),
        zero_similar=hints.zeros[0],
        zero_dissimilar=hints.zeros[1],
    )
    return Prepared(
        hints,
        program,
        written.basis,
        written.coordinates,
        written.unit,
        written.squares,
        _aligned_before(solver, problem, written),
        by_rows=hints.codes is not None and not isinstance(solver.M, Kernel),
        restriction=written.restriction,
    )


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
    hints = Hints(rows, *_stacked(chosen.similar, chosen.dissimilar), Phi, codes, notes=(note, *chosen.notes))
    return hints if neighbors is not None else _closest(solver, hints, None)


def _from_pairs(solver: Idealized, problem: Problem) -> Hints:
    pairs = problem.constraint
    assert isinstance(pairs, Pairs)
    if not len(pairs.dissimilar):
        raise InputError(
            "constraints: Pairs holds no dissimilar pair, and without one the optimum is B = 0; add dissimilar pairs, "
            'or learn from similar ones alone with method="krca"'
        )
    neighbors = None if solver.neighbors == "auto" else solver.neighbors
    every = neighbors is None and solver.radius in ("median", None)
    plain = solver.M is None or isinstance(solver.M, Kernel)
    return _closest(solver, hints_of(problem, pairs, blocks=every and plain), neighbors)


def hints_of(problem: Problem, pairs: Pairs, *, blocks: bool = False) -> Hints:
    """Return pairs over the rows that occur in them, with the features of those rows.

    With ``blocks``, features that are many, and of which the program takes a part, are left out.
    """
    rows, positions = compact(np.concatenate([pairs.similar, pairs.dissimilar]))
    similar, dissimilar = np.split(positions, [len(pairs.similar)])
    hints = Hints(rows, *_stacked(similar, dissimilar))
    map, m = problem.space.map, problem.space.map.columns
    kept = 8 * len(rows) * m <= KEPT_BYTES or _rows.is_dask(problem.rows) or map.landmarks is not None
    if blocks and not kept and problem.space.automatic and directions(len(hints.i), min(m, len(rows))) < m:
        return hints
    return replace(hints, Phi=map.of_rows(problem.rows, rows, copies=2))


def _closest(solver: Idealized, hints: Hints, neighbors: Any) -> Hints:
    """Return the hints with the pairs that ``neighbors`` and ``radius`` leave."""
    radius = None if neighbors is None and solver.radius == "median" else solver.radius
    if neighbors is None and radius is None:
        return hints
    distance = np.sqrt(differences(_embedded(solver, hints.features), hints.i, hints.j).squares)
    keep, notes = closest_pairs(hints.pairs, hints.dissimilar, distance, neighbors, radius)
    note = f"{np.count_nonzero(~keep)} of {len(keep)} pairs were left out by neighbors and radius"
    return replace(hints.only(keep), notes=(*hints.notes, note, *notes))


# ----------------------------------------------------------------------------------- the differences, in some basis


@dataclass(frozen=True, eq=False)
class Restriction:
    """What a program leaves out that is restricted to some directions of the features.

    Attributes
    ----------
    features : int
        The number of directions that the features span.
    directions : int
        The number of those that the program has.
    left_out : float
        The share of Σ ‖z_t‖² in the others.
    full : Differences or None
        The differences in all directions, where they are kept.
    """

    features: int
    directions: int
    left_out: float
    full: Differences | None = None


@dataclass(frozen=True, eq=False)
class _Written:
    """Pairs whose differences are not zero, written in a basis; the fields are those of `Prepared`.

    ``inner`` are k(x_i, x_i) of the rows and k(x_i, x_j) of the pairs.
    """

    hints: Hints
    z: Differences
    basis: Array | None
    coordinates: Array
    unit: float
    squares: Array
    inner: tuple[Array, Array]
    restriction: Restriction | None


def _in_memory(problem: Problem, hints: Hints) -> _Written:
    """Write differences of features that are kept.

    Rows are centred first, so that a large offset costs no digits.  Where there are fewer rows than features, their
    span is all that B can live on, and the full program is written in a basis of it.
    """
    raw = hints.features
    Phi = raw - raw.mean(axis=0)
    unit = _unit(Phi)
    Phi /= unit
    basis = None
    width = min(raw.shape)
    r = directions(len(hints.i), width) if problem.space.automatic else width
    if r == width and len(raw) <= raw.shape[1]:
        basis = np.linalg.qr(Phi.T)[0]  # (m, n)
        Phi = Phi @ basis
    z = differences(Phi, hints.i, hints.j)
    hints, kept = _nonzero(hints, z.squares)
    z = z if kept is None else z.select(kept)
    restriction = None
    squares = z.squares
    if r < width:
        V = leading_directions(z, hints.dissimilar, r, problem.seed)
        full, z = z, differences(Phi @ V, hints.i, hints.j)
        basis = V if basis is None else basis @ V
        restriction = Restriction(width, r, _left_out(z, squares), full)
    coordinates = raw if basis is None else raw @ basis
    return _Written(hints, z, basis, coordinates, unit, squares, _inner(raw, hints), restriction)


def _in_blocks(problem: Problem, hints: Hints) -> _Written:
    """Write differences of wide explicit features, of which only blocks of rows are ever computed.

    Memory: a sample of the pairs in float32, the rows and the pairs in r coordinates.
    """
    map, rows, N = problem.space.map, problem.rows, len(hints.i)
    squares, k = np.empty(N), np.empty(N)
    some = map.block(rows[hints.rows[_rows.draw(len(hints.rows), 100, problem.seed)]])
    unit = _unit(some - some.mean(axis=0))
    for part in _rows.wide_blocks(N, map.columns):
        problem.step(0, None)
        first, second = (map.block(rows[hints.rows[end[part]]]) for end in (hints.i, hints.j))
        np.einsum("ij,ij->i", first, second, out=k[part])
        first -= second
        first /= unit
        np.einsum("ij,ij->i", first, first, out=squares[part])
    hints, kept = _nonzero(hints, squares)
    if kept is not None:
        squares, k = squares[kept], k[kept]
    width = min(map.columns, len(hints.rows))
    r = directions(len(hints.i), width)
    V = _sampled_directions(problem, hints, None, r, unit * float(np.sqrt(squares.max())))
    coordinates, own = _projected(problem, hints, V)
    z = differences((coordinates - coordinates.mean(axis=0)) / unit, hints.i, hints.j)
    restriction = Restriction(width, r, _left_out(z, squares))
    return _Written(hints, z, V, coordinates, unit, squares, (own, k), restriction)


def _projected(problem: Problem, hints: Hints, V: Array) -> tuple[Array, Array]:
    """Return the features of the rows times V, and k(x, x), a block of rows at a time."""
    map = problem.space.map
    own = np.empty(len(hints.rows))
    coordinates = np.empty((len(own), V.shape[1]))
    for part in _rows.wide_blocks(len(own), map.columns):
        problem.step(0, None)
        features = map.block(problem.rows[hints.rows[part]])
        np.einsum("ij,ij->i", features, features, out=own[part])
        np.matmul(features, V, out=coordinates[part])
    return coordinates, own


def _sampled_directions(problem: Problem, hints: Hints, weights: Array | None, r: int, longest: float) -> Array:
    """Return the r leading eigenvectors of Σ w_t z_t z_t' over a sample of the pairs, in float32, enough for a choice.

    Without weights it is the difference of the means over the two kinds, each over its pairs in the sample: a sample
    with more of one kind would otherwise let directions of large variance in.

    Differences are divided by the longest first: squares overflow in float32 soon.
    """
    map, rows = problem.space.map, problem.rows
    m = map.columns
    size = int(SAMPLE_WORK / m**2) if m <= DENSE_WIDTH else 0
    chosen = _rows.draw(len(hints.i), max(SAMPLED_PAIRS, size), problem.seed)
    _rows.check_memory(8 * len(chosen) * m, f"a sample of {len(chosen)} differences of {m} features", "lower the rank")
    Z = np.empty((len(chosen), m), dtype=np.float32)
    for part in _rows.wide_blocks(len(chosen), m):
        problem.step(0, None)
        t = chosen[part]
        difference = map.block(rows[hints.rows[hints.i[t]]]) - map.block(rows[hints.rows[hints.j[t]]])
        Z[part] = difference / longest
    some = contrast_weights(hints.dissimilar[chosen]) if weights is None else weights[chosen]
    each = (some / np.abs(some).max()).astype(np.float32)[:, None]
    if m <= DENSE_WIDTH:
        return leading_eigenvectors(Z.T @ (each * Z), r)

    def product(X: Array) -> Array:
        problem.step(0, None)
        found: Array = Z.T @ (each * (Z @ X))
        return found

    return subspace_iteration(product, m, r, problem.seed)


def refined(problem: Problem, prepared: Prepared, alpha: Array) -> Prepared | None:
    """Return the program in other directions: the leading ones of B(α) with the multipliers of a first solve.

    None for the full program, for features over landmarks, and for so many that B(α) is not formed.  At the optimal α
    of the full program the positive part of B(α) is its B, so these directions lead from a choice by the pairs alone
    towards the optimum: on MNIST the gap to the full program falls from 100 to 16 %.  Where there are as many features
    as rows, as over landmarks, the first choice generalises better, and it is kept.
    """
    map, restriction, hints = problem.space.map, prepared.restriction, prepared.hints
    if restriction is None or map.landmarks is not None or map.columns > DENSE_WIDTH:
        return None
    weights, r, unit = prepared.program.sign * alpha, restriction.directions, prepared.unit
    if restriction.full is None:
        V = _sampled_directions(problem, hints, weights, r, unit * float(np.sqrt(prepared.squares.max())))
        coordinates, _ = _projected(problem, hints, V)
        z = differences((coordinates - coordinates.mean(axis=0)) / unit, hints.i, hints.j)
    else:
        V = leading_eigenvectors(restriction.full.gather(weights), r)
        coordinates, z = hints.features @ V, restriction.full.rotated(V)
    return replace(
        prepared,
        program=replace(prepared.program, z=z),
        basis=V,
        coordinates=coordinates,
        restriction=replace(restriction, left_out=_left_out(z, prepared.squares)),
    )


def _nonzero(hints: Hints, squares: Array) -> tuple[Hints, Array | None]:
    """Return the pairs that are no zeros, and their numbers (None for all).

    A difference that is zero to rounding has no distance that a metric could change.
    """
    keep = squares > 1e-24 * squares.max(initial=0.0)
    if not (keep & hints.dissimilar).any():
        raise InputError(
            "constraints: every dissimilar pair joins rows with equal features, which no metric can tell apart; "
            "give other pairs, or a kernel that tells these rows apart"
        )
    if keep.all():
        return hints, None
    zeros = int(np.count_nonzero(~keep & ~hints.dissimilar)), int(np.count_nonzero(~keep & hints.dissimilar))
    return replace(hints.only(keep), zeros=zeros), np.flatnonzero(keep)


def _unit(Phi: Array) -> float:
    """Return the power of two next to the largest entry, or 1 if all are zero."""
    largest = float(np.abs(Phi).max(initial=0.0))
    return float(np.exp2(np.frexp(largest)[1])) if largest > 0 else 1.0


def _left_out(z: Differences, squares: Array) -> float:
    return max(0.0, 1 - float(z.squares.sum() / squares.sum()))


def _inner(Phi: Array, hints: Hints) -> tuple[Array, Array]:
    k = np.empty(len(hints.i))
    for part in _rows.wide_blocks(len(k), Phi.shape[1]):
        np.einsum("ij,ij->i", Phi[hints.i[part]], Phi[hints.j[part]], out=k[part])
    return np.einsum("ij,ij->i", Phi, Phi), k


# ---------------------------------------------------------------------------------------- the metric before learning


def _distances_before(solver: Idealized, problem: Problem, written: _Written) -> Array:
    """Return d_t² under M, in the unit of the program."""
    hints = written.hints
    largest = float(written.squares.max()) * written.unit**2
    if not 1e-200 < largest < 1e200:
        raise InputError(f"X: the largest squared distance of a pair is {largest:.3g}; rescale the features to about 1")
    if solver.M is None:
        return written.squares
    if isinstance(solver.M, Kernel):
        kernel = _base_kernel(solver.M, problem)
        base = _rows.map_relations(kernel.paired_squared_distance, _rows.take(problem.rows, hints.rows), hints.pairs)
    else:
        base = differences(_embedded(solver, hints.features), hints.i, hints.j).squares
    if not base.max() > 0:
        raise InputError("M gives every pair the distance 0; give a metric that tells the rows of the pairs apart")
    return np.asarray(base / written.unit**2)


def _aligned_before(solver: Idealized, problem: Problem, written: _Written) -> float:
    """Return the alignment of M with the ideal kernel: of all rows for labels, else of the pairs."""
    hints, M = written.hints, solver.M
    if isinstance(M, Kernel):
        X, kernel = _rows.take(problem.rows, hints.rows), _base_kernel(M, problem)
        return entry_alignment(kernel.diag(X), _rows.map_relations(kernel.paired, X, hints.pairs), hints.dissimilar)
    if hints.codes is not None:
        Phi = hints.features
        sample = _rows.draw(len(Phi), max(ALIGNED_ROWS, int(SAMPLE_WORK / Phi.shape[1] ** 2)), problem.seed)
        some = Phi if len(sample) == len(Phi) else Phi[sample]
        codes = hints.codes[sample]
        return factor_alignment(some, codes) if M is None else label_alignment(some, codes, M)[0]
    if M is None:
        return entry_alignment(*written.inner, hints.dissimilar)
    return pair_alignment(hints.features, hints.i, hints.j, hints.dissimilar, M)[0]


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
