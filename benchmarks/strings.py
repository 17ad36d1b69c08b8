"""What learning on strings starts from, and what it gains: counts of substrings or normalised ones, ε, weights, checks.

The proteins of SCOP outside of the 47 superfamilies of krca's Table II, in two parts; strings of 12 Markov chains, 20
to 400 letters long; surnames of several languages if ``faker``, which has them, is installed.  *Groups* are of four
rows over 30 % of those learned from.  *Feedback* is the protocol of Table II: the 20 nearest neighbours of a query,
with labels; AUC of the ranking of all other rows.  The default was chosen on the first part of SCOP.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

import metricforge as mf
from metricforge.kernels import Linear, substring_counts

from .run import Table

COUNTS, NORMALISED = Linear(), Linear().normalized()
"""On counts of substrings these are the spectrum kernels, and take no new count for every block."""
LANGUAGES = [
    "cs_CZ",
    "de_DE",
    "es_ES",
    "fi_FI",
    "fr_FR",
    "it_IT",
    "nl_NL",
    "pl_PL",
    "pt_BR",
    "ro_RO",
    "hu_HU",
    "sv_SE",
    "tr_TR",
    "lt_LT",
    "en_GB",
    "hr_HR",
]
SPLITS, QUERIES = 3, 50
Strings = tuple[np.ndarray, np.ndarray]


def proteins(first: int, last: int) -> Strings:
    """Return the superfamilies of these ranks by size."""
    data = mf.datasets.load("scop40")
    kept = np.flatnonzero(np.isin(data.y, np.argsort(-np.bincount(data.y), kind="stable")[first:last]))
    return np.array([data.X[i] for i in kept], dtype=object), data.y[kept]


def markov(classes: int = 12, each: int = 60, letters: int = 6, own: float = 0.35) -> Strings:
    """Return strings of Markov chains that share a part of their transitions."""
    rng = np.random.default_rng(0)
    common = rng.dirichlet(np.ones(letters), size=letters)
    texts, y = [], []
    for c in range(classes):
        P = (1 - own) * common + own * rng.dirichlet(np.full(letters, 0.5), size=letters)
        for _ in range(each):
            state, text = int(rng.integers(letters)), ""
            for _ in range(int(np.exp(rng.uniform(np.log(20), np.log(400))))):
                text += "ABCDEF"[state]
                state = int(rng.choice(letters, p=P[state]))
            texts.append(text)
            y.append(c)
    return np.array(texts, dtype=object), np.array(y)


def surnames(each: int = 150) -> Strings | None:
    """Return surnames, marked at both ends, by language; None without faker."""
    try:
        providers = [importlib.import_module(f"faker.providers.person.{at}").Provider for at in LANGUAGES]
    except ImportError:
        return None
    texts, y = [], []
    for c, provider in enumerate(providers):
        lists = (f"last_names{kind}" for kind in ("", "_male", "_female", "_unisex"))
        names = sorted({str(name) for one in lists for name in getattr(provider, one, None) or ()})
        if len(names) >= 10:
            chosen = np.random.default_rng(c).permutation(len(names))[:each]
            texts += [f"^{names[i].lower()}$" for i in chosen]
            y += [c] * len(chosen)
    return np.array(texts, dtype=object), np.array(y)


def run(quick: bool = False) -> Table:
    table = Table(["set", "rows", "hints", "metric", "1-NN right, %", "AUC, %", "chosen"])
    sets: dict[str, Strings | None] = {
        "SCOP, superfamilies 48 to 110": proteins(47, 110),
        "SCOP, superfamilies 111 to 244": proteins(110, 244),
        "Markov chains": markov(),
        "surnames": surnames(),
    }
    for name, data in sets.items():
        if data is None:
            table.notes.append(f"{name}: not run, faker is not installed")
            continue
        found: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for split in range(1 if quick else SPLITS):
                for key, score in on_split(*data, split):
                    found.setdefault(key, []).append(score)
            for key, score in feedback(*data, 5 if quick else QUERIES):
                found.setdefault(key, []).append(score)
        for (hints, metric), scores in found.items():
            ones, areas = (np.array([score[i] for score in scores]) for i in (0, 1))
            methods = ", ".join(dict.fromkeys(score[2] for score in scores if score[2]))
            table.add(name, len(data[0]), hints, metric, shown(ones), shown(areas), methods)
    table.notes.append(
        f"± standard error over {SPLITS} splits (400 rows learned from, 300 held out) or {QUERIES} queries"
    )
    return table


def shown(values: np.ndarray) -> str:
    if np.isnan(values).all():
        return ""
    if len(values) < 2:
        return f"{100 * values.mean():.1f}"
    return f"{100 * values.mean():.1f} ± {100 * values.std(ddof=1) / np.sqrt(len(values)):.1f}"


def on_split(X: np.ndarray, y: np.ndarray, seed: int) -> Iterator[tuple[tuple[str, str], tuple[float, float, str]]]:
    """Yield the scores on rows held out, by hints and metric."""
    rng = np.random.default_rng(200 + seed)
    order = rng.permutation(len(y))[:700]
    a, b = order[:400], order[400:]
    counts = substring_counts(list(X), 3)
    hints: dict[str, Any] = {
        "labels": mf.Labels(y[a]),
        "5 pairs a row": mf.Pairs.from_labels(y[a], n_pairs=5 * len(a), seed=seed),
        "groups": mf.Chunklets(groups_of_four(y[a], rng)),
    }

    def scored(metric: mf.Metric, rows: Any, *, named: bool = False) -> tuple[float, float, str]:
        return *scores(metric.distance(rows[b], rows[a]), y[a], y[b]), metric.report.method if named else ""

    for start, kernel in (("counts", COUNTS), ("normalised", NORMALISED)):
        metric = mf.learn(counts[a], hints["labels"], method="euclidean", kernel=kernel)
        yield ("none", f"{start}, not learned"), scored(metric, counts)
    for kind, hint in hints.items():
        if kind != "5 pairs a row":
            for setting, metric in krca_settings(counts[a], hint if kind == "groups" else mf.Chunklets(y[a])):
                yield (kind, setting), scored(metric, counts)
        for selection in ("off", "guard"):
            name = "the first call" + (", not checked" if selection == "off" else "")
            yield (kind, name), scored(mf.learn(X[a], hint, selection=selection, seed=seed), X, named=True)


def krca_settings(counts: Any, chunklets: mf.Chunklets) -> Iterator[tuple[str, mf.Metric]]:
    """Yield krca with the settings that were tried."""
    learn = partial(mf.learn, counts, chunklets, method="krca")
    yield "krca, counts", learn(kernel=COUNTS)
    yield "krca, normalised (default)", (default := learn(kernel=NORMALISED))
    for times in (1.0, 0.1):
        yield (
            f"krca, normalised, ε of {times:g} means",
            learn(kernel=NORMALISED, epsilon=times * default.report.mean_eigenvalue),
        )
    yield 'krca, normalised, weights="total"', learn(kernel=NORMALISED, weights="total")


def feedback(X: np.ndarray, y: np.ndarray, queries: int) -> Iterator[tuple[tuple[str, str], tuple[float, float, str]]]:
    """Yield the area under the curve of a query's ranking, by metric, if two of its neighbours share a class."""
    counts = substring_counts(list(X), 3)
    K = NORMALISED(counts)
    for q in np.random.default_rng(7).choice(len(y), queries, replace=False):
        near = np.argsort(-K[q], kind="stable")[:21]
        if np.unique(y[near], return_counts=True)[1].max() < 2:
            continue
        others = np.delete(np.arange(len(y)), q)

        def area(kernel: Any, q: int = int(q), others: np.ndarray = others) -> tuple[float, float, str]:
            return np.nan, ranked(kernel.distance(counts[[q]], counts[others])[0], y[others] == y[q]), ""

        for start, kernel in (("counts", COUNTS), ("normalised", NORMALISED)):
            yield ("feedback", f"{start}, not learned"), area(kernel)
        for setting, metric in krca_settings(counts[near], mf.Chunklets(y[near])):
            yield ("feedback", setting), area(metric)


def groups_of_four(y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the group of each row: four rows of a class, until 30 % of all rows are in one."""
    found, n, group = np.full(len(y), -1), 0, 0
    waiting = {c: list(rng.permutation(np.flatnonzero(y == c))) for c in rng.permutation(np.unique(y))}
    while n < 0.3 * len(y) and waiting:
        for c in list(waiting):
            rows, waiting[c] = waiting[c][:4], waiting[c][4:]
            if len(rows) < 2:
                del waiting[c]
                continue
            found[rows], group, n = group, group + 1, n + len(rows)
            if n >= 0.3 * len(y):
                break
    return found


def scores(D: np.ndarray, y: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Return the share of rows whose nearest one has their class, and the mean area under their ROC curves."""
    some = [i for i in range(len(truth)) if (y == truth[i]).any()]
    return float(np.mean(y[D.argmin(axis=1)] == truth)), float(np.mean([ranked(D[i], y == truth[i]) for i in some]))


def ranked(distances: np.ndarray, relevant: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(relevant, -distances))
