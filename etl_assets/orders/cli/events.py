"""The commands that create events: `etl-assets events generate` and `etl-assets events from-olist`.

Belongs here: options, progress, and the display of counts. Does not belong here: creating the events
(`orders/generator/`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import click

from etl_assets.orders.generator.faults import FaultRates
from etl_assets.orders.generator.summary import EventsSummary

_RATE = click.FloatRange(0, 1)
_FOLDER = click.Path(file_okay=False, path_type=Path)


class _Day(click.ParamType[date]):
    name = "day"

    def convert(self, value: str | date, param: click.Parameter | None, ctx: click.Context | None) -> date:
        if isinstance(value, date):
            return value
        try:
            return date.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a day: write YYYY-MM-DD", param, ctx)


@click.group()
def events() -> None:
    """Make events: generated ones, or real orders."""


@events.command()
@click.option("--out", "landing", type=_FOLDER, required=True, help="The landing folder.")
@click.option(
    "--events",
    "count",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="Distinct good events.",
)
@click.option("--days", type=click.IntRange(1), default=7, show_default=True, help="Arrival days.")
@click.option("--start", type=_Day(), help="The first arrival day (UTC); by default the days end today.")
@click.option("--tenants", type=click.IntRange(1), default=4, show_default=True, help="Producers.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed makes the same events.")
@click.option(
    "--duplicates", type=_RATE, default=0.02, show_default=True, help="Lines that send an event again."
)
@click.option(
    "--conflicts", type=_RATE, default=0.001, show_default=True, help="Lines with a known id, other content."
)
@click.option("--malformed", type=_RATE, default=0.001, show_default=True, help="Broken lines.")
@click.option(
    "--invalid-payloads",
    type=_RATE,
    default=0.001,
    show_default=True,
    help="Lines whose payload breaks its contract.",
)
@click.option("--late", type=_RATE, default=0.01, show_default=True, help="Events that arrive days later.")
@click.option("--files-per-day", type=click.IntRange(1), default=1, show_default=True, help="Files of a day.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON object.")
def generate(
    *,
    landing: Path,
    count: int,
    days: int,
    start: date | None,
    tenants: int,
    seed: int,
    duplicates: float,
    conflicts: float,
    malformed: float,
    invalid_payloads: float,
    late: float,
    files_per_day: int,
    as_json: bool,
) -> None:
    """Generate order life cycles with exactly counted faults.

    Rates are shares of the good events, and their lines come on top of them. The same options write the same
    bytes; a second time nothing is written.
    """
    from etl_assets.orders.generator.generate import EventsSpec
    from etl_assets.orders.generator.generate import generate as make

    spec = EventsSpec(
        events=count,
        start=start or datetime.now(UTC).date() - timedelta(days=days - 1),
        days=days,
        tenants=tenants,
        seed=seed,
        rates=FaultRates(
            duplicates=duplicates,
            conflicts=conflicts,
            malformed=malformed,
            invalid_payloads=invalid_payloads,
            late=late,
        ),
        files_per_day=files_per_day,
    )
    with _progress("events", total=count) as report:
        summary = make(spec, landing, on_progress=report)
    show(summary, as_json=as_json)


@events.command("from-olist")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@click.option("--out", "landing", type=_FOLDER, required=True, help="The landing folder.")
@click.option(
    "--duplicates", type=_RATE, default=0.0, show_default=True, help="Lines that send an event again."
)
@click.option(
    "--conflicts", type=_RATE, default=0.0, show_default=True, help="Lines with a known id, other content."
)
@click.option("--malformed", type=_RATE, default=0.0, show_default=True, help="Broken lines.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed mixes in the same lines.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON object.")
def from_olist(
    *,
    folder: Path,
    landing: Path,
    duplicates: float,
    conflicts: float,
    malformed: float,
    seed: int,
    as_json: bool,
) -> None:
    """Turn the orders in DIR into life-cycle events.

    DIR holds orders, order_items, order_payments and customers in the layout of the Olist dataset, each as
    .csv or .csv.gz.
    """
    from etl_assets.orders.generator.olist import convert

    rates = FaultRates(duplicates=duplicates, conflicts=conflicts, malformed=malformed)
    with _progress("orders", total=None) as report:
        summary = convert(folder, landing, rates=rates, seed=seed, on_progress=report)
    show(summary, as_json=as_json)


def show(summary: EventsSummary, *, as_json: bool) -> None:
    """Print the counts, as one JSON object or as a table."""
    counts = summary.as_json()
    if as_json:
        click.echo(json.dumps(counts))
        return
    for name, value in counts.items():
        text = f"{value:,}" if isinstance(value, int) else value
        if isinstance(value, dict):
            text = ", ".join(f"{kind} {count:,}" for kind, count in value.items())
        click.echo(f"{name.replace('_', ' '):20}{text}")


@contextmanager
def _progress(what: str, total: int | None) -> Generator[Callable[[int], None] | None]:
    """Show a progress bar on stderr and yield the function that advances it.

    Without a terminal, yield None.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
