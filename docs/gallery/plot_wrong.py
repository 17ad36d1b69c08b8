"""
What if some hints are wrong?
=============================

Swap the labels of more and more training rows, and look at rows with true labels that were held out.
"""

import matplotlib.pyplot as plt
import numpy as np

import metricforge as mf

X, y = mf.datasets.load("wine")
rng = np.random.default_rng(0)
order = rng.permutation(len(X))
train, test = order[:89], order[89:]
shares = np.array([0, 0.05, 0.1, 0.2, 0.3])
right = np.zeros((len(shares), 5))
for repeat in range(5):
    swapped = rng.permutation(89)
    for place, share in enumerate(shares):
        told = y[train].copy()
        wrong = swapped[: int(share * 89)]
        told[wrong] = (told[wrong] + rng.integers(1, 3, size=len(wrong))) % 3
        metric = mf.learn(X[train], told, method="krca", kernel=mf.kernels.Standardized(mf.kernels.Linear()))
        found = mf.tasks.classify(metric, told, X[test], k=9)
        right[place, repeat] = np.mean(found.labels == y[test])

_, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
ax.errorbar(100 * shares, 100 * right.mean(axis=1), 100 * right.std(axis=1, ddof=1) / np.sqrt(5), marker="o", capsize=3)
ax.set(xlabel="wrong labels, %", ylabel="new rows classified right, %")
plt.show()
