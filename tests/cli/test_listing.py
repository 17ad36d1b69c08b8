"""``metricforge plugins`` and ``datasets``."""

from __future__ import annotations

import json

import numpy as np
from metricforge_cases.shell import run

import metricforge as mf
from metricforge.tables import read


def test_plugins_and_datasets(here, capsys):
    assert run("plugins") == 0
    out = capsys.readouterr().out
    assert all(entry.name in out for entry in mf.methods())
    assert run("plugins", "--json") == 0
    assert {p["name"] for p in json.loads(capsys.readouterr().out)} == {p.name for p in mf.plugins()}
    assert run("datasets") == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("wine ") for line in lines)
    end = head.index("rows") + len("rows")  # a column of numbers ends where its name ends
    assert all(line[end - 1].isdigit() and line[end] == " " for line in lines)
    assert run("datasets", "wine", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["n"] == 178
    assert run("datasets", "wine", "-o", "wine.csv") == 0
    X, y = mf.datasets.load("wine")
    table = read("wine.csv", extra=["class"])
    np.testing.assert_array_equal(table.rows, X)
    np.testing.assert_array_equal(table.extra["class"], y)


def test_a_plugin_that_failed_to_load_is_listed_with_its_reason(capsys, monkeypatch):
    from metricforge.registry import Plugin

    monkeypatch.setattr(
        "metricforge.cli.listing._plugins", lambda: [Plugin("bad", "bad-dist", "1.0", error="it broke")]
    )
    assert run("plugins") == 0
    assert capsys.readouterr().out == "bad (bad-dist 1.0)\n  it broke\n"
