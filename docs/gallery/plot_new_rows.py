"""
Is my new row like anything here?
=================================

The distance from a row to its nearest training row says whether the metric has seen anything like it.  Here it is
learned on two growers; the wines of the third are new, and most of them are further away than any known wine.
"""

import matplotlib.pyplot as plt
import numpy as np

import metricforge as mf

X, y = mf.datasets.load("wine")
known = np.flatnonzero(y != 2)
train, test = known[::2], known[1::2]
metric = mf.learn(X[train], y[train], method="krca", kernel=mf.kernels.Standardized(mf.kernels.Linear()))

_, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, rows in (("wines of known growers, not learned from", test), ("wines of a grower never seen", y == 2)):
    distances = metric.neighbors(X[rows], k=1)[1][:, 0]
    ax.hist(distances, bins=np.linspace(0, 5, 40), alpha=0.6, label=name)
ax.set(xlabel="distance to the nearest training row", ylabel="wines")
ax.legend()
plt.show()
