"""metric-learn and scikit-learn on the splits of the panel, in the environment of `benchmarks.peers`.

Every peer gets standardised rows, at most ``PEER_ROWS`` of them, and its defaults.  On larger sets its hints are drawn
from those rows by the same rules.  A fit over ``PEER_SECONDS`` CPU seconds counts as not finished; after one, the other
splits of that set and kind of hint are not tried.

What a peer makes of each kind of hint: labels go to the method itself or to its ``_Supervised`` form (RCA: every class
is a chunk); pairs go to ITML and MMC as they are, to LSML as quadruplets of one similar and one dissimilar pair, and to
RCA as the connected components of the similar pairs; triplets go to SCML, and to LSML as quadruplets (i, j, i, k);
groups go to RCA.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from metricforge_papers.peers import cache

from .first_call_gain import NOT_FINISHED, Cell, Store, described
from .first_call_splits import Split, digest, draw, split
from .peers import peer_results

PEER_SECONDS = 60
PEERS = {
    "L": ("ITML", "LMNN", "LSML", "RCA", "LFDA", "SCML", "MMC", "NCA", "LDA"),
    "P5": ("ITML", "MMC", "LSML", "RCA"),
    "P1": ("ITML", "MMC", "LSML", "RCA"),
    "T": ("SCML", "LSML"),
    "C": ("RCA",),
}
OF_SCIKIT_LEARN = ("NCA", "LDA")
CHEAP = ("RCA", "LDA", "LFDA", "LSML", "NCA", "SCML", "LMNN", "ITML", "MMC")
"""The peers in the order in which they run: cheap ones first."""

CODE = (
    (Path(__file__).parent / "first_call_scores.py").read_text()
    + """
import metric_learn
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NeighborhoodComponentsAnalysis

def supervised(name, X, y):
    if name == "LDA":
        model = LinearDiscriminantAnalysis().fit(X, y)
        return model.scalings_[:, : model._max_components].T
    if name == "NCA":
        return NeighborhoodComponentsAnalysis(random_state=0).fit(X, y).components_
    if name == "RCA":
        return metric_learn.RCA().fit(X, y).components_
    if name == "LFDA":
        return metric_learn.LFDA().fit(X, y).components_
    if name == "LMNN":
        return metric_learn.LMNN(random_state=0).fit(X, y).components_
    return getattr(metric_learn, name + "_Supervised")(random_state=0).fit(X, y).components_

def weak(name, X, kind, z):
    if kind == "T":
        triplets = z["T_triplets"]
        if name == "SCML":
            return metric_learn.SCML(random_state=0).fit(X[triplets]).components_
        i, j, k = triplets.T
        return metric_learn.LSML(random_state=0).fit(X[np.column_stack([i, j, i, k])]).components_
    if kind == "C":
        return metric_learn.RCA().fit(X, z["C_groups"]).components_
    similar, dissimilar = z[kind + "_similar"], z[kind + "_dissimilar"]
    if name == "RCA":
        graph = coo_array((np.ones(len(similar)), similar.T), shape=(len(X), len(X)))
        chunks = connected_components(graph, directed=False)[1]
        alone = np.bincount(chunks)[chunks] < 2
        kept = np.unique(chunks[~alone], return_inverse=True)[1]
        groups = np.full(len(X), -1)
        groups[~alone] = kept
        return metric_learn.RCA().fit(X, groups).components_
    if name == "LSML":
        m = min(len(similar), len(dissimilar))
        return metric_learn.LSML(random_state=0).fit(X[np.hstack([similar[:m], dissimilar[:m]])]).components_
    pairs = np.vstack([similar, dissimilar])
    signs = np.repeat([1, -1], [len(similar), len(dissimilar)])
    return getattr(metric_learn, name)(random_state=0).fit(X[pairs], signs).components_

def learn(job, z):
    name, kind = job.split(".")
    X = z["X"][z["rows"]]
    L = supervised(name, X, z["y"][z["rows"]]) if kind == "L" else weak(name, X, kind, z)
    if np.iscomplexobj(L):
        raise ValueError("complex components")
    return L

def score(L, z):
    return euclidean_scores(z["X"] @ L.T, z["X_held_out"] @ L.T, z["y"], z["y_held_out"], z["triplets"])
"""
)


def named_peer(peer: str) -> str:
    """Return the name of a peer with that of its package, because some of our methods have the same name."""
    return f"{'scikit-learn' if peer in OF_SCIKIT_LEARN else 'metric-learn'} {peer}"


def run_peers(
    names: Sequence[str], kinds: Sequence[str], splits: int, store: Store, said: Callable[[str], Any]
) -> bool:
    """Fill the store with the cells of the peers; False where their environment cannot be made.

    Split 0 of all sets comes first, and the cheap peers before the others, so that a run which is stopped has measured
    all sets alike.
    """
    pairs = [(peer, kind) for peer in CHEAP for kind in reversed(kinds) if peer in PEERS[kind]]
    for number in range(splits):
        for peer, kind in pairs:
            if not _measure(peer, kind, number, names, store, said):
                return False
    return True


def _measure(peer: str, kind: str, number: int, names: Sequence[str], store: Store, said: Callable[[str], Any]) -> bool:
    """Run a peer on one split of the sets on which it is not measured and did not fail on an earlier split."""

    def cell_of(name: str, number: int) -> Cell | None:
        return store.get(peer, name, kind, str(number), digest(name, number))

    def failed(name: str) -> bool:
        return any((cell or {}).get("error") for cell in (cell_of(name, before) for before in range(number)))

    missing = [name for name in names if cell_of(name, number) is None and not failed(name)]
    job = f"{peer}.{kind}"
    parts = {f"{name}-{number}": arrays(split(name, number)) for name in missing}
    found = peer_results("first-call", CODE, [job], parts, PEER_SECONDS) if parts else {}
    for where in parts:
        (cache() / "first-call" / f"{where}.npz").unlink(missing_ok=True)  # the splits of all sets would fill a disk
    for name in missing:
        where = f"{name}-{number}"
        if (job, where) not in found:
            return False
        cell = store.put(_cell(found[job, where]), peer, name, kind, str(number), digest(name, number))
        said(f"{peer} {name} {kind} {number}: {described(cell)}")
    return True


def _cell(found: dict[str, Any]) -> Cell:
    error = found["error"]
    if error.startswith("TimeoutError"):
        error = NOT_FINISHED
    elif not error and found["percent"] is None:
        error = "not finite"
    return {**(found["percent"] or {}), "seconds": found["seconds"], "error": error}


def arrays(parts: Split) -> dict[str, np.ndarray]:
    """Return what a peer gets of a split: standardised rows, the rows to learn from, and hints about these."""
    X, X_held_out = parts.standardized
    rows = parts.peer_rows()
    whole = len(rows) == len(parts.y)
    drawn = {
        f"{kind}_{part}": array
        for kind in ("P5", "P1", "T", "C")
        for part, array in (
            parts.relations(kind) if whole else draw(kind, codes(parts.y[rows]), np.random.default_rng(parts.number))
        ).items()
    }
    plain = {"X": X, "X_held_out": X_held_out, "y": parts.y, "y_held_out": parts.y_held_out}
    version = np.frombuffer(hashlib.sha256(CODE.encode()).digest(), dtype=np.uint8)  # other code, other results
    return {**plain, "triplets": parts.triplets, "rows": rows, "version": version, **drawn}


def codes(y: np.ndarray) -> np.ndarray:
    """Return labels 0, 1, ... without gaps."""
    return np.unique(y, return_inverse=True)[1]
