"""Estimators with the names, parameters and methods of metric-learn, on the solvers of metricforge.

``from metricforge_classics import LMNN`` takes the place of ``from metric_learn import LMNN``; ``mf.classics`` is this
package too.  A fitted estimator also has ``metric_``, the learned `metricforge.Metric`, and ``gap_``, its certificate.
docs/metric-learn.md lists what differs.

Files: `rows` forms points and tuples with a preprocessor, `mahalanobis` is what all estimators share, `tuples` learns
from pairs and quadruplets, `supervised` from labels and numbers, `constraints` draws tuples from labels, `left_out` has
what metricforge does not offer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl
from metricforge.names import attributes

if TYPE_CHECKING:
    from metricforge.registry import Registrar

_HOME = {
    "Constraints": "constraints",
    "Covariance": "supervised",
    "ITML": "tuples",
    "ITML_Supervised": "supervised",
    "LFDA": "supervised",
    "LMNN": "supervised",
    "LSML": "tuples",
    "LSML_Supervised": "supervised",
    "MLKR": "supervised",
    "MMC": "left_out",
    "MMC_Supervised": "left_out",
    "MahalanobisMixin": "mahalanobis",
    "NCA": "supervised",
    "RCA": "supervised",
    "RCA_Supervised": "supervised",
    "SCML": "left_out",
    "SCML_Supervised": "left_out",
    "SDML": "left_out",
    "SDML_Supervised": "left_out",
}

__all__ = [*_HOME, "metricforge_register"]

__getattr__ = attributes(__name__, _HOME)


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register this package as ``mf.classics``."""
    registrar.add("namespace", "classics", "metricforge_classics")
