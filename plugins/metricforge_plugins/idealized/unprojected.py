"""The kernel of an optimum that was left as the paper's quadratic program gives it: not positive semidefinite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from metricforge.errors import InputError
from metricforge.kernels import Kernel
from metricforge.rows import ComparedByContent
from metricforge.space import LearnedKernel

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Unprojected(ComparedByContent, Kernel):
    """φ(x)'Bφ(y) with an indefinite B: squared distances that come out negative count as 0.

    Parameters
    ----------
    form : LearnedKernel
        φ and B.
    """

    form: LearnedKernel

    @property
    def takes(self) -> str:
        """What the base kernel takes."""
        return self.form.takes

    def validate(self, X: Any, name: str) -> None:
        """Let the base kernel look at the rows."""
        self.form.validate(X, name)

    def resolve(self, X: Any, *, seed: int = 0) -> Unprojected:
        """Return itself: it was resolved when it was learned."""
        return self

    def block(self, X: Any, Y: Any) -> Array:
        """Return Φ_X B Φ_Y'."""
        return self.form.block(X, Y)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return φ(x_i)'Bφ(y_i)."""
        return self.form.paired(X, Y)

    def embedding(self) -> Any:
        """Raise: no Euclidean embedding has these distances."""
        raise InputError(
            'psd="paper" left B with negative eigenvalues, so no Euclidean embedding has its distances; '
            'learn with psd="exact" or psd="project" to transform rows'
        )
