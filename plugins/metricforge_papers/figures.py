"""The figures of the README, each from the cells of a results file, of a benchmark or of a paper's table.

A `Figure` names the first cell of its row, the file, and the sentence with the values of the file in it; `Verdicts` is
the row about all papers, and `PARAGRAPH` the one of the text that has figures.  `wrong` finds what does not follow from
the files, and `rewritten` replaces it.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import pages
from .experiment import DEFAULT, PRINTED

Row = dict[str, Any]
HEAD = "| what | figure | benchmark |"


@dataclass(frozen=True)
class Figure:
    """A row of the README: what was measured, the name of the results, and what to say of the rows of their file.

    Results are those of a benchmark, or with ``paper`` the cells of a table or figure of a paper.
    """

    what: str
    name: str
    say: Callable[[Sequence[Row]], str]
    paper: bool = False

    def line(self, root: Path) -> str:
        """Return the row of the README that follows from the results in a project's folder."""
        source = f"[{self.name}](docs/results/{self.name}.md)" if self.paper else f"`{self.name}`"
        return f"| {self.what} | {self.said(root)} | {source} |"

    def said(self, root: Path) -> str:
        """Return what to say of the results in a project's folder."""
        folder, rows = ("docs/results", "cells") if self.paper else ("benchmarks/results", "rows")
        content = json.loads((root / folder / f"{self.name}.json").read_text(encoding="utf-8"))
        return self.say(content[rows])


@dataclass(frozen=True)
class Verdicts:
    """The row of the README about all papers: how many of their tables and statements are reproduced."""

    name: str = "summary"

    def line(self, root: Path) -> str:
        """Return the row that follows from the results of the papers in a project's folder."""
        found = pages.counts(pages.read(root / "docs" / "results"))
        told = [found[variant] for variant in (PRINTED, DEFAULT, pages.STATEMENTS)]
        tables, defaults, statements = (f"{a}, {b} and {c} of {a + b + c}" for a, b, c in told)
        return (
            f"| the five papers run again: reproduced, cannot be told, not | {tables} tables and figures with numbers "
            f"in the paper's setting, {defaults} by our defaults; {statements} with statements only "
            "| [summary](docs/results/summary.md) |"
        )


def only(rows: Sequence[Row], /, **where: Any) -> Row:
    """Return the single row with these cells."""
    (found,) = [row for row in rows if all(row[key] == value for key, value in where.items())]
    return found


def first_call(rows: Sequence[Row]) -> str:
    """Say what the first call gains on the sets held out, and which peers it does not beat surely."""
    held_out = [row for row in rows if row["half"] == "held-out"]
    kinds = {"L": "labels", "P5": "five pairs a row", "P1": "one pair a row", "T": "triplets", "C": "groups"}
    ours = {hints: only(held_out, hints=hints, metric="mf.learn") for hints in kinds}
    gains = ", ".join(f"{kind} {ours[hints]['gain']}" for hints, kind in kinds.items())
    peers = [row for row in held_out if row["metric"].startswith("metric-learn ")]
    close = []
    for row in peers:
        ahead, error = (float(part.replace("−", "-")) for part in row["mf.learn ahead by"].split(" ± "))
        if ahead <= 2 * error:
            name = row["metric"].removeprefix("metric-learn ")
            close.append(f"{name} on {kinds[row['hints']]} ({row['mf.learn ahead by']})")
    finished = [int(row["sets"].split(" of ")[0]) for row in peers]
    beaten = (
        "; ahead of every method of metric-learn measured there by more than two standard errors, on the "
        f"{min(finished)} to {max(finished)} sets on which it finished"
    )
    sets = ours["L"]["sets"].split(" of ")[0]
    return (
        f"{gains} points over standardised distances (mean of 1-NN, 5-NN and triplet accuracy, {sets} sets)"
        + beaten
        + (f" but {', '.join(close)}" if close else "")
    )


