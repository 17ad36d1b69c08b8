"""How many answers `metricforge ask` needs, against random pairs: a person simulated from labels.

60 % of at most 800 rows are asked about, the others are held out.  A metric (`llr`) is learned from the answers so far
and scored on held-out rows: triplets (i like j, unlike k) ordered rightly, adjusted Rand index of k-means, and
leave-one-out 5-NN accuracy.  ``ratio`` is 200 divided by the number of answers after which the mean curve stays at or
above what random pairs reach with 200, learning by the same method; 0.7 if it never does.  Its interval is the 2.5 and
97.5 % quantile over 500 bootstrap samples of (set, seed).  The sets called new had no part in the design of the rule.

Every simulation is appended to a file in the cache folder as soon as it is done, with a digest of the code of the rule,
so that a run that was stopped continues.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import metricforge as mf

from .run import Table

DESIGN = ("wine", "ionosphere", "glass", "vehicle", "segment", "digits", "balance_scale", "wdbc")
NEW = ("letter", "satimage", "usps", "heart")
ROWS, AXES = 800, 40
STEPS = (20, 35, 50, 65, 80, 100, 125, 150, 175, 200)
RULES: dict[str, dict[str, Any]] = {
    "random": {"rule": "random"},
    "groups": {"rule": "groups"},
    "groups, uncertain rows": {"rule": "groups", "select": "uncertain"},
    "line-up": {"rule": "groups", "lineup": True},
}
CONTROL, DEFAULT = "random", "groups"
SCORES = ("triplets", "ARI", "5-NN")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", default=",".join(DESIGN + NEW))
    parser.add_argument("--wrong", default="0,0.05,0.1", help="shares of wrong answers")
    parser.add_argument("--variants", action="store_true", help="uncertain rows and line-ups too, at 0 %% wrong")
    parser.add_argument("--cache", type=Path, help="folder of the simulations; default: in the user's cache")


def load(name: str, seed: int):
    """Return rows and labels of both parts; wide rows by principal axes."""
    if name == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
    else:
        X, y = mf.datasets.load(name)
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
    rng = np.random.default_rng(seed)
    kept = rng.permutation(len(X))[:ROWS]
    X, y = X[kept], np.unique(np.asarray(y)[kept], return_inverse=True)[1]
    if X.shape[1] > 60:
        X = X - X.mean(axis=0)
        X = X @ np.linalg.eigh(X.T @ X)[1][:, ::-1][:, :AXES]
    cut = int(0.6 * len(X))
    return X[:cut], y[:cut], X[cut:], y[cut:]


def scores(session: mf.ask.Session, A, B, yb) -> list[float]:
    """Return triplet accuracy, ARI and 5-NN accuracy on held-out rows, in per cent."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score
    from sklearn.neighbors import NearestNeighbors

    hints = session.hints()
    both = len(hints.similar) and len(hints.dissimilar)
    start = mf.kernels.Standardized(mf.kernels.Linear(), by="range")
    Z = (
        mf.learn(A, hints, method="llr", prior="independent")
        if both
        else mf.learn(A, np.arange(len(A)) % 2, method="euclidean", kernel=start)
    ).transform(B)
    i, j, k = np.random.default_rng(0).integers(len(B), size=(3, 30_000))
    kept = (yb[i] == yb[j]) & (i != j) & (yb[i] != yb[k])
    near, far = (((Z[i] - Z[other]) ** 2).sum(axis=1)[kept] for other in (j, k))
    classes = len(np.unique(yb))
    found = KMeans(classes, n_init=3, random_state=0).fit_predict(Z)
    lists = NearestNeighbors(n_neighbors=6).fit(Z).kneighbors(Z, return_distance=False)[:, 1:]
    votes = np.apply_along_axis(lambda row: np.bincount(row, minlength=yb.max() + 1).argmax(), 1, yb[lists])
    return [100 * float((near < far).mean()), 100 * adjusted_rand_score(yb, found), 100 * float((votes == yb).mean())]


