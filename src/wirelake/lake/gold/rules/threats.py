"""What a broken rule means to whoever guards a network: the words of `security`, which each room's rules give to their faults.

It refuses to know the rules.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Threat"]


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