def idealized(rows: Sequence[Row]) -> str:
    """Say how much faster the default and the relaxed program are."""
    piqp, exact, relaxed = (
        only(rows, N=5000, solver=name)["CPU s"] for name in ("piqp", "metricforge, exact PSD", "metricforge, relaxed")
    )
    return (
        f"{piqp / exact:.0f} times as fast in CPU time as PIQP, which solves the relaxed program (ours of that: "
        f"{piqp / relaxed:.0f} times)"
    )


def ranges(values: Sequence[float]) -> str:
    """Return the least and the largest value, to two digits beyond 100."""
    shown = [f"{round(v, -len(str(int(v))) + 2):,.0f}" if v >= 200 else f"{v:.0f}" for v in values]
    least, most = (shown[list(values).index(pick)] for pick in (min(values), max(values)))
    return f"{least} to {most}"


def classics(rows: Sequence[Row]) -> str:
    """Say the ratios to metric-learn and scikit-learn on the two larger sets, to their objective and of whole fits."""
    large = [row for row in rows if row["rows"] >= 1000]
    peers = ("ml-LMNN", "ml-ITML", "ml-NCA", "sk-NCA")
    (lmnn, itml, nca, other), whole = (
        [ranges([row[ratio] for row in large if row["peer"] == peer]) for peer in peers]
        for ratio in ("ratio", "ratio of whole")
    )
    ends = [row for row in large if row["method"] == "itml"]
    worst = max(row["peer objective"] / row["our objective"] - 1 for row in ends)
    return (
        f"{lmnn}, {itml} (it ends up to {100 * worst:.0f} % above the optimum there) and {nca} times as fast in CPU "
        f"time, `nca` {other} times as fast as scikit-learn's; whole fits, to our own tolerance, "
        f"{', '.join(whole[:3])}, and {whole[3]} times"
    )


def lpdesign_quality(cells: Sequence[Row]) -> str:
    """Count the sets on which the default and the tuned mixtures have as many triplets right as ITML."""
    cells = [cell for cell in cells if cell["measure"] == "percent correct"]
    right = {(cell["row"], cell["column"]): round(cell["ours"], 1) for cell in cells}
    sets = [row for row, column in right if column == "ITML"]
    default, directions, weak = (
        sum(right[name, column] >= right[name, "ITML"] for name in sets)
        for column in ("our default", "weak + directions", "weak")
    )
    n = len(sets)
    at = {(cell["row"], cell["column"]): cell for cell in cells}
    surely = sum(_ahead(at[name, "our default"], at[name, "ITML"]) > 2 for name in sets)
    return (
        f"at least as many right as ITML on {default} of {n} by default (more by two standard errors on {surely}); "
        f"with penalties chosen on the training triplets on {directions} of {n}, and {weak} of {n} without directions; "
        "ITML with metric-learn's own settings"
    )


def _ahead(one: Row, other: Row) -> float:
    """Return by how many standard errors a mean over repeats exceeds another; 0 if they are equal."""
    difference = float(one["ours"] - other["ours"])
    error = math.sqrt(one["std"] ** 2 / one["repeats"] + other["std"] ** 2 / other["repeats"])
    return difference / error if difference else 0.0


def eigen(rows: Sequence[Row]) -> str:
    """Say the ratio to ARPACK with the search for missed eigenvalues, and without it."""
    ours = only(rows, data="a9a", r=390, eigensolver="lanczos")
    plain = only(rows, data="a9a", r=390, eigensolver="arpack")["CPU s"] / ours["CPU s"]
    return (
        f"{ours['× ARPACK with checks']:.1f} times as fast in CPU time as ARPACK, both with the search for missed ones "
        f"({plain:.1f} without)"
    )


def knn(rows: Sequence[Row]) -> str:
    """Say how much faster packed bits are than our exact search by products."""
    exact, bits = (only(rows, data="a9a", search=s)["CPU s"] for s in ("exact", "hamming"))
    return f"{exact / bits:.1f} times as fast in CPU time as our exact search by matrix products"


