from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metricforge as mf
from metricforge.constraints import components_of
from metricforge.errors import InputError, UnknownNameError
from metricforge.testing import check_constraint

KINDS = (mf.Labels, mf.Pairs, mf.Chunklets, mf.Triplets)


def labels(n=60, classes=3, seed=0):
    return np.random.default_rng(seed).integers(classes, size=n)


# ------------------------------------------------------------------------------------------------------------- slicing


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("components", [None, 0.5])
def test_kinds_conform(kind, components):
    check_constraint(kind.from_labels(labels(), components=components))


@given(st.data())
def test_slicing_pairs_keeps_exactly_the_relations_inside(data):
    n = data.draw(st.integers(2, 12))
    pair = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda p: p[0] != p[1])
    similar = data.draw(st.lists(pair, max_size=8))
    rows = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
    pairs = mf.Pairs(similar, n=n)
    sliced = pairs[np.array(rows)]
    expected = {frozenset(p) for p in similar if set(p) <= set(rows)}
    assert {frozenset(rows[i] for i in p) for p in sliced.similar.tolist()} == expected
    assert sliced.dropped == pairs.size - len(expected)


def test_slicing_triplets_and_chunklets_against_loops():
    triplets = mf.Triplets.from_labels(labels(), n_triplets=200)
    rows = np.random.default_rng(1).permutation(60)[:35]
    place = {int(r): i for i, r in enumerate(rows)}
    expected = [tuple(place[v] for v in t) for t in triplets.triples.tolist() if set(t) <= set(place)]
    assert [tuple(t) for t in triplets[rows].triples.tolist()] == expected
    groups = mf.Chunklets(["a", "b", "a", None, "b", "c"])
    assert groups[[0, 2, 3]].codes.tolist() == [0, 0, -1]
    assert groups[[0, 2, 3]].dropped == 2


def test_a_row_chosen_twice_keeps_its_relations_once():
    pairs = mf.Pairs([(0, 1)], n=3)
    assert pairs[[1, 1, 0]].similar.tolist() == [[0, 2]]


def test_dropped_adds_up_over_slices():
    pairs = mf.Pairs([(0, 1), (2, 3), (4, 5)], n=6)
    assert pairs[:4].dropped == 1
    assert pairs[:4][:2].dropped == 2


# ----------------------------------------------------------------------------------------------------------- the kinds


def test_labels_take_every_value_as_a_class_but_nan_and_none():
    assert mf.Labels([-1, 1, 1]).codes.tolist() == [0, 1, 1]
    assert mf.Labels([-1, 1, 1], unlabelled=-1).codes.tolist() == [-1, 0, 0]
    assert mf.Labels([1.0, np.nan, 2.0]).codes.tolist() == [0, -1, 1]
    assert mf.Labels(["x", None, "y"]).codes.tolist() == [0, -1, 1]
    assert mf.Labels([True, False]).size == 2


def test_labels_from_frames():
    import pandas as pd
    import polars as pl

    for series in (pd.Series(["u", "v", "u"]), pl.Series(["u", "v", "u"]), pd.Categorical(["u", "v", "u"])):
        assert mf.Labels(series).codes.tolist() == [0, 1, 0]
    assert mf.Labels(pd.Series(["u", None])).codes.tolist() == [0, -1]


def test_chunklets_take_any_ids():
    assert mf.Chunklets([1, 1, 7, 7, -1]).codes.tolist() == [0, 0, 1, 1, -1]
    assert mf.Chunklets(["p", "q", None, "p"]).codes.tolist() == [0, 1, -1, 0]
    assert mf.Chunklets([2.0, np.nan, -1.0, 2.0]).codes.tolist() == [0, -1, -1, 0]


def test_chunklets_from_overlapping_sets_are_merged():
    assert mf.Chunklets.from_sets([[0, 1], [1, 2], [4]], n=6).codes.tolist() == [0, 0, 0, -1, 1, -1]


