"""Many identifiers of one side are used at once, as arrays, with the results of `take` for each in order (`used_ids.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wirelake.protocols import used_ids
from wirelake.protocols.used_ids import UsedKeys, UsedNumbers

__all__ = ["take_all"]


def take_all(used: UsedNumbers | UsedKeys, ids: npt.NDArray[Any]) -> list[int]:
    """Use numbers of 64 bits, or keys of 16 bytes. Returns the places of those that were used before."""
    if not len(ids):
        return []
    return _take_numbers(used, ids) if isinstance(used, UsedNumbers) else _take_keys(used, ids)


def _take_numbers(used: UsedNumbers, numbers: npt.NDArray[np.uint64]) -> list[int]:
    again: list[int] = []
    lasts = [*np.flatnonzero(numbers[1:] - numbers[:-1] != 1).tolist(), len(numbers) - 1]
    starts = [0, *(place + 1 for place in lasts[:-1])]
    for start, end, first, last in zip(starts, lasts, numbers[starts].tolist(), numbers[lasts].tolist(), strict=True):
        if first < last and not used.has_any(first, last):
            used.take(first)
            used.young.add(first + 1, last)  # it continues the run of the first
        else:
            again += [place for place, number in enumerate(numbers[start : end + 1].tolist(), start) if used.take(number)]
    return again


def _take_keys(used: UsedKeys, keys: npt.NDArray[np.void]) -> list[int]:
    known = np.frombuffer(b"".join((*used.old, *used.young)), keys.dtype)
    mixed = np.sort(np.concatenate((_mixed(known), _mixed(keys))))
    if (mixed[1:] == mixed[:-1]).any():  # perhaps one is used again
        return [place for place, key in enumerate(keys.tolist()) if used.take(key)]
    # Of many new ones, only those are looked at that are remembered afterwards.
    most = used_ids.MAX_KEYS
    lasting = (len(used.young) + len(keys) - 1) % most + 1 + most
    if len(keys) >= lasting:
        keys, used.young = keys[-lasting:], set()
    while len(keys):
        if len(used.young) >= most:
            used.old, used.young = used.young, set()
        part = most - len(used.young)
        used.young.update(keys[:part].tolist())
        keys = keys[part:]
    return []


def _mixed(keys: npt.NDArray[np.void]) -> npt.NDArray[np.uint64]:
    """Equal numbers for equal keys; for others, almost never."""
    halves = keys.view(np.uint64)
    mixed: npt.NDArray[np.uint64] = halves[::2] * np.uint64(0x9E3779B97F4A7C15) + halves[1::2]
    return mixed
