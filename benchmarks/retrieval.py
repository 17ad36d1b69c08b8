"""Embeddings adapted to judgements of relevance: `relevance` beside a PyTorch adapter and OASIS, on held-out queries.

Two corpora, embedded in 384 columns by TF-IDF and a truncated SVD, rows of unit length: proteins of SCOP (3-mers;
relevant: the same superfamily; METRICFORGE_DATA) and the synsets of WordNet (words and gloss; relevant: a direct
hypernym, or what an adjective is similar to; Debian's package wordnet-base).  Queries are split; every method learns
from the same triplets of training queries, with the same random negatives.  The PyTorch adapter is linear on the query
side, starts at the identity, minimises a triplet hinge with Adam, and stops early by nDCG@10 on a tenth of the training
queries, on which its learning rate is chosen too; it runs in an environment of its own.  OASIS (Chechik et al. 2010)
makes passive-aggressive steps on the same triplets, its aggressiveness chosen on the same tenth.  `relevance` has its
default settings; its kernel is chosen on that tenth too: linear, or linear with a constant column, which gives
documents a score of their own.  W of the two peers need not be symmetric, as that of a kernel is, so the symmetric part
of OASIS's W is scored as well.

CPU seconds on one thread, imports and a first small fit excluded.  For PyTorch: those of the better learning rate,
until the epoch that early stopping keeps.  For `relevance`: those of the whole call of `mf.learn`, the median of three;
once to the default gap, and once with the loosest ``tol`` at which nDCG@10 on the test queries is that of PyTorch.  The
second part measures time and memory against the number of columns, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import metricforge as mf

from .retrieval_corpora import SEED, Corpus, scop, wordnet
from .retrieval_peers import faiss_ranking, oasis, torch_adapter
from .run import Table

K = 10
TOLERANCES = (1.0, 0.5, 0.3, 0.1, 0.03, 0.01, 1e-3)
"""Relative gaps that are tried until PyTorch's nDCG is reached."""
KERNELS = {"linear": mf.kernels.Linear(), "constant column": mf.kernels.Polynomial(1, coef0=1.0)}
WIDTHS = (256, 512, 1024, 2048, 4096)
CORPORA = {"scop": scop, "wordnet": wordnet}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-torch", action="store_true", help="leave the PyTorch adapter out")
    parser.add_argument("--only", default="scop,wordnet,width", help="parts to run")


# ---------------------------------------------------------------------------------------------------------- quality


def corpus_part(table: Table, name: str, corpus: Corpus, *, torch: bool) -> None:
    pool, T = corpus.triplets()
    rows, triples = corpus.X[pool], pool[T.triples]

    def add(method: str, A: np.ndarray | mf.adapters.Adapter, seconds: float | str, note: str = "") -> float:
        found = corpus.scores(A, *corpus.test(), K)
        cell = f"{found.ndcg:.4f} ± {found.errors['ndcg']:.4f}"
        sizes = (len(corpus.documents), corpus.cut - corpus.held, T.size)
        table.add(name, *sizes, method, cell, found.mrr, found.recall, seconds, note)
        return found.ndcg

    add("start", np.eye(corpus.X.shape[1]), "")
    mf.learn(rows[:50], mf.Triplets([(0, 1, 2)], n=50), method="relevance")  # imports
    fits = {title: timed(rows, T, 1e-3, kernel) for title, kernel in KERNELS.items()}
    chosen = max(fits, key=lambda title: corpus.scores(fits[title][0].adapter("query"), *corpus.validation(), K).ndcg)
    for title, (metric, seconds) in fits.items():
        note = f"{told(metric)}{'; chosen' if title == chosen else ''}"
        add(f"relevance, {title}", metric.adapter("query"), seconds, note)
    check_adapter(table, name, fits[chosen][0], corpus)
    best = None
    for C in (0.01, 0.1):
        started = time.process_time()
        W = oasis(corpus.X, triples, C, 1, SEED)
        spent = time.process_time() - started
        score = corpus.scores(W, *corpus.validation(), K).ndcg
        if best is None or score > best[0]:
            best = (score, W, spent, C)
    add("OASIS", best[1], best[2], f"C = {best[3]}")
    add("OASIS, symmetric part", (best[1] + best[1].T) / 2, best[2])
    found = torch_adapter(corpus, triples) if torch else None
    if found is None:
        table.notes.append(f"{name}: without the PyTorch adapter")
        return
    weights, facts = found
    note = f"lr {facts['lr']}, {facts['epochs']} epochs; both learning rates to their end: {facts['all']:.1f} s"
    reached = add("PyTorch adapter", weights, facts["seconds"], note)
    for title, kernel in KERNELS.items():
        for tol in TOLERANCES:
            loose, spent = timed(rows, T, tol, kernel)
            if corpus.scores(loose.adapter("query"), *corpus.test(), K).ndcg >= reached:
                add(f"relevance, {title}, tol={tol:g}", loose.adapter("query"), spent, told(loose))
                table.notes.append(
                    f"{name}, {title}: PyTorch's nDCG@{K} in {facts['seconds'] / spent:.1f} × less CPU time than it "
                    f"took (target 10); to the certified gap 1e-3: {facts['seconds'] / fits[title][1]:.1f} × less"
                )
                break
        else:
            table.notes.append(f"{name}, {title}: PyTorch's nDCG@{K} was not reached")


