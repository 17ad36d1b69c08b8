"""The corpora of `benchmarks.retrieval`: proteins of SCOP and glosses of WordNet, as embeddings of 384 columns."""

from __future__ import annotations

import gzip
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import metricforge as mf

COLUMNS, SEED = 384, 0
RELEVANT = 5
"""Relevant rows of a training query at the most."""
NEGATIVES = 5
"""Random rows for each relevant one."""
SYSTEM = Path("/usr/share/wordnet")


def folder() -> Path:
    """Return where files and environments of this benchmark are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "metricforge" / "retrieval"


@dataclass(frozen=True, eq=False)
class Corpus:
    """Rows, queries with their relevant rows, and the rows that are ranked."""

    X: np.ndarray
    queries: list[int]
    relevant: list[np.ndarray]
    documents: np.ndarray

    @property
    def cut(self) -> int:
        """Queries before this one are for learning, the others for testing."""
        return 2 * len(self.queries) // 3

    @property
    def held(self) -> int:
        """The first queries, a tenth of those for learning, choose between settings; no method learns from them."""
        return self.cut // 10

    def validation(self) -> tuple[list[int], list[np.ndarray]]:
        return self.queries[: self.held], self.relevant[: self.held]

    def test(self) -> tuple[list[int], list[np.ndarray]]:
        return self.queries[self.cut :], self.relevant[self.cut :]

    def triplets(self) -> tuple[np.ndarray, mf.Triplets]:
        """Return the rows to learn from, and triplets over them: some relevant rows of each query, random others."""
        rng = np.random.default_rng(SEED)
        some = [rng.permutation(rows)[:RELEVANT] for rows in self.relevant[: self.cut]][self.held :]
        pool = np.concatenate([np.asarray(self.queries[: self.cut]), self.documents])
        place = {int(row): i for i, row in enumerate(pool)}
        T = mf.Triplets.from_relevance(
            [place[q] for q in self.queries[self.held : self.cut]],
            [[place[int(r)] for r in rows] for rows in some],
            len(pool),
            irrelevant=[self._negatives(rng, rows, place) for rows in some],
        )
        return pool, T

    def _negatives(self, rng: np.random.Generator, rows: np.ndarray, place: dict[int, int]) -> list[int]:
        draw = rng.choice(self.documents, NEGATIVES + 2 * len(rows) + 5, replace=False)
        good = set(rows.tolist())
        return [place[int(d)] for d in draw if int(d) not in good][:NEGATIVES]

    def scores(
        self, A: np.ndarray | mf.adapters.Adapter, queries: list[int], relevant: list[np.ndarray], k: int
    ) -> mf.tasks.RetrievalScores:
        """Return the scores of the ranking by (A q + b)·x; b = 0 if A is an array."""
        Q = self.X[queries] @ A.T if isinstance(A, np.ndarray) else A(self.X[queries])
        both = np.vstack([Q, self.X[self.documents]])
        place = {int(d): len(queries) + i for i, d in enumerate(self.documents)}
        truth = [[place[int(r)] for r in rows] for rows in relevant]
        rows = np.arange(len(queries), len(both))
        return mf.tasks.retrieval_scores(None, both, np.arange(len(queries)), truth, documents=rows, k=k)


def embedded(texts: list[str], analyzer: dict[str, Any]) -> np.ndarray:
    """Return TF-IDF rows reduced to `COLUMNS` and scaled to unit length."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    counts = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32, **analyzer).fit_transform(texts)
    return normalize(TruncatedSVD(COLUMNS, n_iter=2, random_state=SEED).fit_transform(counts)).astype(np.float64)


def scop() -> Corpus:
    """Proteins as 3-mers; relevant is the same superfamily."""
    path = Path(os.environ["METRICFORGE_DATA"]) / "scop40_1.75.fasta.gz"
    names: list[str] = []
    sequences: list[list[str]] = []
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
    order = np.random.default_rng(SEED).permutation(len(kept))
    queries, documents = order[:3000], np.sort(order[3000:])
    relevant = [documents[code[documents] == code[q]] for q in queries]
    full = [i for i, rows in enumerate(relevant) if len(rows)]
    return Corpus(X, [int(queries[i]) for i in full], [relevant[i] for i in full], documents)


def wordnet() -> Corpus:
    """Words and glosses of all synsets; relevant is a direct hypernym, or what an adjective is similar to."""
    place: dict[tuple[str, str], int] = {}
    glosses, pointers = [], []
    for key, text, related in _synsets():
        place[key] = len(glosses)
        glosses.append(text)
        pointers.append(related)
    X = embedded(glosses, {"stop_words": "english"})
    rng = np.random.default_rng(SEED)
    able = [i for i, related in enumerate(pointers) if related]
    queries = [int(q) for q in rng.permutation(able)[:6000]]
    relevant = [np.unique([place[key] for key in pointers[q]]) for q in queries]
    documents = np.union1d(rng.permutation(len(glosses))[:20_000], np.concatenate(relevant))
    documents = np.setdiff1d(documents, queries)
    full = [i for i, rows in enumerate(relevant) if np.isin(rows, documents).all()]
    return Corpus(X, [queries[i] for i in full], [relevant[i] for i in full], documents)


def _synsets() -> Iterator[tuple[tuple[str, str], str, list[tuple[str, str]]]]:
    """Yield the key of each synset, its words and gloss, and the keys of its hypernyms and of what it is similar to."""
    for part, letter in {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}.items():
        with (_wordnet() / f"data.{part}").open(encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("  "):  # the licence
                    continue
                data, _, gloss = line.partition("|")
                words = data.split()
                count = int(words[3], 16)
                lemmas = " ".join(word.replace("_", " ") for word in words[4 : 4 + 2 * count : 2])
                first = 4 + 2 * count
                quads = [words[first + 1 + 4 * p : first + 5 + 4 * p] for p in range(int(words[first]))]
                related = [(q[2].replace("s", "a"), q[1]) for q in quads if q[0] in ("@", "@i", "&")]
                yield (letter, words[0]), f"{lemmas} {gloss.strip()}", related


def _wordnet() -> Path:
    """Return the folder of WordNet's files, of the system or from Debian's package wordnet-base."""
    unpacked = folder() / SYSTEM.relative_to("/")
    for place in (SYSTEM, unpacked):
        if (place / "data.noun").exists():
            return place
    folder().mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", "wordnet-base"], cwd=folder(), check=True, capture_output=True)
    (package,) = folder().glob("wordnet-base*.deb")
    subprocess.run(["dpkg-deb", "-x", str(package), str(folder())], check=True)
    return unpacked
