"""Threats: what a broken rule may mean for security. Needs no Arrow."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Threat"]


class Threat(StrEnum):
    """What a broken rule may mean for security: values of the column `threat`."""

    FORGED = "forged"
    """An HMAC or signature that is wrong, or an encrypted body that does not open."""
    UNTRUSTED = "untrusted"
    """An HMAC or signature by a key that is unknown or not trusted."""
    REPLAYED = "replayed"
    """A copy of an earlier packet."""
    STALE = "stale"
    """A packet that is too old, or from the future."""
    DOWNGRADE = "downgrade"
    """Less protection, or other settings, than both sides agreed on."""
    BOMB = "bomb"
    """A message that costs its receiver far more than its sender, or more than a limit."""
    MALFORMED = "malformed"
    """A packet that no sender that follows the rules sends."""
