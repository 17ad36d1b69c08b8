"""Files of relations, read by the kind of constraint."""

from __future__ import annotations

import numpy as np
import pytest

import metricforge as mf
from metricforge.errors import InputError
from metricforge.tables import read_relations


def put(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "words", [("1", "0"), ("+1", "-1"), ("true", "False"), ("similar", "dissimilar"), ("1.0", "0.0")]
)
def test_pairs_in_the_ways_people_write_them(tmp_path, words):
    yes, no = words
    path = put(tmp_path / "p.csv", f"i,j,similar\n0,1,{yes}\n2,0,{no}\n3,1,{yes}\n")
    pairs = read_relations(path, mf.Pairs, n=4)
    assert pairs.similar.tolist() == [[0, 1], [1, 3]]
    assert pairs.dissimilar.tolist() == [[0, 2]]


def test_pairs_and_triplets_without_names_or_in_another_order(tmp_path):
    assert read_relations(put(tmp_path / "a.csv", "0,1\n1,2\n"), mf.Pairs, n=3).similar.tolist() == [[0, 1], [1, 2]]
    assert read_relations(put(tmp_path / "b.csv", "0,1,-1\n"), mf.Pairs, n=3).dissimilar.tolist() == [[0, 1]]
    swapped = put(tmp_path / "c.csv", "similar,J,I\n1,1,2\n")
    assert read_relations(swapped, mf.Pairs, n=3).similar.tolist() == [[1, 2]]
    assert read_relations(put(tmp_path / "t.csv", "k,j,i\n2,1,0\n"), mf.Triplets, n=3).triples.tolist() == [[0, 1, 2]]
    np.save(tmp_path / "t.npy", np.array([[0, 1, 2], [2, 1, 0]]))
    assert read_relations(tmp_path / "t.npy", mf.Triplets, n=3).size == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("i,j\n", "has no rows"),
        ("i,similar\n0,1\n", "no column 'j'"),
        ("i,j\n0,a\n", "column 'j' holds"),
        ("i,j\n0,1.5\n", "column 'j' holds"),
        ("i,j\n0,\n", "column 'j' holds None"),
        ("i,j,similar\n0,1,maybe\n", "column 'similar' holds 'maybe' in pair 0"),
        ("i,j\n0,7\n", "name a row outside 0 .. 2"),
        ("i,j\n1,1\n", "join a row with itself"),
        ("i,j,similar\n0,1,1\n1,0,0\n", "similar and dissimilar both hold"),
    ],
)
def test_bad_pairs_name_the_file_and_the_place(tmp_path, text, said):
    with pytest.raises(InputError) as caught:
        read_relations(put(tmp_path / "p.csv", text), mf.Pairs, n=3)
    assert said in str(caught.value)
    assert "p.csv" in str(caught.value)
