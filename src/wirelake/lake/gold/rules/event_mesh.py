"""Event Mesh over history: tolerated faults, and how nodes greet.

No rule depends on earlier messages (§1): there are no guards.

`gold/security.py` checks keys.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.gold.rules.engine import breaches, odd
from wirelake.lake.tables.security import Threat
from wirelake.protocols.event_mesh.analyzer import Analyzer
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.faults import Faults

__all__ = ["BY_KEYS", "ODDITIES", "SILENCE_SECONDS", "THREATS", "UNSEEN", "by_fields", "greetings", "guards"]

ODDITIES: Final = Analyzer.ODDITIES
"""What the bits of the column `oddities` mean, lowest first."""

THREATS: Final[dict[Faults, Threat]] = {
    **dict.fromkeys((Fault.HMAC_MISMATCH, Fault.SIGNATURE_MISMATCH, Fault.DECRYPTION_FAILED), Threat.FORGED),
    **dict.fromkeys((Fault.UNKNOWN_KEY, Fault.REVOKED_KEY, Fault.WEAK_KEY, Fault.UNTRUSTED_KEY, Fault.KEY_MISMATCH), Threat.UNTRUSTED),
    Fault.REPLAY: Threat.REPLAYED,
    **dict.fromkeys((Fault.STALE, Fault.FUTURE), Threat.STALE),
    **dict.fromkeys((Fault.PAYLOAD_TOO_LARGE, Fault.TLV_COUNT, Fault.INFLATED_OVER_LIMIT), Threat.BOMB),
}
"""§5, §6: faults of proofs, time, repetition and size; a packet with any other fault is malformed."""

BY_KEYS: Final = frozenset(fault for fault in Fault if Fault.UNKNOWN_KEY <= fault <= Fault.REPLAY)
"""§5, EMM-18 to EMM-25: faults of readable packets found with keys, time and repetition.

`tables/security.py` finds them.
"""

UNSEEN: Final[dict[Faults, str]] = {
    **dict.fromkeys((Fault.PROFILE_FIELD_MISSING, Fault.PROFILE_ORDER), "found only if the limit `minimum_profile` is set"),
    Fault.NOT_AUTHENTICATED: "which packets need a proof is the receiver's own policy",
    Fault.REPLAY_CACHE_FULL: "the size of a replay cache is its receiver's own setting; the lake has no such limit",
    **dict.fromkeys(
        (Fault.UNDECRYPTABLE, Fault.DECRYPTION_FAILED, Fault.SECURITY_FIELD_SEALED),
        "the lake has no encryption keys and does not decrypt payloads",
    ),
    **dict.fromkeys(
        (Fault.SEALED_CARRIAGE, Fault.DEFLATE_INVALID, Fault.INFLATED_OVER_LIMIT),
        "how a sealed or packed payload travels is a profile that applications may leave; nothing on the wire says that they keep it",
    ),
    Fault.FIELD_OUT_OF_RANGE: "refused before anything is sent",
    Fault.REKEY_NEEDED: "refused before anything is sent",
    Fault.QUEUE_FULL: "refused before anything is sent",
}
"""What history cannot tell, and why."""

SILENCE_SECONDS: Final = Analyzer.SILENCE_SECONDS
"""§3.2: a node that sent nothing for so long is silent, as for a live node with default options."""


def by_fields(event_mesh: DataFrame) -> DataFrame:
    """EMM-5, EMM-10, EMM-33, EMM-11: what is accepted on receipt but should not have been sent."""
    return breaches(event_mesh, "event_mesh", odd(ODDITIES))


def guards(messages: DataFrame, paired: DataFrame, session_facts: DataFrame) -> list[DataFrame]:
    """No guards: delivery, order and silence are not required of a node (§1)."""
    del messages, paired, session_facts
    return []


def greetings(event_mesh: DataFrame) -> DataFrame:
    """Per node whether it sent a hello: for `sessions`."""
    return (
        event_mesh.where("type_name = 'hello' AND fault IS NULL")
        .groupBy("session_id")
        .agg(
            sql.min("version").alias("client_version"),
            sql.lit(None).cast("smallint").alias("server_version"),
            sql.lit(True).alias("accepted"),
            sql.lit(None).cast("smallint").alias("error_code"),
        )
    )
