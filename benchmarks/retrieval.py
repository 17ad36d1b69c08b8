"""Embeddings adapted to judgements of relevance: `relevance` beside a PyTorch adapter and OASIS, on held-out queries.

Two corpora, embedded in 384 columns by TF-IDF and a truncated SVD, rows of unit length: proteins of SCOP (3-mers;
relevant: the same superfamily; METRICFORGE_DATA) and noun glosses of WordNet (words; relevant: a direct hypernym;
Debian's package wordnet-base).  Queries are split; every method learns from the same triplets of training queries, with
the same random negatives.  The PyTorch adapter is linear on the query side, starts at the identity, minimises a triplet
hinge with Adam, and stops early by nDCG@10 on a tenth of the training queries; it runs in an environment of its own.
OASIS (Chechik et al. 2010) makes passive-aggressive steps on the same triplets, its aggressiveness chosen on the same
tenth.  CPU seconds on one thread.  The second part measures time against the number of columns.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import metricforge as mf

from .run import Table

COLUMNS, K, SEED = 384, 10, 0
RELEVANT = 5
"""Relevant rows of a training query at the most."""
NEGATIVES = 5
"""Random rows for each relevant one."""
WIDTHS = (256, 512, 1024, 2048, 4096)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-torch", action="store_true", help="leave the PyTorch adapter out")
    parser.add_argument("--only", default="scop,wordnet,width", help="parts to run")


def folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "metricforge" / "retrieval"


# ---------------------------------------------------------------------------------------------------------- corpora


def embedded(texts: list[str], analyzer: dict[str, Any]) -> np.ndarray:
    """Return TF-IDF rows reduced to `COLUMNS` and scaled to unit length."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    counts = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32, **analyzer).fit_transform(texts)
    return normalize(TruncatedSVD(COLUMNS, n_iter=2, random_state=SEED).fit_transform(counts)).astype(np.float64)


def scop() -> tuple[np.ndarray, list[int], list[np.ndarray], np.ndarray]:
    path = Path(os.environ["METRICFORGE_DATA"]) / "scop40_1.75.fasta.gz"
    names, sequences = [], []
    with gzip.open(path, "rt") as lines:
        for line in lines:
            if line.startswith(">"):
                names.append(".".join(line.split()[1].split(".")[:3]))
                sequences.append([])
            else:
                sequences[-1].append(line.strip())
    _, code, size = np.unique(names, return_inverse=True, return_counts=True)
    kept = np.flatnonzero(size[code] >= 10)
    code = code[kept]
    X = embedded(["".join(sequences[i]) for i in kept], {"analyzer": "char", "ngram_range": (3, 3), "lowercase": False})
    rng = np.random.default_rng(SEED)
    order = rng.permutation(len(kept))
    queries, documents = order[:3000], np.sort(order[3000:])
    relevant = [documents[code[documents] == code[q]] for q in queries]
    full = [i for i, rows in enumerate(relevant) if len(rows)]
    return X, [int(queries[i]) for i in full], [relevant[i] for i in full], documents


def wordnet() -> tuple[np.ndarray, list[int], list[np.ndarray], np.ndarray]:
    glosses, hypernyms, place = [], [], {}
    with _wordnet_file().open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("  "):
                continue
            data, _, gloss = line.partition("|")
            words = data.split()
            place[words[0]] = len(glosses)
            count = int(words[3], 16)
            lemmas = " ".join(word.replace("_", " ") for word in words[4 : 4 + 2 * count : 2])
            glosses.append(f"{lemmas} {gloss.strip()}")
            pointers = words[5 + 2 * count :]
            hypernyms.append([pointers[p + 1] for p in range(0, len(pointers) - 3, 4) if pointers[p] in ("@", "@i")])
    X = embedded(glosses, {"stop_words": "english"})
    rng = np.random.default_rng(SEED)
    able = [i for i, up in enumerate(hypernyms) if up]
    queries = [int(q) for q in rng.permutation(able)[:6000]]
    relevant = [np.array([place[up] for up in hypernyms[q]]) for q in queries]
    documents = np.union1d(rng.permutation(len(glosses))[:20_000], np.concatenate(relevant))
    documents = np.setdiff1d(documents, queries)
    full = [i for i, rows in enumerate(relevant) if np.isin(rows, documents).all()]
    return X, [queries[i] for i in full], [relevant[i] for i in full], documents


def _wordnet_file() -> Path:
    """Return data.noun of WordNet, from the system or from Debian's package."""
    for place in (Path("/usr/share/wordnet/data.noun"), folder() / "usr/share/wordnet/data.noun"):
        if place.exists():
            return place
    folder().mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", "wordnet-base"], cwd=folder(), check=True, capture_output=True)
    (package,) = folder().glob("wordnet-base*.deb")
    subprocess.run(["dpkg-deb", "-x", str(package), str(folder())], check=True)
    return folder() / "usr/share/wordnet/data.noun"


# ---------------------------------------------------------------------------------------------------------- methods


