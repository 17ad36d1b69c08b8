"""Kernel relevant component analysis (Tsang, Cheung & Kwok 2005): Tables I, II, IV and Figures 1 to 3."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricforge import Chunklets, Metric, datasets, learn, plotting
from metricforge.kernels import RBF, Kernel, Linear, Spectrum
from metricforge.rows.mapping import median_of_pairs
from metricforge.tasks import constrained_kmeans

from .appending import equation_10, recompute, timed_appends, typical
from .defaults import by_default
from .experiment import DEFAULT, PRINTED, TUNED, Run
from .printed import printed
from .result import Result
from .scores import add_clustering, least, margin, outstanding, standardised
from .verdict import WORSE, Cell, Claim, judge_cell

Array = NDArray[Any]

LINEAR, GAUSSIAN = Linear(), RBF("median")
RAND = "Rand index"
MULTIPLE = 5.0
"""ε in mean eigenvalues of C."""

# ----------------------------------------------------------------------------------------------------------------- XOR


def table1(run: Run) -> Result:
    """Cluster the XOR data in two: linear and Gaussian, without and with (kernel) RCA."""
    ways = {
        # column: method, chunklets, whether k-means keeps them together
        "no RCA": ("euclidean", "groups", False),
        "RCA": ("krca", "groups", False),
        "no RCA; k-means keeps the chunklets": ("euclidean", "groups", True),
        "RCA; k-means keeps the chunklets": ("krca", "groups", True),
        "RCA, a chunklet spans its class": ("krca", "y", False),
        "no RCA; k-means keeps chunklets that span a class": ("euclidean", "y", True),
    }
    spans = "RCA, a chunklet spans its class"
    ours = "RCA, our default, a chunklet spans its class"
    run.variants = {"RCA": PRINTED, spans: "a chunklet spans its class", ours: DEFAULT}
    for seed in run.each(run.seeds()):
        data = datasets.load("xor", seed=seed)
        for kernel, name in ((LINEAR, "linear"), (GAUSSIAN, "Gaussian")):
            for column, (method, grouping, kept) in ways.items():
                chunklets = Chunklets(getattr(data, grouping))
                metric = regularised(data.X, chunklets, method, kernel)
                Z = metric.transform(data.X)
                found = constrained_kmeans(Z, 2, chunklets if kept else None, seed=seed).labels
                add_clustering(run, name, column, data.y, found)
        Z = by_default("krca", data.X, Chunklets(data.y), seed).transform(data.X)
        found = constrained_kmeans(Z, 2, seed=seed).labels
        for name in ("linear", "Gaussian"):  # the default has a kernel of its own
            add_clustering(run, name, ours, data.y, found)
    reached = add_scan(run)
    return run.result(
        "each repeat draws four clusters of 30 rows at (±1, ±1) with standard deviation 1/4; Gaussian with γ = 1 / "
        "median squared distance, ε = 5 mean eigenvalues of C; k-means with ten starts.",
        why="With one chunklet for each cluster, as the text has it, nothing says that two clusters belong together; "
        "the printed 1.000 is reached when a chunklet spans both clusters of its class. Tested with a chunklet for "
        f"each cluster: of {len(SCAN_WIDTHS) * len(SCAN_MULTIPLES)} pairs of σ² and ε (last tables) none has a mean "
        f"Rand index above {reached:.3f}, whether k-means keeps the chunklets or not. With the must-links of chunklets "
        "that span a class kept by k-means, the Gaussian kernel has 1.000 before learning.",
    )


SCAN_WIDTHS, SCAN_MULTIPLES, SCAN_DRAWS = (0.1, 0.3, 1.0, 3.0, 10.0, 100.0), (1e-6, 1e-4, 1e-2, 1.0, 5.0, 100.0), 20
"""σ² in medians of the squared distance, ε in mean eigenvalues of C, and the draws on which they are tried."""


def add_scan(run: Run) -> float:
    """Try kernel widths and ε with a chunklet for each cluster; return the best mean Rand index."""
    from sklearn.metrics import rand_score

    seeds = [] if run.quick else run.seeds()[:SCAN_DRAWS]
    measures = {False: "Rand index, four chunklets", True: "Rand index, four chunklets that k-means keeps"}
    for _, seed in run.each([("scan", seed) for seed in seeds]):
        data = datasets.load("xor", seed=seed)
        chunklets = Chunklets(data.groups)
        rate = float(GAUSSIAN.resolve(data.X).gamma)
        for width in SCAN_WIDTHS:
            kernel = RBF(rate / width)
            for multiple in SCAN_MULTIPLES:
                Z = regularised(data.X, chunklets, "krca", kernel, multiple).transform(data.X)
                for kept, measure in measures.items():
                    found = constrained_kmeans(Z, 2, chunklets if kept else None, seed=seed).labels
                    run.add(measure, f"σ² of {width:g} medians", f"ε of {multiple:g}", rand_score(data.y, found))
    return max((float(np.mean(v)) for (m, *_), v in run.samples.items() if m in measures.values()), default=np.nan)


def figure1(run: Run) -> Result:
    """Show the XOR data before and after linear RCA."""
    panels = [("before RCA", LINEAR, "euclidean", 2), ("after RCA", LINEAR, "krca", 2)]
    separations(run, panels)
    before, after = (_mean(run, ON_THEIR_SIDE, "XOR", panel[0]) for panel in panels)
    says = run.printed.says
    return run.result(
        XOR_PROTOCOL,
        claims=[
            Claim(says[0], before < APART, _sides(before), **_below(run, panels[0][0])),
            Claim(says[1], after < APART, _sides(after), **_below(run, panels[1][0])),
        ],
        picture=xor_picture(panels, run.seed),
    )


def figure2(run: Run) -> Result:
    """Project the XOR data on the leading axes of kernel PCA, before and after kernel RCA."""
    panels = [
        ("Gaussian, two axes", GAUSSIAN, "euclidean", 2),
        ("Gaussian, three axes", GAUSSIAN, "euclidean", 3),
        ("kernel RCA, two axes", GAUSSIAN, "krca", 2),
    ]
    separations(run, panels)
    two, three, learned = (_mean(run, ON_THEIR_SIDE, "XOR", panel[0]) for panel in panels)
    share = [_mean(run, SHARE, "XOR", panel[0]) for panel in panels]
    says = run.printed.says
    return run.result(
        XOR_PROTOCOL,
        claims=[
            Claim(
                says[0],
                two < APART and three > SEPARATED and share[1] < 0.5,
                f"{_sides(two)}, with a third axis {100 * three:.0f} %; {100 * share[1]:.0f} % of the variance is "
                "between the classes",
                **least(
                    _below(run, panels[0][0]),
                    margin(run.samples[ON_THEIR_SIDE, "XOR", panels[1][0]], [SEPARATED] * run.repeats),
                    margin([0.5] * run.repeats, run.samples[SHARE, "XOR", panels[1][0]]),
                ),
            ),
            Claim(
                says[1],
                learned > SEPARATED,
                f"{_sides(learned)}; {100 * share[2]:.0f} % of the variance is between classes",
                **margin(run.samples[ON_THEIR_SIDE, "XOR", panels[2][0]], [SEPARATED] * run.repeats),
            ),
        ],
        picture=xor_picture(panels, run.seed),
    )


APART, SEPARATED = 0.75, 0.99
"""Below and above these shares of rows on their side of a line, classes are not separated, and separated."""
ON_THEIR_SIDE, SHARE = "rows on their side of the best line", "share of variance between the classes"
XOR_PROTOCOL = (
    "chunklets span a class, Gaussian with γ = 1 / median squared distance, ε = 5 mean eigenvalues of C; projected on "
    "the leading axes of the centred kernel; the line is that of linear discriminant analysis."
)
Panel = tuple[str, Kernel, str, int]


def separations(run: Run, panels: Sequence[Panel]) -> None:
    """Measure how well a line separates the classes in each panel."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    for seed in run.each(run.seeds()):
        for name, kernel, method, axes in panels:
            Z, y = projected(kernel, method, axes, seed)
            run.add(ON_THEIR_SIDE, "XOR", name, LinearDiscriminantAnalysis().fit(Z, y).score(Z, y))
            between = np.mean([np.square(Z[y == c].mean(axis=0)).sum() for c in (0, 1)])
            run.add(SHARE, "XOR", name, float(between / np.square(Z).sum(axis=1).mean()))


