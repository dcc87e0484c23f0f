"""Each captured table beside its source: phase, numbers of rows, and whether every row is equal.

Belongs here: reading both sides, and the table of figures. Nothing here goes through the log or the spool.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from etl_assets.delta.table import Table
from etl_assets.pipelines.captured_declarations import captured_path
from etl_assets.stack.cdc_demo.changes import ROLLED_BACK

if TYPE_CHECKING:
    import psycopg

    from etl_assets.placement.domains import FailureDomain
    from etl_assets.settings import Settings

_COLUMNS = 100
"""The table is not cut off in a narrower terminal or a log."""
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFigures:
    """One line of the demo's table.

    Attributes:
        table: Schema and name in the source.
        phase: Its phase.
        source: Rows in the source.
        delta: Rows in the Delta table.
        differences: Rows that only one of both has.
    """

    table: str
    phase: str
    source: int
    delta: int
    differences: int

    @property
    def is_equal(self) -> bool:
        """Whether the table is followed and has exactly the rows of its source."""
        return self.phase == "ready" and not self.differences


def compare(settings: Settings, session: psycopg.Connection, phases: Mapping[str, str]) -> list[TableFigures]:
    """Read all tables of both sides. Nothing may change the source meanwhile.

    Args:
        settings: The demo's installation.
        session: A session of the source's database, in UTC.
        phases: The phase of each table.
    """
    domain = settings.placement().reader()
    found = []
    declared = json.loads(captured_path(settings.home).read_bytes())["pipelines"]
    for each in sorted(declared, key=lambda one: one["source"]["table"]):
        name, columns = each["source"]["table"], each["columns"]
        sent = [column.get("from", called) for called, column in columns.items()]
        listed = ", ".join(f'"{column}"' for column in sent)
        schema, _, table = name.partition(".")
        rows = session.execute(f'SELECT {listed} FROM "{schema}"."{table}"'.encode())
        source, delta = Counter(map(comparable, rows)), delta_rows(domain, each["name"], list(columns))
        found.append(
            TableFigures(
                table=name,
                phase=phases.get(name, "none"),
                source=source.total(),
                delta=delta.total(),
                differences=(source - delta).total() + (delta - source).total(),
            )
        )
    return found


def delta_rows(domain: FailureDomain, name: str, columns: Sequence[str]) -> Counter[Row]:
    """Return the rows of a Delta table, each counted."""
    contract = domain.catalog.stage(name).table
    snapshot = Table(name=name, domain=domain, contract=contract).snapshot()
    if snapshot is None:
        return Counter()
    found: Counter[Row] = Counter()
    for batch in snapshot.dataset().to_batches(columns=list(columns)):
        found.update(map(comparable, zip(*(batch[each].to_pylist() for each in columns), strict=True)))
    return found


def comparable(row: Iterable[Any]) -> Row:
    """Return a row in which equal values are equal, whichever client has read them."""
    return tuple(_comparable(each) for each in row)


def show(figures: Sequence[TableFigures], changes: Mapping[str, int], seconds: float) -> None:
    """Print the table and the line that says whether all is equal."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table as Shown

    shown = Shown(box=SIMPLE)
    for name in ("table", "phase"):
        shown.add_column(name, no_wrap=True)
    for name in ("rows in the source", "rows in Delta"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("equal", no_wrap=True)
    for each in figures:
        equal = "yes" if each.is_equal else f"NO ({each.differences:,} rows differ)"
        shown.add_row(each.table, each.phase, f"{each.source:,}", f"{each.delta:,}", equal)
    Console(width=max(_COLUMNS, Console().width)).print(shown)
    click.echo(verdict(figures, changes, seconds))


def verdict(figures: Sequence[TableFigures], changes: Mapping[str, int], seconds: float) -> str:
    """Return the line that says whether all is equal."""
    wrong = [each.table for each in figures if not each.is_equal]
    made = sum(changes.values())
    if wrong or not figures:
        return (
            f"NOT EQUAL: {', '.join(wrong) or 'there is no table'} ({made:,} transactions, {seconds:.0f} s)"
        )
    rows = sum(each.delta for each in figures)
    return (
        f"All equal: {len(figures)} tables with {rows:,} rows, after {made:,} transactions of which"
        f" {changes.get(ROLLED_BACK, 0):,} were rolled back ({seconds:.0f} s)."
    )


def as_json(figures: Sequence[TableFigures], changes: Mapping[str, int], seconds: float) -> str:
    """Return the figures for machines."""
    equal = bool(figures) and all(each.is_equal for each in figures)
    tables = [{**asdict(each), "equal": each.is_equal} for each in figures]
    return json.dumps(
        {"equal": equal, "seconds": round(seconds, 1), "changes": dict(changes), "tables": tables}
    )


def _comparable(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    if isinstance(value, Decimal):
        return value.normalize()
    return value
