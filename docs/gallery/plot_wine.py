"""
What does learning change?
==========================

Two wines of one grower differ in many measurements that say nothing about the grower.  Relevant component analysis
learns from groups which ones these are, and shrinks them.
"""

import matplotlib.pyplot as plt

import metricforge as mf
from metricforge.plotting import KernelDisplay, MapDisplay

X, y = mf.datasets.load("wine")
groups = mf.Chunklets.from_labels(y, components=0.3, seed=0)
before = mf.learn(X, groups, method="euclidean", kernel="linear")
after = mf.learn(X, groups, method="krca", kernel="linear", epsilon=0.0)

# %%
# The rows in the plane that holds most of each metric's variance.
_, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for ax, metric, title in zip(axes, (before, after), ("before", "after"), strict=True):
    MapDisplay.from_metric(metric, X, y, ax=ax)
    ax.set_title(title)

# %%
# The kernel matrices, rows ordered by grower: learning makes blocks of them.
_, axes = plt.subplots(1, 2, figsize=(9, 4.6), layout="constrained")
for ax, metric, title in zip(axes, (before, after), ("before", "after"), strict=True):
    KernelDisplay.from_metric(metric, X, y, ax=ax)
    ax.set_title(title)
plt.show()
