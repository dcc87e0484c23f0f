"""Figures of a case: as a table for people, as JSON for what comes after."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of a case; its unit is in the metric's name.

    Attributes:
        case: The case.
        metric: What was measured.
        ours: The platform's figure.
        other: What it is compared with; None where there is nothing to compare with.
        ratio: `ours / other`.
        target: The most that the ratio may be; where there is no ratio, the most that `ours` may be.
        met: Whether it is; None without a target.
        load: Cores that other work kept busy during the runs; a figure of a busy machine tells little.
    """

    case: str
    metric: str
    ours: float
    other: float | None
    ratio: float | None
    target: float | None
    met: bool | None
    load: float


def figure(
    case: str,
    metric: str,
    ours: float,
    other: float | None = None,
    *,
    load: float,
    target: float | None = None,
) -> Figure:
    """Put a figure together: ratio and whether the target is met follow from the rest."""
    ratio = ours / other if other else None
    judged = ours if other is None else ratio
    met = None if target is None or judged is None else judged <= target
    return Figure(
        case=case,
        metric=metric,
        ours=round(ours, 6),
        other=None if other is None else round(other, 6),
        ratio=None if ratio is None else round(ratio, 3),
        target=target,
        met=met,
        load=round(load, 2),
    )


def show(figures: Sequence[Figure]) -> None:
    """Print the table."""
    table = Table(title=figures[0].case if figures else None)
    table.add_column("metric")
    for column in ("ours", "other", "ratio", "target", "met", "load"):
        table.add_column(column, justify="right")
    for row in figures:
        met = {None: "", True: "yes", False: "NO"}[row.met]
        numbers = (_number(value) for value in (row.ours, row.other, row.ratio, row.target))
        table.add_row(row.metric, *numbers, met, f"{row.load:.2f}")
    Console().print(table)


def keep(figures: Sequence[Figure], folder: Path = RESULTS) -> Path:
    """Write the figures of one case as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{figures[0].case}.json"
    file.write_text(json.dumps([asdict(row) for row in figures], indent=2) + "\n", "utf-8")
    return file


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
