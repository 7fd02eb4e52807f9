"""Unix sockets: the same stream at a path; a path that a dead process left behind is taken over, a living one is not."""

from __future__ import annotations

import asyncio
import socket

import pytest

from wirelake.errors import UsageError
from wirelake.transports import reach, unix
from wirelake.transports.address import Target, parse


@pytest.mark.parametrize(
    ("text", "path"),
    [("unix:/tmp/x", "/tmp/x"), ("unix:///tmp/x", "/tmp/x"), ("unix:x.sock", "x.sock")],  # noqa: S108 - names only, nothing is made there
)
def test_paths_as_people_write_them(text, path):
    target = parse(text, 1, ("tcp", "unix"))
    assert target == Target("unix", path, 0)
    assert parse(str(target), 1, ("unix",)) == target


@pytest.mark.parametrize("text", ["unix:", "unix://"])
def test_no_path_is_no_address(text):
    with pytest.raises(UsageError, match="unix:///path"):
        parse(text, 1, ("tcp", "unix"))
    with pytest.raises(UsageError):
        parse("unix:/x", 1)


def test_bytes_go_both_ways(tmp_path):
    async def main():
        path, taken = str(tmp_path / "s"), asyncio.get_running_loop().create_future()
        listener = await reach.listen(Target("unix", path, 0), None, taken.set_result)
        assert listener.port == 0
        one = await reach.connect(Target("unix", path, 0))
        other = await (await taken).stream()
        assert one.kind == other.kind == "unix"
        one.send(b"hello")
        assert await other.receive() == b"hello"
        other.send(b"x" * 100_000)
        heard = 0
        while heard < 100_000:
            heard += len(await one.receive())
        one.finish()
        assert await other.receive() == b""
        await one.close()
        await other.close()
        listener.close()
        listener.close()
        assert not (tmp_path / "s").exists()

    asyncio.run(main())


def test_a_path_that_is_taken(tmp_path):
    async def main():
        path = tmp_path / "s"
        listener = await unix.listen(str(path), lambda sock: sock.close())
        with pytest.raises(OSError, match="in use"):
            await unix.listen(str(path), lambda sock: sock.close())
        listener.close()
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        listener = await unix.listen(str(path), lambda sock: sock.close())
        listener.close()
        path.write_text("not a socket")
        with pytest.raises(OSError, match="in use"):
            await unix.listen(str(path), lambda sock: sock.close())
        assert path.read_text() == "not a socket"
        with pytest.raises(OSError, match=r"refused|socket"):
            await unix.connect(str(path))

    asyncio.run(main())
