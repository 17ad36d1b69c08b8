"""The arguments of the command ``metricforge ask``; `running` runs it."""

from __future__ import annotations

from argparse import ArgumentParser

from metricforge import Command


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the command."""
    from metricforge.cli.commands import add_table

    add = parser.add_argument
    add("data", help="rows: a table such as .csv or .parquet, or .fasta")
    add("-o", "--out", metavar="FILE", help="the answers (default: the data's name with .answers.jsonl); continued")
    add("--question", choices=["pair", "lineup", "triplet"], default="pair", help="what is asked (default: pair)")
    add("--uncertain", action="store_true", help="ask about rows whose group is uncertain, instead of random rows")
    add("--random", action="store_true", help="ask about random pairs, as a control")
    add("--show", metavar="A,B", help="the columns on the cards (default: all that are not dropped)")
    add("--text", metavar="COLUMN", help="a column of text, shown with the words that differ marked")
    add("--image", metavar="COLUMN", help="a column with names of pictures")
    add("--image-root", metavar="FOLDER", default=".", help="the folder of the pictures (default: this one)")
    add("--annotator", metavar="NAME", default="", help="who answers; kept beside each answer")
    add("--budget", metavar="N", type=int, default=0, help="the number of answers to aim for")
    add("--seed", type=int, default=0, help="same seed and answers, same questions (default: 0)")
    add("--port", type=int, default=0, help="default: any free port")
    add("--host", default="127.0.0.1", help="default: 127.0.0.1, this machine only")
    add("--i-know", action="store_true", help="allow a --host that other machines reach; the page is not encrypted")
    add("--no-browser", action="store_true", help="print the address only")
    add_table(parser)


COMMAND = Command("answer questions about your rows on a local page", "metricforge_ask.running:run", arguments)
