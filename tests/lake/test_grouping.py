"""Groups of rows: order, null keys, sums, and keys too many for one number."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirelake.lake.gold.grouping import codes, group, ranks

TEXT = st.lists(st.none() | st.text(max_size=3), max_size=30)


def chunked(values, kind=None):
    middle = len(values) // 2
    return pa.chunked_array([pa.array(part, kind or pa.string()) for part in (values[:middle], values[middle:])])


@given(TEXT)
def test_ranks_follow_the_bytes_and_null_comes_first(values):
    distinct = sorted({value.encode() for value in values if value is not None})
    expected = [-1 if value is None else distinct.index(value.encode()) for value in values]
    assert ranks(chunked(values)).tolist() == expected


@given(TEXT)
def test_codes_lead_back_to_values(values):
    numbers, distinct = codes(chunked(values))
    assert [None if number < 0 else distinct[number].as_py() for number in numbers.tolist()] == values


@given(st.lists(st.tuples(*[st.integers(-1, 3)] * 3, st.integers(-5, 5)), max_size=40))
def test_groups_are_those_of_a_dictionary(rows):
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)] or [np.zeros(0, np.int64)] * 4
    *keys, values = columns
    expected = {}
    for *key, value in rows:
        expected.setdefault(tuple(key), []).append(value)
    groups = group(keys)
    found = [tuple(int(key[row]) for key in keys) for row in groups.first]
    assert found == sorted(expected)
    assert groups.totals(values).tolist() == [sum(expected[key]) for key in found]
    assert groups.counts(values > 0).tolist() == [sum(value > 0 for value in expected[key]) for key in found]
    assert groups.distinct_counts(values).tolist() == [len({value for value in expected[key] if value >= 0}) for key in found]


@pytest.mark.parametrize("most", [10, 1 << 30, 1 << 60])
def test_keys_may_be_so_many_that_their_product_is_no_number(most):
    keys = [np.array([most, 0, most, -1, 0]), np.array([0, most, 0, most, most]), np.array([most, 1, most, 1, 2])]
    groups = group(keys)
    assert groups.of_row.tolist() == [3, 1, 3, 0, 2]
    assert [int(keys[2][row]) for row in groups.first] == [1, 1, 2, most]


def test_a_column_without_chunks_has_no_groups():
    assert len(group([ranks(pa.chunked_array([], pa.string()))]).first) == 0
