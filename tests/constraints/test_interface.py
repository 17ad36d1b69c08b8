"""What every kind offers to reports, scores, folds, tables and pictures, also a kind that the core does not know."""

from __future__ import annotations

import numpy as np
import pytest
from metricforge_cases.kinds import Ranks

import metricforge as mf
from metricforge.constraints import Distances, Links
from metricforge.errors import InputError, NotAcceptedError
from metricforge.kernels import RBF, Linear, Standardized
from metricforge.testing import check_constraint

KINDS = (mf.Labels, mf.Pairs, mf.Chunklets, mf.Triplets)

Y = np.random.default_rng(0).integers(3, size=60)


def distances(X):
    return Distances(Linear(), np.asarray(X, dtype=float))


# ------------------------------------------------------------------------------------------------- kinds of strangers


def test_a_kind_that_only_names_its_index_arrays_conforms(comparisons):
    kind = comparisons(Y)
    check_constraint(kind)
    check_constraint(kind[::2])


def test_slicing_by_index_fields_against_a_loop(comparisons):
    kind = comparisons(Y)
    rows = np.random.default_rng(1).permutation(60)[:40]
    place = {int(r): i for i, r in enumerate(rows)}
    expected = [[place[v] for v in q] for q in kind.quadruples.tolist() if set(q) <= set(place)]
    assert kind[rows].quadruples.tolist() == expected
    assert kind[rows].dropped == kind.size - len(expected) > 0


def test_the_least_kind_conforms_and_the_missing_parts_are_named():
    least = Ranks(np.arange(12.0))
    check_constraint(least)
    assert least.describe() == "12 ranks"
    assert least.satisfied(distances(np.eye(12))) == ()
    assert least.links() is None
    assert (least.lines(), least.row_classes()) == ((), None)
    with pytest.raises(
        InputError, match=r"Ranks cannot be scored; define satisfied\(distances\) in the class, or score"
    ):
        least.score(distances(np.eye(12)))
    with pytest.raises(InputError, match=r"Ranks names no index_fields; name the fields .* or define folds"):
        least.folds()
    with pytest.raises(InputError, match=r"Ranks cannot be read from a table: it does not define from_table"):
        Ranks.from_table({}, 3)


def test_describe_is_the_name_of_the_class_in_the_right_number(comparisons):
    assert comparisons(Y).describe() == "60 comparisons"
    assert comparisons(Y, size=1).describe() == "1 comparison"


def test_the_default_score_is_the_mean_share_satisfied(comparisons):
    kind = comparisons(Y)
    X = np.random.default_rng(2).normal(size=(60, 2)) + Y[:, None]
    a, b, c, d = kind.quadruples.T
    expected = np.mean(np.linalg.norm(X[a] - X[b], axis=1) < np.linalg.norm(X[c] - X[d], axis=1))
    assert 0.5 < expected < 1
    assert kind.score(distances(X)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("satisfied", lambda self, d: [], "satisfied returned a list"),
        ("score", lambda self, d: 1.5, r"score is 1\.5"),
        ("describe", lambda self: "", "describe"),
        ("flag_help", "", "flag_help is empty"),
        ("table_columns", (), "table_columns is empty"),
        ("folds", lambda self, k, seed: iter([(np.arange(60), self)] * k), "inside the training rows"),
        ("lines", lambda self: [None], "lines returned a NoneType"),
        ("links", lambda self: Links(must=np.array([[0, 60]])), "row outside"),
        ("row_classes", lambda self: mf.Labels([0, 1]), "about all rows"),
    ],
)
def test_the_kit_finds_faults(comparisons, monkeypatch, name, wrong, said):
    kind = comparisons(Y)
    monkeypatch.setattr(type(kind), name, wrong)
    with pytest.raises(AssertionError, match=said):
        check_constraint(kind)


def test_a_kind_is_expected_by_its_class():
    triplets = mf.Triplets([(0, 1, 2)], n=3)
    assert mf.Triplets.expect(triplets, "triplets") is triplets
    with pytest.raises(NotAcceptedError, match=r"pairs must be Pairs, got Triplets; .*\.to\(mf\.Pairs\)"):
        mf.Pairs.expect(triplets, "pairs")


# --------------------------------------------------------------------------------------------------------------- folds


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("components", [None, 0.5])
def test_folds_of_every_kind_conform(kind, components):
    check_constraint(kind.from_labels(Y, components=components))


def relations(constraint):
    return {tuple(r) for name in constraint.index_fields for r in getattr(constraint, name).tolist()}


