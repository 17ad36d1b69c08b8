"""Percent correct on the nine sets of Fung, Rosales & Rao (2007), for single kernels, the design and metric-learn.

The protocol of their Sec. 3: 0.85/0.15 splits, 1500 triples from the training part, 1000 from the rest; a triple counts
if both K_ij > K_ik and K_ij > K_jk.  Features are standardised on the training part.  Penalties are chosen inside the
training part by `tune`.  metric-learn needs an older scikit-learn, so its methods run in their own environment, on the
same splits.  Their results are cached there, because ITML takes a minute per split.
"""

from __future__ import annotations

import time

import numpy as np
from metricforge_papers.lpdesign import PEER_CODE, PEER_SECONDS, SETS, TESTING, percent, split
from metricforge_papers.peers import NEEDS, peer_results
from metricforge_plugins.lpdesign.solver import LPDesign
from metricforge_plugins.lpdesign.tune import tune

import metricforge as mf
from metricforge.kernels import RBF, Polynomial

from .run import Table

SPLITS = 10
PEERS = ("MMC", "ITML", "SCML")


def run(quick: bool = False) -> Table:
    names = ["iris", "wine"] if quick else list(SETS)
    splits = range(2 if quick else SPLITS)
    peers = ("SCML",) if quick else PEERS
    table = Table(["set", "Gaussian", "polynomial", "weak", "weak + directions", *peers, "tuning s", "fit s", "ITML s"])
    parts = {key(name, s): split(name, s) for s in splits for name in names}
    theirs = peer_results("lpdesign-quality", PEER_CODE, peers, parts, PEER_SECONDS)
    wins = compared = 0
    for name in names:
        ours = np.mean([our_results(name, s) for s in splits], axis=0)
        cells = []
        for peer in peers:
            found = [theirs.get((peer, key(name, s)), {}) for s in splits]
            scores = [f["percent"] for f in found if f.get("percent") is not None]
            failed = len(found) - len(scores)
            mean = f"{np.mean(scores):.1f}" if scores else "none"
            cells.append(mean + (f" ({failed} of {len(found)} failed)" if failed else ""))
        spent = [f["seconds"] for s in splits if (f := theirs.get(("ITML", key(name, s))))]
        table.add(name, *(f"{v:.1f}" for v in ours[:4]), *cells, *ours[4:6], float(np.mean(spent)) if spent else "none")
        itml = [f["percent"] for s in splits if (f := theirs.get(("ITML", key(name, s)))) and f["percent"] is not None]
        if itml:
            wins += round(float(ours[3]), 1) >= round(float(np.mean(itml)), 1)
            compared += 1
    if compared:
        table.notes.append(f"weak + directions >= ITML on {wins} of {compared} sets (target: 7 of 9)")
    if not theirs:
        table.notes.append("metric-learn's environment could not be made on this machine: its columns are empty")
    table.notes += [
        f"percent of {TESTING} held-out triples with K_ij > K_ik and K_ij > K_jk, mean of {len(splits)} splits",
        "seconds are CPU seconds on one thread, mean over splits: tuning over 16 pairs of penalties and two folds, one "
        "fit of weak + directions, one fit of ITML",
        f"metric-learn with its own defaults, in an environment of its own ({', '.join(NEEDS)}); pairs (i, j) similar, "
        f"(i, k) dissimilar for MMC and ITML, the triples for SCML; a fit over {PEER_SECONDS} s counts as failed",
    ]
    return table


def key(name: str, s: int) -> str:
    return f"{SETS[name]}-{s}"


def our_results(name: str, s: int) -> list[float]:
    """Percent correct of two single kernels, weak, and weak + directions; seconds of tuning and of the last fit."""
    part = split(name, s)
    X = part["X"]
    triplets = mf.Triplets(part["triples"], n=len(X))
    scores = [percent(RBF("median").resolve(X), part), percent(Polynomial(2), part)]
    for bases in ("weak", "weak+directions"):
        started = time.process_time()
        best = tune(X, triplets, kernel=mf.kernels.RBF("median"), solver=LPDesign(bases=bases), seed=s).solver
        tuned = time.process_time()
        metric = mf.learn(X, triplets, method="lpdesign", kernel=mf.kernels.RBF("median"), solver=best, seed=s)
        seconds = [tuned - started, time.process_time() - tuned]
        scores.append(percent(metric.kernel, part))
    return [*scores, *seconds]
