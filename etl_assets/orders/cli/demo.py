"""`etl-assets demo`: generate or convert events, materialize every asset, and print a table of metrics."""

from __future__ import annotations

import datetime as dt
import json
import logging
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

if TYPE_CHECKING:
    from etl_assets.settings import Settings

DEMO_FILE = "demo.json"
ORDERS_NAME = "orders"
DAYS_PER_RUN = 366
"""More days than an ordinary run has: a demo shows years of orders within minutes."""


@click.command()
@click.option(
    "--orders",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with orders, order_items, order_payments and customers as .csv or .csv.gz; default: made-up"
    " orders.",
)
@click.option(
    "--days", type=click.IntRange(1, 3_660), default=7, show_default=True, help="Days of made-up orders."
)
@click.option(
    "--events",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Made-up events; with --stack cdc, transactions.",
)
@click.option(
    "--domains",
    type=click.IntRange(1, 9),
    default=1,
    show_default=True,
    help="Failure domains, each a folder: tables are mirrored over them.",
)
@click.option(
    "--stack",
    type=click.Choice(["full", "cdc"]),
    help="full: start Kafka, PostgreSQL, OpenSearch and an S3-compatible store, and run pipelines from and to"
    " them; cdc: start PostgreSQL, and follow its tables while they change (docs/stack.md).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.pass_context
def demo(
    context: click.Context,
    orders: Path | None,
    days: int,
    events: int,
    domains: int,
    stack: str | None,
    as_json: bool,
) -> None:
    """Run the whole platform on events: files in, every asset materialized, a table of figures out.

    A second run reads nothing twice and says so.
    """
    if stack is not None:
        context.exit(_over_servers(context, stack, events, as_json=as_json))
    from etl_assets.orders.cli.first_day import start_partitions
    from etl_assets.settings import home_folder, load_settings

    started = time.monotonic()
    home = home_folder()
    _expect_orders()
    _use_domains(home, domains)
    _say("1/3 events")
    summary = _land_orders(home, orders) if orders is not None else _land_generated(home, events, days)
    start_partitions(home, summary.first_day)
    settings = load_settings()
    figures = _materialize(settings)
    figures["seconds"] = round(time.monotonic() - started, 1)
    if as_json:
        click.echo(json.dumps(figures))
    else:
        _show(figures, settings)


def _over_servers(context: click.Context, stack: str, events: int, *, as_json: bool) -> int:
    """Run a demo over real servers, which has an installation of its own. Returns the exit code."""
    from click.core import ParameterSource

    given = {
        name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if unused := given & {"orders", "days", "domains"}:
        raise click.UsageError(f"--{min(unused)} is not for --stack {stack}")
    if stack == "cdc":
        from etl_assets.stack.cdc_demo.command import TRANSACTIONS, run_cdc_demo

        return run_cdc_demo(transactions=events if "events" in given else TRANSACTIONS, as_json=as_json)
    from etl_assets.orders.stack_demo.command import EVENTS, run_full_stack

    return run_full_stack(events=events if "events" in given else EVENTS, as_json=as_json)


def _expect_orders() -> None:
    """Reject an installation that leaves the orders pipeline out.

    Raises:
        SettingsError: it does.
    """
    from etl_assets.errors import SettingsError
    from etl_assets.settings import load_settings, platform_file

    if ORDERS_NAME not in load_settings().pipelines.built_in:
        raise SettingsError(
            f"the demo shows the orders pipeline, which {platform_file()} leaves out",
            fix="set ETL_ASSETS_HOME to a new folder for the demo, or name `orders` in pipelines.built_in",
            field="pipelines.built_in",
        )


def _say(text: str) -> None:
    click.echo(f"==> {text}", err=True)


def _land_generated(home: Path, events: int, days: int) -> Any:
    """Generate events. The first day is stored, so that a demo on another day generates the same events."""
    from etl_assets.orders.generator.faults import FaultRates
    from etl_assets.orders.generator.generate import EventsSpec, generate

    remembered = home / DEMO_FILE
    key = f"{events}/{days}"
    starts = json.loads(remembered.read_text("utf-8")) if remembered.is_file() else {}
    start = starts.get(key) or (dt.datetime.now(dt.UTC).date() - dt.timedelta(days=days - 1)).isoformat()
    rates = FaultRates(duplicates=0.02, conflicts=0.001, malformed=0.001, invalid_payloads=0.001, late=0.01)
    spec = EventsSpec(events=events, days=days, start=dt.date.fromisoformat(start), rates=rates)
    summary = generate(spec, _landing(home))
    home.mkdir(parents=True, exist_ok=True)
    remembered.write_text(json.dumps({**starts, key: start}), "utf-8")
    _landed(summary)
    return summary


def _land_orders(home: Path, orders: Path) -> Any:
    from etl_assets.orders.generator.olist import convert

    summary = convert(orders, _landing(home))
    _landed(summary)
    return summary


def _landing(home: Path) -> Path:
    from etl_assets.settings import load_settings

    return load_settings().landing_path if home.is_dir() else home / "landing"


def _landed(summary: Any) -> None:
    new = summary.files - summary.files_there_before
    _say(f"    {summary.lines:,} lines in {summary.files:,} files, {new:,} of them new")


def _use_domains(home: Path, domains: int) -> None:
    """Write the domains of a new installation into its platform file.

    An existing installation keeps its own.
    """
    from etl_assets.errors import SettingsError
    from etl_assets.settings import load_settings

    if domains in (1, len(load_settings().domains)):
        return
    file = home / "platform.yaml"
    content = (yaml.safe_load(file.read_text("utf-8")) if file.is_file() else None) or {}
    if "domains" in content or (home / "domains.json").exists():
        raise SettingsError(
            f"this installation has {len(load_settings().domains)} failure domains, not {domains}",
            fix="leave --domains out to go on with it, or set ETL_ASSETS_HOME to a new folder",
            field="domains",
        )
    names = [f"local/{chr(ord('a') + number)}" for number in range(domains)]
    content["domains"] = [{"name": name, "root": f"domains/{name.rpartition('/')[2]}"} for name in names]
    home.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
    _say(f"    tables are mirrored over {', '.join(names)} ({file})")


def _materialize(settings: Settings) -> dict[str, Any]:
    from etl_assets.instance import open_instance
    from etl_assets.observability.pending import find_unfinished, unread
    from etl_assets.steps.placing import once_led

    placement = settings.placement()
    now = dt.datetime.now(dt.UTC)
    new = once_led(placement, lambda: unread(settings, now=now, settle_seconds=0).ready)
    unfinished = once_led(placement, lambda: find_unfinished(placement.reader(), settings.start_date))
    for undone, _ in unfinished.sentences():
        _say(f"    {undone}")
    days = tuple(sorted({*new, *unfinished.days}))
    if not days:
        _say("2/3 every file was read before: nothing to do")
        return {"read_twice": 0, "lines_read": 0, **_tables(settings)}
    _expect_jars(settings)
    _say(f"2/3 {len(days):,} days to materialize, at most {DAYS_PER_RUN} a run; Spark starts with the first")
    with open_instance(settings) as instance, _steps_heard():
        totals, seconds = _run(settings, instance, days)
    _say("3/3 done")
    figures = {
        "lines_read": totals["raw_events.read"],
        "accepted": totals["raw_events.accepted"],
        "duplicates": totals["raw_events.duplicate"],
        "conflicts": totals["raw_events.conflict"],
        "rejected": totals["raw_events.rejected"] + totals["normalized_orders.rejected"],
        "normalized": totals["normalized_orders.normalized"],
        "committed": totals["warehouse_rows.committed"],
        "rows_per_second": round(totals["raw_events.read"] / seconds),
    }
    return {**figures, **_tables(settings)}


def _expect_jars(settings: Settings) -> None:
    """Check Delta's jars and fetch missing ones: a demo is often a new installation's first command."""
    from etl_assets.errors import RuntimeMissing
    from etl_assets.resources.spark import spark_config
    from etl_assets.runtime.jars import delta_jars, ensure_jars
    from etl_assets.runtime.java import find_java

    if "spark.remote" in spark_config(settings.spark):
        return
    try:
        delta_jars()
    except RuntimeMissing:
        ensure_jars(find_java(), partial(click.echo, err=True))


class _Saying(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _say(f"    {record.getMessage()}")


@contextmanager
def _steps_heard() -> Generator[None]:
    """Print the log messages of steps."""
    logger = logging.getLogger("etl_assets")
    handler = _Saying()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _run(settings: Settings, instance: Any, days: tuple[dt.date, ...]) -> tuple[Counter[str], float]:
    from etl_assets.cli.run_figures import run_figures
    from etl_assets.partitions import ranges
    from etl_assets.runs import materialize_days
    from etl_assets.steps.step import ReadMode

    totals: Counter[str] = Counter()
    started = time.monotonic()
    batches = list(ranges(days, DAYS_PER_RUN, bridge_gaps=True))
    for number, (first, last) in enumerate(batches, start=1):
        batch = [day for day in days if first <= day <= last]
        began = time.monotonic()
        (result,) = materialize_days(
            settings, instance, batch, mode=ReadMode.INCREMENTAL, max_days=DAYS_PER_RUN
        )
        figures = run_figures(result, settings.catalog())
        totals += figures
        _say(
            f"    run {number}/{len(batches)}: {first} to {last}, {figures['raw_events.read']:,} lines"
            f" in {time.monotonic() - began:.1f} s"
        )
    return totals, time.monotonic() - started


def _tables(settings: Settings) -> dict[str, Any]:
    """Return metrics of the tables' current content, whatever this run did."""
    from etl_assets.orders.order_statuses import orders_by_status

    return {"orders_by_status": orders_by_status(settings.placement().reader())}


def _show(figures: dict[str, Any], settings: Settings) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="orders pipeline", show_header=False)
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in figures.items():
        if name == "orders_by_status":
            for status, orders in value.items():
                table.add_row(f"orders {status}", f"{orders:,}")
        else:
            table.add_row(name.replace("_", " "), f"{value:,}")
    console = Console()
    if figures.get("lines_read") == 0:
        console.print("Nothing was read twice: all files had been read before.")
    console.print(table)
    console.print(f"Tables: {settings.placement().reader().root / 'tables'}   UI: etl-assets dev")