def projected(kernel: Kernel, method: str, axes: int, seed: int) -> tuple[Array, Array]:
    """Return the XOR data on the leading axes of kernel PCA (PCA of the embedding, centring included)."""
    from sklearn.decomposition import PCA

    data = datasets.load("xor", seed=seed)
    metric = regularised(data.X, Chunklets(data.y), method, kernel)
    return PCA(axes).fit_transform(metric.transform(data.X)), data.y


def regularised(X: Array, chunklets: Chunklets, method: str, kernel: Kernel, multiple: float = MULTIPLE) -> Metric:
    """Learn; ε of krca is a multiple of the mean eigenvalue of C for every kernel, which is not its default."""
    metric = learn(X, chunklets, method=method, kernel=kernel, rank="exact")
    if method != "krca":
        return metric
    epsilon = multiple * metric.report.mean_eigenvalue
    return learn(X, chunklets, method=method, kernel=kernel, rank="exact", epsilon=epsilon)


def xor_picture(panels: Sequence[Panel], seed: int) -> bytes:
    """Draw the last two axes of each panel."""
    figure, axes = plotting.grid(1, len(panels), width=4.2, height=4.0)
    groups = datasets.load("xor", seed=seed).groups
    assert groups is not None
    for ax, (name, kernel, method, count) in zip(axes[0], panels, strict=True):
        Z, _ = projected(kernel, method, count, seed)
        for group in range(4):
            inside = groups == group
            ax.scatter(Z[inside, -2], Z[inside, -1], s=14, color=f"C{group // 2}", marker="ox"[group % 2])
        ax.set(title=name, xlabel=f"axis {count - 1}", ylabel=f"axis {count}")
    return plotting.png(figure)


