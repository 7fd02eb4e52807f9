"""Kernels are compiled in a child process while Spark starts: only those that are needed, and nobody waits for small inputs."""

from __future__ import annotations

import os
import subprocess
import sys
from signal import SIGTERM

import msgspec
import pytest
from tests.lake.mesh import STORY
from tests.lake.mesh import record as record_mesh
from tests.lake.yamp_sessions import record as record_yamp

from wirelake import kernel_cache, protocols
from wirelake.capture.blocks.block import Source
from wirelake.capture.blocks.read_split import read_tasks
from wirelake.lake.sources import blocks, warm_up
from wirelake.lake.sources.warm_up import COLD_BYTES, Item, Order, WarmUp, while_starting

COUNT = """
import sys, msgspec
from numba.core import event
from wirelake.lake.sources import warm_up

class Names(event.Listener):
    def on_start(self, happened):
        names.append(happened.data["dispatcher"].py_func.__module__)
    def on_end(self, happened):
        pass

names = []
event.register("numba:compile", Names())
warm_up.compile_kernels(msgspec.json.decode(sys.stdin.buffer.read(), type=warm_up.Order))
print(msgspec.json.encode(names).decode())
"""


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A recording of Event Mesh, with an empty cache of kernels."""
    monkeypatch.setenv(kernel_cache.VARIABLE, str(tmp_path / "cache"))
    path = tmp_path / "mesh.pcapng"
    record_mesh(path, STORY)
    return Source(str(path), b"m" * 16, path.stat().st_size)


@pytest.fixture
def quick_child(monkeypatch):
    """Let the child run through, without compiling."""
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")


def order_for(source: Source) -> Order:
    return Order([Item("event_mesh", source, is_direct=True)], protocols.ports(), is_reading_compiled=True)


def test_small_inputs_start_no_child(source):
    with while_starting([source], {}) as warming:
        assert warming._child is None
        assert warming.is_plain(is_local=True) is False


@pytest.mark.slow
def test_a_child_compiles_each_kind_that_the_cache_lacks_and_only_once(source, monkeypatch, quick_child):
    monkeypatch.setattr(warm_up, "PLAIN_BYTES", 1)
    (item,) = warm_up._missing([source, source])
    assert (item.kind, item.is_direct) == ("event_mesh", True)
    with while_starting([source], protocols.ports()) as warming:
        assert warming._child.wait() == 0
        assert warming.is_plain(is_local=True) is False
    assert warm_up._missing([source]) == []
    with while_starting([source], protocols.ports()) as warming:
        assert warming._child is None


def test_a_small_batch_does_not_wait_and_runs_plain(source):
    warming = WarmUp(order_for(source), COLD_BYTES - 1)
    assert warming.is_plain(is_local=True) is True
    assert warming._child.returncode == -SIGTERM
    assert warm_up._missing([source]) != []


@pytest.mark.slow
def test_a_large_batch_waits_and_runs_compiled(source, quick_child):
    warming = WarmUp(order_for(source), COLD_BYTES)
    assert warming.is_plain(is_local=True) is False
    assert warming._child.returncode == 0


def test_tasks_on_other_machines_have_caches_of_their_own(source):
    warming = WarmUp(order_for(source), COLD_BYTES)
    assert warming.is_plain(is_local=False) is False
    assert warming._child.returncode == -SIGTERM


def test_without_a_cache_nothing_is_compiled_beforehand(source, tmp_path, monkeypatch):
    monkeypatch.setenv(kernel_cache.VARIABLE, str(tmp_path / "mesh.pcapng"))
    assert warm_up._missing([source]) == []


def test_changed_code_is_compiled_again(source, tmp_path, monkeypatch):
    where = kernel_cache.folder()
    before = warm_up._note(where, "event_mesh")
    assert warm_up._note(where, "event_mesh") == before
    assert warm_up._note(where, "emp") != before
    changed = tmp_path / "protocols"
    changed.mkdir()
    (changed / "scanner.py").write_text("# another one")
    monkeypatch.setattr(protocols, "__path__", [str(changed)])
    assert warm_up._note(where, "event_mesh") != before


@pytest.mark.parametrize("plain", [False, True])
def test_plain_tasks_read_without_numba_whatever_their_size(source, monkeypatch, plain):
    calls = []
    monkeypatch.setattr(blocks, "use_compiled", lambda: calls.append(True))
    monkeypatch.setattr(blocks, "COMPILED_BYTES", source.size)
    group = blocks.TaskGroup(tuple(read_tasks(source, [])))
    assert list(blocks.BlockReader((), protocols.ports(), 0, plain=plain).read(group))
    assert calls == ([] if plain else [True])


@pytest.mark.slow
@pytest.mark.skipif("NUMBA_DISABLE_JIT" in os.environ, reason="Numba is switched off: nothing is compiled")
def test_only_the_kernels_of_the_input_are_compiled_and_then_found(source, tmp_path):
    """The second process decodes the same bytes, and compiles nothing."""
    record_yamp(tmp_path / "yamp.pcapng")
    yamp = Source(str(tmp_path / "yamp.pcapng"), b"y" * 16, (tmp_path / "yamp.pcapng").stat().st_size)
    (item,) = warm_up._missing([yamp])
    order = msgspec.json.encode(Order([item], protocols.ports(), is_reading_compiled=False))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def compiled() -> list[str]:
        done = subprocess.run([sys.executable, "-c", COUNT], input=order, env=environment, capture_output=True, check=True)
        return msgspec.json.decode(done.stdout, type=list[str])

    first = compiled()
    assert {"wirelake.protocols.yamp.scanner"} == {name for name in first if name.endswith(".scanner")}
    assert compiled() == []
