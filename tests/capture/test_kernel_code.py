"""The code that Numba makes of kernels which move packets: what it copies, and what it leaves out."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from wirelake.capture.packets.flow_table import OTHER, WIDTH, _is_key
from wirelake.kernel_cache import VARIABLE, jit
from wirelake.protocols.kernel import compiled, copy, kernel

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="Numba is switched off")


@kernel
def moves(out, at, data, start, size):
    copy(out, at, data, start, size)


@pytest.mark.parametrize("size", [-1, 0, 1, 7, 8, 9, 64, 100])
@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("start", [0, 5])
def test_a_compiled_copy_writes_what_a_plain_one_does(size, at, start):
    data = np.arange(120, dtype=np.uint8)
    data.setflags(write=False)
    mine, theirs = np.full(120, 255, np.uint8), np.full(120, 255, np.uint8)
    compiled(moves)(mine, at, data, start, size)
    if size > 0:
        moves(theirs, at, data, start, size)
    assert mine.tolist() == theirs.tolist()


def test_kernels_count_no_references_to_arrays(tmp_path, monkeypatch):
    compiled(moves)  # so that kernels may call kernels
    monkeypatch.setenv(VARIABLE, str(tmp_path))  # Numba does not show code that it loaded from a cache
    function = jit(_is_key, "fresh")
    flows, ends = np.zeros((1, 13), np.int64), np.zeros((1, 8), np.int64)
    flows[0, WIDTH : OTHER + 1] = 4, 1000, 2000
    assert function(flows, ends, 1, np.zeros(8, np.uint8), 0, 4, 4, 1000, 2000)
    assert not function(flows, ends, 1, np.zeros(8, np.uint8), 0, 4, 4, 1000, 2001)
    (code,) = function.inspect_llvm().values()
    assert "call void @NRT_incref" not in code
    assert "call void @NRT_decref" not in code
