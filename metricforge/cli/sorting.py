"""``metricforge classify``, ``cluster`` and ``match``: sort the rows of a file by a saved metric."""

from __future__ import annotations

import logging
from argparse import Namespace
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..constraints import Constraint, Labels, Pairs
from ..distributed import cluster as _cluster
from ..errors import InputError
from ..estimators.rule import KernelRule
from ..metric import load
from ..rows import gathered
from ..tables import check_output
from ..tables.formats import is_table
from ..tables.table import Table
from ..tasks import (
    Classified,
    calibrate,
    candidates,
    clusters_by_silhouette,
    constrained_kmeans,
)
from ..tasks import classify as _classify
from ..tasks.classification import voters
from .apply import loaded, output, read_for, row_names
from .evaluate import read_hinted
from .hints import hint_from_file
from .neighbors import say_recall, search_for
from .output import write_line
from .settings import check_not_input, dialect_of

Array = NDArray[Any]

log = logging.getLogger(__name__)

NONE = "none of these"
COVERED = 0.1
"""The least share of different pairs that must be as near as the candidates: of pairs at random, few are."""


def classify(args: Namespace) -> None:
    """Write the class of each row, with the share of the votes of every class."""
    with loaded(args) as (metric, table):
        if args.among:
            if not args.label:
                raise InputError("--among gives rows to vote: name the column of their classes with --label")
            in_a_file = is_table(args.label)
            voters = read_for(metric, args.among, args, extra=[] if in_a_file else [args.label])
            metric = replace(metric, rows=metric.kernel.check(voters.rows, "--among"), stored_map=None, origin=None)
            y: Any = _labels_of(args, voters) if in_a_file else voters.extra[args.label]
        else:
            origin = metric.origin
            if origin is None or not len(origin.codes):
                raise InputError(
                    f"{args.metric!r} keeps no labels: learn it with --label, or give --among FILE --label COLUMN"
                )
            y = origin.labels_of(np.arange(len(origin.codes)))
        found = _classified(metric, y, table.rows, args)
        numbers = np.column_stack([table.row_numbers, found.nearest, found.probabilities])
        names = ["row", "nearest", *(f"p({value})" for value in found.classes.tolist())]
        labels = np.array([NONE if value is None else value for value in found.labels.tolist()], dtype=object)
        texts = {name: values for name, values in row_names(table, args).items() if name != "row"} | {"class": labels}
        as_json = {"classes": found.classes, "class": labels, "probabilities": found.probabilities, **texts}
        output(args, names, numbers, as_json, texts)


def _labels_of(args: Namespace, voters: Table) -> Constraint:
    """Return the labels of the rows that vote from a file of their own."""
    n = voters.total or voters.rows.shape[0]
    labels = hint_from_file(Labels, args.label, n, args.among, dialect_of(args))
    return labels if voters.kept is None else labels[voters.kept]


def _classified(metric: Any, y: Any, X: Any, args: Namespace) -> Classified:
    """Return the classes of rows by the rule that was typed."""
    radius = _radius(metric, args)
    if args.rule == "neighbors":
        if args.window is not None:
            raise InputError("--window belongs to --rule kernel; the nearest rows have one vote each")
        if radius == 0 and args.radius in (None, "learned"):
            radius = None  # a radius of 0 was learned if the nearest row decides best, however far it is
        method = search_for(metric, X, args)
        found = _classify(metric, y, X, k=args.k, radius=radius, method=method)
        say_recall(method)
        return found
    if radius is None:
        raise InputError(
            f"--rule kernel needs a radius, and method {metric.report.method!r} learned none: give --radius NUMBER, or "
            "learn with a method that learns one"
        )
    return _by_kernel(metric, y, X, radius, args.window or "learned")


def _by_kernel(metric: Any, y: Any, X: Any, radius: float, window: str) -> Classified:
    """Return the classes of rows by the kernel rule; beyond the radius of all training rows they are none of these.

    With the radius 0 the nearest row decides, however far it is.
    """
    metric, voting, classes = voters(metric, y)
    rule = KernelRule(metric, radius, window).fit(metric.rows, voting)
    (closest,), (nearest,) = (part.T for part in metric.neighbors(X, 1))
    probabilities = np.zeros((len(nearest), len(classes)))
    probabilities[:, rule.classes_] = rule.predict_proba(X)
    codes = probabilities.argmax(axis=1)
    beyond = nearest > (radius or np.inf)
    codes[beyond], probabilities[beyond] = -1, 0.0
    return Classified(classes, codes, probabilities, nearest, voting[closest])