def _mean(run: Run, measure: str, row: str, column: str) -> float:
    return float(np.mean(run.samples[measure, row, column]))


def _below(run: Run, panel: str) -> dict[str, Any]:
    return margin([APART] * run.repeats, run.samples[ON_THEIR_SIDE, "XOR", panel])


def _sides(share: float) -> str:
    return f"{100 * share:.0f} % of the rows on their side of a line"


# ------------------------------------------------------------------------------------------------------------ proteins


def table2(run: Run) -> Result:
    """Rank proteins by their distance from a query, before and after KRCA on the query's labelled neighbours."""
    run.lack("the 95 % subset of ASTRAL 1.65: no copy is available; its rows are not run")
    run.lack("the 40 % subset of ASTRAL 1.65: no copy is available; SCOP 1.75 at 40 % is in its place")
    data = run.load("scop40", "SCOP 1.75 at 40 %")
    protocol = (
        "the 47 largest superfamilies; each repeat is a random query, which retrieves its neighbours by the spectrum "
    )
    protocol += "kernel (k = 3, normalised); they and the query, labelled, are the chunklets."
    if data is None:
        return run.result(protocol)
    y, strings, counts = largest_superfamilies(data, 5 if run.quick else 47)
    spectrum = LINEAR.normalized()  # of 3-mer counts: the spectrum kernel
    K = spectrum(counts)
    gamma = 1 / median_of_pairs(2 - 2 * K)
    kernels = {"spectrum": spectrum, "spectrum + Gaussian": RBF(gamma, base=spectrum)}
    asked = np.random.default_rng(run.seed).choice(len(y), size=min(run.repeats, len(y)), replace=False)
    settings: dict[str, float | str] = {"": 1e-3, ", ε of 5 mean eigenvalues": "auto"}
    run.variants = {f"{name}{tail}": PRINTED if tail == "" else tail[2:] for name in kernels for tail in settings}
    run.variants |= {f"{name}, our default": DEFAULT for name in kernels}
    run.baselines = {"40 % subset, no KRCA"}
    neighbours = (20, 50) if run.quick else (20, 30, 40, 50)
    for q in run.each(asked.tolist()):
        for name, kernel in kernels.items():
            run.add("AUC", "40 % subset, no KRCA", name, auc(kernel.distance(counts[[q]], counts)[0], y, q))
            for tail, epsilon in settings.items():
                for k in neighbours:
                    distance = feedback(counts, kernel, y, K[q], q, k, epsilon=epsilon)
                    run.add("AUC", f"40 % subset, {k} neighbours", f"{name}{tail}", auc(distance, y, q))
        for k in neighbours:
            area = auc(feedback(strings, Spectrum(3).normalized(), y, K[q], q, k), y, q)
            for name in kernels:
                run.add("AUC", f"40 % subset, {k} neighbours", f"{name}, our default", area)
        near = nearest(K[q], max(neighbours))
        if np.delete(y == y[q], near).any():
            others = "40 % subset, rows that were not labelled"
            run.add("AUC", others, "spectrum, before", auc(spectrum.distance(counts[[q]], counts)[0], y, q, skip=near))
            after = feedback(counts, spectrum, y, K[q], q, max(neighbours), epsilon=1e-3)
            run.add("AUC", others, "spectrum, after", auc(after, y, q, skip=near))
    return run.result(
        f"{protocol} ε = 1e-3 for the paper's small constant. {len(y)} sequences (the paper: 1778).",
        why="SCOP 1.75 is a later and larger set than ASTRAL 1.65: the baseline is higher and the gain smaller. "
        f"{gains_sentence(run.cells())}A "
        "Gaussian of a distance ranks as the distance does, so without KRCA both kernels must have one AUC; the paper "
        "prints two.",
        notes=[
            "Standard deviations are over queries.",
            "Our default learns from the strings: it starts from the same normalised spectrum kernel, with ε of 5 mean "
            "eigenvalues.",
            "ε = 1e-3 was taken after a scan on queries of this set had shown that smaller values do better here than "
            "the default.",
        ],
    )


