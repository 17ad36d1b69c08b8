"""
Which measurements matter
=========================

From judgements of the kind "i is more like j than like k" a linear program chooses, among one kernel for each
measurement, the few that explain them.
"""

import matplotlib.pyplot as plt
from sklearn.preprocessing import StandardScaler

import metricforge as mf
from metricforge.plotting import WeightsDisplay

X, y = mf.datasets.load("wine")
X = StandardScaler().fit_transform(X)
triplets = mf.Labels(y).to(mf.Triplets, seed=0)
metric = mf.learn(X, triplets, method="lpdesign", sparsity=0.05)

_, ax = plt.subplots(figsize=(7, 4))
WeightsDisplay.from_metric(metric, ax=ax)
plt.show()
