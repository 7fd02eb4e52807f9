"""A small world for live wolpertinger: components, and raw sockets that write lines by hand."""

from __future__ import annotations

import asyncio
import base64
import functools
import re
from typing import NamedTuple

from tests.peers.ends import ANY, two_ends  # noqa: F401 - tests take both from here
from tests.peers.raw import RawEnd, connecting, listening

from wirelake.errors import RequestFailed
from wirelake.peers.wolpertinger import Options, Peer, method

KEY = bytes.fromhex("00112233445566778899aabbccddeeff")
"""Of the cluster that everybody here is of."""
NAMESPACE = "http://nerdcave.eu/wolpertinger"
CALL_ID = "f5afec97-5839-4666-b8d3-8c108b241720"
USERS = {"ada": "lovelace"}
SERVER = Options(cluster_key=KEY, password_of=USERS.get)


class Shop:
    """A bit of everything, for everybody."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    @method(trust=0)
    def testMethod1(self, text: str, loud: bool) -> str:  # noqa: N802
        return text.upper() if loud else text

    @method(trust=0)
    async def Slowly(self, text: str) -> str:  # noqa: N802
        await asyncio.sleep(0)
        return text[::-1]

    @method(trust=0)
    def Note(self, text: str) -> None:  # noqa: N802
        self.notes.append(text)

    @method(trust=0)
    def Notes(self) -> list[str]:  # noqa: N802
        return list(self.notes)

    @method(trust=0)
    def Break(self) -> bool:  # noqa: N802
        raise ValueError("broken")

    @method(trust=0)
    def Missing(self) -> bool:  # noqa: N802
        raise RequestFailed(502)

    @method(trust=1)
    def Level1(self) -> int:  # noqa: N802
        return 1

    @method(trust=2)
    def Level2(self) -> int:  # noqa: N802
        return 2

    @method(trust=3)
    def Level3(self) -> int:  # noqa: N802
        return 3

    @method
    def Level4(self) -> int:  # noqa: N802
        return 4


two_peers = functools.partial(two_ends, Peer)


def line(number: int, document: str | bytes, **metadata: object) -> bytes:
    """A message of layer 1, written by hand."""
    data = document.encode() if isinstance(document, str) else document
    fields = {"message_id": number} | metadata
    return "".join(f"{key}:{value};" for key, value in fields.items()).encode() + base64.b64encode(data) + b"\n"


def called(component: str, method: str, *objects: str, call_id: str = CALL_ID) -> str:
    """A RemoteMethodCall, written by hand."""
    return (
        f'<RemoteMethodCall xmlns="{NAMESPACE}"><ComponentName>{component}</ComponentName><CallId>{call_id}</CallId>'
        f"<MethodName>{method}</MethodName><Parameters>{''.join(objects)}</Parameters></RemoteMethodCall>"
    )


def failed(component: str, code: int, call_id: str = "") -> str:
    """A RemoteError, written by hand."""
    tail = f"<CallId>{call_id}</CallId>" if call_id else ""
    return f'<RemoteError xmlns="{NAMESPACE}"><ComponentName>{component}</ComponentName><ErrorCode>{code}</ErrorCode>{tail}</RemoteError>'


class Heard(NamedTuple):
    """A line of the other side: its metadata, and its document."""

    metadata: dict[str, str]
    document: str

    @property
    def root(self) -> str:
        return re.search(r"<(\w+)[ >]", self.document.partition("?>")[2] or self.document)[1]

    def of(self, element: str) -> str:
        """The text of an element."""
        return re.search(rf"<{element}>([^<]*)</{element}>", self.document)[1]


class Raw(RawEnd):
    """One that knows wolpertinger, to follow it or not."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self.results: list[dict[str, str]] = []

    async def say(self, *said: bytes) -> None:
        """Send lines, or any bytes."""
        self.writer.write(b"".join(said))
        await self.writer.drain()

    async def hear(self) -> Heard | None:
        """The next line that is not empty; None at the end of the stream."""
        got = await self.reader.readline()
        if not got:
            return None
        *pairs, payload = got.decode().rstrip("\n").split(";")
        metadata = dict(one.split(":") for one in pairs)
        return Heard(metadata, "" if "encryption" in metadata else base64.b64decode(payload).decode())

    async def result(self) -> Heard:
        """The next line, which must be a result."""
        heard = await self.hear()
        assert heard is not None
        assert "result" in heard.metadata, heard
        return heard

    async def message(self, confirm: bool = True) -> Heard | None:
        """The next message, results on the way kept; confirmed unless told otherwise."""
        while (heard := await self.hear()) is not None and "result" in heard.metadata:
            self.results.append(heard.metadata)
        if heard is not None and confirm:
            await self.say(f"result:0;message_id:{heard.metadata['message_id']};\n".encode())
        return heard


raw_client = functools.partial(connecting, Raw)
raw_server = functools.partial(listening, Raw)