def gains_sentence(cells: Sequence[Cell]) -> str:
    """Say how much KRCA gains over no KRCA in Table II, here and in the paper."""
    at = {(cell.row, cell.column): cell for cell in cells if cell.measure == "AUC" and cell.paper is not None}
    ours, theirs = [], []
    for (_, column), cell in at.items():
        before = at.get(("40 % subset, no KRCA", column))
        if cell.variant == PRINTED and before is not None:
            ours.append((cell.ours or 0.0) - (before.ours or 0.0))
            theirs.append((cell.paper or 0.0) - (before.paper or 0.0))
    if not ours:
        return ""
    return (
        f"KRCA gains {min(ours):.2f} to {max(ours):.2f} here and {min(theirs):.2f} to {max(theirs):.2f} in the paper; "
        "the AUC reached is the paper's, but from a better start, so that the gain is not reproduced. "
    )


def largest_superfamilies(data: datasets.Dataset, count: int) -> tuple[Array, Array, Any]:
    """Return labels, strings and 3-mer counts of the sequences in the largest superfamilies."""
    from metricforge.kernels import substring_counts

    chosen = np.flatnonzero(np.isin(data.y, np.argsort(-np.bincount(data.y), kind="stable")[:count]))
    strings = np.array([data.X[i] for i in chosen], dtype=object)
    return data.y[chosen], strings, substring_counts(list(strings), 3)


def feedback(X: Any, kernel: Kernel, y: Array, similarity: Array, query: int, neighbours: int, **options: Any) -> Array:
    """Return the query's distances after KRCA on its labelled neighbours; unchanged if no two of them share a class.

    Without options krca learns by default, from what learning on strings starts from.
    """
    near = nearest(similarity, neighbours)
    if np.bincount(y[near]).max() < 2:
        return np.asarray(kernel.distance(X[[query]], X)[0])
    chunklets = Chunklets(y[near])
    if options:
        metric = learn(X[near], chunklets, method="krca", kernel=kernel, rank="exact", **options)
    else:
        metric = by_default("krca", X[near], chunklets, seed=0)
    return np.asarray(metric.distance(X[[query]], X)[0])