def simulate(name: str, options: dict[str, Any], wrong: float, seed: int) -> tuple[list[list[float]], float, float]:
    """Return scores after each step, CPU seconds a question, and the share of rows in a wrong group."""
    A, ya, B, yb = load(name, seed)
    session = mf.ask.Session(A, held_out=0, seed=seed, **options)
    rng = np.random.default_rng([seed, 1])
    curve: list[list[float]] = []
    spent, asked = 0.0, 0
    for count in range(1, STEPS[-1] + 1):
        started = time.process_time()
        question = session.next()
        if question is not None:
            session.answer(question, _answer(question, ya, rng, wrong))
            asked += 1
        spent += time.process_time() - started
        if count in STEPS:
            curve.append(curve[-1] if question is None and curve else scores(session, A, B, yb))
    groups = session.groups()
    placed = np.flatnonzero(groups >= 0)
    majority = {g: np.bincount(ya[groups == g]).argmax() for g in set(groups[placed].tolist())}
    misplaced = np.mean([majority[groups[row]] != ya[row] for row in placed]) if len(placed) else 0.0
    return curve, spent / max(asked, 1), float(misplaced)


def _answer(question, y, rng, wrong: float):
    i, *others = question.rows
    mistaken = rng.random() < wrong
    if question.kind == "pair":
        return "alike" if (y[i] == y[others[0]]) ^ mistaken else "unlike"
    choices = [place for place, row in enumerate(others, start=1) if y[row] == y[i]] or ["none"]
    if mistaken:
        choices = [c for c in (*range(1, len(others) + 1), "none") if c not in choices]
    return choices[int(rng.integers(len(choices)))]


def question_seconds(n: int, d: int = 64, classes: int = 26, answers: int = 400) -> tuple[float, float, float]:
    """Return CPU seconds to open a session on random rows, and the mean and most of a question with its answer."""
    rng = np.random.default_rng(0)
    y = rng.integers(classes, size=n)
    X = rng.normal(size=(n, d)) + 2 * rng.normal(size=(classes, d))[y]
    started = time.process_time()
    session = mf.ask.Session(X)
    opened = time.process_time() - started
    spent = []
    for _ in range(answers):
        started = time.process_time()
        question = session.next()
        assert question is not None
        session.answer(question, _answer(question, y, rng, 0.0))
        spent.append(time.process_time() - started)
    return opened, float(np.mean(spent)), max(spent)


def ratio(curve: Sequence[float], goal: float) -> float:
    """Return 200 / the number of answers after which a curve stays at or above a goal; 0.7 if it never does."""
    below = [step for step, value in zip(STEPS, curve, strict=True) if value < goal]
    if not below:
        return STEPS[-1] / STEPS[0]
    after = [step for step in STEPS if step > below[-1]]
    return STEPS[-1] / after[0] if after else 0.7


def code_digest() -> str:
    """Return a digest of the code that results depend on: what is asked, what is learned, how it is scored."""
    from metricforge_ask import constraint, groups
    from metricforge_ask import session as asking
    from metricforge_plugins.llr import solver

    parts = [inspect.getsource(part) for part in (constraint, groups, asking, solver, load, scores, simulate, _answer)]
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


class Done:
    """Simulations that were done before, in a file of JSON lines."""

    def __init__(self, folder: Path | None) -> None:
        default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "metricforge" / "ask"
        self.path = (folder or default) / f"{code_digest()}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.found = {tuple(key): value for key, value in map(json.loads, lines)}

    def simulate(self, label: str, name: str, wrong: float, seed: int):
        """Return the result of `simulate`, from the file if it is there."""
        key = (label, name, wrong, seed)
        if key not in self.found:
            self.found[key] = simulate(name, RULES[label], wrong, seed)
            with self.path.open("a") as file:
                file.write(json.dumps([key, self.found[key]]) + "\n")
        return self.found[key]


