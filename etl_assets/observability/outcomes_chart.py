"""A small stacked bar chart of outcomes by day, as an image in Markdown, for the Dagster UI."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from etl_assets.contracts.reasons import Outcome

COLORS = {
    Outcome.ACCEPTED.value: "#3a7d5d",
    Outcome.DUPLICATE.value: "#9aa5b1",
    Outcome.CONFLICT.value: "#d9822b",
    Outcome.REJECTED.value: "#c23030",
}
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 720, 240, 56, 34, 40


def outcomes_chart(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Return Markdown with the chart and, under it, the numbers of the last day.

    Records that were not accepted have a chart of their own above, with its own scale: beside the accepted
    ones they would be invisible.

    Args:
        counts: Number of records by outcome for each day, in the order of days.
    """
    if not counts:
        return "No records yet."
    image = base64.b64encode(_svg(counts).encode()).decode()
    day, figures = list(counts.items())[-1]
    words = ", ".join(f"{figures.get(name, 0):,} {name}" for name in COLORS)
    return f"![Outcomes by day](data:image/svg+xml;base64,{image})\n\n{day}: {words}"


def _svg(counts: Mapping[str, Mapping[str, int]]) -> str:
    accepted = {day: figures.get(Outcome.ACCEPTED.value, 0) for day, figures in counts.items()}
    others = {day: sum(figures.values()) - accepted[day] for day, figures in counts.items()}
    plot = _HEIGHT - _TOP - _BOTTOM
    upper, lower = plot * 0.4, plot * 0.55
    step = (_WIDTH - _LEFT - 8) / len(counts)
    width = min(step * 0.8, 48)
    parts = [
        *_legend(),
        *_axis(_TOP + upper, upper, max(others.values())),
        *_axis(_HEIGHT - _BOTTOM, lower, max(accepted.values())),
    ]
    for index, (day, figures) in enumerate(counts.items()):
        left = _LEFT + index * step + (step - width) / 2
        parts.append(
            _bar(
                left,
                _HEIGHT - _BOTTOM,
                width,
                lower * accepted[day] / max(1, *accepted.values()),
                Outcome.ACCEPTED.value,
                day,
                accepted[day],
            )
        )
        base = _TOP + upper
        for name in list(COLORS)[1:]:
            height = upper * figures.get(name, 0) / max(1, *others.values())
            parts.append(_bar(left, base, width, height, name, day, figures.get(name, 0)))
            base -= height
        if index % max(1, len(counts) // 10) == 0:
            parts.append(_text(left + width / 2, _HEIGHT - _BOTTOM + 14, day[5:], anchor="middle"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}"'
        ' font-family="sans-serif"'
        f' font-size="11"><rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>'
    )


def _legend() -> list[str]:
    parts = []
    for index, (name, color) in enumerate(COLORS.items()):
        left = _LEFT + index * 100
        parts.append(
            f'<rect x="{left}" y="8" width="10" height="10" fill="{color}"/>{_text(left + 15, 17, name)}'
        )
    return parts


def _axis(bottom: float, height: float, highest: int) -> list[str]:
    line = f'<line x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{bottom:.1f}" y2="{bottom:.1f}" stroke="#cbd2d9"/>'
    return [
        line,
        _text(_LEFT - 6, bottom - height + 9, f"{highest:,}", anchor="end"),
        _text(_LEFT - 6, bottom, "0", anchor="end"),
    ]


def _bar(left: float, bottom: float, width: float, height: float, name: str, day: str, number: int) -> str:
    title = f"<title>{day}: {number:,} {name}</title>"
    return (
        f'<rect x="{left:.1f}" y="{bottom - height:.1f}" width="{width:.1f}" height="{height:.1f}"'
        f' fill="{COLORS[name]}">{title}</rect>'
    )


def _text(left: float, top: float, text: str, *, anchor: str = "start") -> str:
    return f'<text x="{left:.1f}" y="{top:.1f}" text-anchor="{anchor}" fill="#52606d">{text}</text>'
