"""Simple non-parametric kernel learning (Zhuang, Tsang & Hoi 2009): Tables 2 and 4, Figures 1 and 2."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricforge import Metric, Pairs, datasets, learn, plotting
from metricforge.errors import ConvergenceWarning, InputError
from metricforge.kernels import Linear
from metricforge.tasks import constrained_kmeans

from . import programs, ways
from .defaults import by_default
from .experiment import DEFAULT, PRINTED, Run
from .result import Result
from .scores import add_clustering, margin
from .verdict import Claim

Array = NDArray[Any]

RAND, SECONDS, COUNT = "Rand index %", "CPU seconds", "constraints"
SMALL = {
    "iris": "iris",
    "sonar": "sonar",
    "chessboard": "chessboard",
    "glass": "glass",
    "heart": "heart",
    "protein": "protein",
    "soybean": "soybean_small",
    "wine": "wine",
    "spiral": "double_spiral",
}
ADULT = ("a1a", "a2a", "a3a", "a4a", "a5a")
COMPONENTS = 0.7
LOSSES = {"LL": "linear", "SHL": "squared_hinge"}
OURS, SQUARED = "LL, our default", "SHL, our other settings"
HINGE_TOL = 1e-4
"""The relative gap of the hinge losses in the tables.  Labels are the same at 1e-5 on all draws and C that were tried;
at 1e-2 the squared hinge with B = 1 ends where it starts, at the kernel of the linear loss."""
TOLERANCE: dict[str, dict[str, float]] = {"linear": {}, "squared_hinge": {"tol": HINGE_TOL}}
WEIGHTS = (0.03, 0.1, 0.3, 1.0)
"""Values of C on the small sets; those of the paper are in (0, 1]."""
SAME_TOL = 1e-3
"""The gap to which our solver solves the program of NPKL."""
SPEEDUP = "speed-up of the linear loss over the semidefinite program"
WAYS, WAY_DRAWS = "mean Rand index % of the nine sets", 3
"""What the authors may have done, on so many draws of pairs."""


# --------------------------------------------------------------------------------------------------------------- tables


def table2(run: Run) -> Result:
    """Cluster nine small sets by kernels learned from pairs."""
    run.timed = {SECONDS, SPEEDUP}
    run.variants = {**dict.fromkeys(LOSSES, PRINTED), OURS: DEFAULT, SQUARED: "squared hinge, our other settings"}
    names = ("iris", "chessboard") if run.quick else tuple(SMALL)
    available = [name for name in names if run.load(SMALL[name], name) is not None]
    for name, seed in run.each([(name, seed) for name in available for seed in run.seeds()]):
        X, y = datasets.load(SMALL[name], seed=seed)
        pairs = Pairs.from_labels(y, components=COMPONENTS, seed=seed)
        add_kmeans(run, name, X, y, seed)
        weight = {}
        for column, loss in LOSSES.items():
            tried = [paper_setting(C=C, B=1.0, n_neighbors=5, loss=loss, **TOLERANCE[loss]) for C in WEIGHTS]
            best = max(tried, key=lambda solver: satisfied_share(X, pairs, solver, len(np.unique(y)), seed))
            add_learned(run, name, column, y, seed, partial(fitted, X, pairs, best, seed))
            weight[column] = best.C
        add_ours(run, name, X, y, pairs, seed)
        if seed == run.seed:
            rows = np.random.default_rng(seed).permutation(len(X))[:25] if run.quick else np.arange(len(X))
            some = X[rows], y[rows], pairs[rows]
            for column, C in weight.items():
                add_program(run, name, f"NPKL {column.removeprefix('S')}", *some, seed, C)
            same = paper_setting(C=weight["SHL"], B="unbounded", n_neighbors=5, loss="hinge", tol=SAME_TOL)
            add_learned(run, name, "NPKL HL, our solver", some[1], seed, partial(fitted, some[0], some[2], same, seed))
    reached = "" if run.quick or not available else add_ways(run, available)
    return run.result(
        "same-class pairs until 70 % connected components, as many different-class pairs, and the closure of both; "
        "features raw; k-means with ten starts. The paper's setting: 5 mutual "
        f"neighbours, equal weights, B = 1, C in {WEIGHTS}, chosen by how many of the given pairs k-means honours. "
        "NPKL: one repeat, the linear loss by SCS with the same bound B, the hinge loss by "
        f"{programs.solver_for(hinge=True) or 'no solver'} on the dual, which has one unknown for each pair; "
        f"our solver on the same program to a gap of {SAME_TOL:g}.",
        why="The paper chose C for each set, and prints neither its values nor how; chessboard and spiral are drawn by "
        f"rules of ours. {reached}".rstrip(),
        notes=[
            "CPU seconds: the fit alone, graph and extension to new rows included.",
            f"Squared hinge to a gap of {HINGE_TOL:g}. An earlier version stopped at 1e-2, where with B = 1 it has not "
            "left the kernel of the linear loss.",
            "Seen before it was settled: the paper's setting with C = 1 alone does worse; the column shown is the "
            "second try.",
        ],
    )


def table4(run: Run) -> Result:
    """Cluster five parts of Adult by kernels learned from pairs."""
    run.timed = {SECONDS}
    run.variants = {**dict.fromkeys(LOSSES, PRINTED), OURS: DEFAULT}
    sets = adult(run, ("a1a",) if run.quick else ADULT)
    for name, seed in run.each([(name, seed) for name in sets for seed in run.seeds()]):
        X, y = sets[name]
        pairs = Pairs.from_labels(y, components=COMPONENTS, seed=seed)
        run.add(COUNT, name, "pairs", pairs.size)
        add_kmeans(run, name, X, y, seed)
        for column, loss in LOSSES.items():
            printed = paper_setting(loss=loss, **TOLERANCE[loss], **({"n_neighbors": 10} if run.quick else {}))
            add_learned(run, name, column, y, seed, partial(fitted, X, pairs, printed, seed))
        add_learned(run, name, OURS, y, seed, partial(by_default, "simplenpkl", X, pairs, seed))
    return run.result(
        "same-class pairs until 70 % connected components, as many different-class pairs, and the closure of both, "
        "which fits the paper's counts; k-means on the training embedding, ten starts. The paper's setting: 50 mutual "
        f"neighbours, equal weights, no row normalisation, C = 1, B = n; SHL to a gap of {HINGE_TOL:g}.",
        why="The printed accuracies can be reached and are an artefact: k-means splits off one group of must-links, "
        "the adjusted Rand index is about 0, and everything in one cluster scores as high. Degree weights, few "
        "eigenvectors and normalised rows, our default, repair it.",
    )


# -------------------------------------------------------------------------------------------------------------- figures


def figure1(run: Run) -> Result:
    """Follow the squared hinge loss on a1a and a2a, by the published steps and by ours."""
    sets = adult(run, ("a1a", "a2a"))
    traces = {}
    for name in run.each(list(sets), resumable=False):
        X, y = sets[name]
        pairs = Pairs.from_labels(y, components=COMPONENTS, seed=run.seed)
        options = {"n_neighbors": 10} if run.quick else {}
        for column, steps in ((name, "harmonic"), (f"{name}, our steps", "bundle")):
            solver = paper_setting(loss="squared_hinge", tol=1e-4, max_iter=40, steps=steps, **options)
            traces[column] = np.array(fitted(X, pairs, solver, run.seed).report.trace)  # value, gap
            for step, (value, gap) in enumerate(traces[column][:20], start=1):
                run.add("objective", f"iteration {step}", column, value)
                run.add("relative gap", f"iteration {step}", column, gap / max(abs(value), 1e-12))
    needed = {column: steps_to(trace, 1e-3) for column, trace in traces.items()}
    found = ", ".join(f"{column}: {n or 'more'}" for column, n in needed.items())
    published = [needed[name] for name in sets]
    return run.result(
        "C = 1, B = n, 50 mutual neighbours, 70 % components; each iteration is one eigenproblem, with Algorithm 1's "
        "steps of length 1/t and with our bundle method on the same dual; the best value and gap so far. Converged: a "
        "relative gap of 1e-3.",
        claims=[
            Claim(
                run.printed.says[0],
                all(n is not None and n <= 10 for n in published),
                f"eigenproblems to a relative gap of 1e-3: {found}",
            )
        ]
        if needed
        else [],
        picture=convergence(traces),
    )


def steps_to(trace: Array, tol: float) -> int | None:
    """Return the number of iterations until the relative gap is at most ``tol``."""
    reached = np.flatnonzero(trace[:, 1] <= tol * np.abs(trace[:, 0]))
    return int(reached[0]) + 1 if len(reached) else None


def convergence(traces: dict[str, Array]) -> bytes:
    """Draw value and gap over iterations."""
    figure, axes = plotting.grid(1, 2, width=4.6, height=3.8)
    for name, trace in traces.items():
        steps = np.arange(1, len(trace) + 1)
        axes[0, 0].plot(steps, trace[:, 0], marker="o", ms=3, label=name)
        axes[0, 1].semilogy(steps, np.maximum(trace[:, 1] / np.abs(trace[:, 0]), 1e-12), marker="o", ms=3, label=name)
    for ax, title in zip(axes[0], ("objective", "relative gap"), strict=True):
        ax.set(xlabel="iteration", title=title)
        ax.legend()
    return plotting.png(figure)


ACTIVE, RANDOM = "active, our other settings", "random, our default"
ABOUT = 0.03
"""Adjusted Rand indices that differ by no more than this are about equal."""
SHARES = {"1/4 of the pairs": 0.25, "1/2 of the pairs": 0.5, "3/4 of the pairs": 0.75, "all pairs": 1.0}


def figure2(run: Run) -> Result:
    """Choose some of the pairs on a1a, actively and at random."""
    run.timed = {SECONDS}
    run.variants = {"active": PRINTED, RANDOM: DEFAULT, ACTIVE: "our other settings"}
    sets = adult(run, ("a1a",))
    printed = paper_setting(n_neighbors=20)
    for name, seed in run.each([(name, seed) for name in sets for seed in run.seeds()]):
        X, y = sets[name]
        pairs = Pairs.from_labels(y, components=0.6, seed=seed)
        add_kmeans(run, "no pairs", X, y, seed)
        for row, share in SHARES.items():
            some = some_of(pairs, share, seed)
            for column, learned in {
                "active": partial(fitted, X, pairs, with_active(printed, share), seed),
                "random": partial(fitted, X, some, printed, seed),
                ACTIVE: partial(ours_with, X, pairs, seed, **({"active": share} if share < 1 else {})),
                RANDOM: partial(by_default, "simplenpkl", X, some, seed),
            }.items():
                add_learned(run, row, column, y, seed, learned)
    claims = []
    if sets:
        printed_setting = (PRINTED,), f"{RAND}, the paper's setting", RAND, "active", "random", 100 * ABOUT
        ours = (run.variants[ACTIVE], DEFAULT), "ARI, our settings", "ARI", ACTIVE, RANDOM, ABOUT
        for setting in (printed_setting, ours):
            claims += about_choice(run, *setting)
    return run.result(
        "20 neighbours, 60 % components, closure; linear loss (the paper does not say which); active: rows by "
        "ascending margin under the base kernel, each with all of its pairs. In the paper's setting the statements are "
        "judged by the Rand index, as in the paper, which means little there (see Table 4); with our settings, our "
        "default and its option `active`, by the adjusted one.",
        claims=claims,
        why="In the paper's setting the Rand index is no better than that of one cluster, so it cannot rank two ways "
        "of choosing; with our settings a random choice does better.",
        picture=shares_picture(run) if sets else b"",
    )


def about_choice(
    run: Run, variants: tuple[str, ...], shown: str, measure: str, chosen: str, drawn: str, about: float
) -> list[Claim]:
    """Return the two statements about one setting: active choice is better, and half of the pairs do as well as all."""

    def values(column: str, row: str) -> Array:
        return np.array(run.samples[measure, row, column])

    active, random = (np.mean([values(c, row) for row in list(SHARES)[:-1]], axis=0) for c in (chosen, drawn))
    half, whole = values(chosen, "1/2 of the pairs"), values(drawn, "all pairs")

    def told(one: Array, other: Array) -> str:
        digits = 3 if about < 1 else 1
        return f"{one.mean():.{digits}f} against {other.mean():.{digits}f}"

    says = run.printed.says
    better = f"{shown}: {told(active, random)}, mean over the shares"
    return [
        Claim(says[0], bool(active.mean() > random.mean()), better, **margin(active, random), variants=variants),
        Claim(
            says[1],
            bool(half.mean() > whole.mean() - about),
            f"{shown}: {told(half, whole)} (about: {about:g} less at the most)",
            **margin(half, whole, by=-about),
            variants=variants,
        ),
    ]


def with_active(solver: Any, share: float) -> Any:
    """Return the solver that uses a share of the pairs."""
    return replace(solver, active=share) if share < 1 else solver


def some_of(pairs: Pairs, share: float, seed: int) -> Pairs:
    """Return a random share of the pairs."""
    if share == 1:
        return pairs
    rng = np.random.default_rng(seed)
    similar, dissimilar = (side[rng.random(len(side)) < share] for side in (pairs.similar, pairs.dissimilar))
    return Pairs(similar, dissimilar, n=pairs.n)


def shares_picture(run: Run) -> bytes:
    """Draw Rand index, adjusted Rand index and time against the share of the pairs."""
    figure, axes = plotting.grid(1, 3, width=4.2, height=3.8)
    columns = ["active", "random", ACTIVE, RANDOM]
    for ax, measure in zip(axes[0], (RAND, "ARI", SECONDS), strict=True):
        for column in columns:
            found = {share: run.samples.get((measure, row, column)) for row, share in SHARES.items()}
            points = [(share, np.mean(values)) for share, values in found.items() if values]
            ax.plot(*np.array(points).T, marker="o", ms=3, label=column)
        ax.set(title=measure, xlabel="share of the pairs")
    axes[0, 0].legend(fontsize=7)
    return plotting.png(figure)


# ---------------------------------------------------------------------------------------------------------------- parts


def adult(run: Run, names: Sequence[str]) -> dict[str, tuple[Any, Array]]:
    """Return the available parts of Adult; a quick run takes few rows, or those of a bundled set."""
    found = {}
    for name in names:
        data = run.load(name)
        if data is not None:
            rows = slice(0, 300) if run.quick else slice(None)
            found[name] = (data.X[rows], data.y[rows])
    if run.quick and not found:
        twin = datasets.load("wdbc")
        found["wdbc in place of Adult"] = ((twin.X[:300] - twin.X.mean(axis=0)) / twin.X.std(axis=0), twin.y[:300])
    return found


def paper_setting(**options: Any) -> Any:
    """Return the solver with the settings of the paper."""
    from metricforge_plugins.simplenpkl.solver import SimpleNPKL

    return SimpleNPKL.paper(**options)


def ours_with(X: Any, pairs: Pairs, seed: int, **options: Any) -> Metric:
    """Learn with some options, and everything else as it is by default."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return learn(X, pairs, method="simplenpkl", seed=seed, **options)


