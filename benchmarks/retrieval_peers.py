"""What `benchmarks.retrieval` compares with: a PyTorch adapter, OASIS, and FAISS as a vector store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from .retrieval_corpora import Corpus, folder

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
best, everything = None, time.process_time()
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
        best = (top, lr, weight, spent, epoch + 1)
np.save(sys.argv[2], best[2].numpy())
print(json.dumps({"validation": best[0], "lr": best[1], "seconds": best[3], "epochs": best[4],
                  "all": time.process_time() - everything}))
"""

FAISS = r"""
import sys
import faiss, numpy as np
z = np.load(sys.argv[1])
index = faiss.IndexFlatIP(z["documents"].shape[1])
index.add(z["documents"])
np.save(sys.argv[2], index.search(z["queries"], int(z["k"]))[1])
"""


def environment(name: str, *packages: str) -> Path | None:
    """Return the interpreter of an environment with some packages; None if they cannot be installed."""
    python = folder() / name / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder() / name)], check=True)
        command = [str(python), "-m", "pip", "install", "-q", "numpy", *packages]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            return None
    return python


def torch_adapter(corpus: Corpus, triples: np.ndarray) -> tuple[np.ndarray, dict[str, Any]] | None:
    """Return the weights of the adapter that PyTorch learned, and its times; None if PyTorch cannot be had."""
    python = environment("torch", "torch==2.13.0")
    if python is None:
        return None
    queries, relevant = corpus.validation()
    given, made = folder() / "given.npz", folder() / "made.npy"
    words = json.dumps([[int(r) for r in rows] for rows in relevant])
    arrays = {"X": corpus.X, "triples": triples, "val_queries": queries, "documents": corpus.documents}
    np.savez(given, val_relevant=words, **arrays)
    done = subprocess.run([str(python), "-c", TORCH, str(given), str(made)], capture_output=True, text=True, check=True)
    return np.load(made).astype(np.float64), json.loads(done.stdout)


def faiss_ranking(queries: np.ndarray, documents: np.ndarray, k: int) -> np.ndarray | None:
    """Return the k best documents of mapped queries by FAISS's exact inner product; None if FAISS cannot be had."""
    python = environment("faiss", "faiss-cpu")
    if python is None:
        return None
    given, made = folder() / "faiss.npz", folder() / "faiss.npy"
    np.savez(given, queries=queries.astype(np.float32), documents=documents.astype(np.float32), k=k)
    subprocess.run([str(python), "-c", FAISS, str(given), str(made)], check=True, capture_output=True)
    return np.load(made)


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
