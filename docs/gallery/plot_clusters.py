"""
How many clusters are there?
============================

The silhouette compares how near a row is to its own cluster and to the next one.  In the raw measurements it finds two
clusters of wine; in a metric learned from a few groups it finds the three growers.
"""

import matplotlib.pyplot as plt

import metricforge as mf

X, y = mf.datasets.load("wine")
groups = mf.Chunklets.from_labels(y, components=0.3, seed=0)
metrics = {
    "raw measurements": mf.learn(X, groups, method="euclidean", kernel="linear"),
    "learned from groups": mf.learn(X, groups, method="krca", kernel="linear", epsilon=0.0),
}

_, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, metric in metrics.items():
    _, silhouettes = mf.tasks.clusters_by_silhouette(metric.transform(X), tried=range(2, 8))
    ax.plot(list(silhouettes), list(silhouettes.values()), marker="o", label=name)
ax.set(xlabel="clusters", ylabel="mean silhouette")
ax.legend()
plt.show()
