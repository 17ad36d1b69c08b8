"""Equality and hashing by content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

import metricforge as mf
from metricforge.rows import ComparedByContent, digest


@dataclass(frozen=True, eq=False)
class Part(ComparedByContent):
    value: Any


@dataclass(frozen=True, eq=False)
class OtherPart(ComparedByContent):
    value: Any


A = np.arange(6.0).reshape(2, 3)
DIFFERENT = [
    A,
    A.astype(np.float32),
    A.reshape(3, 2),
    A.T.copy(),
    -A,
    A[:0],
    np.zeros(3),
    np.zeros(3, dtype=np.int64),
    sp.csr_array(A),
    sp.csr_array(A.T),
    sp.csr_array((2, 3)),
    sp.csr_array((2, 4)),
    da.from_array(A, name="one"),
    da.from_array(A, name="two"),
    ["a", "b"],
    ["ab"],
    np.array(["a", "c"], dtype=object),
    {"a": 1, "b": 2},
    {"a": 2, "b": 1},
    "1",
    b"1",
    1,
    1.5,
    True,
    None,
    2**60,
    2**60 + 1,
    Part(1),
    OtherPart(1),
    Part(2),
    int,
]


def test_different_contents_have_different_digests():
    found = [digest(value) for value in DIFFERENT]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (A, np.asfortranarray(A)),
        (1, 1.0),
        (1, np.float64(1)),
        (np.int8(3), 3),
        (True, np.bool_(True)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (["a"], np.array(["a"], dtype=object)),
        (sp.csr_array(A), sp.csr_matrix(A)),
        (Part(A), Part(A.copy())),
    ],
)
def test_equal_contents_have_equal_digests(one, other):
    assert digest(one) == digest(other)


def test_components_are_equal_by_content_and_class():
    assert Part(A) == Part(A.copy())
    assert hash(Part(A)) == hash(Part(A.copy()))
    assert Part(A) != Part(-A)
    assert Part(1) != OtherPart(1)
    assert Part(1) != 1
    assert len({Part(A), Part(A.copy()), Part(-A)}) == 2


def test_dates_have_a_digest():
    days = np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]")
    assert digest(days) == digest(days.copy()) != digest(days[::-1])
    hash(mf.Chunklets(days))
