"""NOTICE: the log level of what a remote peer did wrong, such as a broken rule or a request for something unknown.

It lies between INFO and WARNING. Programs that do not ask for it are not told; `wirelake serve` shows it on stderr.
"""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["NOTICE"]

NOTICE: Final = 25

logging.addLevelName(NOTICE, "NOTICE")
