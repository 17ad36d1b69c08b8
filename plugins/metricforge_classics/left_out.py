"""Methods of metric-learn that metricforge does not offer, and what to use instead."""

from __future__ import annotations

from typing import Any, NoReturn

from metricforge.errors import InputError


class _LeftOut:
    """Raises a sentence that names another method."""

    instead = ""

    def __init__(self, *args: Any, **parameters: Any) -> NoReturn:
        raise InputError(f"metricforge_classics has no {type(self).__name__}; {self.instead}")


class MMC(_LeftOut):
    """Mahalanobis metric for clustering: not offered."""

    instead = "from pairs, use ITML, which has a certificate"


class MMC_Supervised(_LeftOut):  # noqa: N801
    """MMC on pairs drawn from labels: not offered."""

    instead = "from labels, use ITML_Supervised or LMNN, which have a certificate"


class SDML(MMC):
    """Sparse determinant metric learning: not offered."""


class SDML_Supervised(MMC_Supervised):  # noqa: N801
    """SDML on pairs drawn from labels: not offered."""


class SCML(_LeftOut):
    """Sparse compositional metric learning: not offered."""

    instead = "from triplets, use mf.learn(X, mf.Triplets(...), method='lpdesign'), which mixes base kernels exactly"


class SCML_Supervised(_LeftOut):  # noqa: N801
    """SCML on triplets drawn from labels: not offered."""

    instead = "from labels, use LMNN, or mf.learn(X, y, method='lpdesign'), which mixes base kernels exactly"