def ndcg(A: np.ndarray, X: np.ndarray, queries, relevant, documents) -> mf.tasks.RetrievalScores:
    """Return the scores of (A q)·x on documents."""
    both = np.vstack([X[queries] @ A.T, X[documents]])
    place = {int(d): len(queries) + i for i, d in enumerate(documents)}
    truth = [[place[int(r)] for r in rows] for rows in relevant]
    rows = np.arange(len(queries), len(both))
    return mf.tasks.retrieval_scores(None, both, np.arange(len(queries)), truth, documents=rows, k=K)


def oasis(X: np.ndarray, triples: np.ndarray, C: float, passes: int, seed: int) -> np.ndarray:
    """Return W after passive-aggressive steps: q'W(x⁺ − x⁻) ≥ 1 for each triplet in turn."""
    W = np.eye(X.shape[1])
    rng = np.random.default_rng(seed)
    for _ in range(passes):
        for i, j, k in triples[rng.permutation(len(triples))]:
            q, d = X[i], X[j] - X[k]
            loss = 1 - q @ W @ d
            if loss > 0:
                norm = (q @ q) * (d @ d)
                W += min(C, loss / max(norm, 1e-12)) * np.outer(q, d)
    return W.T  # the score is (W'q)·x


TORCH = r"""
import json, sys, time
import numpy as np, torch
torch.set_num_threads(1)
torch.manual_seed(0)
z = np.load(sys.argv[1])
X = torch.tensor(z["X"], dtype=torch.float32)
T, val_q, val_d = torch.tensor(z["triples"]), z["val_queries"], z["documents"]
truth = [set(r) for r in json.loads(str(z["val_relevant"]))]
A = torch.nn.Linear(X.shape[1], X.shape[1], bias=False)
with torch.no_grad():
    A.weight.copy_(torch.eye(X.shape[1]))
gains = 1 / np.log2(np.arange(2, 12))
def ndcg():
    with torch.no_grad():
        S = A(X[val_q]) @ X[val_d].T
        best = torch.topk(S, 10, dim=1).indices.numpy()
    out = []
    for row, good in zip(best, truth):
        hits = np.array([int(val_d[b]) in good for b in row])
        out.append((hits * gains).sum() / gains[:min(10, len(good))].sum())
    return float(np.mean(out))
best = None
for lr in (1e-4, 1e-3):
    with torch.no_grad():
        A.weight.copy_(torch.eye(X.shape[1]))
    optimizer = torch.optim.Adam(A.parameters(), lr=lr)
    started, top, bad = time.process_time(), ndcg(), 0
    weight, spent = A.weight.detach().clone(), 0.0
    for epoch in range(60):
        for part in torch.split(torch.randperm(len(T)), 256):
            i, j, k = T[part].T
            q = A(X[i])
            loss = torch.relu(0.2 - (q * (X[j] - X[k])).sum(1)).mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
        now = ndcg()
        if now > top:
            top, bad, weight, spent = now, 0, A.weight.detach().clone(), time.process_time() - started
        else:
            bad += 1
            if bad == 5:
                break
    if best is None or top > best[0]:
        best = (top, lr, weight, spent, time.process_time() - started, epoch + 1)
np.save(sys.argv[2], best[2].numpy())
print(json.dumps({"validation": best[0], "lr": best[1], "seconds": best[3], "all": best[4], "epochs": best[5]}))
"""


def torch_adapter(X, triples, validation, documents) -> tuple[np.ndarray, dict[str, Any]] | None:
    """Return the weights of the adapter that PyTorch learned, and its times; None if PyTorch cannot be had."""
    env = folder() / "torch"
    python = env / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(env)], check=True)
        command = [str(python), "-m", "pip", "install", "-q", "numpy", "torch==2.13.0"]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            return None
    queries, relevant = validation
    given, made = folder() / "given.npz", folder() / "made.npy"
    words = json.dumps([[int(r) for r in rows] for rows in relevant])
    np.savez(given, X=X, triples=triples, val_queries=queries, val_relevant=words, documents=documents)
    done = subprocess.run([str(python), "-c", TORCH, str(given), str(made)], capture_output=True, text=True, check=True)
    return np.load(made).astype(np.float64), json.loads(done.stdout)


# ------------------------------------------------------------------------------------------------------------- runs


