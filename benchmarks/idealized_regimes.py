"""The solver of `idealized` compared with an interior point and an accelerated gradient method, to the same gap.

Both are implemented below: Mehrotra's interior point with Woodbury's identity on q = p(p + 1)/2 columns for the program
without B ⪰ 0, and accelerated projected gradient on the dual, with the exact projection, for both programs.  The pairs
are those of `idealized-solvers` (p = 13) and random pairs of a9a over RBF landmarks (METRICFORGE_DATA).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import numpy as np
from metricforge_plugins.idealized import proximal
from metricforge_plugins.idealized.differences import Dense, differences
from metricforge_plugins.idealized.program import Program
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import metricforge as mf
from metricforge.space import represent

from .run import Table

Array = NDArray[np.float64]

GAPS = 1e-4, 1e-6
LIMIT = 30.0
"""CPU seconds of a reference method."""
NARROW = 44
"""Up to this many features the matrix of the interior point is small enough to factor."""
CHECK = 10
"""Gradient steps between two evaluations of the gap."""


# ------------------------------------------------------------------------------------------------------------ the pairs


def wine_pairs(N: int, C: float = 1000, ratio: float = 1, nu: float = 0.6) -> Program:
    """Random pairs of standardised wine data, resampled with noise; C_D = C / mean ‖z‖², C_S = ratio · C_D."""
    X, y = mf.datasets.load("wine")
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(X), size=20_000)
    X, y = X[drawn] + 0.5 * rng.normal(size=(20_000, X.shape[1])), np.asarray(y)[drawn]
    i = rng.integers(20_000, size=N)
    j = (i + rng.integers(1, 20_000, size=N)) % 20_000
    z = Dense(X[i] - X[j])
    C = C / z.squares.mean()
    return Program(z, y[i] != y[j], z.squares, ratio * C, C, nu)


def landmark_pairs(N: int, m: int) -> Program:
    """Random pairs of a9a, as many of each kind, over m landmarks of an RBF; C_S = C_D = 100 / mean ‖z‖², ν = 0.6."""
    X, y = mf.datasets.load("a9a")
    pairs = mf.Pairs.from_labels(np.asarray(y), n_pairs=N // 2, seed=0)
    Phi = np.asarray(represent(mf.kernels.RBF("median").resolve(X), X, m).features)
    i, j = np.concatenate([pairs.similar, pairs.dissimilar]).T
    dissimilar = np.arange(len(i)) >= len(pairs.similar)
    z = differences(Phi - Phi.mean(axis=0), i, j)
    keep = np.flatnonzero(z.squares > 1e-24 * z.squares.max())
    z = z.select(keep)
    C = 100 / z.squares.mean()
    return Program(z, dissimilar[keep], z.squares, C, C, 0.6)


# ----------------------------------------------------------------------------------------------- the reference methods


def positive_part(B: Array) -> Array:
    w, V = np.linalg.eigh(B)
    return (V * np.maximum(w, 0)) @ V.T


def bounds(program: Program, alpha: Array, psd: bool) -> tuple[float, float, float]:
    """Return the primal value of B(α) or of its PSD part, the dual value of α, and the scale of gaps."""
    B = program.z.gather(program.sign * alpha)
    B = positive_part(B) if psd else B
    norm = float(np.square(B).sum())
    objective, _ = program.primal(B, program.z.spread(B) - program.base)
    return objective, program.dual(alpha, norm), max(abs(objective), norm / 2)


def interior_point(program: Program) -> Iterator[Array]:
    """Yield feasible multipliers α = cap · x after each of Mehrotra's steps for the program without B ⪰ 0.

    minimise ½‖Ux‖² − c'x over 0 <= x <= 1 with slack s = a'x − 1 >= 0; λ, μ and y are the multipliers of the three.
    The Newton matrix diag(d) + U'U + (y / s) aa' is inverted by Woodbury's identity.
    """
    from scipy.linalg import cho_factor, cho_solve

    Z, u = program.z.dense().Z, program.sign * program.cap
    rows, columns = np.triu_indices(Z.shape[1])
    U = Z.T[rows] * Z.T[columns]  # (q, N), columns svec(z z')
    U *= np.where(rows == columns, 1.0, np.sqrt(2.0))[:, None] * u
    unit = np.einsum("ij,ij->j", U, U).max()
    U /= np.sqrt(unit)
    c = u * program.base / unit
    a = np.where(program.dissimilar, program.cap / program.need, 0.0)
    x = np.where(program.dissimilar, (1 + program.nu) / 2, 0.5)
    slope = U.T @ (U @ x) - c
    lam, mu = (np.maximum(side, 0) + np.abs(slope).mean() for side in (slope, -slope))
    y = np.array([np.abs(slope).mean()])
    none = np.zeros(len(x))
    while True:
        s = a @ x - np.ones(1)
        pull = c - U.T @ (U @ x)
        d = lam / x + mu / (1 - x)
        V = np.vstack([U, np.sqrt(y / s) * a])
        scaled = V / d
        factor = cho_factor(np.eye(len(V)) + scaled @ V.T, lower=True, check_finite=False)
        corrections = none, none, np.zeros(1)
        for aim in (0.0, None):  # predictor, then corrector
            if aim is None:
                now = (x @ lam + (1 - x) @ mu + s @ y) / (2 * len(x) + 1)
                t = reach((x, dx), (1 - x, -dx), (s, ds), (lam, dl), (mu, dm), (y, dy))  # noqa: F821
                aim = now * (1 - t) ** 3
                corrections = dx * dl, -dx * dm, ds * dy  # noqa: F821
            low, high, row = (aim - part for part in corrections)  # wanted of xλ, (1 − x)μ and sy
            rhs = pull + low / x - high / (1 - x) + (row / s) * a
            dx = rhs / d - scaled.T @ cho_solve(factor, scaled @ rhs, check_finite=False)
            ds = np.array([a @ dx])
            dl = (low - lam * dx) / x - lam
            dm = (high + mu * dx) / (1 - x) - mu
            dy = (row - y * ds) / s - y
        t = 0.995 * reach((x, dx), (1 - x, -dx), (s, ds), (lam, dl), (mu, dm), (y, dy))
        x, lam, mu, y = x + t * dx, lam + t * dl, mu + t * dm, y + t * dy
        yield program.feasible(program.cap * x, program.cap)[0]


def reach(*sides: tuple[Array, Array]) -> float:
    """Return the longest step <= 1 that keeps every value + step · change from falling below 0."""
    return min(1.0, *(float(np.min(v / np.maximum(-d, 1e-300), initial=np.inf, where=d < 0)) for v, d in sides))


def projected_gradient(program: Program, psd: bool) -> Iterator[Array]:
    """Yield feasible multipliers from accelerated projected gradient steps on the dual, in units of their bounds.

    A step costs one pass each way: B(α) of the point ahead follows from those of the last two.  The momentum restarts
    when it points uphill (O'Donoghue & Candès); the curvature is found by backtracking, and may also fall.
    """
    weight, gain = np.square(program.cap), program.sign * program.base

    def value(alpha: Array, B: Array) -> float:
        part = np.maximum(np.linalg.eigvalsh(B), 0) if psd else B
        return float(np.square(part).sum()) / 2 - float(gain @ alpha)

    alpha = program.feasible(np.zeros(program.size), program.cap)[0]
    B = program.z.gather(program.sign * alpha)
    ahead, B_ahead, momentum = alpha, B, 1.0
    curvature = float((weight * np.square(program.z.squares)).max())
    while True:
        at = value(ahead, B_ahead)
        slope = program.sign * program.z.spread(positive_part(B_ahead) if psd else B_ahead) - gain
        curvature /= 1.2
        while True:
            new = program.feasible(ahead - weight * slope / curvature, weight)[0]
            B_new = program.z.gather(program.sign * new)
            move = new - ahead
            allowed = at + float(slope @ move) + curvature / 2 * float(move @ (move / weight))
            if value(new, B_new) <= allowed + 1e-12 * abs(at):
                break
            curvature *= 2
        if float((ahead - new) / weight @ (new - alpha)) > 0:
            momentum = 1.0
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        share = (momentum - 1) / grown
        ahead, B_ahead = new + share * (new - alpha), B_new + share * (B_new - B)
        alpha, B, momentum = new, B_new, grown
        yield alpha


# --------------------------------------------------------------------------------------------------------- measurements


def ours(program: Program, psd: bool) -> tuple[list[float | None], float]:
    """Return the CPU seconds to each gap, the first as seen a Newton step later, and the last gap; best of three."""
    best: list[float | None] = []
    for _ in range(3):
        start, seen = time.process_time(), []

        def step(n_iter: int, max_iter: int, gap: float, start: float = start, seen: list[float] = seen) -> None:
            if gap <= GAPS[0] and not seen:
                seen.append(time.process_time() - start)

        optimum = proximal.solve(program, psd=psd, tol=GAPS[1], max_iter=1000, step=step)
        spent = time.process_time() - start
        if not best or spent < best[-1]:
            best = [*(seen or [spent]), spent]
        if spent > 1:
            break
    return best, optimum.gap / optimum.scale


def reference(
    program: Program, psd: bool, method: Callable[[], Iterator[Array]], every: int, limit: float
) -> tuple[list[float | None], float]:
    """Return the CPU seconds of a method to each gap, including evaluations of the gap, and the last gap."""
    start = time.process_time()
    times: list[float | None] = [None] * len(GAPS)
    best, bound = np.inf, -np.inf
    for step, alpha in enumerate(method(), start=1):
        spent = time.process_time() - start
        if step % every == 0 or spent > limit:
            objective, dual, scale = bounds(program, alpha, psd)
            best, bound = min(best, objective), max(bound, dual)
            gap = (best - bound) / scale
            for k, wanted in enumerate(GAPS):
                if gap <= wanted and times[k] is None:
                    times[k] = time.process_time() - start
            if times[-1] is not None or spent > limit:
                return times, gap
    raise AssertionError("the reference methods never end by themselves")


WINE = 1000, 20_000, 200_000
LANDMARKS = (20_000, 200), (20_000, 500), (100_000, 200)
"""Pairs and landmarks."""
GRID = tuple(product((10, 1000, 10_000), (0.3, 1, 10), (0.2, 0.6)))
"""C, C_S / C_D and ν, for the spread over trade-offs."""


def run(quick: bool = False) -> Table:
    table = Table(["pairs", "features", "program", "method", "CPU s to 1e-4", "CPU s to 1e-6", "last gap", "ratio"])
    limit = 2.0 if quick else LIMIT
    with threadpool_limits(1, user_api="blas"):
        proximal.solve(wine_pairs(500), psd=True, tol=0.1, max_iter=100)  # imports, before the clock runs
        for N in (500,) if quick else WINE:
            measure(table, "wine", [wine_pairs(N)], limit)
        measure(table, f"wine, {len(GRID)} settings", [wine_pairs(500 if quick else 5000, *g) for g in GRID], limit)
        for N, m in () if quick else LANDMARKS:
            measure(table, "a9a landmarks", [landmark_pairs(N, m)], limit)
    table.notes += [
        "interior point: Mehrotra's, with Woodbury's identity; gradient: accelerated and projected, with restarts",
        "ratio: CPU seconds to 1e-6 over metricforge's for the same program; of several programs, the range",
        f"all stop on their true relative gap; the references also after {LIMIT:.0f} CPU seconds; one BLAS thread",
        "wine: C_S = C_D = 1000 / mean ‖z‖², ν = 0.6, or C_D in {10, 1000, 10,000} / mean ‖z‖², C_S / C_D in {0.3, 1, "
        "10} and ν in {0.2, 0.6}, seconds added up; a9a: random pairs, RBF of the median width, C_S = C_D = 100 / mean "
        "‖z‖², ν = 0.6; the interior point, which knows no B ⪰ 0, would need 3.2 GB for its factor at 200 features",
    ]
    return table


def measure(table: Table, name: str, programs: list[Program], limit: float) -> None:
    """Add a row for each method: one program's seconds, or the sum over several and the range of the ratios."""
    first = programs[0]
    size = first.size, f"{first.z.width} ({name})"
    narrow = first.z.width <= NARROW
    for psd in (False, True) if narrow else (True,):
        form = "exact PSD" if psd else "relaxed"
        own = [ours(program, psd) for program in programs]
        table.add(*size, form, "metricforge", *summed(own, limit), "1")
        methods = {"gradient": (partial(projected_gradient, psd=psd), CHECK)}
        if not psd:
            methods["interior point"] = interior_point, 1
        for method, (steps, every) in methods.items():
            found = [reference(program, psd, partial(steps, program), every, limit) for program in programs]
            ratios = [(t[-1] or limit) / o[-1] for (t, _), (o, _) in zip(found, own, strict=True)]
            least = "" if all(t[-1] for t, _ in found) else ">= "
            spread = f"{min(ratios):.2g}" + (f" to {max(ratios):.2g}" if len(ratios) > 1 else "")
            table.add(*size, form, method, *summed(found, limit), least + spread)


def summed(found: list[tuple[list[float | None], float]], limit: float) -> tuple[float | str, ...]:
    """Return the seconds to each gap, all programs together, and the largest gap left."""
    times = [[t[k] for t, _ in found] for k in range(len(GAPS))]
    cells = [sum(t) if None not in t else f"over {sum(x or limit for x in t):.3g}" for t in times]
    return *cells, max(gap for _, gap in found)
