"""Columns of scanned rows: digits, names and numbers, compiled and plain."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from wirelake.protocols import kernel
from wirelake.protocols.arrow import binary, decimal_texts, integers, names, truths

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(kernel, "_use_plain", request.param == "plain")
    return str(request.param)


def test_decimal_texts_are_the_digits_of_64_unsigned_bits() -> None:
    edges = [0, 1, 9, 10, 99, 100, HIGHEST, LOWEST, LOWEST + 1, -1, -2, -10, *(10**power for power in range(19))]
    around = [value + step for value in edges for step in (-1, 0, 1) if LOWEST <= value + step <= HIGHEST]
    texts = decimal_texts(np.array(around, np.int64), np.ones(len(around), np.bool_))
    texts.validate(full=True)
    assert texts.type == pa.string()
    assert texts.to_pylist() == [str(value % (1 << 64)) for value in around]


def test_decimal_texts_are_null_where_they_are_not_valid() -> None:
    table = np.array([[7, 1], [8, 0], [-1, 0], [12, 1]], np.int64)  # a column of a table is not contiguous
    texts = decimal_texts(table[:, 0], table[:, 1] != 0)
    assert texts.to_pylist() == ["7", None, None, "12"]
    assert decimal_texts(np.zeros(0, np.int64), np.zeros(0, np.bool_)).to_pylist() == []


@pytest.mark.parametrize("known", [{0: "zero", 3: "three"}, {3: "three"}, {-2: "minus", 3: "three"}, {3: "three", 1 << 40: "far"}])
def test_codes_without_a_name_are_null(known: dict[int, str]) -> None:
    codes = np.array([3, 0, 1, 4, -1, -2, 1 << 40, HIGHEST, LOWEST, 3], np.int64)
    assert names(codes, known).to_pylist() == [known.get(code) for code in codes.tolist()]
    some = np.arange(len(codes)) % 2 == 0
    assert names(codes, known, some).to_pylist() == [
        known.get(code) if keep else None for code, keep in zip(codes.tolist(), some, strict=True)
    ]


@pytest.mark.parametrize("valid", [[True, True], [False, False], [False, True]])
def test_columns_are_null_where_they_are_not_valid(valid: list[bool]) -> None:
    mask, values = np.array(valid), np.array([5, 0], np.int64)

    def expected(row: list[object]) -> list[object]:
        return [value if keep else None for value, keep in zip(row, valid, strict=True)]

    assert integers(values, pa.int16(), mask).to_pylist() == expected([5, 0])
    assert integers(values, pa.int16(), mask).type == pa.int16()
    assert truths(values, mask).to_pylist() == expected([True, False])
    column = binary(np.frombuffer(b"abcdef", np.uint8), np.array([4, 1]), np.array([2, 3]), mask)
    column.validate(full=True)
    assert column.type == pa.binary()
    assert column.to_pylist() == expected([b"ef", b"bcd"])
