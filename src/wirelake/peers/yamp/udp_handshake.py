"""YAMP-15: answer handshakes over UDP without a peer, until the client proves its address.

The proof is that it receives the answers.
"""

from __future__ import annotations

import os
import secrets

import msgspec

from wirelake.protocols.yamp.messages import Close, Ping, Pong
from wirelake.protocols.yamp.options import Options
from wirelake.protocols.yamp.session import Session
from wirelake.protocols.yamp.state_machine import Speaker
from wirelake.protocols.yamp.wire import encode
from wirelake.transports.udp_stream import Screened

__all__ = ["screen"]


def screen(options: Options, data: bytes) -> Screened:
    """The answer to the first datagram of an address.

    A temporary session makes it; no state is kept.
    """
    session = Session(Speaker.SERVER, msgspec.structs.replace(options, datagrams=True), draw=os.urandom)
    session.start(0.0)
    session.receive(data, 0.0)
    answers, is_open = session.messages(), session.is_proven and session.ended is None
    session.release()
    if not is_open:
        return Screened(tuple(answers))
    payload = secrets.token_hex(4).encode()  # YAMP-17: text
    probe, proof, farewell = (encode(one, options.limits) for one in (Ping(payload), Pong(payload), Close("the server is shutting down")))
    return Screened(tuple(answers), probe, proof, farewell)