def test_pairs_are_canonical():
    pairs = mf.Pairs([(3, 1), (1, 3), (0, 2)], [(2, 1)], n=4)
    assert pairs.similar.tolist() == [[0, 2], [1, 3]]
    assert pairs.repeated == 1
    assert pairs == mf.Pairs([(0, 2), (1, 3)], [(1, 2)], n=4, repeated=1)
    with pytest.raises(ValueError, match="read-only"):
        pairs.similar[0, 0] = 9


def test_triplets_keep_repeats_and_contradictions():
    assert mf.Triplets([(0, 1, 2), (0, 1, 2), (0, 2, 1)], n=3).size == 3


# ---------------------------------------------------------------------------------------------------------- generators


@pytest.mark.parametrize("share", [0.3, 0.7, 0.9])
def test_protocol_leaves_the_asked_number_of_components(share):
    y = labels(200)
    raw = mf.Pairs.from_labels(y, components=share, closure=False, seed=1)
    assert len(np.unique(components_of(raw.similar, 200))) == round(share * 200)
    assert (y[raw.similar[:, 0]] == y[raw.similar[:, 1]]).all()
    assert (y[raw.dissimilar[:, 0]] != y[raw.dissimilar[:, 1]]).all()
    assert len(raw.dissimilar) == len(raw.similar)


def test_closure_against_its_definition():
    raw = mf.Pairs.from_labels(labels(40), components=0.6, closure=False, seed=2)
    closed = raw.closed()
    c = components_of(raw.similar, 40)
    cannot = {frozenset((c[i], c[j])) for i, j in raw.dissimilar}
    similar = {(i, j) for i in range(40) for j in range(i + 1, 40) if c[i] == c[j]}
    dissimilar = {(i, j) for i in range(40) for j in range(i + 1, 40) if frozenset((c[i], c[j])) in cannot}
    assert set(map(tuple, closed.similar.tolist())) == similar
    assert set(map(tuple, closed.dissimilar.tolist())) == dissimilar


def test_protocol_says_the_same_in_every_kind():
    y = labels(100)
    pairs = mf.Pairs.from_labels(y, components=0.7, seed=3)
    groups = mf.Chunklets.from_labels(y, components=0.7, seed=3)
    assert pairs.to(mf.Chunklets).codes.tolist() == groups.codes.tolist()
    touched = mf.Labels.from_labels(y, components=0.7, seed=3)
    assert np.array_equal(touched.codes >= 0, groups.codes >= 0)


def test_generators_are_seeded():
    for kind in KINDS:
        draw = [kind.from_labels(labels(), components=0.6, seed=s) for s in (5, 5, 6)]
        assert draw[0] == draw[1]
        assert draw[0] != draw[2]


def test_unlabelled_rows_are_in_no_relation():
    y = labels(80).astype(float)
    y[::4] = np.nan
    for kind in (mf.Pairs, mf.Triplets):
        drawn = kind.from_labels(y, seed=0)
        used = drawn.triples if kind is mf.Triplets else np.concatenate([drawn.similar, drawn.dissimilar])
        assert not np.isnan(y[used]).any()


def test_random_pairs_are_uniform():
    y = np.array([0] * 10 + [1] * 40)  # 45 and 780 same-class pairs: pairs are uniform, rows and classes are not
    share = [np.mean(y[mf.Pairs.from_labels(y, n_pairs=100, seed=s).similar[:, 0]] == 0) for s in range(60)]
    assert abs(np.mean(share) - 45 / 825) < 0.01


def test_all_pairs_are_taken_while_there_are_few():
    y = np.array([0, 0, 1, 1, 1])
    pairs = mf.Pairs.from_labels(y)
    assert (len(pairs.similar), len(pairs.dissimilar)) == (4, 6)


def test_triplets_relate_the_classes_rightly():
    y = labels()
    i, j, k = mf.Triplets.from_labels(y, n_triplets=500).triples.T
    assert (y[i] == y[j]).all()
    assert (y[i] != y[k]).all()


