"""Very large and very small numbers for every option of every registered method: a finite answer, or a refusal."""

from __future__ import annotations

import re
import warnings
from dataclasses import fields

import numpy as np
import pytest

import metricforge as mf
from metricforge.errors import ConvergenceWarning, InputError
from metricforge.registry import registry

X = np.random.default_rng(0).normal(size=(12, 3))
Y = np.arange(12) % 2
EXTREMES = (1e300, 1e-300, 1e155, 10**400, 2**62)


def types(field):
    return set(re.findall(r"\w+", str(field.type)))


def choices(solver, field):
    """Return the other values of an option that is a flag or one of several texts, which its error message lists."""
    if types(field) == {"bool"}:
        return [not field.default]
    if "str" in types(field):
        with pytest.raises(InputError) as caught:
            solver(**{field.name: "no such choice"})
        listed = re.search(r"[kK]nown: (.*)", str(caught.value))
        known = listed.group(1).split(", ") if listed else re.findall(r'"(\w+)"', str(caught.value))
        return [value for value in known if value != field.default]
    return []


def cases(solver):
    """Return options: each number at each extreme, alone, and at the largest together with each other choice."""
    options = [f for f in fields(solver) if f.init]
    for field in options:
        if types(field) & {"int", "float"}:
            extremes = [(((v, v, v),) if "tuple" in types(field) else v) for v in EXTREMES]
            yield from ({field.name: value} for value in extremes)
            for other in options:
                for choice in choices(solver, other) if other is not field else ():
                    yield from ({field.name: value, other.name: choice} for value in (extremes[0], extremes[3]))


def failure(method, options):
    """Return what goes wrong in a fit and the use of its metric, or ''."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            metric = mf.learn(X, Y, method=method, **options)
            found = [metric.distance(X), metric.paired_distance(X, X[::-1])]
            found += [v for v in (metric.report.objective, metric.report.gap) if v is not None]
            if not metric.report.notes:
                found.append(metric.transform(X))
        except InputError:
            return ""
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return "" if all(np.isfinite(part).all() for part in found) else "not finite"


@pytest.mark.parametrize("method", [entry.name for entry in mf.methods()])
def test_extreme_options_give_finite_answers_or_are_refused(method):
    solver = registry.get("solver", method)
    few = {"max_iter": 20} if "max_iter" in {f.name for f in fields(solver)} else {}
    failures = [f"{options!r:.120}: {what}" for options in cases(solver) if (what := failure(method, few | options))]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("method", [entry.name for entry in mf.methods()])
def test_a_start_that_overflows_is_refused_or_learned_from_without_a_warning(method, kernel):
    from metricforge_plugins.lpdesign.bases import Projected

    base = {"linear": mf.kernels.Linear(), "rbf": mf.kernels.RBF(1.0)}[kernel]
    start = base + Projected(base, direction=(-1e308, 1e308, 1.0))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = mf.learn(10 * X, Y, method=method, kernel=start).distance(X)
    except InputError:
        return
    assert np.isfinite(found).all()
