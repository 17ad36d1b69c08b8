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
    add("data", nargs="?", help="rows: .csv, .tsv, .parquet, .npy, .zarr, .npz (sparse), .svm (LIBSVM) or .fasta")
    add_flags(parser)
    add("--method", help="see metricforge plugins (default: auto, by the kind of hint)")
    add("--kernel", help="to start from, such as rbf or 'rbf(gamma=0.5)' (default: the method's own)")
    add("--standardize", action="store_true", default=None, help="scale every column to mean 0 and spread 1 first")
    add("--option", metavar="NAME=VALUE", action="append", help="an option of the method; may be repeated")
    add("--rank", help="auto, exact or a number (default: auto)")
    add("--seed", type=int, help="same seed, same answer (default: 0)")
    add("--drop", metavar="COLUMN", action="append", help="a column to leave out; may be repeated")
    add("-o", "--out", metavar="FILE", help="the metric (default: the data's name with .metric)")
    add("--report", metavar="FILE", help="write a page about the fit, as .html")
    _scheduler(parser)
    add("--config", metavar="FILE", help="a TOML file with any of these settings; typed settings take precedence")


def _scheduler(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="run on this dask scheduler, such as tcp://host:8786; its workers read .npy, .parquet and .zarr files",
    )


def _saved(parser: ArgumentParser) -> None:
    parser.add_argument("metric", help="a metric that metricforge learn or metric.save wrote")
    parser.add_argument("data", help="rows, with the columns the metric was learned on; others are ignored")


def _output(parser: ArgumentParser) -> None:
    kinds = ".csv, .tsv, .npy, .parquet or .zarr"
    parser.add_argument("-o", "--out", metavar="FILE", help=f"{kinds} (default: CSV to standard output)")
    _scheduler(parser)


def _transform(parser: ArgumentParser) -> None:
    _saved(parser)
    _output(parser)


def _neighbors(parser: ArgumentParser) -> None:
    _saved(parser)
    parser.add_argument("-k", type=int, default=10, help="how many (default: 10)")
    parser.add_argument("--method", default="auto", help="a neighbour search, see metricforge plugins (default: auto)")
    parser.add_argument("--among", metavar="FILE", help="rows to search (default: the training rows the metric keeps)")
    _output(parser)


def _distance(parser: ArgumentParser) -> None:
    _saved(parser)
    parser.add_argument("other", nargs="?", help="rows to compare with (default: the same)")
    parser.add_argument("--paired", action="store_true", help="row by row instead of all with all")
    _output(parser)


def _datasets(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="describe this one only")
    parser.add_argument("-o", "--out", metavar="FILE", help="write it as .csv, with its labels in the column class")


_ROOM = "metricforge.shell"

DEMO = Command("learn metrics on small data and show what they change", f"{_ROOM}.demo:run", _demo)
LEARN = Command("learn a metric from rows and hints about their likeness", f"{_ROOM}.learn:run", _learn)
TRANSFORM = Command("embed rows so that Euclidean distances are the metric's", f"{_ROOM}.apply:transform", _transform)
NEIGHBORS = Command("find the nearest training rows of each row", f"{_ROOM}.apply:neighbors", _neighbors)
DISTANCE = Command("print the distances between rows", f"{_ROOM}.apply:distance", _distance)
PLUGINS = Command("list what is installed, and what failed to load and why", f"{_ROOM}.listing:plugins")
DATASETS = Command("list the data sets that can be loaded by name", f"{_ROOM}.listing:datasets", _datasets)
