"""
Is the fit finished?
====================

Every solver bounds how far it may be from the optimum.  The bound falls as the solver works; where it is small, more
iterations cannot change the result.
"""

import matplotlib.pyplot as plt

import metricforge as mf
from metricforge.plotting import ConvergenceDisplay

X, y = mf.datasets.load("wine")
metric = mf.learn(X, y, method="kcr", kernel=mf.kernels.Standardized(mf.kernels.RBF("median")), tol=1e-4)
_, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
ConvergenceDisplay.from_metric(metric, ax=ax)
ax.set_title(metric.report.certificate.describe())
plt.show()