# --------------------------------------------------------------------------------------------------------- conversions


def test_conversions_and_what_they_drop():
    pairs = mf.Pairs([(0, 1), (1, 2)], [(0, 3), (2, 4)], n=6)
    groups = pairs.to(mf.Chunklets)
    assert groups.codes.tolist() == [0, 0, 0, -1, -1, -1]
    assert groups.dropped == 2
    assert groups.to(mf.Pairs).similar.tolist() == [[0, 1], [0, 2], [1, 2]]
    triplets = mf.Triplets([(0, 1, 2), (2, 0, 1)], n=3)  # (0, 2) is similar by one and dissimilar by the other
    both = triplets.to(mf.Pairs)
    assert both.similar.tolist() == [[0, 1]]
    assert both.dissimilar.tolist() == [[1, 2]]
    assert both.dropped == 1
    assert triplets.to(mf.Chunklets).codes.tolist() == [0, 0, -1]


def test_large_chunklets_become_a_spanning_sample_of_pairs():
    groups = mf.Chunklets(np.zeros(500, dtype=int))
    pairs = groups.to(mf.Pairs)
    assert 5000 <= pairs.size <= 5499
    assert len(np.unique(components_of(pairs.similar, 500))) == 1


def test_no_conversion_is_an_error_with_the_repair():
    with pytest.raises(InputError, match=r"no conversion leads from Pairs to Labels; give Labels"):
        mf.Pairs([(0, 1)], n=2).to(mf.Labels)


# --------------------------------------------------------------------------------------------------------- hard cases


def test_masks_as_lists_select_by_truth_not_by_number():
    pairs = mf.Pairs([(0, 1), (2, 3)], n=4)
    mask = [False, False, True, True]
    assert pairs[mask] == pairs[np.array(mask)]
    assert pairs[mask].similar.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        (["a", float("nan"), "b"], [0, -1, 1]),
        (["a", None, "b"], [0, -1, 1]),
        (np.array(["2020-01-01", "NaT", "2020-01-02"], dtype="datetime64[D]"), [0, -1, 1]),
    ],
)
def test_missing_labels_in_any_container(values, codes):
    assert mf.Labels(values).codes.tolist() == codes
    assert mf.Chunklets(values).codes.tolist() == codes


def test_missing_labels_of_pandas():
    import pandas as pd

    assert mf.Labels(pd.Series(["a", pd.NA, "b"], dtype="string")).codes.tolist() == [0, -1, 1]
    assert mf.Labels(pd.Series([1, pd.NA, 2], dtype="Int64")).codes.tolist() == [0, -1, 1]
    assert mf.Chunklets(["a", -1, "a"]).codes.tolist() == [0, -1, 0]


def test_sets_of_row_numbers():
    assert mf.Pairs({(0, 1), (2, 3)}, n=4).size == 2
    assert mf.Chunklets.from_sets([{0, 1}, {3}], n=4).codes.tolist() == [0, 0, -1, 1]


@pytest.mark.parametrize("rows", [[], np.zeros((2, 2), dtype=int), np.zeros(4, dtype=bool)])
def test_selections_that_are_none(rows):
    with pytest.raises(InputError, match="rows must be a non-empty 1-d selection"):
        _ = mf.Pairs([(0, 1)], n=4)[rows]


def test_constraints_are_not_iterated():
    with pytest.raises(TypeError):
        iter(mf.Labels([0, 1]))


def test_a_closure_that_is_too_large_is_refused_before_it_is_built(monkeypatch):
    monkeypatch.setattr("metricforge.constraints.pairs.MOST_CLOSED", 100)
    with pytest.raises(InputError, match=r"closure would hold .* pairs.*closure=False"):
        mf.Pairs.from_labels(labels(200), components=0.2)