def nearest(similarity: Array, neighbours: int) -> Array:
    """Return the query itself and its nearest neighbours."""
    return np.argsort(-similarity, kind="stable")[: neighbours + 1]


def auc(distance: Array, y: Array, query: int, skip: Any = ()) -> float:
    """Return the area under the ROC curve of a ranking without the query and the rows to skip."""
    from sklearn.metrics import roc_auc_score

    out = np.union1d([query], skip).astype(int)
    return float(roc_auc_score(np.delete(y == y[query], out), -np.delete(distance, out)))


# ---------------------------------------------------------------------------------------------------------- clustering

SETS = {
    # name in the paper: (data set, rows of each class or in all)
    "USPS": ("usps", 2500),
    "breast-cancer": ("breast_cancer_original", 0),
    "german": ("german_numeric", 0),
    "glass": ("glass", 0),
    "heart": ("heart", 0),
    "image": ("segment", 0),
    "ionosphere": ("ionosphere", 0),
    "letter": ("letter", 2600),
    "pima": ("pima", 0),
    "satellite": ("satimage", 2400),
    "sonar": ("sonar", 0),
    "vehicle": ("vehicle", 0),
}
SIDES = {"much": 0.7, "little": 0.9}
"""Connected components, as a share of the rows.  The text of the paper swaps the two."""
LARGE, RANK = 1500, 300
"""A set with more than LARGE rows is represented by RANK landmarks."""
STARTS = 5
"""Starts of k-means."""
RIDGE = 0.01
"""ε of linear RCA on standardised features."""
WIDTHS, MULTIPLES = (0.3, 1.0, 3.0), (1.0, 10.0, 100.0)
"""The grid: σ² in medians of the squared distance, ε in mean eigenvalues of C."""
COLUMNS = ("no RCA", "RCA", "no KRCA", "KRCA")


def table4(run: Run) -> Result:
    """Cluster twelve sets by constrained k-means in four metrics."""
    names = ("glass", "heart") if run.quick else tuple(SETS)
    sets = {name: data for name in names if (data := clustered_set(run, name)) is not None}
    if run.quick and not sets:  # this set is bundled, so that something runs everywhere
        sets = {"wine": (standardised(datasets.load("wine").X), datasets.load("wine").y)}
    run.variants = {"KRCA": PRINTED, "KRCA, tuned": TUNED, "KRCA, our default": DEFAULT}
    jobs = [(name, side, seed) for name in sets for side in SIDES for seed in run.seeds()]
    tuned: dict[tuple[str, str], tuple[Kernel, float]] = {}
    for name, side, seed in run.each(jobs):
        X, y = sets[name]
        if (name, side) not in tuned:
            tuned[name, side] = tune(X, y, SIDES[side], seed=run.seed + 10_000, quick=run.quick)
        chunklets = Chunklets.from_labels(y, components=SIDES[side], seed=seed)
        kernel, epsilon = tuned[name, side]
        for column, options in {
            "no RCA": {"method": "euclidean", "kernel": LINEAR},
            "RCA": {"method": "krca", "kernel": LINEAR, "epsilon": RIDGE},
            "no KRCA": {"method": "euclidean", "kernel": GAUSSIAN},
            "KRCA": {"method": "krca", "kernel": GAUSSIAN},
            "KRCA, tuned": {"method": "krca", "kernel": kernel, "epsilon": epsilon},
        }.items():
            found = clustering(X, y, chunklets, seed, **options)
            add_clustering(run, f"{name}, {side}", column, y, found)
        Z = by_default("krca", X, chunklets, seed).transform(X)
        found = constrained_kmeans(Z, len(np.unique(y)), chunklets, n_init=STARTS, seed=seed).labels
        add_clustering(run, f"{name}, {side}", "KRCA, our default", y, np.asarray(found))
    marks, theirs = outstanding(run, RAND, COLUMNS), run.printed.measures[RAND].marks
    agreed = sum(theirs.get(row) == column for row, column in marks.items())
    return run.result(
        "k-means keeps the similar pairs together; much: 70 % connected components, little: 90 %; standardised "
        "features that vary; RCA with a ridge of 0.01, kernel RCA with γ = 1 / median squared distance and ε = 5 mean "
        "eigenvalues of C; "
        "tuned: σ² and ε chosen by the Rand index on one further draw of pairs that is not counted, as the paper does "
        "not say how.",
        marks=marks,
        why=f"{tuning_sentence(run.cells())} {BASELINES}".lstrip(),
        notes=[
            ahead_sentence(run.cells()),
            f"Of {len(marks)} asterisks of ours and {len(theirs)} of the paper's, {agreed} are in the same place.",
            "Tuned looks at the labels of one further draw, which a user would not have: read it as what the grid can "
            "reach.",
            "An asterisk: better than the other three of the paper's columns, paired t-test at the 95 % level over "
            "draws.",
            f"Sets of more than {LARGE} rows are represented by {RANK} landmarks, except in our default. USPS: 2500 "
            "rows of all 256 pixels (the paper: 88 features of unknown making); german: 24 features (the paper: 20); "
            "letter, satellite: equal classes.",
        ],
    )


