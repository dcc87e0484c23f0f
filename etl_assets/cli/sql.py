"""`etl-assets sql`: one query over the platform's tables."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

import click

from etl_assets.cli.table_path import WHOLE_TRANSACTIONS

FORMATS = ("table", "json", "jsonl", "csv")
_MAX_ROWS_OF_A_TABLE = 100


@click.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        '  etl-assets sql "select rating, count(*) from film_ratings group by 1"\n'
        '  etl-assets sql "select * from film_ratings" --format csv > film_ratings.csv\n'
        "  etl-assets sql - --json < query.sql\n"
    )
)
@click.argument("statement")
@click.option(
    "--format",
    "chosen",
    type=click.Choice(FORMATS),
    help="How rows are printed; jsonl is one JSON object a line.  [default: table]",
)
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, for machines: --format json.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    help=f"Rows at most; 0 for all.  [default: {_MAX_ROWS_OF_A_TABLE} as a table, else all]",
)
@WHOLE_TRANSACTIONS
def sql(
    statement: str, chosen: str | None, as_json: bool, limit: int | None, whole_transactions: bool
) -> None:
    """Run one SQL query over the tables; `-` reads it from stdin.

    Each table that the query names is read at its newest acknowledged version, by its name alone. Starts no
    Spark. Nothing can be written, and no other file be read. The grammar is PostgreSQL's, the functions are
    those of Apache DataFusion.
    """
    from etl_assets.cli.result_formats import WRITERS
    from etl_assets.query.sql import run_query
    from etl_assets.settings import load_installation

    if as_json and chosen not in (None, "json"):
        raise click.UsageError(f"--json and --format {chosen} contradict each other")
    form = "json" if as_json else chosen or "table"
    most = limit if limit is not None else _MAX_ROWS_OF_A_TABLE if form == "table" else 0
    text = sys.stdin.buffer.read().decode(errors="surrogateescape") if statement == "-" else statement
    with _interruptible():
        # One more row shows whether the result was cut.
        found = run_query(
            text,
            load_installation().placement().reader(),
            limit=most + 1 if most else None,
            whole_transactions=whole_transactions,
        )
        cut = WRITERS[form](found, most or None)
    if cut:
        click.echo(f"only the first {most:,} rows are shown; --limit 0 shows all", err=True)


@contextmanager
def _interruptible() -> Generator[None]:
    """Let Ctrl-C end the process at once. Python would handle it only when the engine returns rows.

    Nothing needs to be cleaned up.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
