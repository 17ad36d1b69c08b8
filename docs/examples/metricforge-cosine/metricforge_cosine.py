"""A complete metricforge plugin in one module: the kernel ``cosine`` and the method ``between``."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import metricforge as mf
from metricforge.kernels import inner
from metricforge.space import LearnedKernel


@dataclass(frozen=True)
class Cosine(mf.Kernel):
    """The cosine of the angle between two rows."""

    def block(self, X, Y):
        length = [np.sqrt(np.asarray(A.multiply(A) if hasattr(A, "multiply") else A * A).sum(axis=1)) for A in (X, Y)]
        return inner(X, Y) / np.maximum(np.outer(*length), 1e-300)


@dataclass(frozen=True)
class Between(mf.Solver):
    """Add to the base kernel the scatter B of the class means: k + strength · φ'Bφ, in closed form."""

    strength: float = 1.0
    accepts: ClassVar = (mf.Labels,)

    def __post_init__(self):
        if not 0 <= self.strength < np.inf:
            raise mf.errors.InputError(f"strength must be a number >= 0, got {self.strength!r}")

    def _solve(self, problem):
        codes, features = problem.constraint.codes, problem.space.features
        means = np.stack([np.asarray(features[codes == c].mean(axis=0)) for c in np.unique(codes[codes >= 0])])
        spread = means - means.mean(axis=0)
        kernel = LearnedKernel(problem.space.map, self.strength * spread.T @ spread, a=1.0)
        return mf.Solution(kernel, mf.Status.OPTIMAL, objective=0.0, gap=0.0, certificate="closed form")


METHOD = mf.Method(constraint=mf.Labels, kernel=Cosine(), solver=Between())


@mf.hookimpl
def metricforge_register(registrar):
    registrar.add("kernel", "cosine", "metricforge_cosine:Cosine")
    registrar.add("solver", "between", "metricforge_cosine:Between")
    registrar.add("method", "between", "metricforge_cosine:METHOD")
