"""
How many hints are enough?
==========================

Hold out half of the wines, and learn from more and more labelled ones.  Where the curve is flat, further labels would
not help.
"""

import matplotlib.pyplot as plt
import numpy as np

import metricforge as mf

X, y = mf.datasets.load("wine")
rng = np.random.default_rng(0)
sizes = [12, 20, 30, 45, 65, 89]
right = np.zeros((len(sizes), 5))
for split in range(5):
    order = rng.permutation(len(X))
    train, test = order[:89], order[89:]
    for place, size in enumerate(sizes):
        rows = train[:size]
        metric = mf.learn(X[rows], y[rows], method="krca", kernel=mf.kernels.Standardized(mf.kernels.Linear()))
        right[place, split] = np.mean(mf.tasks.classify(metric, y[rows], X[test], k=1).labels == y[test])

_, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
ax.errorbar(sizes, 100 * right.mean(axis=1), 100 * right.std(axis=1, ddof=1) / np.sqrt(5), marker="o", capsize=3)
ax.set(xlabel="labelled rows", ylabel="new rows classified right, %")
plt.show()