def run(
    quick: bool = False,
    *,
    seeds: int = 5,
    sets: str = ",".join(DESIGN + NEW),
    wrong: str = "0,0.05,0.1",
    variants: bool = False,
    cache: Path | None = None,
) -> Table:
    names = ("wine", "vehicle") if quick else tuple(sets.split(","))
    seeds = 1 if quick else seeds
    shares = (0.0,) if quick else tuple(float(share) for share in wrong.split(","))
    done = Done(cache)
    columns = ["sets", "wrong", "rule", "at 50 / 100 / 200: triplets", "ARI", "5-NN", "misplaced", "ms a question"]
    table = Table([*columns, *(f"ratio {score}" for score in SCORES), "worse than random at 200 (triplets)"])
    for share in shares:  # the rules that the goal is about first
        for label in (CONTROL, DEFAULT):
            for name in names:
                for seed in range(seeds):
                    done.simulate(label, name, share, seed)
                print(share, label, name, flush=True)
    for share in shares:
        labels = tuple(RULES) if share == 0 and (variants or quick) else (CONTROL, DEFAULT)
        keys = [(label, name, seed) for label in labels for name in names for seed in range(seeds)]
        found = {key: done.simulate(*key[:2], share, key[2]) for key in keys}
        for part, inside in (("all", names), ("new", [n for n in names if n in NEW])):
            if inside:
                _rows(table, part, inside, seeds, share, found)
        table.details[f"curves, {share}"] = {
            f"{label}, {name}": np.mean([found[label, name, s][0] for s in range(seeds)], axis=0).round(2).tolist()
            for label, name, seed in found
            if seed == 0
        }
    for n in (2_000,) if quick else (20_000, 200_000):
        opened, mean, most = question_seconds(n)
        table.notes.append(
            f"{n:,} rows x 64 columns, 26 classes, 400 answers: {1000 * mean:.1f} ms of CPU time a question and its "
            f"answer, {1000 * most:.0f} ms at most; {opened:.2f} s to open the session (goal: 300 ms a question)"
        )
    table.notes += [
        f"{seeds} seeds; sets: {', '.join(names)}; new: {', '.join(n for n in names if n in NEW) or 'none'}",
        "wrong answers are drawn at random; no question is held out of learning; scores in per cent",
        "target: ratio of 2 on triplets and ARI without wrong answers, 1.5 with 5 %; no set worse than random at 200",
    ]
    return table


def _rows(table: Table, part: str, names: Sequence[str], seeds: int, wrong: float, found: dict) -> None:
    keys = [(name, seed) for name in names for seed in range(seeds)]
    rng = np.random.default_rng(0)
    draws = [rng.integers(len(keys), size=len(keys)) for _ in range(500)]
    random = np.array([found["random", name, seed][0] for name, seed in keys])  # (keys, steps, scores)
    for label in RULES:
        if (label, *keys[0]) not in found:
            continue
        curves = np.array([found[label, name, seed][0] for name, seed in keys])
        mean = curves.mean(axis=0)
        at = [STEPS.index(step) for step in (50, 100, 200)]
        shown = [" / ".join(f"{mean[step, score]:.1f}" for step in at) for score in range(3)]
        ratios = []
        for score in range(3):
            value = ratio(mean[:, score], random.mean(axis=0)[-1, score])
            many = [ratio(curves[d].mean(axis=0)[:, score], random[d].mean(axis=0)[-1, score]) for d in draws]
            low, high = np.quantile(many, [0.025, 0.975])
            ratios.append("1" if label == "random" else f"{value:.1f} ({low:.1f} to {high:.1f})")
        gains = {
            n: [found[label, n, s][0][-1][0] - found[CONTROL, n, s][0][-1][0] for s in range(seeds)] for n in names
        }
        worse = [
            f"{name} ({np.mean(gain):+.1f} ± {np.std(gain, ddof=1) / np.sqrt(seeds) if seeds > 1 else 0:.1f})"
            for name, gain in gains.items()
            if np.mean(gain) < 0
        ]
        spent = 1000 * np.mean([found[label, name, seed][1] for name, seed in keys])
        misplaced = 100 * np.mean([found[label, name, seed][2] for name, seed in keys])
        cells = [f"{misplaced:.1f} %" if label != "random" else "", f"{spent:.1f}", *ratios]
        table.add(
            part, f"{100 * wrong:.0f} %", label, *shown, *cells, ", ".join(worse) or "none" if label != "random" else ""
        )