def gram(rows: Sequence[Row]) -> str:
    """Say the ratios to scikit-learn."""
    narrow, wide = (only(rows, kernel="RBF", d=d)["scikit-learn / ours"] for d in (16, 128))
    return f"{narrow:.1f} and {wide:.2f} times as fast as scikit-learn"


def kcr_scale(rows: Sequence[Row]) -> str:
    """Say errors and time on Adult."""
    row = only(rows, set="a9a", landmarks=200)
    return (
        f"test error {row['validated %']} % (raw 3-NN {row['raw 3-NN %']} %) after {row['CPU s']:.1f} CPU s; how many "
        "rows each is compared with was chosen on these test rows"
    )


def krca_append(rows: Sequence[Row]) -> str:
    """Say what a user sees, learn against update: by default, and with a Gaussian kernel."""
    default, gaussian = (ranges([row[f"mf.learn ÷ metric.update{how}"] for row in rows]) for how in (" by default", ""))
    return (
        f"{default} times as fast in CPU time as `mf.learn` on all rows by default (a linear kernel), {gaussian} times "
        "with a Gaussian kernel"
    )


def krca_scale(rows: Sequence[Row]) -> str:
    """Say time and memory of the largest fit."""
    row = only(rows, rows=500_000)
    return f"{row['CPU seconds']:.1f} CPU s, {row['peak, GB']:.2f} GB"


def lpdesign_lp(rows: Sequence[Row]) -> str:
    """Say the ratio to the printed program."""
    ratio = only(rows, n=128, solver="printed, simplex")["ratio (CPU)"]
    return f"{ratio:.0f} times as fast as the printed program on HiGHS, in CPU time"


def simplenpkl_million(rows: Sequence[Row]) -> str:
    """Say time and memory of the largest fit."""
    row = only(rows, rows=1_000_000, eigensolver="lanczos")
    return f"{row['all, CPU s']:.0f} CPU s, {row['peak GB']:.1f} GB"


def million(rows: Sequence[Row]) -> str:
    """Say the memory of all processes together."""
    krca, kcr, npkl = (float(only(rows, method=m)["together GB"]) for m in ("krca", "kcr", "simplenpkl"))
    return f"{krca:.2f} (krca), {kcr:.2f} (kcr) and {npkl:.2f} GB (simplenpkl, `tol=1e-3`) in all processes together"


def dask(rows: Sequence[Row]) -> str:
    """Say the time of one worker over that of NumPy, and how much faster two workers are."""
    passes = {"Gram": "Gram", "features": "features", "kNN graph": "neighbours"}
    found = {shown: only(rows, **{"pass": at}) for at, shown in passes.items()}
    one = ", ".join(f"{row['one worker / NumPy']:.2f} ({shown})" for shown, row in found.items())
    two = [row["one worker / two workers"] for row in found.values()]
    return f"{one} times its time; two workers on two cores {', '.join(f'{gain:.2f}' for gain in two)} times as fast"


def out_of_core(rows: Sequence[Row]) -> str:
    """Say whether the methods finished and workers restarted."""
    restarted = sum(row["restarted"] for row in rows)
    size = float(rows[0]["file GB"])
    methods = " and ".join(dict.fromkeys(row["method"] for row in rows))
    times = "no worker" if not restarted else f"{restarted} workers"
    return f"{methods} finish on {size:.1f} GB, {times} restarted"


