"""Figures of captures for Prometheus: lag, log that slots hold back, phases, rows and errors.

Belongs here: their names, texts and values. Does not belong here: the text format and who may read it
(`control/routes/metrics.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.captures import table_views
from etl_assets.pipelines.capture_files import usable_captures
from etl_assets.sources.captures.connect import capture_reader
from etl_assets.sources.captures.phases import TablePhase
from etl_assets.sources.captures.table_view import TableView

if TYPE_CHECKING:
    from etl_assets.settings import Settings
    from etl_assets.sources.postgres_cdc.log_server import LogSlot

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """A figure that goes up and down.

    Attributes:
        name: Its name, with its unit.
        text: What it is.
        values: A value for each combination of labels.
    """

    name: str
    text: str
    values: Mapping[Labels, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureFigures:
    """What is known of a capture at one moment.

    Attributes:
        name: Its name.
        is_up: Whether the source's server answers.
        slot: Its slot; None if there is none, or the server does not answer.
        tables: Its tables.
    """

    name: str
    is_up: bool
    slot: LogSlot | None
    tables: Sequence[TableView]


def read_figures(settings: Settings) -> list[CaptureFigures]:
    """Ask the servers of all captures, and read the states of their tables.

    Raises:
        ControlStoreUnavailable: the control store does not answer.
    """
    found = []
    for name, capture in sorted(usable_captures(settings.home).items()):
        with closing(capture_reader(settings, capture)) as reader:
            is_up, slot = reader.slot()
            tables = tuple(table_views(settings, name, asks=is_up))
            found.append(CaptureFigures(name=name, is_up=is_up, slot=slot, tables=tables))
    return found


def capture_gauges(captures: Sequence[CaptureFigures]) -> Iterator[Gauge]:
    """Yield the figures of captures; none without captures."""
    if not captures:
        return
    named: list[tuple[Labels, CaptureFigures]] = [((("capture", each.name),), each) for each in captures]
    slots = [(labels, each.slot) for labels, each in named if each.slot is not None]
    yield Gauge(
        name="etl_assets_capture_up",
        text="Whether the source's server answers.",
        values={labels: each.is_up for labels, each in named},
    )
    yield Gauge(
        name="etl_assets_capture_slot_held_bytes",
        text="Log that the server keeps for the slot, on its disk.",
        values={labels: slot.held_bytes for labels, slot in slots},
    )
    yield Gauge(
        name="etl_assets_capture_slot_lost",
        text="1: the server removed log that was not read. 0.5: it may at the next checkpoint.",
        values={labels: 1 if slot.is_lost else slot.may_be_lost * 0.5 for labels, slot in slots},
    )
    phases: dict[Labels, float] = {}
    for labels, each in named:
        counts = Counter(table.state.phase for table in each.tables)
        phases |= {(*labels, ("phase", phase.value)): counts[phase] for phase in TablePhase}
    yield Gauge(name="etl_assets_capture_tables", text="Tables by phase.", values=phases)
    tables: dict[Labels, TableView] = {
        (*labels, ("table", table.state.table)): table for labels, each in named for table in each.tables
    }
    followed = {labels: table for labels, table in tables.items() if table.state.phase is not TablePhase.LEFT}
    for name, text, value in _OF_TABLES:
        found = {labels: value(table) for labels, table in followed.items()}
        known: dict[Labels, float] = {
            labels: number for labels, number in found.items() if number is not None
        }
        yield Gauge(name=name, text=text, values=known)


_OF_TABLES: tuple[tuple[str, str, Callable[[TableView], float | None]], ...] = (
    (
        "etl_assets_capture_table_lag_bytes",
        "Log of the server after the table's last commit, of all tables.",
        lambda table: table.lag_bytes,
    ),
    (
        "etl_assets_capture_table_lag_seconds",
        "For how long changes of the table may have been waiting, in the spool or in the log of the server.",
        lambda table: table.lag_seconds,
    ),
    (
        "etl_assets_capture_table_rows_copied",
        "Rows of the copy that are committed.",
        lambda table: table.state.rows_copied,
    ),
    (
        "etl_assets_capture_table_rows_total",
        "The server's estimate of the table's rows when its copy began.",
        lambda table: None if table.state.rows_total < 0 else table.state.rows_total,
    ),
    (
        "etl_assets_capture_table_errored",
        "Whether the table is in error: `etl-assets cdc tables` shows what to do.",
        lambda table: table.state.error is not None,
    ),
)
