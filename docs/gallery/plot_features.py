"""
Which features mattered?
========================

From judgements of the kind "i is more like j than like k" a linear program chooses, among one kernel for each
measurement, the few that explain them.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

import metricforge as mf
from metricforge.plotting import WeightsDisplay

wine = load_wine()
X, y = StandardScaler().fit_transform(wine.data), wine.target
triplets = mf.Labels(y).to(mf.Triplets, seed=0)
metric = mf.learn(X, triplets, method="lpdesign", sparsity=0.05)

_, ax = plt.subplots(figsize=(7, 4), layout="constrained")
WeightsDisplay.from_metric(metric, wine.feature_names, ax=ax)
plt.show()
