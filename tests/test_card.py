"""The card of a metric in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import metricforge as mf
from metricforge.report import card
from metricforge.reports import page as report


class Text(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.open, self.words = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def words(page):
    found = Text(page)
    assert found.open == []
    return " ".join(found.words)


def test_it_says_what_was_learned_from_what(wine):
    X, y = wine
    frame = pd.DataFrame(X[:, :3], columns=["alcohol", "malic", "ash"])
    metric = mf.learn(frame, y, method="krca").with_facts(
        held_out_scores=({"what": "rows", "before": 0.5, "after": 0.75, "error": (0.1, 0.02)},)
    )
    said = words(metric._repr_html_())
    for part in (
        "learned by krca",
        "178 rows",
        "3: alcohol, malic, ash",
        "optimal",
        "residual",
        "50.0 % → 75.0 ± 2.0 %",
    ):
        assert part in said


def test_every_metric_has_one():
    metric = mf.learn(np.eye(4), [0, 0, 1, 1], method="euclidean")
    for one in (metric, 2 * metric, metric + metric, mf.Metric(metric.kernel, metric.report)):
        assert words(one._repr_html_()).startswith("Metric learned by")
    assert "by hand" in words(mf.Metric(metric.kernel, type(metric.report)({}))._repr_html_())


def test_what_comes_from_the_user_is_escaped():
    page = card("<script>", [("<b>", "<i>&")])
    assert "<script>" not in page
    assert words(page) == "<script> <b> <i>&"


@pytest.mark.parametrize("method", ["kcr", "krca", "idealized", "llr", "simplenpkl", "lpdesign"])
def test_every_method_has_a_card_and_a_page(method, rng):
    X = rng.normal(size=(40, 3))
    y = np.arange(40) % 2
    X[:, 0] += 4 * y
    metric = mf.learn(X, y, method=method)
    assert f"learned by {method}" in words(metric._repr_html_())
    assert f"learned by {method}" in report.html(metric, y)


def test_it_says_what_was_chosen_and_rounds_the_start(wine):
    metric = mf.learn(*wine, method="krca", kernel=mf.kernels.RBF(0.123456789)).with_facts(choice="chosen: krca (a, b)")
    said = words(metric._repr_html_())
    assert "chosen: krca (a, b)" in said
    assert "RBF(gamma=0.1235)" in said
