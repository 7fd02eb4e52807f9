"""What every scanner shares: byte readers, the same compiled and plain, and the switch between the two forms."""

from __future__ import annotations

import os

import numpy as np
import pytest

from wirelake.protocols import kernel
from wirelake.protocols.kernel import active, array, compiled, i64, table, u16, u32, use_compiled

EDGES = (0, 1, 0x7F, 0x80, 0xFF)


@pytest.fixture
def switch(monkeypatch):
    """The process-wide switch, put back afterwards."""
    monkeypatch.setattr(kernel, "_use_compiled", False)
    return monkeypatch


@pytest.mark.parametrize(("reader", "size", "signed"), [(u16, 2, False), (u32, 4, False), (i64, 8, True)])
def test_readers_are_big_endian_in_both_forms(reader, size, signed):
    for place in range(size):
        for edge in EDGES:
            data = bytes((0xA5,)) + bytes((edge if at == place else 0x81) for at in range(size)) + b"\x5a"
            expected = int.from_bytes(data[1 : 1 + size], signed=signed)
            assert reader(data, 1) == expected
            assert compiled(reader)(np.frombuffer(data, np.uint8), 1) == expected
    for data in (bytes(size), b"\xff" * size):
        assert reader(data, 0) == int.from_bytes(data, signed=signed) == compiled(reader)(np.frombuffer(data, np.uint8), 0)


def test_a_short_command_runs_kernels_as_they_stand(switch):
    assert active(u16) is u16
    assert array(b"ab") == b"ab"
    assert table(2, 3) == [0] * 6


@pytest.mark.skipif("NUMBA_DISABLE_JIT" in os.environ, reason="Numba is switched off: nothing is compiled")
def test_a_server_runs_them_compiled(switch):
    assert use_compiled() is True
    assert active(u16) is compiled(u16)
    assert active(u16) is not u16
    assert array(b"ab").tolist() == [0x61, 0x62]
    assert table(2, 3).tolist() == [0] * 6
    assert active(u16)(array(b"ab"), 0) == 0x6162


def test_numba_switched_off_means_not_compiled(switch):
    import numba

    switch.setattr(numba.config, "DISABLE_JIT", 1)
    assert use_compiled() is False
    assert active(u16) is u16


def test_without_numba_there_is_no_compiled_form(switch):
    import sys

    switch.setitem(sys.modules, "numba", None)
    assert use_compiled() is False
    assert active(u16) is u16


def test_a_kernel_is_compiled_once():
    assert compiled(u32) is compiled(u32)
