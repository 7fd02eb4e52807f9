"""Tables of integers in few bytes: what is packed comes back, and both forms of the kernels write the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import examples

from wirelake.capture.blocks.packed_integers import pack_integers, unpack_integers
from wirelake.protocols import kernel

LEAST, MOST = -(2**63), 2**63 - 1
FORMS = (kernel.use_plain, kernel.use_compiled)
EDGES = {
    "no rows": np.zeros((0, 3), np.int64),
    "one row": np.array([[5, -7, MOST]], np.int64),
    "equal values": np.full((4, 2), 2**40, np.int64),
    "differences of every size": np.array([[0] * 9, [0, *((1 << 8 * size) - 1 for size in range(1, 8)), 2**62]], np.int64),
    "one more than fits": np.array([[-3] * 7, [-3 + (1 << 8 * size) for size in range(1, 8)]], np.int64),
    "far apart": np.array([[LEAST, MOST, -1], [MOST, LEAST, 2**62]], np.int64),
    "just too far": np.array([[0, -(2**61) - 1], [2**61 + 1, 0]], np.int64),
    "just not too far": np.array([[-(2**61), 0], [2**61, 1]], np.int64),
    "half of the range": np.array([[-(2**62), 0], [2**62, 1]], np.int64),
}


def packed_by(form, table: np.ndarray) -> bytes:
    """The bytes that one form writes; what the other would read from them must be the same table."""
    form()
    packed = bytes(pack_integers(table))
    for reader in FORMS:
        kernel._use_compiled = False  # else nothing goes back to the plain form
        reader()
        assert unpack_integers(packed, table.shape[1]).tolist() == table.tolist()
    kernel._use_compiled = False
    return packed


@pytest.mark.parametrize("name", EDGES)
def test_what_is_packed_comes_back_and_both_forms_write_the_same(name):
    plain, compiled = (packed_by(form, EDGES[name]) for form in FORMS)
    assert plain == compiled


@examples(60)
@given(st.data())
def test_any_table_comes_back(data):
    columns = data.draw(st.integers(1, 5))
    values = st.one_of(st.integers(-300, 300), st.integers(LEAST, MOST), st.sampled_from([LEAST, MOST, 2**62, -(2**62)]))
    rows = data.draw(st.lists(st.lists(values, min_size=columns, max_size=columns), max_size=20))
    table = np.array(rows, np.int64).reshape(-1, columns)
    plain, compiled = (packed_by(form, table) for form in FORMS)
    assert plain == compiled


def test_a_column_takes_the_bytes_of_its_largest_difference():
    head = 8 * (1 + 2 * 3)
    table = np.array([[7, 1000, 0], [7, 1255, 256]], np.int64)
    assert len(pack_integers(table)) == head + 2 * (0 + 1 + 2)