def timed(rows: np.ndarray, T: mf.Triplets, tol: float, kernel: mf.Kernel) -> tuple[mf.Metric, float]:
    """Return the metric and the median CPU seconds of three fits."""
    spent = []
    for _ in range(3):
        started = time.process_time()
        metric = mf.learn(rows, T, method="relevance", kernel=kernel, tol=tol)
        spent.append(time.process_time() - started)
    return metric, float(np.median(spent))


def told(metric: mf.Metric) -> str:
    report = metric.report
    return f"gap {report.certificate.relative:.1e}, {report.n_iter} evaluations"


# ---------------------------------------------------------------------------------------------------------- adapter


def check_adapter(table: Table, name: str, metric: mf.Metric, corpus: Corpus) -> None:
    """Compare rankings through the query-side adapter with that of the kernel, for all held-out queries."""
    Q, D = corpus.X[corpus.test()[0]], corpus.X[corpus.documents]
    exact = metric.kernel(Q, D)
    adapter = metric.adapter("query")
    counts = []
    for route, found in {
        "NumPy": ranking(adapter(Q) @ D.T),
        "ONNX": ranking(through_onnx(adapter, Q) @ D.astype(np.float32).T),
        "FAISS": faiss_ranking(adapter(Q), D, K),
    }.items():
        if found is None:
            counts.append(f"{route} not installed")
            continue
        values, others = (np.take_along_axis(exact, order, axis=1) for order in (ranking(exact), found))
        close = np.abs(values - others) <= 1e-5 * np.abs(values[:, :1])
        counts.append(f"{route} {int(close.all(axis=1).sum())}")
    table.notes.append(
        f"{name}: held-out queries of {len(Q)} for which the query-side adapter gives the kernel's first {K}, but for "
        f"scores within 1e-5 of each other: {', '.join(counts)}"
    )


def ranking(scores: np.ndarray) -> np.ndarray:
    return np.argsort(-scores, axis=1, kind="stable")[:, :K]


def through_onnx(adapter: mf.adapters.Adapter, Q: np.ndarray) -> np.ndarray:
    """Return queries mapped by the saved graph in onnxruntime."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "adapter.onnx"
        adapter.save(path)
        session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
        return session.run(None, {"x": Q.astype(np.float32)})[0]


# ------------------------------------------------------------------------------------------------------------ width

CHILD = r"""
import json, sys, time
import numpy as np
import metricforge as mf
n, p, d = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
y = np.arange(n) % 50
X = rng.standard_normal((n, d), dtype=np.float32)
X[:, :50] += 2 * np.eye(50, dtype=np.float32)[y]
for part in np.array_split(np.arange(n), 50):
    X[part] /= np.linalg.norm(X[part], axis=1, keepdims=True)
T = mf.Triplets.from_labels(y, n_triplets=p, seed=0)
mf.learn(X[:50], mf.Triplets([(0, 1, 2)], n=50), method="relevance")
started = time.process_time()
metric = mf.learn(X, T, method="relevance")
spent = time.process_time() - started
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
r = metric.report
print(json.dumps({"cpu": spent, "peak": peak, "gap": r.certificate.relative, "status": str(r.status),
                  "n_iter": r.n_iter, "directions": r.outcome["directions"]}))
"""


def width_part(table: Table, quick: bool) -> None:
    """Time and memory against the number of columns: 50,000 float32 rows, 20,000 triplets."""
    n, p = (5_000, 2_000) if quick else (50_000, 20_000)
    times = []
    used = WIDTHS[:2] if quick else WIDTHS
    for d in used:
        command = [sys.executable, "-c", CHILD, str(n), str(p), str(d)]
        facts = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        times.append(facts["cpu"])
        note = f"{facts['status']}, gap {facts['gap']:.1e}, {facts['n_iter']} evaluations, {facts['directions']} "
        note += f"directions, peak of the process {facts['peak']:.0f} MB"
        table.add("generated", n, "", p, f"relevance, {d} columns", "", "", "", facts["cpu"], note)
    slope = np.polyfit(np.log(used), np.log(times), 1)[0]
    table.notes.append(f"time grows as columns^{slope:.2f} from {used[0]} to {used[-1]} columns")
    table.notes.append("target: 50,000 × 1,024 float32 rows and 20,000 triplets within 60 CPU s and 1.5 GB, gap 1e-3")


def run(quick: bool = False, *, no_torch: bool = False, only: str = "scop,wordnet,width") -> Table:
    columns = ["corpus", "documents", "training queries", "triplets", "method", f"nDCG@{K}", "MRR", f"recall@{K}"]
    table = Table([*columns, "CPU s", ""])
    parts = ("width",) if quick else only.split(",")
    for name, load in CORPORA.items():
        if name in parts:
            corpus_part(table, name, load(), torch=not no_torch)
    if "width" in parts:
        width_part(table, quick)
    return table
