"""Latency shift: how much later answers come in one sample than in another, with a confidence interval.

The shift is the Hodges-Lehmann estimator: the median of all differences between a value of one sample and one of the other. Its interval
is the one of the Mann-Whitney test (normal approximation), so it assumes no distribution. A large group is sampled by a hash of its
message ids, so the same lake gives the same sample. If several groups are compared, their intervals hold together (Bonferroni).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["CONFIDENCE", "LEAST", "METHOD", "SAMPLE", "Shift", "shift"]

SAMPLE: Final = 2_000
"""Latencies of one side that are compared; more are sampled."""
LEAST: Final = 8
"""Latencies that a side must have."""
CONFIDENCE: Final = 0.95
"""How sure the intervals of all groups are together."""
METHOD: Final = "Hodges-Lehmann shift with the interval of the Mann-Whitney test"

Sample = npt.NDArray[np.float64]


class Shift(msgspec.Struct):
    """How latencies moved from A to B; times in microseconds."""

    count_a: int
    count_b: int
    """Values that were compared."""
    median_a: float
    median_b: float
    shift: float
    """Positive: answers of B come later."""
    low: float
    high: float
    """The confidence interval of the shift."""
    p: float
    """How likely a difference like this is by chance."""

    @property
    def is_certain(self) -> bool:
        """Whether the interval excludes no shift at all."""
        return self.low > 0 or self.high < 0


def shift(first: Any, second: Any, confidence: float = CONFIDENCE) -> Shift:
    """Compare two samples; each must have `LEAST` values or more."""
    a: Sample = np.sort(np.asarray(first, np.float64))
    b: Sample = np.sort(np.asarray(second, np.float64))
    pairs = np.sort(np.subtract.outer(b, a), axis=None)
    low, high = _interval(pairs, len(a), len(b), confidence)
    return Shift(len(a), len(b), float(np.median(a)), float(np.median(b)), float(np.median(pairs)), low, high, _chance(a, b))


def _interval(pairs: Sample, first: int, second: int, confidence: float) -> tuple[float, float]:
    """The differences at the ends that the test leaves out."""
    z = NormalDist().inv_cdf(1 - (1 - confidence) / 2)
    outside = first * second / 2 - z * math.sqrt(first * second * (first + second + 1) / 12)
    index = max(0, math.floor(outside) - 1)
    return float(pairs[index]), float(pairs[-1 - index])


def _chance(a: Sample, b: Sample) -> float:
    """The two-sided p of the Mann-Whitney test, with its correction for equal values."""
    below = np.searchsorted(a, b, side="left").sum()
    equal = np.searchsorted(a, b, side="right").sum() - below
    u, first, second = float(below + equal / 2), len(a), len(b)
    total = first + second
    _, ties = np.unique(np.concatenate([a, b]), return_counts=True)
    spread = first * second / 12 * (total + 1 - float((ties.astype(np.float64) ** 3 - ties).sum()) / (total * (total - 1)))
    if spread <= 0:
        return 1.0
    distance = max(0.0, abs(u - first * second / 2) - 0.5)
    return math.erfc(distance / math.sqrt(2 * spread))
