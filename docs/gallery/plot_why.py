"""
Why are these two rows far apart?
=================================

A metric that is linear in the columns is a Mahalanobis distance, so the squared distance of two rows is a sum over the
columns: what each difference contributes.  A negative part means that the difference is explained by the others.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine

import metricforge as mf

wine = load_wine()
metric = mf.learn(wine.data, wine.target, method="krca", kernel=mf.kernels.Standardized(mf.kernels.Linear()))
a, b = wine.data[0], wine.data[100]
parts = (a - b) * (metric.mahalanobis() @ (a - b))

_, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.barh(wine.feature_names, parts)
ax.invert_yaxis()
ax.set_xlabel(f"part of the squared distance, {metric.distance(a, b) ** 2:.1f} in all")
plt.show()
