"""Record the datagrams of a node: one flow per remote address, one record per datagram.

Nodes are equals, but a recording has clients and servers. The recording node is the server of all its flows: datagrams it received went to
the server, and datagrams it sent came from there.
"""

from __future__ import annotations

from wirelake.capture.record.recorder import Connection, Recorder
from wirelake.transports.datagram import Address, Datagram

__all__ = ["DatagramRecording"]


class DatagramRecording:
    """The recorded flows of one endpoint, at most `most` at the same time.

    So a flood from many addresses cannot exhaust memory.
    """

    def __init__(self, recorder: Recorder, protocol: str, transport: str, local: Address, most: int) -> None:
        self._recorder = recorder
        self._protocol = protocol
        self._transport = transport
        self._local = local
        self._most = most
        self._open: dict[Address, Connection] = {}

    def received(self, datagrams: list[Datagram]) -> None:
        """Record what arrived, whatever becomes of it."""
        for data, source in datagrams:
            self._with(source).received(data)

    def sent(self, data: bytes, to: Address) -> None:
        """Record what was sent."""
        self._with(to).sent(data)

    def close(self, how: str = "closed") -> None:
        """Record the end of all of them."""
        for connection in self._open.values():
            connection.closed(how, "server")
        self._open.clear()

    def _with(self, remote: Address) -> Connection:
        connection = self._open.pop(remote, None)
        if connection is None:
            if len(self._open) >= self._most:
                self._open.pop(next(iter(self._open))).closed("made room for another", "server")
            connection = self._recorder.connection(
                protocol=self._protocol, role="server", transport=self._transport, local=self._local, remote=remote
            )
        self._open[remote] = connection  # at the end: the first is the one that spoke least recently
        return connection
