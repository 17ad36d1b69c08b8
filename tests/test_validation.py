from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pytest

from metricforge import validation as checks
from metricforge.errors import InputError, UnknownNameError


@pytest.mark.parametrize("value", [0, 1.5, np.float32(2), np.int64(3), Fraction(1, 2)])
def test_numbers_of_any_type_become_floats(value):
    found = checks.number(value, "gamma", least=0)
    assert type(found) is float
    assert found == value


@pytest.mark.parametrize("value", [True, np.bool_(1), None, "1", 1j, np.nan, np.inf, -np.inf, np.ones(1), [1.0]])
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(InputError, match=r"^gamma must be a finite number, got "):
        checks.number(value, "gamma")


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "said"),
    [
        ({"least": 0}, [0, 1e300], [-1e-9], "a finite number of at least 0"),
        ({"above": 0}, [1e-300], [0, -1], "a finite number above 0"),
        ({"least": 0, "most": 1}, [0, 0.5, 1], [-0.1, 1.1], "a number of at least 0 and at most 1"),
        ({"above": 0, "below": 1}, [0.5], [0, 1], "a number above 0 and below 1"),
        ({"above": 0, "most": 0.01}, [0.01], [0, 0.02], "a number above 0 and at most 0.01"),
    ],
    ids=str,
)
def test_bounds_are_kept_and_said(bounds, inside, outside, said):
    for value in inside:
        assert checks.number(value, "tol", **bounds) == value
        assert checks.numbers([value, value], "tol", **bounds) == (value, value)
    for value in outside:
        with pytest.raises(InputError) as error:
            checks.number(value, "tol", **bounds)
        assert str(error.value) == f"tol must be {said}, got {value!r}"
        with pytest.raises(InputError, match=f"^tol must be a list, each entry {said}, got "):
            checks.numbers([*inside, value], "tol", **bounds)


@pytest.mark.parametrize("values", [[], "1", 1.0, None, [1, "a"]])
def test_lists_of_numbers_hold_at_least_one_and_nothing_else(values):
    with pytest.raises(InputError, match=r"^widths must be a list"):
        checks.numbers(values, "widths")


def test_named_alternatives_pass_through():
    assert checks.number_or("auto", "lam", ["auto"], above=0) == "auto"
    assert checks.number_or(None, "lam", ["auto", None], above=0) is None
    assert checks.number_or(2, "lam", ["auto"], above=0) == 2.0
    for value in ("median", None, 0, np.array(["auto"]), True):
        with pytest.raises(InputError, match=r'^lam must be "auto" or a finite number above 0, got '):
            checks.number_or(value, "lam", ["auto"], above=0)
    assert checks.whole_number_or("auto", "k", ["auto", None]) == "auto"
    assert checks.whole_number_or(np.int32(3), "k", [None]) == 3
    with pytest.raises(InputError, match=r'^k must be "auto", None or a whole number of at least 1, got 0$'):
        checks.whole_number_or(0, "k", ["auto", None])


def test_whole_numbers():
    assert type(checks.whole_number(np.int64(3), "k")) is int
    assert checks.whole_number(0, "seed", least=0) == 0
    for value in (0, -1, 1.0, "1", True, np.bool_(1), None, np.array([1, 2])):
        with pytest.raises(InputError, match=r"^k must be a whole number of at least 1, got "):
            checks.whole_number(value, "k")
    with pytest.raises(InputError) as error:
        checks.whole_number(9, "k", most=8, most_is="the number of rows")
    assert str(error.value) == "k must be a whole number of at least 1 and at most 8 (the number of rows), got 9"


def test_strings_of_a_list_and_flags():
    assert checks.one_of("all", "rows", ("all", "triples")) == "all"
    with pytest.raises(UnknownNameError, match=r"^rows='al' is unknown; did you mean 'all'. Known: all, triples"):
        checks.one_of("al", "rows", ("all", "triples"))
    for value in (None, 3, ["all"], np.array(["all", "triples"])):
        with pytest.raises(UnknownNameError, match=r"^rows=.* is unknown; "):
            checks.one_of(value, "rows", ("all", "triples"))
    assert checks.flag(np.True_, "white") is True
    for value in (0, 1, None, "yes"):
        with pytest.raises(InputError, match=r"^white must be True or False, got "):
            checks.flag(value, "white")


def test_parts_of_messages():
    assert checks.first_rows([3]) == "row 3"
    assert checks.first_rows(np.arange(9)) == "rows 0, 1, 2, 3, 4, ..."
    assert checks.nearest("rfb", ["rbf", "linear"]) == "did you mean 'rbf'? Known: linear, rbf"
    assert checks.nearest("x", []) == "known: none"


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize("value", [np.ones((9, 9)), list(range(10**6)), "x" * 10**6, Unprintable(), {"a": np.ones(99)}])
def test_a_message_quotes_any_value_in_one_short_line(value):
    with pytest.raises(InputError) as error:
        checks.number(value, "tol")
    assert len(str(error.value)) < 300
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"^solver=.* is unknown; "):
        checks.one_of(value, "solver", ["a", "b"])


def test_an_error_is_one_line_whatever_it_quotes():
    assert str(InputError("X: two\n   lines\r\nand a third")) == "X: two lines and a third"
    assert str(pickle.loads(pickle.dumps(UnknownNameError("a\nb")))) == "a b"


def test_rows_of_numbers():
    assert checks.rows_of_numbers(np.eye(2), "start") == ((1.0, 0.0), (0.0, 1.0))
    for value in (np.nan, [], "ab", [[1.0], ["x"]], [1.0]):
        with pytest.raises(InputError, match=r"^start must be a list"):
            checks.rows_of_numbers(value, "start")