@pytest.mark.parametrize("drawn", ["pairs", "triplets", "comparisons"])
def test_a_fold_learns_inside_the_training_rows_and_scores_all_other_relations(drawn, comparisons):
    kind = {
        "pairs": lambda: mf.Pairs.from_labels(Y, n_pairs=50),
        "triplets": lambda: mf.Triplets.from_labels(Y, n_triplets=50),
        "comparisons": lambda: comparisons(Y),
    }[drawn]()
    seen = []
    for rows, held_out in kind.folds(3, seed=4):
        inside = {r for r in relations(kind) if set(r) <= set(rows.tolist())}
        assert relations(held_out) == relations(kind) - inside
        moved = {tuple(int(rows[v]) for v in r) for r in relations(kind[rows])}
        assert moved == inside
        seen.extend(set(range(60)) - set(rows.tolist()))
    touched = set().union(*relations(kind))
    assert sorted(seen) == sorted(touched)


def test_rows_without_a_relation_stay_in_training():
    pairs = mf.Pairs([(0, 1), (2, 3), (4, 5)], n=10)
    for rows, _ in pairs.folds(3):
        assert set(range(6, 10)) <= set(rows.tolist())
        assert len(rows) == 8


def test_folds_of_labels_spread_every_class():
    labels = mf.Labels([*[0] * 9, *[1] * 6, None, None])
    for rows, held_out in labels.folds(3):
        out = np.setdiff1d(np.arange(17), rows)
        assert np.bincount(labels.codes[out]).tolist() == [3, 2]
        assert held_out.size == 5


def test_folds_of_groups_hold_out_whole_groups():
    groups = mf.Chunklets([0, 0, 1, 1, 2, 2, 2, 3, -1])  # group 3 has one row, and says nothing
    held = []
    for rows, held_out in groups.folds(3, seed=1):
        out = set(range(9)) - set(rows.tolist())
        assert {7, 8} <= set(rows.tolist())
        assert set(np.flatnonzero(held_out.codes >= 0).tolist()) == out
        held.append(tuple(sorted(out)))
    assert sorted(held) == [(0, 1), (2, 3), (4, 5, 6)]


def test_more_folds_than_rows_are_refused():
    with pytest.raises(InputError, match=r"k is 5, but the relations name 4 row\(s\)"):
        mf.Pairs([(0, 1), (2, 3)], n=9).folds(5)
    with pytest.raises(InputError, match="k must be a whole number of at least 2"):
        mf.Labels(Y).folds(1)
    with pytest.raises(InputError, match=r"k is 3, but the relations name 1 group\(s\)"):
        mf.Chunklets([0, 0, 1, -1]).folds(3)


# -------------------------------------------------------------------------------------------------------------- tables


def test_every_kind_reads_itself_from_a_table(comparisons):
    columns = {"i": np.array([0, 1]), "j": np.array([2, 3]), "k": np.array([4, 5])}
    assert mf.Triplets.from_table(columns, 6) == mf.Triplets([(0, 2, 4), (1, 3, 5)], n=6)
    alike = {**columns, "similar": np.array(["yes", "0"], dtype=object)}
    assert mf.Pairs.from_table(alike, 6) == mf.Pairs([(0, 2)], [(1, 3)], n=6)
    assert mf.Pairs.from_table(columns, 6) == mf.Pairs([(0, 2), (1, 3)], n=6)
    assert mf.Labels.from_table({"label": np.array(["a", "b"])}, 2) == mf.Labels(["a", "b"])
    assert mf.Chunklets.from_table({"groups": np.array([0, -1])}, 2) == mf.Chunklets([0, -1])
    kind = comparisons(Y)
    named = dict(zip("abcd", kind.quadruples.T, strict=True))
    assert type(kind).from_table(named, 60) == kind


@pytest.mark.parametrize(
    ("kind", "columns", "said"),
    [
        (mf.Triplets, {"i": np.array([0]), "j": np.array(["x"]), "k": np.array([1])}, "column 'j' holds .*x.* entry 0"),
        (
            mf.Triplets,
            {"i": np.array([0.5]), "j": np.array([2]), "k": np.array([1])},
            "column 'i' holds .*0.5.* entry 0",
        ),
        (
            mf.Pairs,
            {"i": np.array([0]), "j": np.array([1]), "similar": np.array(["so"])},
            "'similar' holds 'so' in pair 0",
        ),
        (mf.Labels, {"label": np.array([0, 1, 1])}, "column 'label' has 3 values for 2 rows"),
        (mf.Chunklets, {"groups": np.array([0])}, "column 'groups' has 1 values for 2 rows"),
    ],
)
def test_what_is_wrong_in_a_table_is_named(kind, columns, said):
    with pytest.raises(InputError, match=said):
        kind.from_table(columns, 2)


