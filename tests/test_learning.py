"""learn(): the choice of method, conversions, options, and every kind of bad input."""

from __future__ import annotations

from dataclasses import dataclass, replace

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from metricforge_cases.kinds import Ranks
from scipy.sparse import csr_array

import metricforge as mf
from metricforge.errors import InputError, NotAcceptedError, SolverError, UnknownNameError
from metricforge.registry import registry
from metricforge.resolve import find_method
from metricforge.solver import Problem, Solution, Status

X = np.random.default_rng(0).normal(size=(20, 3))
Y = np.arange(20) % 2
PAIRS = mf.Pairs([(0, 2)], [(0, 1)], n=20)


def with_nan():
    A = X.copy()
    A[7, 1] = np.nan
    return A


def with_inf():
    A = X.copy()
    A[[3, 9], 0] = np.inf
    return A


def learn(rows=X, hints=Y, **options):
    return mf.learn(rows, hints, **{"method": "euclidean", **options})


def half_a_file(folder):
    path = folder / "wine.metric"
    learn().save(path)
    path.write_bytes(path.read_bytes()[:-100])
    return path


# One row per case of "Bad input": what is called, and the words its message must hold: argument, place, repair.
BAD = {
    # rows
    "a vector": (lambda: learn(X[:, 0]), ["X must be 2-d", "Reshape your data", "X.reshape(-1, 1)"]),
    "three dimensions": (lambda: learn(np.ones((2, 2, 2)), [0, 1]), ["X must be 2-d", "(2, 2, 2)", "flatten"]),
    "a scalar": (lambda: learn(3.0), ["X must be a 2-d array", "3.0"]),
    "ragged lists": (lambda: learn([[1, 2], [3]], [0, 1]), ["X", "unequal lengths"]),
    "no rows": (lambda: learn(np.empty((0, 3)), []), ["X has 0 sample(s)", "at least one row"]),
    "no columns": (lambda: learn(np.empty((4, 0)), [0, 1, 0, 1]), ["X has 0 feature(s)", "at least one column"]),
    "NaN": (lambda: learn(with_nan()), ["X contains NaN", "row 7", "SimpleImputer"]),
    "infinity": (lambda: learn(with_inf()), ["X contains infinity", "rows 3, 9", "drop"]),
    "text in numbers": (lambda: learn([["1", "x"], ["2", "y"]], [0, 1]), ["X must hold numbers", "row 0", "OneHot"]),
    "no text, but missing": (
        lambda: learn(pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [0.5, 1.5]}), [0, 1]),
        ["X must hold numbers", "column 'a'", "row 1", "Fill missing cells"],
    ),
    "strings under a kernel on vectors": (
        lambda: learn(["AB", "CD"], [0, 1], kernel="rbf"),
        ["X holds text", "Spectrum(3).normalized()"],
    ),
    "not only strings": (lambda: learn(["ABC", 3, "ABD"], [0, 1, 0]), ["X must hold strings", "row 1", "int"]),
    "complex numbers": (lambda: learn(X * 1j), ["X", "Complex data not supported"]),
    "all rows identical": (
        lambda: learn(np.ones((6, 2)), np.arange(6) % 2, kernel=mf.kernels.RBF("median")),
        ["gamma", "identical", "constant", "give gamma a number"],
    ),
    "dask with unknown chunks": (
        lambda: learn(da.from_array(X)[da.from_array(X)[:, 0] > 0]),
        ["X", "unknown chunk sizes", "compute_chunk_sizes()"],
    ),
    "a Gram matrix that is not PSD": (
        lambda: learn(np.array([[1.0, 2.0], [2.0, 1.0]]), [0, 1], kernel="precomputed"),
        ["X is not positive semidefinite", "eigenvalue", "mf.psd.project(X)"],
    ),
    # hints
    "no hints": (lambda: learn(hints=None), ["constraints is missing", "mf.Pairs"]),
    "as many labels as rows": (lambda: learn(hints=Y[:-1]), ["constraints is about 19 rows", "X has 20", "n=len(X)"]),
    "bare index pairs": (
        lambda: learn(hints=[(0, 1), (2, 3)]),
        ["constraints", "(2, 2)", "mf.Pairs(similar=..., n=len(X))"],
    ),
    "bare index triples": (lambda: learn(hints=[(0, 1, 2)]), ["constraints", "mf.Triplets(..., n=len(X))"]),
    "pairs for other rows": (lambda: learn(hints=mf.Pairs([(0, 1)], n=5)), ["constraints is about 5 rows", "X has 20"]),
    "nothing said": (lambda: learn(hints=mf.Pairs(n=20)), ["constraints holds no relation", "at least one"]),
    "nothing left": (lambda: learn(X[1:], PAIRS[1:]), ["no relation", "2 were dropped by slicing"]),
    "all unlabelled": (lambda: learn(hints=[None] * 20), ["no relation"]),
    "n missing": (lambda: mf.Pairs([(0, 1)]), ["n is missing", "n=len(X)"]),
    "n missing for triplets": (lambda: mf.Triplets([(0, 1, 2)]), ["n is missing", "Triplets(..., n=len(X))"]),
    "n negative": (lambda: mf.Pairs([(0, 1)], n=-2), ["n must be a whole number of at least 1", "-2"]),
    "index out of range": (lambda: mf.Pairs([(0, 1), (4, 20)], n=20), ["similar", "(4, 20)", "outside 0 .. 19"]),
    "negative index": (lambda: mf.Triplets([(0, 1, -1)], n=20), ["triples", "(0, 1, -1)", "counted from 0"]),
    "fractional index": (lambda: mf.Pairs([(0, 1.5)], n=20), ["similar", "whole row numbers"]),
    "names for indices": (lambda: mf.Pairs([("a", "b")], n=20), ["similar", "convert names to positions"]),
    "wrong width": (lambda: mf.Pairs([(0, 1, 2)], n=20), ["similar", "(i, j)", "(1, 3)"]),
    "a row with itself": (lambda: mf.Pairs(dissimilar=[(3, 3)], n=20), ["dissimilar", "itself", "row 3", "remove"]),
    "a row twice in a triple": (lambda: mf.Triplets([(0, 1, 1)], n=20), ["triples", "(0, 1, 1)", "remove"]),
    "a pair in both sets": (
        lambda: mf.Pairs([(0, 1)], [(1, 0)], n=20),
        ["similar and dissimilar both hold", "(0, 1)", "remove the other"],
    ),
    "contradiction in the closure": (
        lambda: mf.Pairs([(0, 1), (1, 2)], [(0, 2)], n=3).closed(),
        ["dissimilar contradicts similar", "rows 0 and 2", "remove"],
    ),
    "one class": (lambda: mf.Pairs.from_labels(np.zeros(9)), ["y has 1 class", "at least two"]),
    "one class for triplets": (lambda: mf.Triplets.from_labels(np.zeros(9)), ["y has 1 class", "at least two"]),
    "no class twice": (lambda: mf.Triplets.from_labels(np.arange(9)), ["y", "no class has two", "label more"]),
    "labels of mixed kinds": (lambda: mf.Labels(np.array([1, "a", 2], dtype=object)), ["y mixes int and str", "str"]),
    "labels in two columns": (lambda: mf.Labels(np.zeros((3, 2))), ["y must be 1-d", "(3, 2)"]),
    "components out of range": (
        lambda: mf.Pairs.from_labels(Y, components=1.5),
        ["components", "between 0 and 1", "1.5"],
    ),
    "no pairs asked for": (lambda: mf.Pairs.from_labels(Y, n_pairs=0), ["n_pairs", "at least 1"]),
    "rows to select out of range": (lambda: PAIRS[[25]], ["rows", "20 rows"]),
    "no conversion": (lambda: PAIRS.to(mf.Labels), ["no conversion leads from Pairs to Labels", "give Labels"]),
    # options and names
    "unknown method": (lambda: learn(method="euclidian"), ["method='euclidian'", "did you mean 'euclidean'"]),
    "method not a name": (lambda: learn(method=3), ["method must be the name", "euclidean"]),
    "unknown kernel": (lambda: learn(kernel="rfb"), ["kernel='rfb'", "did you mean 'rbf'"]),
    "kernel class": (lambda: learn(kernel=mf.kernels.RBF), ["kernel must be a Kernel", "RBF()"]),
    "kernel that needs parameters": (lambda: learn(kernel="mixture"), ["kernel='mixture'", "write mixture(kernels="]),
    "solver class": (lambda: learn(solver=3), ["solver must be a Solver instance, the name of a solver", "got 3"]),
    "solver name": (lambda: learn(solver="fast"), ["solver='fast' is unknown"]),
    "unknown option": (lambda: learn(nu=0.3), ["option 'nu' is unknown to method 'euclidean'"]),
    "negative seed": (lambda: learn(seed=-1), ["seed must be a whole number of at least 0"]),
    "wrong rank": (lambda: learn(rank="full"), ["rank must be", "auto", "'full'"]),
    "unknown data set": (lambda: mf.datasets.load("wien"), ["wien", "wine"]),
    "missing feature for a weak kernel": (
        lambda: learn(kernel=mf.kernels.Weak(mf.kernels.RBF(1.0), feature=7)),
        ["feature=7", "X has 3 columns"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_names_the_argument_and_the_repair(case):
    call, words = BAD[case]
    with pytest.raises(InputError) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    for word in words:
        assert word in str(caught.value), f"{word!r} not in {caught.value}"


def test_truncated_files_name_the_path_and_the_repair(tmp_path):
    with pytest.raises(InputError, match=r"wine\.metric' is damaged.*learn again"):
        mf.load(half_a_file(tmp_path))


# Unusual but valid: the metric is learned, and the report has a note.
ODD = {
    "constant features": (
        lambda: learn(np.column_stack([X, np.ones(20)])),
        ["1 feature(s) are constant", "column 3"],
    ),
    "duplicate rows that must differ": (
        lambda: learn(np.vstack([X[:1], X[:1], X[2:]]), mf.Pairs(dissimilar=[(0, 1)], n=20)),
        ["1 dissimilar pair(s) join identical rows", "(0, 1)"],
    ),
}


WIDE = X * [1.0, 500.0, 2.0]


@pytest.mark.parametrize("form", [np.asarray, lambda A: da.from_array(A, chunks=(7, 2)), np.float32])
def test_a_column_that_dominates_all_distances_is_noted(form):
    (note,) = learn(form(WIDE), kernel="linear").report.notes
    assert note.startswith("column 1 spreads 2")
    assert 'mf.kernels.Standardized(Linear(...), by="range"), or --standardize' in note
    assert "(krca with kernel=Linear(), epsilon=0.0; lpdesign)" in note
    frame = pd.DataFrame(WIDE, columns=["a", "b", "c"])
    assert learn(frame, kernel="linear").report.notes[0].startswith("column 'b' spreads 2")


@pytest.mark.parametrize("form", [np.asarray, lambda A: da.from_array(A, chunks=(7, 2)), np.float32, csr_array])
@pytest.mark.parametrize("method", ["euclidean", "idealized", "kcr", "krca", "llr", "lpdesign", "simplenpkl"])
def test_the_methods_own_kernels_divide_columns_by_their_range(form, method):
    rows = np.column_stack([WIDE, np.full(20, 3.0)])
    metric = learn(form(rows), method=method)
    spread = np.ptp(rows, axis=0)
    assert metric.start.by == "range"
    np.testing.assert_allclose(metric.start.spread, spread, rtol=1e-6)
    ratio = spread[spread > 0].max() / spread[spread > 0].min()
    assert metric.report.scaling == f"columns divided by their range (ranges differed up to {ratio:,.0f}-fold)"
    assert not any("spreads" in note for note in metric.report.notes)


def test_the_report_says_what_was_done_to_the_columns():
    assert learn(kernel="linear").report.scaling == "columns as they are"
    assert "their standard deviation" in learn(kernel=mf.kernels.Standardized()).report.scaling
    assert learn(kernel=2 * mf.kernels.Standardized()).report.scaling == "columns scaled by the kernel"
    assert learn(X @ X.T, kernel="precomputed").report.scaling == "rows have no columns"


def test_columns_of_unequal_scale_are_not_noted_where_they_do_not_matter():
    for options in (
        {"kernel": mf.kernels.Standardized(mf.kernels.RBF("median"))},
        {"kernel": 2 * mf.kernels.Standardized().normalized() + mf.kernels.RBF(0.5, base=mf.kernels.Standardized())},
        {"method": "krca", "kernel": "linear", "epsilon": 0.0},
        {"method": "lpdesign"},
    ):
        assert not any("spreads" in note for note in learn(WIDE, **options).report.notes), options
    noted = learn(WIDE, method="krca", kernel="linear", epsilon=1.0).report.notes
    assert any("spreads" in note for note in noted)  # a ridge depends on scales
    half = mf.kernels.Standardized() + mf.kernels.Linear()
    assert any("spreads" in note for note in learn(WIDE, kernel=half).report.notes)
    assert learn(X).report.notes == ()
    assert learn(WIDE @ WIDE.T, kernel="precomputed").report.notes == ()
    flat = np.column_stack([np.ones((20, 2)), X[:, 0]])
    assert not any("spreads" in note for note in learn(flat).report.notes)


def test_a_method_may_declare_a_rank_of_its_own(plugged):
    euclidean = find_method("euclidean")
    with plugged(method={"ranked": replace(euclidean, rank=5)}):
        assert learn(kernel="rbf", method="ranked").report["rank"] == 5
        assert learn(kernel="rbf", method="ranked", rank=7).report["rank"] == 7


def test_the_start_is_the_resolved_kernel():
    metric = learn(kernel="rbf", method="krca", seed=3)
    assert metric.start == mf.kernels.RBF("median").resolve(X, seed=3)
    again = mf.learn(X, Y, method="krca", kernel=metric)
    assert again.start == metric.kernel
    assert (0.5 * metric).start == 0.5 * metric.start
    assert (metric + again).start == metric.start + metric.kernel


@pytest.mark.parametrize("case", ODD)
def test_odd_input_is_noted_in_the_report(case):
    call, words = ODD[case]
    notes = " ".join(call().report.notes)
    for word in words:
        assert word in notes


def test_isolated_graph_nodes_are_told():
    graph = mf.neighbors.graph(np.array([[1], [0], [0]]), kind="mutual")
    assert mf.neighbors.isolated(graph).tolist() == [2]


# ------------------------------------------------------------------------------------------------------------- choosing


KINDS = {
    "kcr": mf.Labels(Y),
    "idealized": mf.Pairs.from_labels(Y, components=0.5),
    "krca": mf.Chunklets.from_labels(Y, components=0.5),
    "lpdesign": mf.Triplets.from_labels(Y),
}


@pytest.mark.parametrize("method", KINDS)
def test_auto_takes_the_method_that_declares_itself_for_the_kind(method):
    # beyond the limits within which another method is the first choice
    report = mf.learn(da.from_array(X, chunks=(7, -1)), KINDS[method], selection="off").report
    assert report.method == method
    assert not any("was chosen" in note for note in report.notes)
    assert report.choice == f"{method}, the first choice for these rows; not checked"


@pytest.fixture
def without(monkeypatch):
    """Hide some methods; return the function that does it."""
    entries = registry.entries

    def hide(*names):
        monkeypatch.setattr(registry, "_derived", {})
        monkeypatch.setattr(
            registry, "entries", lambda kind: [e for e in entries(kind) if kind != "method" or e.name not in names]
        )

    return hide


def test_auto_without_a_declared_method_takes_the_nearest_and_says_so(without):
    without("lpdesign", "simplenpkl")
    report = mf.learn(X, KINDS["lpdesign"], selection="off").report
    assert report.method == "idealized"
    assert report.notes[0] == "no method declares itself for Triplets: 'idealized', which is for Pairs, was chosen"
    assert report.converted[0].startswith("Triplets (")
    without("lpdesign", "idealized", "simplenpkl", "lsml")
    report = mf.learn(X, KINDS["lpdesign"], selection="off").report
    assert report.method == "krca-weighted"  # triplets -> pairs -> chunklets
    assert len(report.converted) == 2


def test_auto_never_falls_back_to_a_method_that_does_not_declare_itself(without):
    without(*(entry.name for entry in mf.methods() if entry.name not in ("euclidean", "llr")))
    with pytest.raises(
        InputError, match=r"method='auto' finds no method for Labels.*name a method that accepts Labels"
    ):
        mf.learn(X, Y)


def test_auto_takes_methods_in_the_declared_order(plugged):
    solver = find_method("euclidean").solver
    first = mf.Method(mf.Pairs, mf.kernels.Linear(), solver, order=0)
    late = mf.Method(mf.Pairs, mf.kernels.Linear(), solver, order=7)
    with plugged(method={"a-late": late, "z-first": first}):
        assert mf.learn(X, KINDS["idealized"], selection="off").report.method == "z-first"
    with plugged(method={"a-late": late}):
        assert mf.learn(X, KINDS["idealized"], selection="off").report.method == "simplenpkl"


def test_auto_for_a_kind_that_the_core_does_not_know(plugged):
    ranks = Ranks(np.arange(20))
    with pytest.raises(InputError, match="finds no method for Ranks: none declares itself"):
        mf.learn(X, ranks)
    with plugged(constraint={"ranks": Ranks}), pytest.raises(InputError, match="finds no method for Ranks"):
        mf.learn(X, ranks)
    halves = {"ranks->labels": lambda constraint, seed: mf.Labels(constraint.values > 9)}
    with plugged(constraint={"ranks": Ranks}, conversion=halves):
        report = mf.learn(X, ranks, selection="off").report
        assert report.method == "kcr"
        assert report.notes[0] == "no method declares itself for Ranks: 'kcr', which is for Labels, was chosen"
    own = mf.Method(Ranks, mf.kernels.Linear(), find_method("euclidean").solver, order=1)
    with plugged(constraint={"ranks": Ranks}, conversion=halves, method={"sorting": own}):
        report = mf.learn(X, ranks, selection="off").report
        assert (report.method, report.converted, report.notes) == ("sorting", (), ())


def test_auto_passes_over_a_method_that_cannot_be_loaded(without, plugged):
    without("lpdesign", "simplenpkl")
    with plugged(method={"broken": "no_such_module_at_all:METHOD"}):
        notes = mf.learn(X, KINDS["lpdesign"], selection="off").report.notes
        assert any(note.startswith("method 'broken' cannot be loaded: No module named") for note in notes)
        assert mf.learn(X, KINDS["krca"], selection="off").report.method == "krca-weighted"


class Picky(mf.Solver):
    """Takes triplets only; written as a user would."""

    accepts = (mf.Triplets,)

    def _solve(self, problem):
        return Solution(problem.kernel, Status.OPTIMAL, 0.0, 0.0, report={"seen": problem.constraint.size})


def test_conversions_are_walked_and_described():
    metric = mf.learn(X, Y, method="euclidean", solver=dataclass(frozen=True)(Picky)())
    assert metric.report.converted == ("Labels (20) → Triplets (200)",)
    assert metric.report.seen == 200
    assert dict(metric.report.outcome) == {"seen": 200}


def test_a_solver_refuses_what_it_does_not_accept_with_both_sides_and_the_repair():
    space = mf.space.represent(mf.kernels.Linear(), X)
    with pytest.raises(NotAcceptedError, match=r"Picky accepts Triplets, got Pairs; convert first.*mf\.Triplets"):
        Picky().solve(Problem(space, PAIRS))


@pytest.mark.parametrize("field", ["objective", "gap", "outcome", "kernel"])
def test_nan_never_leaves_a_solver(field):
    from metricforge.space import LearnedKernel, represent

    space = represent(mf.kernels.Linear(), X)
    kernel = LearnedKernel(space.map, np.eye(3))
    good = {"kernel": kernel, "status": Status.OPTIMAL, "objective": 0.0, "gap": 0.0}
    if field == "kernel":
        kernel.W[0, 0] = np.nan
    else:
        good[field] = {"weights": np.array([1.0, np.nan])} if field == "outcome" else np.nan

    class Broken(mf.Solver):
        accepts = (mf.Constraint,)

        def _solve(self, problem):
            return Solution(**good)

    with pytest.raises(SolverError, match=f"not finite: solution.{field}"):
        Broken().solve(Problem(space, PAIRS))


def test_names_stand_for_kernels():
    assert learn(kernel="rbf").kernel.gamma == mf.kernels.RBF("median").resolve(X).gamma
    assert learn(kernel="linear").kernel == mf.kernels.Linear()


def test_same_seed_same_answer():
    runs = [learn(kernel="rbf", rank=5, seed=s).transform(X) for s in (3, 3, 4)]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_dropped_relations_are_counted_in_the_report():
    rows = np.arange(10)
    pairs = mf.Pairs.from_labels(Y, components=0.5)
    inside = pairs[rows]
    assert learn(X[rows], inside).report.dropped == pairs.size - inside.size > 0


def test_unknown_names_are_key_errors_too():
    with pytest.raises(KeyError):
        learn(method="nothing of the kind")
    with pytest.raises(UnknownNameError, match="known: "):
        learn(method="zzz")


@pytest.mark.parametrize(("n", "kernel", "single"), [(60, "linear", True), (60, "rbf", True), (1200, "rbf", False)])
def test_blas_keeps_to_one_thread_unless_cubic_work_awaits(n, kernel, single, monkeypatch):
    import scipy.linalg  # noqa: F401 - the BLAS that learn() would load
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads():
        return {lib["filepath"]: lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}

    def solve(self, problem):
        seen.update(threads())
        return Solution(problem.kernel, Status.OPTIMAL, objective=0.0, gap=0.0, certificate="nothing is optimised")

    seen = {}
    monkeypatch.setattr(type(find_method("euclidean").solver), "_solve", solve)
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        if 2 not in before.values():
            pytest.skip("no BLAS here runs on two threads")
        mf.learn(np.random.default_rng(0).normal(size=(n, 3)), np.arange(n) % 2, method="euclidean", kernel=kernel)
        assert threads() == before
    assert seen == (dict.fromkeys(before, 1) if single else before)


# -------------------------------------------------------------------------------------------------------------- strings

WORDS = ["banana bandana", "bandana", "banana band", "cherry", "cherry merry", "merry cherry pie", "plum", "plumber"]
FRUITS = [0, 0, 0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    "rows",
    [WORDS, tuple(WORDS), np.array(WORDS), np.array(WORDS, dtype=object), pd.Series(WORDS), da.from_array(WORDS)],
    ids=["list", "tuple", "text", "objects", "series", "dask"],
)
@pytest.mark.parametrize("method", ["auto", "krca", "euclidean"])
def test_strings_start_from_the_normalised_spectrum(rows, method):
    metric = mf.learn(rows, FRUITS, method=method, selection="off")
    assert metric.start == mf.kernels.Spectrum(3).normalized()
    given = mf.learn(WORDS, FRUITS, method=method, kernel=mf.kernels.Spectrum(3).normalized(), selection="off")
    np.testing.assert_allclose(metric.distance(WORDS), given.distance(WORDS), atol=1e-9)


def test_a_kernel_that_is_given_or_that_a_method_has_for_strings_stays(plugged):
    assert mf.learn(WORDS, FRUITS, method="krca", kernel=mf.kernels.Spectrum(2)).start == mf.kernels.Spectrum(2)
    own = replace(find_method("krca"), kernel=mf.kernels.Spectrum(1))
    with plugged(method={"letters": own}):
        assert mf.learn(WORDS, FRUITS, method="letters").start == mf.kernels.Spectrum(1)
    assert mf.learn(X, Y, method="krca").start != mf.kernels.Spectrum(3).normalized()


def test_triplets_over_strings_are_learned_from_as_pairs():
    triplets = mf.Triplets.from_labels(FRUITS, n_triplets=12, seed=0)
    report = mf.learn(WORDS, triplets, selection="off").report
    assert report.method == "idealized"
    assert any(note.startswith("no method declares itself for Triplets over strings") for note in report.notes)
    # with bases on strings it is lpdesign
    bases = [mf.kernels.Spectrum(k).normalized() for k in (2, 3)]
    assert mf.learn(WORDS, triplets, bases=bases).report.method == "lpdesign"
