"""Hints of ``metricforge learn`` come from registered constraints."""

from __future__ import annotations

import json
from typing import ClassVar

import numpy as np
import pytest
from metricforge_cases.kinds import Links, links_to_pairs

import metricforge as mf
from metricforge.cli.hints import hint_kinds
from metricforge.cli.program import main
from metricforge.constraints import Satisfied


class Order(Links):
    """Rows that are alike, one pair per line, with a flag of their own."""

    flag: ClassVar = "my-order"
    flag_help: ClassVar = "columns first, second: 100 % alike"
    table_columns: ClassVar = ("first", "second")

    def satisfied(self, distances):
        near = distances.pairs(self.pairs) < distances.typical()
        return (Satisfied("close pairs", int(near.sum()), len(near)),)


def variant(**attributes):
    return type("Variant", (Order,), attributes)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savetxt("rows.csv", rng.normal(size=(30, 3)), delimiter=",")
    (tmp_path / "order.csv").write_text("second,first\n" + "".join(f"{i},{i + 1}\n" for i in range(20)))
    return tmp_path


def test_a_registered_kind_is_read_by_its_flag(here, plug, capsys):
    plug(("constraint", "order", Order), ("conversion", "order->pairs", links_to_pairs))
    assert main(["learn", "rows.csv", "--my-order", "order.csv", "--method", "krca", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["hint"] == "20 orders"
    assert summary["report"]["converted"][0].startswith("Order (20) → Pairs (20)")
    (here / "run.toml").write_text('data = "rows.csv"\nmy-order = "order.csv"\nmethod = "krca"\nout = "b.metric"\n')
    assert main(["learn", "--config", "run.toml"]) == 0
    X = np.loadtxt("rows.csv", delimiter=",")
    np.testing.assert_array_equal(mf.load("b.metric").distance(X), mf.load("rows.metric").distance(X))
    capsys.readouterr()
    assert main(["learn", "rows.csv", "--my-order", "rows.csv"]) == 2
    assert "'rows.csv': column 'first' holds" in capsys.readouterr().err
    assert main(["learn", "rows.csv"]) == 2
    assert (
        "give one of --label, --pairs, --triplets, --quadruplets, --groups, --target, --answers, --my-order\n"
        in capsys.readouterr().err
    )
    with pytest.raises(SystemExit):
        main(["learn", "--help"])
    assert "--my-order FILE columns first, second: 100 % alike" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (variant(flag="seed"), "--seed is taken"),
        (variant(flag="pairs"), "--pairs is taken"),
        (variant(flag="config"), "--config is taken"),
        (variant(flag="My flag"), "--My flag is not an option of lower-case letters"),
        ("no_such_module:Kind", "cannot be loaded: No module named 'no_such_module'"),
    ],
)
def test_a_kind_that_cannot_be_read_harms_no_other(here, plug, caplog, kind, reason):
    plug(("constraint", "order", kind))
    assert list(hint_kinds()) == ["label", "pairs", "triplets", "quadruplets", "groups", "target", "answers"]
    assert any("constraint 'order' of plugin 'plugged'" in m and reason in m for m in caplog.messages)


def test_kinds_without_a_flag_or_without_their_requirements_are_left_out(plug, caplog):
    plug(("constraint", "order", variant(flag=None)), ("constraint", "other", print))
    assert list(hint_kinds()) == ["label", "pairs", "triplets", "quadruplets", "groups", "target", "answers"]
    assert caplog.messages == []
