"""Horizontal bars as an SVG text: no library, and the same text for the same values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_LABELS, _BARS, _VALUES, _ROW, _HEAD = 430, 330, 60, 20, 40
_MET, _MISSED, _TEXT, _LINE = "#4c9a6a", "#c8553d", "#24292f", "#8c959f"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar; `good` says in which of two colours."""

    label: str
    value: float
    good: bool


def bar_chart(title: str, bars: Sequence[Bar], *, line: float | None = None) -> str:
    """The chart. Longer bars than twice the line are cut there; their numbers tell."""
    longest = max((bar.value for bar in bars), default=1.0)
    end = longest if line is None else min(max(longest, line), 2 * line)
    scale = _BARS / (end or 1.0)
    width, height = _LABELS + _BARS + _VALUES, _HEAD + _ROW * len(bars) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="24" font-size="14" font-weight="bold" fill="{_TEXT}">{escape(title)}</text>',
    ]
    if line is not None and bars:
        x = _LABELS + line * scale
        parts.append(
            f'<line x1="{x:.1f}" y1="{_HEAD - 4}" x2="{x:.1f}" y2="{height - 8}" stroke="{_LINE}"'
            ' stroke-dasharray="4 3"/>'
        )
    for number, bar in enumerate(bars):
        top, long = _HEAD + _ROW * number, min(bar.value, end) * scale
        parts += [
            f'<text x="{_LABELS - 8}" y="{top + 13}" text-anchor="end"'
            f' fill="{_TEXT}">{escape(bar.label)}</text>',
            f'<rect x="{_LABELS}" y="{top + 3}" width="{max(long, 1):.1f}" height="{_ROW - 6}"'
            f' fill="{_MET if bar.good else _MISSED}"/>',
            f'<text x="{_LABELS + long + 5:.1f}" y="{top + 13}" fill="{_TEXT}" stroke="#ffffff"'
            f' stroke-width="3" paint-order="stroke">{bar.value:.2f}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"
