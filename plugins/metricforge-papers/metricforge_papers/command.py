"""The arguments of the command ``metricforge reproduce``; `running` runs it."""

from __future__ import annotations

from argparse import ArgumentParser

from metricforge import Command


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add(
        "paper",
        nargs="?",
        help="idealized, kcr, krca, lpdesign, simplenpkl, all, or data: their data sets (default: list)",
    )
    add("name", nargs="?", help="such as table4 or figure1 (default: all of the paper)")
    add("--repeats", type=int, metavar="N", help="number of repeats (default: what the list says)")
    add("--seed", type=int, default=0, help="same seed, same numbers except times (default: 0)")
    add("--quick", action="store_true", help="few rows and repeats, to see that it runs; without a paper: everything")
    add("--peers", action="store_true", help="run methods of metric-learn too, in an environment made for them")
    add("--resume", action="store_true", help="continue a run into the same folder that was interrupted")
    add("--check", action="store_true", help="verify pages and verdicts against results (--out: their folder)")
    add("--fix", action="store_true", help="with --check: rewrite what does not follow from the results")
    add("--out", metavar="FOLDER", help="where Markdown, JSON and pictures go (default: results; --quick: nowhere)")


COMMAND = Command("recompute tables and figures of the papers", "metricforge_papers.running:run", arguments)
