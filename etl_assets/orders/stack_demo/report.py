"""The demo's last words: a table with a line for each pipeline, and whether all is equal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import click

from etl_assets.orders.stack_demo.comparison import PipelineFigures

_COLUMNS = 130
"""The table is not cut off in a narrower terminal or a log."""


def show(figures: Sequence[PipelineFigures], seconds: float) -> None:
    """Print the table and the line."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    sinks = list(figures[0].delivered)
    table = Table(box=SIMPLE)
    table.add_column("pipeline", no_wrap=True)
    for name in ("input", "accepted", "duplicates", "rejected", "rows", *sinks):
        table.add_column(name, justify="right", no_wrap=True)
    for each in figures:
        values = (each.input, each.accepted, each.duplicates, each.rejected, each.rows)
        table.add_row(each.pipeline, *(f"{value:,}" for value in (*values, *each.delivered.values())))
    Console(width=max(_COLUMNS, Console().width)).print(table)
    click.echo(verdict(figures, seconds))


def verdict(figures: Sequence[PipelineFigures], seconds: float) -> str:
    """Return the line that says whether all is equal; what is not follows it."""
    wrong = [each for of_pipeline in figures for each in of_pipeline.wrong]
    if wrong:
        return "\n".join((f"NOT EQUAL ({len(wrong)} differences, {seconds:.0f} s)", *wrong))
    rows = sum(each.rows for each in figures)
    sinks = list(figures[0].delivered)
    return (
        f"All equal: every record has one outcome, and the {rows:,} rows of {len(figures)} tables are in"
        f" {', '.join(sinks[:-1])} and {sinks[-1]}, each once ({seconds:.0f} s)."
    )


def as_json(figures: Sequence[PipelineFigures], seconds: float) -> str:
    """Return the figures for machines."""
    equal = not any(each.wrong for each in figures)
    return json.dumps(
        {"equal": equal, "seconds": round(seconds, 1), "pipelines": [asdict(each) for each in figures]}
    )