FIGURES: tuple[Figure | Verdicts, ...] = (
    Figure(
        "the first call `mf.learn(X, hints)` on data sets that had no part in choosing it", "first-call", first_call
    ),
    Figure("`idealized`, 5,000 pairs, 13 features", "idealized-solvers", idealized),
    Figure("`kcr`, Adult, 32,561 rows, 200 landmarks", "kcr-scale", kcr_scale),
    Figure("`krca`, `metric.update` with a new pair of rows among 100 to 3,000", "krca-append", krca_append),
    Figure("`krca`, 500,000 × 32 rows, 256 landmarks", "krca-scale", krca_scale),
    Figure("`lpdesign`, 128 rows", "lpdesign-lp", lpdesign_lp),
    Figure("`lpdesign`, held-out triplets of nine data sets", "lpdesign-figure3", lpdesign_quality, paper=True),
    Figure("`simplenpkl`, a million rows, 64 eigenvectors, `tol=1e-4`", "simplenpkl-million", simplenpkl_million),
    Figure(
        "`lmnn`, `itml`, `nca` against metric-learn 0.7.0, to its objective, 1,617 and 2,000 rows", "classics", classics
    ),
    Figure("eigenvectors of Adult's graph, 390 of them, `tol=1e-3`", "simplenpkl-eigen", eigen),
    Figure("neighbours of Adult's binary rows, exact", "knn", knn),
    Figure("a Gaussian Gram matrix, 16 and 128 columns", "gram", gram),
    Figure("a million rows on two workers, learn to neighbours", "million", million),
    Figure("one dask worker against plain NumPy", "dask", dask),
    Figure("a file larger than memory, on two workers of 1.2 GB", "out-of-core", out_of_core),
    Verdicts(),
)


def wine(rows: Sequence[Row]) -> str:
    """Say what the picture of the README shows."""
    raw, scaled, learned = rows
    index = "ARI of k-means"
    wrong_rows = "one is" if learned["wrong"] == 1 else f"{learned['wrong']} are"
    return (
        f"scored on the other {learned['rows held out']}. The 1-NN error falls from {raw['1-NN error %']:.1f} % to "
        f"{learned['1-NN error %']:.1f} % ± {learned['standard error']:.1f} ({wrong_rows} wrong), the adjusted Rand "
        f"index of k-means rises from {raw[index]:.2f} to {learned[index]:.2f}. On these data, scaling the columns, "
        f"where every method starts, does nearly all of it: with nothing learned {scaled['wrong']} are wrong, and the "
        f"index is {scaled[index]:.2f}."
    )


PARAGRAPH = Figure(
    "What `make demo` draws: raw wine measurements, and the first call on one half of the rows, ", "wine", wine
)
"""Its first words, which no other paragraph has, and what follows from the results."""
WIDTH = 120


def paragraph(root: Path) -> str:
    """Return the paragraph of the README that has figures."""
    return "\n".join(textwrap.wrap(PARAGRAPH.what + PARAGRAPH.said(root), WIDTH))


def measured(readme: str) -> list[str]:
    """Return the rows of the README's table of figures."""
    table = readme.split(HEAD + "\n", 1)[1]
    return [line for line in table.split("\n\n", 1)[0].splitlines() if not re.fullmatch(r"[|\- ]+", line)]


def wrong(readme: str, root: Path) -> list[str]:
    """Return a sentence for each row that does not follow from the results, or that no figure covers."""
    expected = [figure.line(root) for figure in FIGURES]
    there = measured(readme)
    text = paragraph(root)
    return [
        *([] if text in readme else [f"README.md lacks: {' '.join(text.split())}"]),
        *(f"README.md lacks: {line}" for line in expected if line not in there),
        *(f"README.md has a row that no results file gives: {line}" for line in there if line not in expected),
    ]


def rewritten(readme: str, root: Path) -> str:
    """Return the README with every row of the table, and the paragraph, from the results."""
    before, rest = readme.split(HEAD + "\n", 1)
    _, after = rest.split("\n\n", 1)
    lines = [HEAD, "|---|---|---|", *(figure.line(root) for figure in FIGURES)]
    start = PARAGRAPH.what.strip()
    parts = before.split("\n\n")
    before = "\n\n".join(paragraph(root) if " ".join(part.split()).startswith(start) else part for part in parts)
    return before + "\n".join(lines) + "\n\n" + after