def _radius(metric: Any, args: Namespace) -> float | None:
    """Return the radius beyond which a row is none of the classes: the one given, or the one that was learned."""
    if args.radius in (None, "learned"):
        learned = metric.report.get("radius")
        if learned is None and args.radius:
            raise InputError(f"--radius learned: method {metric.report.method!r} learns no radius; give a number")
        return None if learned is None else float(learned)
    if args.radius == "none":
        return None
    try:
        return float(args.radius)
    except ValueError:
        raise InputError(f"--radius must be a number, learned or none, got {args.radius!r}") from None


def cluster(args: Namespace) -> None:
    """Write the cluster of each row."""
    if args.out:
        check_not_input(args.out, [args.metric, args.data])
        check_output(args.out)
    metric = load(args.metric)
    with _cluster.connected(args.scheduler):
        table, hint, _ = read_hinted(metric, args, needed=False)
        Z = np.asarray(metric.transform(table.rows))
        silhouettes: dict[int, float] = {}
        if args.clusters is None:
            found, silhouettes = clusters_by_silhouette(Z, hint, seed=args.seed)
        else:
            found = constrained_kmeans(Z, args.clusters, hint, seed=args.seed)
    lines = np.column_stack([table.row_numbers, found.labels])
    texts = {name: values for name, values in row_names(table, args).items() if name != "row"}
    as_json = {
        "clusters": found.labels,
        "silhouettes": {str(k): s for k, s in silhouettes.items()},
        "violated": len(found.violated),
        **texts,
    }
    output(args, ["row", "cluster"], lines, as_json, texts)
    if args.out and not args.json:
        sizes = ", ".join(map(str, np.bincount(found.labels)))
        best = max(silhouettes.values(), default=0.0)
        chosen = f" (silhouette {best:.2f}, the largest of {len(silhouettes)})" if silhouettes else ""
        write_line(f"{len(found.centers)} clusters{chosen} of {sizes} rows")
        if len(found.violated):
            write_line(f"note: {len(found.violated)} pairs that should be apart are together")


def match(args: Namespace) -> None:
    """Write the pairs of rows that are probably the same, most probable first."""
    with loaded(args) as (metric, table):
        if not args.pairs:
            raise InputError(
                "--pairs is missing: give pairs that the metric was not learned from, so that the probabilities hold"
            )
        _, pairs, _ = read_hinted(metric, args)
        known = calibrate(metric, table.rows, Pairs.expect(pairs, "--pairs"))
        limit = known.threshold(args.precision, args.confidence or None)
        rows = gathered(metric.kernel.check(table.rows, "data"))  # each is compared with all others
        metric = replace(metric, rows=rows, origin=None)
        method = search_for(metric, rows, args)
        found, distances = candidates(metric, k=args.k, method=method)
        say_recall(method)
        coverage = known.coverage(distances)
        if coverage < COVERED:
            log.warning(
                "only %.0f %% of the pairs given as different are as near as the candidates: matches may be wrong more "
                "often than --precision allows; judge pairs that are near each other, for instance some of those found",
                100 * coverage,
            )
        near = distances <= limit
        found, distances = found[near], distances[near]
        numbers = table.row_numbers
        lines = np.column_stack([numbers[found], distances, known.probability(distances)])
        names = {}
        if args.id:
            ids = table.extra[args.id]
            names = {"id_i": ids[found[:, 0]], "id_j": ids[found[:, 1]]}
        about = {"threshold": limit, "recall": known.recall(limit), "candidates": len(near), "coverage": coverage}
        as_json = {"pairs": numbers[found], "probabilities": lines[:, 3], "distances": distances, **about, **names}
        output(args, ["i", "j", "distance", "probability"], lines, as_json, names)
        if args.out and not args.json:
            share = f"{100 * about['recall']:.0f} %"
            write_line(f"up to distance {limit:.4g}; of the pairs given as the same, {share} are as near")
