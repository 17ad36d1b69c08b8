"""LMNN, NCA and ITML against metric-learn 0.7.0 and scikit-learn: CPU time to the objective at which the peer ended.

All start from the identity on the same standardised rows, with the same target neighbours, pairs and bounds.  The
objective of every result, ours and theirs, is computed by the same few lines below.  "to theirs" is our CPU time until
a pass over all rows has an objective no worse than the peer's; "whole fit" is our time to our own tolerance.
"""

from __future__ import annotations

import time

import numpy as np

import metricforge as mf

from .peers import peer_results
from .run import Table

SETS = {"vehicle": 592, "segment": 1617, "satimage": 2000}
SECONDS = 240
OBJECTIVES = """
def lmnn_objective(L, X, y, k=3, mu=0.5):
    n, total = len(X), 0.0
    Z = X @ L.T
    for i in range(n):
        raw = ((X - X[i]) ** 2).sum(1)
        raw[i] = np.inf
        raw[y != y[i]] = np.inf
        near = np.argsort(raw, kind="stable")[:k]
        d = ((Z - Z[i]) ** 2).sum(1)
        total += (1 - mu) * d[near].sum()
        total += mu * sum(np.maximum(1 + d[j] - d[y != y[i]], 0).sum() for j in near)
    return total

def nca_objective(L, X, y):
    Z, total = X @ L.T, 0.0
    for i in range(len(X)):
        d = ((Z - Z[i]) ** 2).sum(1)
        d[i] = np.inf
        p = np.exp(d.min() - d)
        total += p[y == y[i]].sum() / p.sum()
    return total

def itml_objective(L, z):
    A = L.T @ L
    V = z["X"][z["pairs"][:, 0]] - z["X"][z["pairs"][:, 1]]
    d = ((V @ L.T) ** 2).sum(1)
    b = np.where(z["sign"] > 0, z["bounds"][0], z["bounds"][1])
    r = np.where(z["sign"] * (d - b) > 0, d / b, 1.0)
    return np.trace(A) - np.linalg.slogdet(A)[1] - len(A) + (r - np.log(r) - 1).sum()

def objective(name, L, z):
    if name == "LMNN":
        return lmnn_objective(L, z["X"], z["y"])
    return nca_objective(L, z["X"], z["y"]) if name == "NCA" else itml_objective(L, z)
"""
PEER = (
    OBJECTIVES
    + """
import metric_learn
from sklearn.neighbors import NeighborhoodComponentsAnalysis

def learn(peer, z):
    X, y = z["X"], z["y"]
    if peer == "ml-LMNN":
        L = metric_learn.LMNN(init="identity").fit(X, y).components_
    elif peer == "ml-NCA":
        L = metric_learn.NCA(init="identity").fit(X, y).components_
    elif peer == "sk-NCA":
        L = NeighborhoodComponentsAnalysis(init="identity", max_iter=100).fit(X, y).components_
    else:
        L = metric_learn.ITML().fit(X[z["pairs"]], z["sign"], bounds=z["bounds"]).components_
    return L

def score(L, z):
    return [objective(name, L, z) for name in ("LMNN", "NCA", "ITML")]
"""
)
PEERS = ("ml-ITML", "sk-NCA", "ml-NCA", "ml-LMNN")
FUNCTIONS: dict = {"np": np}
exec(OBJECTIVES, FUNCTIONS)
PLACE = {"LMNN": 0, "NCA": 1, "ITML": 2}


class Recorder:
    """Notes CPU time and objective at every step that reports one."""

    def __init__(self):
        self.seen = []

    @mf.hookimpl
    def metricforge_step(self, event):
        if "objective" in event.info:
            self.seen.append((time.process_time(), event.info["objective"]))