@pytest.mark.parametrize("kind", [3, int])
def test_converting_to_what_is_no_kind(kind):
    with pytest.raises(InputError, match="kind must be a class of constraints"):
        mf.Pairs([(0, 1)], n=2).to(kind)


def test_converting_by_name():
    pairs = mf.Pairs([(0, 1)], n=3)
    assert pairs.to("chunklets") == pairs.to(mf.Chunklets)
    with pytest.raises(UnknownNameError, match="kind='chunklet' is unknown; did you mean 'chunklets'"):
        pairs.to("chunklet")


def test_numbers_beyond_integers_are_refused_without_a_warning():
    with pytest.raises(InputError, match=r"1e\+300"):
        mf.Pairs([[1e300, 0]], n=30)


def test_sets_must_be_a_list():
    with pytest.raises(InputError, match=r"^sets must be a list of lists of row numbers, got 5$"):
        mf.Chunklets.from_sets(5, n=9)


@pytest.mark.parametrize("seed", [-1, 1.5, "x"])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(InputError, match=r"^seed must be a whole number of at least 0, got "):
        mf.Labels([0, 0, 1, 1]).to(mf.Triplets, seed=seed)


def test_more_rows_than_pairs_can_number_are_refused():
    with pytest.raises(InputError, match=r"^n must be a whole number of at least 1 and at most 3000000000 \(pairs of"):
        mf.Pairs([(0, 1)], n=10**30)


def test_labels_that_have_no_order_are_refused():
    y = np.empty(6, dtype=object)
    y[:] = [{1}, {2}, {1}, {1, 2}, {2}, {3}]  # sets are compared by inclusion: sorting leaves {1} in two places
    with pytest.raises(InputError, match="y holds values of the type set, which have no order; convert all to str"):
        mf.Labels(y)
    assert mf.Labels([str(sorted(v)) for v in y]).classes.tolist() == ["[1, 2]", "[1]", "[2]", "[3]"]


@pytest.mark.parametrize("y", [[-1, 0, 1, 0, 1], np.array([2, -1, -1, 4])])
def test_minus_one_among_whole_numbers_is_a_class_with_one_warning(y):
    with pytest.warns(UserWarning, match=r"y holds -1 in \d row\(s\).*mf.Labels\(y, unlabelled=-1\)"):
        labels = mf.Labels(y)
    assert -1 in labels.classes
    assert -1 in labels[np.arange(len(y))].classes  # filterwarnings = error: a part does not warn again
    assert len(list(mf.Labels(y, unlabelled=-1).folds(2))) == 2


@pytest.mark.parametrize("y", [[-1, 1, -1, 1], [-1.0, 0.0, 1.0], ["-1", "0", "1"]])
def test_minus_one_where_it_is_no_mark_of_unlabelled_rows_is_a_class(y):
    assert len(mf.Labels(y).classes) == len(set(y))


@pytest.mark.parametrize("known", [[np.int64(0), np.int64(1)], [np.float64(0), np.float64(1)], [0.5, 1.5]])
def test_numbers_of_numpy_beside_missing_ones_are_labels(known):
    assert mf.Labels([*known, None]).codes.tolist() == [0, 1, -1]


def test_a_query_gets_as_many_triplets_of_each_relevant_row_as_asked_for():
    triples = mf.Triplets.from_relevance([0, 5], [[1, 2], [3]], 400, per_pair=7).triples
    counts = {tuple(pair): int(((triples[:, :2] == pair).all(axis=1)).sum()) for pair in triples[:, :2].tolist()}
    assert counts == {(0, 1): 7, (0, 2): 7, (5, 3): 7}
    for query in (0, 5):  # of 400 rows, few are drawn twice
        others = triples[triples[:, 0] == query, 2]
        assert len(set(others.tolist())) >= 4


def test_ten_quadruplets_are_drawn_for_each_row():
    assert mf.Quadruplets.from_labels(np.arange(30) % 3).size == 300
