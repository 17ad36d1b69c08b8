"""The learned kernel of the quadratic program of the paper, which may be indefinite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metricforge.errors import InputError
from metricforge.rows import Array
from metricforge.space import FeatureMap, LearnedKernel, OverFeatures


@dataclass(frozen=True, eq=False)
class Unprojected(OverFeatures):
    """The form φ(x)'Bφ(y) with an indefinite B; negative squared distances count as 0.

    Parameters
    ----------
    form : LearnedKernel
        φ and B.
    """

    form: LearnedKernel

    @property
    def map(self) -> FeatureMap:  # type: ignore[override]
        """The features φ."""
        return self.form.map

    def block(self, X: Any, Y: Any) -> Array:
        """Return Φ_X B Φ_Y'."""
        return self.form.block(X, Y)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return φ(x_i)'Bφ(y_i)."""
        return self.form.paired(X, Y)

    def bilinear(self, d: int) -> Array:
        """Return F B F' where φ(x) = F'[x, 1]."""
        return self.form.bilinear(d)

    def embedding(self) -> Any:
        """Raise InputError: no Euclidean embedding has these distances."""
        raise InputError(
            'psd="paper" gave a B with negative eigenvalues, so no Euclidean embedding has its distances; '
            'learn with psd="exact" or psd="project" to transform rows'
        )
