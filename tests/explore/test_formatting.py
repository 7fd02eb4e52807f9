"""Numbers, sizes and times as people read them."""

from __future__ import annotations

import pytest

from wirelake.explore import formatting


@pytest.mark.parametrize(
    ("microseconds", "said"),
    [
        (0, "0 µs"),
        (1, "1 µs"),
        (0.5, "0.50 µs"),
        (999, "999 µs"),
        (1_000, "1 ms"),
        (3_833, "3.8 ms"),
        (114_663, "115 ms"),
        (1_500_000, "1.5 s"),
        (30_000_000, "30 s"),
        (60_000_000, "1 min"),
        (2_204_712_267, "36 min 44 s"),
        (3_600_000_000, "1 h"),
        (3_600_000_000 + 5_000_000, "1 h 5 s"),
        (86_400_000_000 * 3 + 3_600_000_000 * 4 + 60_000_000, "3 d 4 h"),
    ],
)
def test_durations(microseconds: float, said: str) -> None:
    assert formatting.duration(microseconds) == said


@pytest.mark.parametrize(
    ("octets", "said"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (6_467_592, "6.2 MiB"),
        (990 * 1024, "990 KiB"),
        (1 << 50, "1.0 PiB"),
        (1 << 65, "32768 PiB"),
    ],
)
def test_sizes(octets: int, said: str) -> None:
    assert formatting.size(octets) == said


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [(0, 0, "0 %"), (0, 9, "0 %"), (9, 9, "100 %"), (1, 3, "33.3 %"), (1, 10**6, "< 0.1 %"), (10**6 - 1, 10**6, "> 99.9 %")],
)
def test_shares_are_never_rounded_to_all_or_nothing(part: int, whole: int, said: str) -> None:
    assert formatting.percent(part, whole) == said


def test_one_is_not_many() -> None:
    assert [formatting.many(number, "file") for number in (0, 1, 1234)] == ["0 files", "1 file", "1,234 files"]
    assert formatting.many(2, "file was", "files were") == "2 files were"


def test_moments_are_utc() -> None:
    assert formatting.moment(1_763_200_005_816_354) == "15 Nov 2025 09:46:45"
    assert formatting.instant(1_763_200_005_000_354) == "15 Nov 2025 09:46:45.000354"


def test_bytes_are_shown_twice() -> None:
    first, second = formatting.hex_dump(b"<a>\x00\xff" + b"." * 12).split("\n")
    assert first == "3c 61 3e 00 ff 2e 2e 2e 2e 2e 2e 2e 2e 2e 2e 2e  <a>··..........."
    assert second.split() == ["2e", "."]