def split(name, n):
    """Standardised rows, and pairs with bounds as ITML_Supervised would draw them."""
    X, y = mf.datasets.load(name)
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(X))[:n]
    X, y = np.asarray(X[rows], dtype=float), np.unique(y[rows], return_inverse=True)[1]
    spread = X.std(axis=0)
    X = (X[:, spread > 0] - X[:, spread > 0].mean(axis=0)) / spread[spread > 0]
    drawn = mf.Pairs.from_labels(y, n_pairs=20 * len(np.unique(y)) ** 2, seed=0)
    pairs = np.concatenate([drawn.similar, drawn.dissimilar])
    apart = np.square(X[pairs[:, 0]] - X[pairs[:, 1]]).sum(axis=1) > 1e-9
    sign = np.repeat([1, -1], [len(drawn.similar), len(drawn.dissimilar)])
    some = X[rng.permutation(len(X))[:500]]
    D = np.square(some[:, None] - some[None]).sum(-1)[np.triu_indices(len(some), 1)]
    bounds = np.percentile(D, [5, 95])
    return {"X": X, "y": y, "pairs": pairs[apart], "sign": sign[apart], "bounds": bounds}


def ours(method, z, recorder):
    """Return CPU seconds of the whole fit, its report, its factor, and (seconds, objective) on the way."""
    constraint = mf.Labels(z["y"])
    options = {"lmnn": {"ridge": "least", "max_iter": 2000}, "nca": {"queries": len(z["X"])}}.get(method, {})
    if method == "itml":
        s = z["sign"] > 0
        constraint = mf.Pairs(z["pairs"][s], z["pairs"][~s], n=len(z["X"]))
        options = {"bounds": tuple(z["bounds"].tolist()), "n_pairs": "all"}
    recorder.seen = []
    started = time.process_time()
    metric = mf.learn(z["X"], constraint, method=method, kernel="linear", rank="exact", **options)
    spent = time.process_time() - started
    return spent, metric.report, metric.kernel.L, [(t - started, f) for t, f in recorder.seen]


def run(quick: bool = False) -> Table:
    columns = ["set", "rows", "method", "peer", "peer s", "peer objective", "to theirs s", "ratio"]
    table = Table([*columns, "whole fit s", "ratio of whole", "our objective", "our certificate"])
    sets = {"vehicle": 592} if quick else SETS
    parts = {name: split(name, n) for name, n in sets.items()}
    cache = "classics-quick" if quick else "classics"
    theirs = peer_results(cache, PEER, PEERS, parts, 5 if quick else SECONDS, fresh=True)
    recorder = Recorder()
    mf.register(recorder, name="recorder")
    for name, z in parts.items():
        for method in ("lmnn", "nca", "itml"):
            ours(method, {**z, "X": z["X"]}, recorder) if name == next(iter(parts)) else None  # compile first
            spent, report, L, seen = ours(method, z, recorder)
            own = FUNCTIONS["objective"](method.upper(), L, z)
            better = -1 if method == "nca" else 1
            for peer in (p for p in PEERS if p.endswith(method.upper())):
                found = theirs.get((peer, name))
                shown = (report.certificate.describe(),)
                if found is None or found["percent"] is None:
                    why = "not installed" if found is None else found["error"]
                    table.add(name, len(z["X"]), method, peer, why, "-", "-", "-", spent, "-", own, *shown)
                    continue
                target = found["percent"][PLACE[method.upper()]]
                reached = [t for t, f in seen if better * f <= better * target + 1e-6 * abs(target)]
                first = min([*reached, *([spent] if better * own <= better * target else [])], default=None)
                ratio = "-" if first is None else found["seconds"] / first
                cells = (found["seconds"], target, "-" if first is None else first, ratio)
                table.add(name, len(z["X"]), method, peer, *cells, spent, found["seconds"] / spent, own, *shown)
    table.notes.append("goal: LMNN >= 20, ITML >= 15, NCA >= 10 (metric-learn) and >= 5 (scikit-learn) for n >= 1,000")
    table.notes.append(
        "CPU seconds on one thread, all of one run; ml: metric-learn 0.7.0, sk: scikit-learn, in their own environment"
    )
    table.notes.append(
        f"a peer over {SECONDS} CPU seconds counts as not finished; NCA is maximised, the others minimised"
    )
    return table