# ------------------------------------------------------------------------------------------------- links and pictures


def test_links_lines_and_classes_of_the_kinds():
    pairs = mf.Pairs([(0, 1), (2, 3)], [(0, 4)], n=6)
    assert pairs.links().must.tolist() == [[0, 1], [2, 3]]
    assert pairs.links().cannot.tolist() == [[0, 4]]
    assert [(part.label, part.short, len(part.pairs)) for part in pairs.lines()] == [
        ("similar pair", True, 2),
        ("dissimilar pair", False, 1),
    ]
    assert pairs.row_classes().codes.tolist() == [0, 0, 1, 1, -1, -1]
    groups = mf.Chunklets([7, 7, 9, -1, 9, 7])
    assert groups.links().must.tolist() == [[0, 0], [1, 0], [2, 2], [4, 2], [5, 0]]
    assert len(groups.links().cannot) == 0
    assert groups.row_classes().codes.tolist() == [0, 0, 1, -1, 1, 0]
    assert mf.Chunklets(np.repeat(np.arange(13), 2)).row_classes() is None  # more than can be told apart
    assert mf.Chunklets([0, 0, -1]).row_classes() is None  # one colour distinguishes nothing
    labels = mf.Labels(Y)
    assert labels.row_classes() is labels
    assert labels.links() is None
    assert mf.Triplets([(0, 1, 2)], n=3).links() is None


def test_dissimilar_pairs_of_identical_rows_are_remarked_on():
    X = np.array([[0.0], [1.0], [0.0], [0.1 + 0.2]])
    pairs = mf.Pairs([(0, 1)], [(0, 2), (1, 3)], n=4)
    (note,) = pairs.remarks(distances(X))
    assert note.startswith("1 dissimilar pair(s) join identical rows")
    assert "(0, 2)" in note
    assert pairs[[0, 1, 3]].remarks(distances(X[[0, 1, 3]])) == ()
    assert mf.Labels([0, 1, 0, 1]).remarks(distances(X)) == ()


@pytest.mark.parametrize("kernel", [Linear(), RBF(0.3), Standardized(RBF(2.0), by="range")])
def test_coincident_pairs_among_many_are_found_by_their_similarities(kernel, monkeypatch):
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(40, 2)), 1) + 1e3
    X[30:] = X[:10]
    i, j = np.triu_indices(40, 1)
    pairs, measured = np.column_stack([i, j]), []
    found = Distances(kernel.resolve(X), X)
    monkeypatch.setattr(
        Distances,
        "paired",
        lambda self, some, paired=Distances.paired: measured.append(len(some)) or paired(self, some),
    )
    same = {(a, b) for a, b in pairs.tolist() if (X[a] == X[b]).all()}
    assert {tuple(pairs[t]) for t in found.coincident(pairs)} == same
    assert len(same) >= 10
    assert measured[0] < 100  # of 780


def test_some_rows_keep_relations_between_them():
    rng = np.random.default_rng(0)
    n = 10_000
    big = mf.Labels(np.arange(n) % 4)
    chosen = big.some_rows(100, seed=1)
    assert len(chosen) == 100
    assert np.all(np.diff(chosen) > 0)
    assert set(big.codes[chosen]) == {0, 1, 2, 3}
    np.testing.assert_array_equal(chosen, big.some_rows(100, seed=1))
    assert not np.array_equal(chosen, big.some_rows(100, seed=2))

    small = rng.permutation(n) // 5  # classes of five rows
    for kind in (mf.Labels(small), mf.Chunklets(small)):
        chosen = kind.some_rows(100)
        assert len(chosen) == 100
        assert set(np.bincount(kind.codes[chosen])) == {0, 5}
    few = np.where(np.arange(n) < 50, 1, -1)
    assert mf.Chunklets(few).some_rows(20).max() < 50

    pairs = mf.Pairs(similar=rng.integers(0, n // 2, (900, 2)) * 2 + [0, 1], n=n)
    chosen = pairs.some_rows(100)
    assert 50 < len(chosen) <= 100
    assert pairs[chosen].size >= 50
    assert len(mf.Targets(rng.normal(size=n)).some_rows(7)) == 7
    values = rng.normal(size=50)
    values[10:] = np.nan
    assert mf.Targets(values).some_rows(100).tolist() == list(range(10))
