from __future__ import annotations

import re

import pytest

import metricforge as mf
from metricforge.errors import InputError, UnknownNameError
from metricforge.kernels import RBF, Linear, Mixture, Polynomial, Product, Spectrum, Standardized, Weak
from metricforge.kernels.notation import parse_kernel, parse_value
from metricforge.resolve import find_kernel

CLASSES = {"rbf": RBF, "linear": Linear, "mine-too": RBF, "ready": RBF(0.5), "odd name": Linear}


def lookup(name):
    if name not in CLASSES:
        raise UnknownNameError(f"{name} is unknown")
    return CLASSES[name]


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("rbf", RBF()),
        (" rbf(0.5) ", RBF(0.5)),
        ("rbf(gamma=median)", RBF("median")),
        ("rbf(gamma='median', base=linear)", RBF("median", base=Linear())),
        ("mine-too", RBF()),
        ("mine-too(gamma=1e-3)", RBF(1e-3)),
        ("rbf(base=mine-too(gamma=2))", RBF(base=RBF(2))),
        ("ready", RBF(0.5)),
        ("rbf(base=ready)", RBF(base=RBF(0.5))),
        ("odd name", Linear()),
    ],
)
def test_names_are_looked_up_where_the_caller_says(text, kernel):
    assert parse_kernel(text, lookup) == kernel


def test_what_the_lookup_does_not_know_is_an_error():
    for text, said in {
        "ready(gamma=1)": "ready takes no parameters",
        "cauchy": "cauchy is unknown",
        "rbf(gamma='a-b')": "'a-b'",
        "rbf(0.5, None, 3)": "kernel='rbf(0.5, None, 3)'",
    }.items():
        with pytest.raises(InputError, match=re.escape(said)):
            parse_kernel(text, lookup)


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("rbf", RBF()),
        ("RBF", RBF()),
        ("rbf(gamma=0.5)", RBF(0.5)),
        ("spectrum(k=3)", Spectrum(3)),
        ("rbf(gamma='median', base=polynomial(degree=3))", RBF("median", base=Polynomial(3))),
        ("rbf(1.0, base=linear)", RBF(1.0, base=Linear())),
        ("standardized", Standardized()),
        ("standardized(rbf(gamma=0.5))", Standardized(RBF(0.5))),
        ("weak(rbf, feature=2)", Weak(RBF(), feature=2)),
        ("mixture((rbf, linear), (0.5, 2))", Mixture((RBF(), Linear()), (0.5, 2.0))),
        ("product(rbf, polynomial(2))", Product(RBF(), Polynomial(2))),
        ("normalized(spectrum(2))", Spectrum(2).normalized()),
        (repr(RBF(0.25)), RBF(0.25)),
        (repr(Standardized(RBF(0.25))), Standardized(RBF(0.25))),
        ("standardized(rbf, by=range)", Standardized(RBF(), by="range")),
        (repr(Standardized(RBF(0.25), by="range")), Standardized(RBF(0.25), by="range")),
        (repr(0.5 * RBF(0.25) + 2 * Linear()), 0.5 * RBF(0.25) + 2 * Linear()),
    ],
)
def test_registered_kernels_are_read_from_text(text, kernel):
    assert find_kernel(text) == kernel


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rbff", "kernel='rbff' is unknown; did you mean 'rbf'"),
        ("rbf(", "cannot be read"),
        ("", "cannot be read"),
        ("3", "is not a kernel"),
        ("rbf(sigma=3)", "rbf has no parameter 'sigma'"),
        ("rbf(gamma=-1)", "gamma"),
        ("weak", "weak needs kernel and feature; write weak(kernel=..., feature=...)"),
        ("weak(rbf)", "weak needs feature; write weak(feature=...)"),
        ("krca-exact", "krca-exact needs"),
        ("__import__('os').system('true')", "more than names and numbers"),
        ("rbf(gamma=[x for x in y])", "more than names and numbers"),
        ("rbf(**{})", "more than names and numbers"),
    ],
)
def test_text_that_is_not_a_kernel_gives_one_sentence(text, said):
    with pytest.raises(InputError) as caught:
        find_kernel(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_names_offer_what_users_write_and_no_learned_kernels():
    with pytest.raises(UnknownNameError) as caught:
        find_kernel("nothing-like-it")
    known = str(caught.value).partition("known: ")[2].split(", ")
    assert {"linear", "rbf", "standardized", "weak"} <= set(known)
    assert not {"learned", "projected", "krca-exact", "krca-features", "simplenpkl-ridge", "simplenpkl-nystrom"} & set(
        known
    )


def test_text_is_a_kernel_wherever_a_kernel_is_asked_for(rng):
    X, y = rng.normal(size=(30, 2)), rng.integers(2, size=30)
    metric = mf.learn(X, y, method="euclidean", kernel="rbf(gamma=0.5)")
    assert metric.kernel == RBF(0.5)
    learner = mf.MetricLearner("euclidean", kernel="standardized(rbf(gamma=0.5))").fit(X, y)
    assert learner.metric_.kernel.kernel == RBF(0.5)
    assert learner.get_params()["kernel__kernel"] == RBF(0.5)
    assert learner.set_params(kernel__kernel=Linear()).kernel == Standardized()


def test_values_as_text():
    texts = ("1", "0.5", "true", "None", "(1, 2)", "hinge")
    assert [parse_value(t) for t in texts] == [1, 0.5, True, None, (1, 2), "hinge"]
