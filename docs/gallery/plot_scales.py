"""
Do the scales of my columns matter?
===================================

One column of wine spreads a thousand times as wide as the others and decides every plain distance.  Dividing the
columns by their spread helps; a metric that whitens the groups does not depend on scales at all.
"""

import matplotlib.pyplot as plt

import metricforge as mf
from metricforge.plotting import MapDisplay

X, y = mf.datasets.load("wine")
groups = mf.Chunklets.from_labels(y, components=0.3, seed=0)
linear = mf.kernels.Linear()
metrics = {
    "as measured": mf.learn(X, groups, method="euclidean", kernel=linear),
    "standardized": mf.learn(X, groups, method="euclidean", kernel=mf.kernels.Standardized(linear)),
    "learned": mf.learn(X, groups, method="krca", kernel=linear, epsilon=0.0),
}
_, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
for ax, (title, metric) in zip(axes, metrics.items(), strict=True):
    MapDisplay.from_metric(metric, X, y, ax=ax)
    ax.set_title(title)
plt.show()
