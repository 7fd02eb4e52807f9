"""The report's charts as SVG, each for a wide and a narrow page.

Colours are CSS variables of the page.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from typing import Any, Final, Literal

import altair as alt

from wirelake.explore.exchanges import Latency
from wirelake.explore.formatting import count, duration, many, size
from wirelake.explore.markup import Markup, element, trusted, visible
from wirelake.explore.summary import CATEGORIES, Account, KindLine, Timeline

__all__ = ["latency", "ledger", "timeline"]

WIDE: Final = 1016
NARROW: Final = 342
"""Width of the two drawings: of a page on a desk, and of one on a phone."""

_INK, _MUTED, _LINE = "var(--ink)", "var(--muted)", "var(--line)"
_MAIN, _BAD, _PAPER = "var(--main)", "var(--bad)", "var(--paper)"
_ALARMING: Final = frozenset({"error"})
"""Kinds of messages that are drawn in red."""

_FONT: Final = "system-ui, sans-serif"
_TEXT: Final = 12
_STRIP: Final = 34
_BAR: Final = 14
_HISTOGRAM: Final = 120
_PERCENTILES: Final = (("p50", "half"), ("p95", "95 %"), ("p99", "99 %"))
_LABEL: Final = 100
"""Pixels that a label needs: closer to the right edge it is drawn left of its line."""
_DECADE: Final = 60
"""Pixels that a number on the logarithmic axis needs."""
_GUTTER: Final = 44
"""Pixels for the numbers left of the histogram."""

_TAG: Final = re.compile(r"<svg\b[^>]*?viewBox=\"([^\"]+)\"[^>]*>")


def _data(values: list[dict[str, Any]]) -> Any:
    return alt.Data(values=values)  # type: ignore[no-untyped-call]  # the library's one untyped constructor


def _both(draw: Callable[[int], Any], label: str) -> Markup:
    """Draw a chart wide and narrow; the page shows one of them."""
    return trusted(_svg(draw(WIDE), "wide", label) + _svg(draw(NARROW), "narrow", label))


def _svg(chart: Any, which: str, label: str) -> str:
    styled = (
        chart.configure(background="transparent", font=_FONT, aria=False, padding=0)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=_MUTED,
            titleColor=_MUTED,
            gridColor=_LINE,
            domainColor=_LINE,
            tickColor=_LINE,
            labelFontSize=_TEXT,
            titleFontSize=_TEXT,
        )
        .configure_title(color=_INK, subtitleColor=_MUTED, fontSize=_TEXT, subtitleFontSize=_TEXT, fontWeight=600, anchor="start", offset=2)
    )
    drawn = io.StringIO()
    styled.save(drawn, format="svg")
    # The library sets a size in pixels; the page needs a width of 100 %.
    head = _TAG.search(drawn.getvalue())
    if head is None:
        raise RuntimeError("internal error: the chart library returned no SVG element")
    opening = element("svg", viewBox=head[1], class_=f"chart {which}", role="img", aria_label=label, xmlns="http://www.w3.org/2000/svg")
    return opening.removesuffix("</svg>") + drawn.getvalue()[head.end() :]


def timeline(data: Timeline) -> Markup:
    """Draw bars over time for every kind of message, each on its own scale.

    One error is as visible as a thousand requests.
    """
    step = duration(data.bucket)

    def strip(line: KindLine, width: int, is_last: bool) -> Any:
        values = [{"since": at / 1000, "until": (at + data.bucket) / 1000, "n": n} for at, n in line.points]
        subtitle = f"{many(line.total, 'message')}, at most {count(line.peak)} in {step}"
        ticks = max(2, width // 130)
        axis = alt.Axis(
            labels=is_last, ticks=is_last, domain=True, grid=False, title=None, tickCount=ticks, labelOverlap=True, format=_format(data)
        )
        return (
            alt.Chart(_data(values), title=alt.Title(visible(line.kind), subtitle=subtitle))
            .mark_bar(color=_BAD if line.kind in _ALARMING else _MAIN, stroke=_PAPER, strokeWidth=0.5 if width == WIDE else 0)
            .encode(
                x=alt.X("since:T", scale=alt.Scale(type="utc", domain=[data.start / 1000, data.stop / 1000], nice=False), axis=axis),
                x2="until:T",
                y=alt.Y("n:Q", scale=alt.Scale(domain=[0, line.peak], nice=False), axis=None),
                y2=alt.datum(0),
            )
            .properties(width=width, height=_STRIP)
        )

    def draw(width: int) -> Any:
        strips = [strip(line, width, line is data.kinds[-1]) for line in data.kinds]
        return alt.vconcat(*strips, spacing=12)

    return _both(draw, f"Messages over time, in bars of {step}, one strip for each kind of message")


def _format(data: Timeline) -> str:
    """Choose the d3 time format for an axis of this length."""
    span = data.stop - data.start
    if span <= 10_000_000:
        return "%H:%M:%S.%L"
    if span <= 600_000_000:
        return "%H:%M:%S"
    return "%H:%M" if span <= 86_400_000_000 else "%-d %b %H:%M" if span <= 5 * 86_400_000_000 else "%-d %b %Y"


def latency(data: Latency, what: str) -> Markup:
    """Draw a histogram on a logarithmic axis, with a line for each percentile; `what` names the latency."""
    low = 10 ** math.floor(math.log10(data.bins[0].low) + 1e-9)
    high = 10 ** math.ceil(math.log10(data.bins[-1].high) - 1e-9)
    unit = "datum.value < 1e3 ? datum.value + ' µs' : datum.value < 1e6 ? datum.value / 1e3 + ' ms' : format(datum.value / 1e6, ',') + ' s'"

    tallest = max(one.count for one in data.bins)

    def draw(width: int) -> Any:
        powers = range(round(math.log10(low)), round(math.log10(high)) + 1)
        decades = [10**power for power in powers[:: math.ceil(len(powers) * _DECADE / width)]]
        scale = alt.Scale(type="log", domain=[low, high], nice=False)
        axis = alt.Axis(values=decades, labelExpr=unit, title=None, grid=False, labelBound=False, labelFlush=True)
        bars = (
            alt.Chart(_data([{"low": one.low, "high": one.high, "n": one.count} for one in data.bins]))
            .mark_bar(color=_MAIN, stroke=_PAPER, strokeWidth=1)
            .encode(
                x=alt.X("low:Q", scale=scale, axis=axis),
                x2="high:Q",
                y=alt.Y(
                    "n:Q",
                    axis=alt.Axis(
                        title=None, tickCount=min(4, tallest), domain=False, ticks=False, format=",d", tickMinStep=1, labelPadding=6
                    ),
                ),
                y2=alt.datum(0),
            )
        )
        marks = []
        lines = [(name, max(getattr(data, name), low)) for name, _ in _PERCENTILES]
        near = [name for name, value in lines if (width - _GUTTER) * (1 - math.log10(value / low) / math.log10(high / low)) < _LABEL]
        # Each label has a level of its own. Labels near the edge stand left of their lines, the last one highest, so that no line cuts one.
        levels = [*(name for name, _ in lines if name not in near), *reversed(near)]
        for name, value in lines:
            is_near_edge = name in near
            base = alt.Chart(_data([{"at": value, "label": f"{name}  {duration(value)}"}])).encode(x=alt.X("at:Q", scale=scale, axis=axis))
            above = -_TEXT - 16 * (len(levels) - 1 - levels.index(name))
            marks.append(base.mark_rule(color=_INK, strokeWidth=1, strokeDash=[4, 3], y=above - 6, y2=_HISTOGRAM))
            side: Literal["left", "right"] = "right" if is_near_edge else "left"
            gap = -5 if is_near_edge else 5
            text = base.mark_text(color=_INK, align=side, baseline="middle", dx=gap, fontSize=_TEXT, fontWeight=600, y=above)
            marks.append(text.encode(text="label:N"))
        return alt.layer(bars, *marks).properties(width=width - _GUTTER, height=_HISTOGRAM)

    shares = ", ".join(f"{share} within {duration(getattr(data, name))}" for name, share in _PERCENTILES)
    return _both(draw, f"How long {what} took, on a logarithmic scale: {shares}")


def ledger(accounts: list[Account]) -> Markup:
    """Draw one bar per source, divided by category: to scale within a source, not between sources."""

    def draw(width: int) -> Any:
        values, heads = [], []
        for row, account in enumerate(accounts):
            at = 0.0
            for category in CATEGORIES:
                share = account.parts.get(category, 0) / max(account.size, account.accounted, 1)
                if share:
                    values.append({"row": row, "since": at, "until": at + share, "category": category})
                at += share
            quarantined = account.parts.get("quarantine", 0)
            notes = [size(account.size), *([f"{size(quarantined)} in quarantine"] if quarantined else [])]
            heads.append({"row": row, "name": _short(account.source, width // 12), "note": " · ".join(notes)})
        y = alt.Y("row:O", axis=None, scale=alt.Scale(paddingInner=0, paddingOuter=0))
        x = alt.X("since:Q", axis=None, scale=alt.Scale(domain=[0, 1]))
        colour = alt.Color(
            "category:N", legend=None, scale=alt.Scale(domain=list(CATEGORIES), range=[f"var(--bytes-{name})" for name in CATEGORIES])
        )
        bars = alt.Chart(_data(values)).mark_bar(height=_BAR, yOffset=8).encode(x=x, x2="until:Q", y=y, color=colour)
        head = alt.Chart(_data(heads)).encode(y=y)
        names = head.mark_text(align="left", color=_INK, fontSize=_TEXT, fontWeight=600, dy=-9, x=0).encode(text="name:N")
        notes = head.mark_text(align="right", color=_MUTED, fontSize=_TEXT, dy=-9, x=width).encode(text="note:N")
        return alt.layer(bars, names, notes).properties(width=width, height=alt.Step(42))

    return _both(draw, f"Where the bytes went, one bar for each of {many(len(accounts), 'source')}")


def _short(path: str, most: int) -> str:
    """Shorten a path to its end."""
    name = visible(path.rpartition("/")[2] or path)
    return name if len(name) <= most else f"…{name[1 - most :]}"
