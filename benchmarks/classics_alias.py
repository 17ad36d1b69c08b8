"""A pytest plugin that runs metric-learn's own tests against `metricforge_classics`.

It puts modules named ``metric_learn`` into ``sys.modules``.  Private functions of metric-learn, and methods that are
not offered, skip the test that uses them, with the reason.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType

import metricforge_classics as classics
import pytest
import sklearn.utils._testing as sklearn_testing
from metricforge_classics import rows, tuples
from sklearn.metrics import get_scorer

MISSING = ("MMC", "MMC_Supervised", "SDML", "SDML_Supervised", "SCML", "SCML_Supervised")

WORDS = "compares the words of a message, which are our own"
LEARNS_NOTHING = "expects the start where there is nothing to learn from; we raise"
PRIVATE = "uses private functions or classes of metric-learn"
REASONS = {
    "TestLFDA::test_iris": "holds for metric-learn's local scale only, which is not the paper's (0.183 with it)",
    "TestNCA::test_finite_differences": PRIVATE,
    "TestMLKR::test_finite_differences": PRIVATE,
    "TestNCA::test_one_class": LEARNS_NOTHING,
    "TestNCA::test_singleton_class": LEARNS_NOTHING,
    "TestStringRepr::test_mmc": "MMC is not offered",
    "TestStringRepr::test_sdml": "SDML is not offered",
    "TestSCML": "SCML is not offered",
    "test_array_like_indexer_array_like_valid_classic": PRIVATE,
    "test_array_like_indexer_array_like_valid_tuples": PRIVATE,
    "test_loss_func": PRIVATE,
} | dict.fromkeys(
    (
        "TestRCA::test_bad_parameters",
        "TestRCA::test_rank_deficient_returns_warning",
        "test_bounds_parameters_invalid",
        "test_calibrate_threshold_invalid_parameters_right_error",
        "test_check_input_pairs_learners_invalid_y",
        "test_chunk_case_one_miss_point",
        "test_convergence_simple_example",
        "test_convergence_warning",
        "test_embed_dim",
        "test_error_message_check_preprocessor",
        "test_error_message_t_pair_distance_or_score",
        "test_error_message_tuple_size",
        "test_generate_knntriplets_k_genuine",
        "test_generate_knntriplets_k_impostor",
        "test_init_transformation",
        "test_n_components",
        "test_pair_distance_dim",
        "test_score_pairs_warning",
        "test_set_wrong_type_threshold",
        "test_singular_array_init_or_prior_strictpd",
        "test_singular_covariance_init_or_prior_strictpd",
        "test_validate_calibration_params_invalid_parameters_error_before__fit",
        "test_verbose",
    ),
    WORDS,
)
"""Why a test does not apply: by its name, by its class, or by class::name."""


def not_offered(name):
    def init(self, **parameters):
        self.parameters = parameters

    def skip(self, *args, **kwargs):
        pytest.skip(f"{name.removesuffix('_Supervised')} is not offered")

    members = {"__init__": init, "get_params": lambda self, deep=True: {}, "set_params": lambda self, **p: self}
    members |= dict.fromkeys(("fit", "transform", "predict", "score", "score_pairs", "__sklearn_tags__"), skip)
    return type(name, (), members)


class Private(ModuleType):
    """A module whose unknown names are functions that skip the test."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def private(*args, **kwargs):
            pytest.skip(f"uses {name}, a private function of metric-learn")

        return private


def module(name, **members):
    made = Private(name)
    made.__dict__.update(members)
    sys.modules[name] = made
    return made


class Triplets:
    """No estimator of this kind is offered."""


public = {name: getattr(classics, name) for name in classics.__all__ if name not in (*MISSING, "metricforge_register")}
public |= {name: not_offered(name) for name in MISSING}
package = module("metric_learn", __path__=[], **public)
module(
    "metric_learn.base_metric",
    ArrayIndexer=rows.ArrayIndexer,
    MahalanobisMixin=classics.MahalanobisMixin,
    _PairsClassifierMixin=tuples.PairsClassifier,
    _TripletsClassifierMixin=Triplets,
    _QuadrupletsClassifierMixin=classics.LSML,
)
module("metric_learn.exceptions", PreprocessorError=rows.PreprocessorError, NonPSDError=ValueError)
module(
    "metric_learn.constraints",
    Constraints=classics.Constraints,
    wrap_pairs=lambda X, c: (
        X[[*zip(c[0], c[1], strict=True), *zip(c[2], c[3], strict=True)]],
        [1] * len(c[0]) + [-1] * len(c[2]),
    ),
)
module(
    "metric_learn.sklearn_shims",
    set_random_state=sklearn_testing.set_random_state,
    ignore_warnings=sklearn_testing.ignore_warnings,
    assert_allclose_dense_sparse=sklearn_testing.assert_allclose_dense_sparse,
    _get_args=lambda function, varargs=False: list(inspect.signature(function).parameters),
    is_public_parameter=lambda name: not name.startswith("_") and not name.endswith("_"),
    get_scorer=get_scorer,
    SKLEARN_AT_LEAST_0_22=True,
)
module("metric_learn._util")
module("metric_learn.lmnn", LMNN=public["LMNN"])
module("metric_learn.sdml", _BaseSDML=public["SDML"])


def private_method(name):
    def method(*args, **kwargs):
        pytest.skip(f"uses {name}, a private method of metric-learn")

    return staticmethod(method)  # metric-learn's are called on classes too


for name in ("_prepare_inputs", "_validate_calibration_params"):
    for cls in (classics.MahalanobisMixin, tuples.PairsClassifier, *(public[missing] for missing in MISSING)):
        setattr(cls, name, private_method(name))


def pytest_collection_modifyitems(items):
    for item in items:
        name, parent = item.name.split("[")[0], item.parent.name
        found = [REASONS[key] for key in (name, parent, f"{parent}::{name}") if key in REASONS]
        if found:
            item.add_marker(pytest.mark.skip(reason=found[0]))