def ahead_sentence(cells: Sequence[Cell]) -> str:
    """Say on how many rows of Table IV learning has the larger ARI than not learning."""
    ari = {(cell.row, cell.column): cell.ours or 0.0 for cell in cells if cell.measure == "ARI"}
    rows = list(dict.fromkeys(row for row, _ in ari))
    if not rows:
        return ""

    def ahead(column: str) -> str:
        linear, gaussian = (sum(ari[row, column] > ari[row, start] for row in rows) for start in ("no RCA", "no KRCA"))
        return f"{linear} and {gaussian}"

    return (
        f"By ARI, of {len(rows)} rows KRCA is ahead of no RCA and of no KRCA on {ahead('KRCA')}, tuned on "
        f"{ahead('KRCA, tuned')}, our default on {ahead('KRCA, our default')}."
    )


BASELINES = (
    "Our baselines are higher than the paper's as well (on letter it prints 0.637 where random labels would have "
    "0.926), so compare the four columns of a row with each other, and ARI as well as the Rand index."
)


def tuning_sentence(cells: Sequence[Cell]) -> str:
    """Say which numbers of Table IV are worse than the paper's, and which of them still are with tuned constants."""
    table = printed("krca", "table4")

    def worse(variant: str) -> dict[str, Cell]:
        judged = [cell for cell in cells if cell.variant == variant and None not in (cell.ours, cell.paper)]
        found = [judge_cell(cell, table.measures[cell.measure], table.repeats, len(judged)) for cell in judged]
        return {cell.row: cell for cell, one in zip(judged, found, strict=True) if one.outcome == WORSE}

    before, after = worse(PRINTED), worse(TUNED)
    if not before:
        return ""
    left = "; ".join(f"{row}: {cell.ours:.3f} against {cell.paper:.3f}" for row, cell in after.items())
    unknown = f" ({left}), for a reason that is not known" if left else ""
    return (
        f"Tested: {len(before)} numbers of the paper's setting are worse than the paper's ({'; '.join(before)}); with "
        f"constants chosen by the labels of a further draw {len(after)} are{unknown}."
    )


def clustered_set(run: Run, name: str) -> tuple[Array, Array] | None:
    """Return standardised rows and labels of a set, drawn as the paper says."""
    source, size = SETS[name]
    data = run.load(source, name)
    if data is None:
        return None
    X, y = data
    rng = np.random.default_rng(run.seed)
    if name == "USPS":
        rows = rng.choice(len(X), size, replace=False)
    elif size:
        each = size // len(np.unique(y))
        rows = np.concatenate([rng.choice(np.flatnonzero(y == c), each, replace=False) for c in np.unique(y)])
    else:
        rows = np.arange(len(X))
    return standardised(X[rows]), y[rows]


