"""NOTICE: the log level for mistakes of remote peers, such as a broken rule.

It lies between INFO and WARNING, so it is off by default; `wirelake serve` shows it on stderr.
"""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["NOTICE"]

NOTICE: Final = 25

logging.addLevelName(NOTICE, "NOTICE")
