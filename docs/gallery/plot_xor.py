"""
Is a linear metric enough?
==========================

Four clusters, two classes, crosswise.  Groups that span both clusters of a class tell a Gaussian kernel that they
belong together; no linear metric can learn that.
"""

import matplotlib.pyplot as plt

import metricforge as mf
from metricforge.plotting import MapDisplay

X, y = mf.datasets.load("xor", seed=0)
groups = mf.Chunklets(y)
metrics = {
    "the data": mf.learn(X, groups, method="euclidean", kernel="linear"),
    "krca, linear": mf.learn(X, groups, method="krca", kernel="linear"),
    "krca, Gaussian": mf.learn(X, groups, method="krca", kernel=mf.kernels.RBF("median")),
}

_, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
for ax, (title, metric) in zip(axes, metrics.items(), strict=True):
    MapDisplay.from_metric(metric, X, y, ax=ax)
    ax.set_title(title)
plt.show()
