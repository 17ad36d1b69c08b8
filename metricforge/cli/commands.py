"""The arguments of the core's commands.

Nothing heavy is imported here: ``metricforge --help`` loads this module, and the module that runs a command is imported
when the command runs.
"""

from __future__ import annotations

from argparse import ArgumentParser

from .command import Command


def _demo(parser: ArgumentParser) -> None:
    parser.add_argument("--out", metavar="FOLDER", default="demo", help="where report and picture go (default: demo)")


def _learn(parser: ArgumentParser) -> None:
    from .hints import add_flags  # loads the registered constraints, and with them NumPy

    add = parser.add_argument
    kinds = ".csv, .tsv (also .gz), .parquet, .npy, .zarr, .npz (sparse), .svm (LIBSVM) or .fasta"
    add("data", nargs="?", help=f"rows: {kinds}; - is standard input, as CSV")
    add_flags(parser)
    add("--method", help="see metricforge plugins (default: auto, by the kind of hint)")
    add("--kernel", help="to start from, such as rbf or 'rbf(gamma=0.5)' (default: the method's own)")
    add("--standardize", action="store_true", default=None, help="scale every column to mean 0 and spread 1 first")
    add("--option", metavar="NAME=VALUE", action="append", help="an option of the method; may be repeated")
    add("--rank", help="auto, exact or a number (default: auto)")
    add("--seed", type=int, help="same seed, same answer (default: 0)")
    add_table(parser)
    add(
        "--folds", type=int, help="parts of the rows to hold out, each once; 0 for none (default: 5, or 1 of many rows)"
    )
    add("-o", "--out", metavar="FILE", help="the metric (default: the data's name with .metric)")
    add("--report", metavar="FILE", help="write a page about the fit, as .html")
    _scheduler(parser)
    add("--config", metavar="FILE", help="a TOML file with any of these settings; typed settings take precedence")


def add_table(parser: ArgumentParser) -> None:
    """Add what is decided about the columns of a table."""
    add = parser.add_argument_group("columns").add_argument
    add("--columns", metavar="A,B", action="append", help="the only columns to use")
    add("--drop", metavar="A,B", action="append", help="columns to leave out; may be repeated")
    add("--categories", metavar="A,B", action="append", help="columns of numbers that are categories: codes, years")
    add("--id", metavar="COLUMN", help="names the rows: kept out of learning, shown in results")
    add(
        "--missing",
        metavar="WHAT",
        help="missing cells: median fills them in, drop leaves the row out, error refuses them (default: median)",
    )
    add(
        "--missing-values",
        metavar="A,B",
        action="append",
        help="further marks of a missing cell, such as -200,none; may be repeated",
    )
    _dialect(parser)


def _dialect(parser: ArgumentParser) -> None:
    """Add how a delimited file is written."""
    add = parser.add_argument_group("delimited files").add_argument
    add("--sep", metavar="CHARACTER", help="between cells: a character, or tab (default: found in the first line)")
    add("--encoding", metavar="NAME", help="such as latin-1 (default: utf-8)")
    add("--thousands", metavar="CHARACTER", help="between groups of three digits, as in 1,500,000")


def _compare(parser: ArgumentParser) -> None:
    from .hints import add_flags

    add = parser.add_argument
    add("data", nargs="?", help="rows, as for metricforge learn")
    add_flags(parser)
    add("--kernel", help="that all methods start from (default: each method's own)")
    add("--standardize", action="store_true", default=None, help="scale every column to mean 0 and spread 1 first")
    add("--rank", help="auto, exact or a number (default: auto)")
    add("--seed", type=int, help="same seed, same folds (default: 0)")
    add("--folds", type=int, help="parts of the rows, each held out once (default: 3)")
    add(
        "--sample",
        metavar="ROWS",
        type=int,
        default=2000,
        help="compare on so many rows, drawn at random; 0 for all (default: 2000)",
    )
    add_table(parser)
    add("--report", metavar="FILE", help="draw the comparison, as .html")


def _scheduler(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="run on this dask scheduler, such as tcp://host:8786; its workers read .npy, .parquet and .zarr files",
    )


def _saved(parser: ArgumentParser) -> None:
    parser.add_argument("metric", help="a metric that metricforge learn or metric.save wrote")
    parser.add_argument("data", help="rows, with the columns the metric was learned on; others are ignored")


def add_output(parser: ArgumentParser) -> None:
    """Add where a result goes, and how the rows are named in it."""
    parser.add_argument("--id", metavar="COLUMN", help="a column that names the rows, to show in the result")
    _dialect(parser)
    kinds = ".csv, .tsv, .npy, .parquet or .zarr"
    parser.add_argument("-o", "--out", metavar="FILE", help=f"{kinds} (default: CSV to standard output)")
    _scheduler(parser)


def _transform(parser: ArgumentParser) -> None:
    _saved(parser)
    add_output(parser)


def add_recall(parser: ArgumentParser) -> None:
    """Add how many of the true neighbours are to be found."""
    parser.add_argument(
        "--recall",
        type=float,
        default=0.95,
        help="the share of the nearest rows to find where comparing every pair of rows would take long; 1 compares "
        "every pair (default: 0.95)",
    )


