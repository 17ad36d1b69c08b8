"""What the tests of the command line share."""

from __future__ import annotations

from pathlib import Path

from metricforge.cli import program as cli

ROOT = Path(__file__).parents[2]
COMMANDS = (
    "demo",
    "learn",
    "compare",
    "evaluate",
    "info",
    "classify",
    "cluster",
    "match",
    "neighbors",
    "transform",
    "distance",
    "plugins",
    "datasets",
    "reproduce",
)
N_LARGE = 6000
"""Rows of the files that workers read."""


def run(*words):
    return cli.main([str(word) for word in words])


def learn(*words):
    assert run("learn", "toy.csv", "--label", "class", "--drop", "group", "--method", "krca", *words) == 0
