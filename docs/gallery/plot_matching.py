"""
Are these two records the same?
===============================

A calibrated probability means what it says: of the pairs with probability 0.8, about 80 % are the same.  The vertical
line is the distance up to which 90 % of the matches are right, with confidence 0.95.
"""

import matplotlib.pyplot as plt
import numpy as np

import metricforge as mf

rng = np.random.default_rng(0)
things = rng.normal(size=(400, 6)) * [1, 1, 1, 5, 5, 5]
noise = rng.normal(size=(400, 6)) * [0.1, 0.1, 0.1, 4, 4, 4]  # the last three columns are unreliable
X = np.concatenate([things, things + noise])
same = np.column_stack([np.arange(400), 400 + np.arange(400)])
metric = mf.learn(X, mf.Pairs(similar=same[:100], n=800), method="krca", kernel="linear", epsilon=0.0)

pairs, distances = mf.tasks.candidates(metric, X, k=5)
truth = pairs[:, 1] - pairs[:, 0] == 400
fresh = ~np.isin(pairs[:, 0], same[:100])  # pairs that nothing was learned from
judged = mf.Pairs(pairs[fresh & truth], pairs[fresh & ~truth], n=800)
known = mf.tasks.calibrate(metric, X, judged)

grid = np.linspace(0, 3 * known.threshold(0.9), 300)
_, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
ax.plot(grid, known.probability(grid), label="probability that two rows are the same")
ax.axvline(known.threshold(0.9), color="k", ls="--", label="90 % of the matches are right")
ax.set(xlabel="distance", ylim=(0, 1.05))
ax.legend()
plt.show()