def add_by(parser: ArgumentParser) -> None:
    """Add what rows are ranked by."""
    parser.add_argument(
        "--by",
        choices=("distance", "kernel"),
        help="what rows are ranked by (default: what the method of the metric learns, mostly distance)",
    )


def _neighbors(parser: ArgumentParser) -> None:
    _saved(parser)
    parser.add_argument("-k", type=int, default=10, help="how many (default: 10)")
    parser.add_argument("--method", default="auto", help="a neighbour search, see metricforge plugins (default: auto)")
    parser.add_argument("--among", metavar="FILE", help="rows to search (default: the training rows the metric keeps)")
    parser.add_argument(
        "--exclude-self", action="store_true", help="the rows are the ones searched: leave each row itself out"
    )
    add_recall(parser)
    add_by(parser)
    add_output(parser)


def _distance(parser: ArgumentParser) -> None:
    _saved(parser)
    parser.add_argument("other", nargs="?", help="rows to compare with (default: the same)")
    parser.add_argument("--paired", action="store_true", help="row by row instead of all with all")
    add_output(parser)


def _evaluate(parser: ArgumentParser) -> None:
    from .hints import add_flags

    _saved(parser)
    add_flags(parser)
    parser.add_argument("--id", metavar="COLUMN", help="a column that names the rows; it is not used")
    add_by(parser)
    _dialect(parser)
    parser.set_defaults(scheduler=None)


def _classify(parser: ArgumentParser) -> None:
    _saved(parser)
    parser.add_argument(
        "--rule",
        choices=["neighbors", "kernel"],
        default="neighbors",
        help="who votes: the nearest training rows, or all within the radius (default: neighbors)",
    )
    parser.add_argument("-k", type=int, default=5, help="training rows that vote by the rule neighbors (default: 5)")
    parser.add_argument(
        "--radius",
        metavar="NUMBER",
        help="rows further than this from every training row are none of these; none for no radius (default: the "
        "learned one, where the method learns one)",
    )
    parser.add_argument(
        "--window",
        metavar="NAME",
        help="how votes of the rule kernel fall with the distance: naive, gaussian, epanechnikov or cauchy (default: "
        "the one that the radius was learned for)",
    )
    parser.add_argument("--among", metavar="FILE", help="rows that vote (default: the training rows the metric keeps)")
    parser.add_argument(
        "--label", metavar="COLUMN", help="the column of classes in the file of --among, or a file of one column"
    )
    add_recall(parser)
    add_output(parser)


def _cluster(parser: ArgumentParser) -> None:
    from .hints import add_flags

    _saved(parser)
    parser.add_argument("-k", "--clusters", type=int, help="how many (default: the best silhouette from 2 to 10)")
    add_flags(parser, required=False)
    parser.add_argument("--seed", type=int, default=0, help="same seed, same answer (default: 0)")
    add_output(parser)


def _match(parser: ArgumentParser) -> None:
    _saved(parser)
    parser.add_argument("--pairs", metavar="FILE", help="pairs not learned from: columns i, j, similar (1 or 0)")
    parser.add_argument("--precision", type=float, default=0.95, help="share of right matches wanted (default: 0.95)")
    parser.add_argument(
        "--confidence",
        type=float,
        default=0.95,
        help="that the precision is reached on new pairs; 0 to count the given pairs only (default: 0.95)",
    )
    parser.add_argument("-k", type=int, default=10, help="candidates for each row (default: 10)")
    add_recall(parser)
    add_output(parser)


def _info(parser: ArgumentParser) -> None:
    parser.add_argument("metric", help="a metric that metricforge learn or metric.save wrote")


def _datasets(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="describe this one only")
    parser.add_argument("-o", "--out", metavar="FILE", help="write it as .csv, with its labels in the column class")


_ROOM = "metricforge.cli"

DEMO = Command("learn metrics on small data and show what they change", f"{_ROOM}.demo:run", _demo)
LEARN = Command("learn a metric from rows and hints about their likeness", f"{_ROOM}.learn:run", _learn)
TRANSFORM = Command("embed rows so that Euclidean distances are the metric's", f"{_ROOM}.apply:transform", _transform)
NEIGHBORS = Command("find the nearest training rows of each row", f"{_ROOM}.neighbors:neighbors", _neighbors)
DISTANCE = Command("print the distances between rows", f"{_ROOM}.apply:distance", _distance)
COMPARE = Command("score every method on rows held out", f"{_ROOM}.compare:run", _compare)
EVALUATE = Command("score a metric on the rows and hints of a later file", f"{_ROOM}.evaluate:run", _evaluate)
CLASSIFY = Command("classify rows by the training rows near them", f"{_ROOM}.sorting:classify", _classify)
CLUSTER = Command("cluster rows, under hints if there are any", f"{_ROOM}.sorting:cluster", _cluster)
MATCH = Command("list the pairs of rows that are the same thing", f"{_ROOM}.sorting:match", _match)
INFO = Command("say what a metric file holds", f"{_ROOM}.info:run", _info)
PLUGINS = Command("list what is installed, and what failed to load and why", f"{_ROOM}.listing:plugins")
DATASETS = Command("list the data sets that can be loaded by name", f"{_ROOM}.listing:datasets", _datasets)
