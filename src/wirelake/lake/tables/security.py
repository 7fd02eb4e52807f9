"""`security`: packets and messages that may be an attack, and results of checking keys.

Built by `gold/fold/security.py`. Event Mesh has a row for every packet that carries a proof (HMAC or signature) or must not be accepted.
Other protocols have a row for every broken rule that is a threat.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import CONNECTION, SESSION, TIME, Table, column
from wirelake.protocols.faults import Threat

__all__ = ["TABLE", "Threat"]


TABLE: Final = Table(
    "security",
    ("source", "offset", "rule"),
    pa.schema(
        [
            SESSION,
            CONNECTION,
            column("message_id", pa.binary(), "The message in `messages`; null for bytes that are not a message."),
            column("ts", TIME, "Time of the packet or message."),
            column("protocol", pa.string(), "Protocol: `emp`, `event_mesh`, `relink`, `yamp` or `wolpertinger`."),
            column("node_id", pa.binary(), "Id of the node that claims to be the sender."),
            column("auth_key_id", pa.binary(), "Id of the key to verify it by; null for the node's default key, or a key in the packet."),
            column("packet_id", pa.int64(), "The Message ID, unique among the packets of a node."),
            column("sender", pa.string(), "Address and port it came from; easily forged."),
            column("receiver", pa.string(), "Address and port it was sent to."),
            column("proof", pa.string(), "Proof in the packet: `hmac`, `signature`, `hmac+signature`; null without."),
            column("verdict", pa.string(), "Result of checking the proof: `GENUINE`, or the rule it breaks; null if no keys were given."),
            column("genuine", pa.bool_(), "Whether the proof is valid, even if its key was revoked later; null if no keys were given."),
            column(
                "trust",
                pa.string(),
                "Why the key is trusted: `store` (it is in the trust store), `in-band` or `first-use` (it came with the packet; see"
                " `ingest --trust`), or `none`; null if no keys were given.",
            ),
            column("accepted", pa.bool_(), "Whether it breaks no rule; null if that is unknown without keys."),
            column("was_accepted", pa.bool_(), "Previous value of `accepted`, under an earlier set of keys; null if it never changed."),
            column("threat", pa.string(), "Kind of threat: `" + "`, `".join(Threat) + "`; null if none is broken."),
            column("rule", pa.string(), "The rule it breaks; for Event Mesh the first in the order of checks (EMM-28); null if none."),
            column("clause", pa.string(), "Clause or ruling of the rule."),
            column("text", pa.string(), "The rule as one sentence."),
            column("age_us", pa.int64(), "Microseconds from the time in the packet (signed, or sent) to the time of capture."),
            column(
                "sighting",
                pa.int32(),
                "How many times this packet was captured so far, in all of history; 1 is the first. Null if it is forged.",
            ),
            column("first_message_id", pa.binary(), "The first capture of this packet, in `messages`."),
            column("source", pa.string(), "The file the bytes came from."),
            column("offset", pa.int64(), "Offset of the first byte in the source."),
            column("length", pa.int64(), "Bytes in the source from the first to the last byte."),
        ]
    ),
    "One row per packet of Event Mesh that carries a proof or breaks a rule, and one per threat of other protocols.",
)