def corpus(table: Table, name: str, data, *, torch: bool, quick: bool) -> None:
    X, queries, relevant, documents = data
    if quick:
        queries, relevant = queries[:300], relevant[:300]
    cut = 2 * len(queries) // 3
    rng = np.random.default_rng(SEED)
    some = [rng.permutation(rows)[:RELEVANT] for rows in relevant[:cut]]
    held = cut // 10
    train, validation, test = slice(held, cut), slice(0, held), slice(cut, None)
    learn_q, learn_r = queries[train], some[train]
    pool = np.concatenate([np.asarray(queries[:cut]), documents])
    place = {int(row): i for i, row in enumerate(pool)}
    T = mf.Triplets.from_relevance(
        [place[q] for q in learn_q],
        [[place[int(r)] for r in rows] for rows in learn_r],
        len(pool),
        irrelevant=_negatives(rng, learn_r, documents, place),
    )
    truth = (queries[test], relevant[test], documents)

    def add(method: str, A: np.ndarray, seconds: float | str, note: str = "") -> None:
        found = ndcg(A, X, *truth)
        error = f"{found.ndcg:.4f} ± {found.errors['ndcg']:.4f}"
        table.add(name, len(documents), len(learn_q), T.size, method, error, found.mrr, found.recall, seconds, note)

    add("start", np.eye(X.shape[1]), "")
    started = time.process_time()
    metric = mf.learn(X[pool], T, method="relevance")
    seconds = time.process_time() - started
    report = metric.report
    add("relevance", metric.adapter("query").A, seconds, f"{report.status}, gap {report.certificate.relative:.1e}")
    check_adapter(table, name, metric, X, queries[test][:200], documents)
    triples = pool[T.triples]
    best = None
    for C in (0.01, 0.1) if not quick else (0.1,):
        started = time.process_time()
        W = oasis(X, triples, C, 1, SEED)
        spent = time.process_time() - started
        score = ndcg(W, X, queries[validation], relevant[validation], documents).ndcg
        if best is None or score > best[0]:
            best = (score, W, spent, C)
    add("OASIS", best[1], best[2], f"C = {best[3]}")
    if torch:
        found = torch_adapter(X, triples, (queries[validation], relevant[validation]), documents)
        if found is None:
            table.notes.append("PyTorch could not be installed")
            return
        W, facts = found
        note = f"lr {facts['lr']}, {facts['epochs']} epochs; {facts['seconds'] / seconds:.0f} × the time of relevance"
        add("PyTorch adapter", W, facts["seconds"], note)


def _negatives(rng, relevant, documents, place) -> list[list[int]]:
    found = []
    for rows in relevant:
        draw = rng.choice(documents, NEGATIVES + 2 * len(rows) + 5, replace=False)
        good = set(rows.tolist())
        found.append([place[int(d)] for d in draw if int(d) not in good][:NEGATIVES])
    return found


def check_adapter(table: Table, name: str, metric: mf.Metric, X, queries, documents) -> None:
    """Compare the ranking of the query-side adapter with that of the kernel."""
    A, b = metric.adapter("query")
    exact = metric.kernel(X[queries], X[documents])
    mapped = (X[queries] @ A.T + b) @ X[documents].T
    best, other = (np.argsort(-S, axis=1, kind="stable")[:, :K] for S in (exact, mapped))
    different = 0
    for row, one, two in zip(exact, best, other, strict=True):
        values = row[one], row[two]
        different += bool((np.abs(values[0] - values[1]) > 1e-5 * np.abs(values[0]).max()).any())
    table.notes.append(
        f"{name}: the query-side adapter gives the kernel's first {K} for {len(queries) - different} of {len(queries)} "
        "held-out queries (scores within 1e-5)"
    )


def width(table: Table, quick: bool) -> None:
    """Time and memory against the number of columns: 50,000 float32 rows, 20,000 triplets."""
    n, p = (5_000, 2_000) if quick else (50_000, 20_000)
    times = []
    for d in WIDTHS[:2] if quick else WIDTHS:
        rng = np.random.default_rng(SEED)
        y = np.arange(n) % 50
        X = rng.standard_normal((n, d), dtype=np.float32)
        X[:, :50] += 2 * np.eye(50, dtype=np.float32)[y]
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        T = mf.Triplets.from_labels(y, n_triplets=p, seed=SEED)
        started = time.process_time()
        metric = mf.learn(X, T, method="relevance")
        times.append(time.process_time() - started)
        report = metric.report
        table.add(
            "generated",
            n,
            "",
            p,
            f"relevance, {d} columns",
            "",
            "",
            "",
            times[-1],
            f"{report.status}, gap {report.certificate.relative:.1e}, {report.n_iter} evaluations",
        )
    used = WIDTHS[: len(times)]
    slope = np.polyfit(np.log(used), np.log(times), 1)[0]
    table.notes.append(f"time grows as columns^{slope:.2f} from {used[0]} to {used[-1]} columns")
    table.notes.append("target: 50,000 × 1,024 float32 rows and 20,000 triplets within 60 CPU s and 1.5 GB, gap 1e-3")


def run(quick: bool = False, *, no_torch: bool = False, only: str = "scop,wordnet,width") -> Table:
    columns = ["corpus", "documents", "training queries", "triplets", "method", f"nDCG@{K}", "MRR", f"recall@{K}"]
    table = Table([*columns, "CPU s", ""])
    parts = ("width",) if quick else only.split(",")
    for name in ("scop", "wordnet"):
        if name in parts:
            corpus(table, name, {"scop": scop, "wordnet": wordnet}[name](), torch=not no_torch, quick=quick)
    if "width" in parts:
        width(table, quick)
    table.notes.append("target: nDCG at least that of the PyTorch adapter, in a tenth of its CPU time")
    return table
