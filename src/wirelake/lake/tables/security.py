"""`security`: who can be believed, and what endangers whom. Every packet of Event Mesh that carries a proof or must not be accepted, with
the reason; of all other protocols, what breaks a rule that their rooms call a threat.

For Event Mesh three things come together: what the keys say (`proofs.py`, only where there is a proof to check), what time says, and what
was seen before, in all of history. A packet breaks one rule at most: the first in the order of EMM-28, as for a live receiver that was
there when the packet was seen. Without keys nothing is checked anew, and what was found out earlier stands.

It refuses to know how a proof is checked.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import CONNECTION, SESSION, TIME, Table, column

__all__ = ["TABLE", "Threat"]


class Threat(StrEnum):
    """What somebody may be up to."""

    FORGED = "forged"
    """A proof that does not hold, or a secret that does not open."""
    UNTRUSTED = "untrusted"
    """A proof by a key that proves nothing here."""
    REPLAYED = "replayed"
    """Said before, by somebody else's leave."""
    STALE = "stale"
    """From another time than now."""
    DOWNGRADE = "downgrade"
    """Less protection, or another agreement, than both sides settled for."""
    BOMB = "bomb"
    """What costs its receiver far more than its sender, or more than it may."""
    MALFORMED = "malformed"
    """What no sender that keeps the rules says, where proofs are asked for."""


TABLE: Final = Table(
    "security",
    ("source", "offset", "rule"),
    pa.schema(
        [
            SESSION,
            CONNECTION,
            column("message_id", pa.binary(), "The message in `messages`; null for bytes that are none."),
            column("ts", TIME, "When it was seen."),
            column("protocol", pa.string(), "The room: `event_mesh`, `emp`, …"),
            column("node_id", pa.binary(), "Who says it is the sender."),
            column("auth_key_id", pa.binary(), "By which key it is to be verified; null for the node's default, or a key of its own."),
            column("packet_id", pa.int64(), "The Message ID, which tells a node's packets apart."),
            column("sender", pa.string(), "Address and port it came from, which proves nothing."),
            column("receiver", pa.string(), "Address and port it was sent to."),
            column("proof", pa.string(), "What it carries: `hmac`, `signature`, `hmac+signature`; null without."),
            column("verdict", pa.string(), "What keys say of the proof: `GENUINE`, or the rule it breaks; null if no keys were given."),
            column("genuine", pa.bool_(), "Whether the proof is right, even if its key was revoked since; null if no keys were given."),
            column("trust", pa.string(), "How the key came to be trusted: `store`, or `none`; null if no keys were given."),
            column("accepted", pa.bool_(), "Whether it breaks no rule; null if that cannot be said without keys."),
            column("was_accepted", pa.bool_(), "What `accepted` said by the keys of before; null if other keys never said otherwise."),
            column("threat", pa.string(), "What breaking the rule may mean: `" + "`, `".join(Threat) + "`; null if none is broken."),
            column("rule", pa.string(), "The rule it breaks, of Event Mesh the first in the order of checks (EMM-28); null if none."),
            column("clause", pa.string(), "The clause or ruling that is."),
            column("text", pa.string(), "The rule as one plain sentence."),
            column("age_us", pa.int64(), "Microseconds from when it says it was signed, or made, to when it was seen."),
            column("sighting", pa.int32(), "Which sighting of this packet, in all of history; 1 is the first. Null if it is forged."),
            column("first_message_id", pa.binary(), "The first sighting, in `messages`."),
            column("source", pa.string(), "The file the bytes came from."),
            column("offset", pa.int64(), "Where in the source the first byte is."),
            column("length", pa.int64(), "Bytes in the source from the first to the last byte."),
        ]
    ),
    "One row per packet of Event Mesh that carries a proof or breaks a rule, and one per threat of other protocols.",
)
