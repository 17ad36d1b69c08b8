"""
Which method for my hints?
==========================

Score every method on rows that it has not seen, by the same folds.  The bars are standard errors: methods whose bars
overlap are equally good here.
"""

from functools import partial

import matplotlib.pyplot as plt

import metricforge as mf

X, y = mf.datasets.load("wine")
kernel = mf.kernels.Standardized(mf.kernels.Linear())
found = {}
for name in ("euclidean", "idealized", "krca", "lpdesign"):
    fit = partial(mf.learn, method=name) if name == "lpdesign" else partial(mf.learn, method=name, kernel=kernel)
    found[name], _ = mf.tasks.held_out(X, mf.Labels(y), fit, folds=3)

_, ax = plt.subplots(figsize=(6, 3), layout="constrained")
shares = [100 * score.after for score in found.values()]
ax.barh(list(found), shares, xerr=[100 * score.error[1] for score in found.values()], capsize=3)
ax.set(xlabel="held-out rows whose nearest row is of their class, %", xlim=(80, 100))
plt.show()
