"""Event Mesh from the command line."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wirelake.peers import trust_file
from wirelake.protocols.event_mesh.scanner import Limits
from wirelake.protocols.event_mesh.verify import Receiver, Rejected

__all__ = ["verifier"]


def verifier(keys: Path, now: float, limits: Limits) -> Callable[[bytes], dict[str, Any]]:
    """What `decode --keys` says of a datagram's sender, as a receiver that has these keys would at this time."""
    receiver = Receiver(trust_file.load(keys), limits=limits)

    def verify(data: bytes) -> dict[str, Any]:
        said = receiver.receive(data, now)
        if isinstance(said, Rejected):
            return {"rejected": said.fault.name, "clause": said.fault.clause, "text": said.fault.text, "at": said.offset}
        who = said.identity
        return {
            "verified": who.authenticated,
            "node_id": None if who.node_id is None else str(uuid.UUID(bytes=who.node_id)),
            "auth_key_id": None if who.auth_key_id is None else who.auth_key_id.hex(),
            "trust": who.trust.value,
            "fresh": said.fresh,
        }

    return verify