def fitted(X: Any, pairs: Pairs, solver: Any, seed: int) -> Metric:
    """Learn on the graph of Euclidean distances; a fit that stops at its iteration limit counts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return learn(X, pairs, method="simplenpkl", kernel=Linear(), solver=solver, seed=seed)


def add_kmeans(run: Run, row: str, X: Any, y: Array, seed: int) -> None:
    """Cluster the rows themselves."""
    Z = X.toarray() if hasattr(X, "toarray") else X
    found = constrained_kmeans(Z, len(np.unique(y)), seed=seed).labels
    add_clustering(run, row, "k-means", y, found, measure=RAND, scale=100)


def add_ours(run: Run, row: str, X: Any, y: Array, pairs: Pairs, seed: int) -> None:
    """Add our default, whose loss is linear, and the squared hinge with our other settings."""
    add_learned(run, row, OURS, y, seed, partial(by_default, "simplenpkl", X, pairs, seed))
    squared = partial(ours_with, X, pairs, seed, loss="squared_hinge", **TOLERANCE["squared_hinge"])
    add_learned(run, row, SQUARED, y, seed, squared)


def add_learned(run: Run, row: str, column: str, y: Array, seed: int, learned: Callable[[], Metric]) -> None:
    """Learn, cluster the training embedding, and add scores and time; note if there is nothing to learn."""
    started = time.process_time()
    try:
        metric = learned()
    except InputError as error:
        run.lack(f"{row}, {column}, seed {seed}: {error}")
        return
    run.add(SECONDS, row, column, time.process_time() - started)
    found = constrained_kmeans(metric.report.embedding, len(np.unique(y)), seed=seed).labels
    add_clustering(run, row, column, y, found, measure=RAND, scale=100)


def satisfied_share(X: Any, pairs: Pairs, solver: Any, n_clusters: int, seed: int) -> float:
    """Return the mean share of similar and dissimilar pairs that k-means satisfies after learning; −1 if that fails."""
    try:
        E = fitted(X, pairs, solver, seed).report.embedding
    except InputError:
        return -1.0
    return honoured_share(constrained_kmeans(E, n_clusters, seed=seed).labels, pairs)


# ------------------------------------------------------------------------------------------------ semidefinite programs


def add_program(run: Run, row: str, column: str, X: Any, y: Array, pairs: Pairs, seed: int, C: float) -> None:
    """Solve (4) by a semidefinite program, if it finishes."""
    hinge = column.endswith("HL")
    solver = programs.solver_for(hinge)
    if not solver:
        run.lack("NPKL by a semidefinite program: it needs cvxpy, SCS, and SDPA or Clarabel: pip install cvxpy")
        return
    started = time.process_time()
    L = programs.laplacian(X, 5)
    K = programs.hinge_loss(L, pairs, C=C) if hinge else programs.linear_loss(L, pairs, C=C)
    if K is None:
        run.lack(f"{column} on {row}: {solver} did not finish")
        return
    spent = time.process_time() - started
    run.add(SECONDS, row, column, spent)
    if not hinge:
        run.add(SPEEDUP, row, "LL", spent / run.samples[SECONDS, row, "LL"][-1])  # of the same draw
    w, V = np.linalg.eigh((K + K.T) / 2)
    found = constrained_kmeans(V * np.sqrt(np.maximum(w, 0)), len(np.unique(y)), seed=seed).labels
    add_clustering(run, row, column, y, found, measure=RAND, scale=100)


# ------------------------------------------------------------------------------------- what the authors may have done


def add_ways(run: Run, names: Sequence[str]) -> str:
    """Try what the paper leaves open; return a sentence on what that reaches."""
    tried = ways.Tried()
    seeds = run.seeds()[:WAY_DRAWS]
    for name, seed in run.each([(name, seed) for name in names for seed in seeds], resumable=False):
        X, y = datasets.load(SMALL[name], seed=seed)
        for drawn, closure in ways.PAIRS.items():
            pairs = Pairs.from_labels(y, components=COMPONENTS, closure=closure, seed=seed)
            for features, scale in ways.FEATURES.items():
                for C in ways.WEIGHTS:
                    try:
                        E = fitted(scale(X), pairs, paper_setting(C=C, B=1.0, n_neighbors=5), seed).report.embedding
                    except InputError:
                        continue
                    for shape, Z in ways.shapes(E, len(np.unique(y))):
                        labels = ways.clustered(Z, len(np.unique(y)), seed)
                        way = f"{features} features, pairs {drawn}, {shape}"
                        tried.add(way, name, C, seed, rand_percent(y, labels), honoured_share(labels, pairs))
    within = {}
    printed = {name: run.printed.measures[RAND].mean(name, "LL") or 0.0 for name in names}
    for way in tried.ways:
        for seed in tried.draws:
            value = np.mean([tried.by_pairs(way, name, seed) for name in tried.sets])
            run.add(WAYS, way, "C chosen by the pairs", float(value))
        best = {name: tried.best(way, name) for name in tried.sets}
        run.add(WAYS, way, "best C of each set", float(np.mean(list(best.values()))))
        within[way] = sum(best[name] >= printed[name] - 1 for name in best)
        run.add(WAYS, way, "sets at most a point below the paper, with the best C", within[way])
    plain = max(within[way] for way in within if way.endswith(ways.ROWS[0]))
    unit = max(within, key=lambda way: within[way])
    never = [name for name in tried.sets if max(tried.best(way, name) for way in tried.ways) < printed[name] - 1]
    return (
        f"Tested (last table, {len(tried.ways)} ways, linear loss): with the embedding as it is, no choice of "
        f"features, pairs, columns and C, even by the labels, is within a point of the paper on more than {plain} of "
        f"{len(tried.sets)} sets; the best way ({unit}) is on {within[unit]}."
        + (f" No way does on {' and '.join(never)}." if never else "")
    )


def rand_percent(y: Array, labels: Array) -> float:
    """Return the Rand index in percent."""
    from sklearn.metrics import rand_score

    return 100 * float(rand_score(y, labels))


def honoured_share(labels: Array, pairs: Pairs) -> float:
    """Return the mean share of similar and dissimilar pairs that a clustering honours."""
    together = [labels[side[:, 0]] == labels[side[:, 1]] for side in (pairs.similar, pairs.dissimilar)]
    return float(together[0].mean() + 1 - together[1].mean()) / 2