def clustering(X: Array, y: Array, chunklets: Chunklets, seed: int, **options: Any) -> Array:
    """Return the clusters of constrained k-means in the metric that the options select."""
    rank = RANK if len(X) > LARGE and not isinstance(options["kernel"], Linear) else "exact"
    Z = learn(X, chunklets, rank=rank, **options).transform(X)
    return np.asarray(constrained_kmeans(Z, len(np.unique(y)), chunklets, n_init=STARTS, seed=seed).labels)


def tune(X: Array, y: Array, components: float, *, seed: int, quick: bool) -> tuple[Kernel, float]:
    """Return the kernel and ε with the best Rand index on one draw of pairs."""
    from sklearn.metrics import rand_score

    chunklets = Chunklets.from_labels(y, components=components, seed=seed)
    median = 1 / float(GAUSSIAN.resolve(X).gamma)
    best: tuple[float, Kernel, float] | None = None
    for width in (1.0,) if quick else WIDTHS:
        kernel = RBF(1 / (width * median))
        rank = RANK if len(X) > LARGE else "exact"
        mean = learn(X, chunklets, method="krca", kernel=kernel, rank=rank).report.mean_eigenvalue
        for multiple in MULTIPLES:
            found = clustering(X, y, chunklets, seed, method="krca", kernel=kernel, epsilon=multiple * mean)
            score = rand_score(y, found)
            if best is None or score > best[0]:
                best = score, kernel, multiple * mean
    assert best is not None
    return best[1:]


# --------------------------------------------------------------------------------------------------- incremental update

GAMMA = 0.02
"""γ of the Gaussian on standardised pixels."""
WAYS = ("(8) anew", "eq. (10)", "appended to the factor")
UPDATES = 10
"""Consecutive updates; their median time is one measurement."""


def figure3(run: Run) -> Result:
    """Time the addition of a chunklet of two rows: (8) recomputed, by eq. (10), and by appending to the factor."""
    data = run.load("usps", "USPS")
    X = standardised((datasets.load("digits") if data is None else data).X)
    sizes = (50, 100) if run.quick else (100, 300, 1000, 1500)
    run.timed = {"CPU ms"}
    jobs = [(n, seed) for n in sizes for seed in run.seeds()]
    for n, seed in run.each(jobs):
        rows = np.random.default_rng(seed).choice(len(X), n + 2 * UPDATES + 2, replace=False)
        K = RBF(GAMMA * 16 / X.shape[1])(X[rows])
        two = slice(n, n + 2)
        anew = partial(recompute, K[: n + 2, : n + 2])
        printed = partial(equation_10, recompute(K[:n, :n]), K[:n, two], K[two, two])
        run.add("CPU ms", f"{n} rows", WAYS[0], 1e3 * typical(anew, 3))
        run.add("CPU ms", f"{n} rows", WAYS[1], 1e3 * typical(printed, 5))
        run.add("CPU ms", f"{n} rows", WAYS[2], 1e3 * timed_appends(K, n, UPDATES)[0])
    most = f"{sizes[-1]} rows"
    slow, by_10, appended = (_mean(run, "CPU ms", most, way) for way in WAYS)
    found = f"at {most}: {slow / by_10:.0f} times by eq. (10), {slow / appended:.0f} times by appending"
    return run.result(
        "chunklets of two on standardised USPS pixels, Gaussian kernel, its values given; median CPU time on one "
        "thread of several updates.",
        claims=[
            Claim(
                run.printed.says[0],
                by_10 < slow and appended < slow,
                found,
                **least(
                    *(margin(run.samples["CPU ms", most, WAYS[0]], run.samples["CPU ms", most, w]) for w in WAYS[1:])
                ),
            )
        ],
        picture=times_picture(run, sizes),
    )


def times_picture(run: Run, sizes: Sequence[int]) -> bytes:
    """Draw time against rows, one line for each algorithm."""
    figure, axes = plotting.grid(1, 1, width=5.5, height=4.2)
    ax = axes[0, 0]
    for column in WAYS:
        ax.plot(sizes, [_mean(run, "CPU ms", f"{n} rows", column) for n in sizes], marker="o", label=column)
    ax.set(xscale="log", yscale="log", xlabel="rows in chunklets", ylabel="CPU ms for one more chunklet")
    ax.legend()
    return plotting.png(figure)
