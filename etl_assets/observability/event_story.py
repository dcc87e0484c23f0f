"""The whole story of one event: where it came from, what every stage made of it and when. No JVM.

The stages' own tables say what happened, so that the story is right also while audit_log lags; what audit_log says is
matched to it. Everything but the first look is confined to the days the event was seen on.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.reasons import Outcome
from etl_assets.contracts.tables import (
    AUDIT_LOG,
    NORMALIZED_ORDERS,
    ORDER_STATUS_VIEW,
    RAW_EVENTS,
    WAREHOUSE_ROWS,
)
from etl_assets.contracts.tables.exceptions import EXCEPTIONS_TABLES
from etl_assets.delta.log import entry_path
from etl_assets.errors import NotFound
from etl_assets.observability.letters import Letter, find_letters_of, read_letters
from etl_assets.observability.rows import find_rows
from etl_assets.sources.landing import LANDING, REPLAYS
from etl_assets.sources.replays import INGEST, NORMALIZE
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.placement.domains import FailureDomain

_COMMIT = "commit"
_HANDED_IN = "handed in"
_RAW_COLUMNS = tuple(name for name in RAW_EVENTS.names if name != "span_id")
_EXCEPTION_COLUMNS = tuple(name for name in EXCEPTIONS_TABLES[0].names if name != "record")
_AUDIT_COLUMNS = ("stage", "source", "source_position", "attempt", "outcome", "recorded_at")
_STAGES = (INGEST, NORMALIZE, _COMMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One thing that happened to the event.

    Attributes:
        at: When, by the platform's clock (UTC); None where it is not known any more.
        stage: `ingest`, `normalize`, `commit`.
        outcome: One of `contracts.reasons.Outcome`, or `handed in` for a dead letter put before a stage again.
        table: Table that tells it; None for a handing-in.
        offset: Offset of the row the event became there; of the accepted event for a duplicate or conflict.
        file: File it came from; None where the stage reads a table.
        line: Line in that file, from 1.
        reason: Why it was refused.
        error: What exactly is wrong.
        attempt: 1, and 1 more for each replay.
        domain: Failure domain in which the stage ran.
        audited: Whether audit_log says the same; None where it does not speak of it.
    """

    at: dt.datetime | None
    stage: str
    outcome: str
    table: str | None = None
    offset: int | None = None
    file: str | None = None
    line: int | None = None
    reason: str | None = None
    error: str | None = None
    attempt: int = 1
    domain: str | None = None
    audited: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventStory:
    """Everything known of an event.

    Attributes:
        event_id: Its id.
        event: The accepted event: raw_events' columns with `file` and `line`; None if it was never accepted.
        happenings: What happened to it, in order of time.
        waiting_for: Stages that have not judged it yet.
        dead_letters: Its dead letters, without their records.
        order: The row of order_status_view its order has; None while there is none.
    """

    event_id: str
    event: dict[str, Any] | None
    happenings: tuple[Happening, ...]
    waiting_for: tuple[str, ...]
    dead_letters: tuple[Letter, ...]
    order: dict[str, Any] | None

    @property
    def repeats(self) -> tuple[Happening, ...]:
        """Where the event's id was seen again, with the same content or another."""
        return tuple(
            each for each in self.happenings if each.outcome in (Outcome.DUPLICATE, Outcome.CONFLICT)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """Where the story is read from: a domain's tables and replays, and the landing folder."""

    domain: FailureDomain
    landing: Path

    def rows(self, table: str, columns: Iterable[str], **where: Iterable[Any]) -> list[dict[str, Any]]:
        """Rows of a table by values."""
        values = {name: list(some) for name, some in where.items()}
        return list(find_rows(platform_table(table, self.domain), columns=tuple(columns), where=values))

    def file_and_line(self, source: str, position: str) -> tuple[str | None, int | None]:
        """File and line that a source position means; none for sources that are no files."""
        folder = {LANDING: self.landing, REPLAYS: self.domain.replays_path(INGEST)}.get(source)
        file, _, line = position.rpartition(":")
        if folder is None or not file or not line.isdigit():
            return None, None
        return str(folder / file), int(line)

    def committed_at(self, table: str, version: int) -> dt.datetime | None:
        """When a version of a table was committed, by its log entry's file; None once that is cleaned up."""
        try:
            modified = entry_path(platform_table(table, self.domain).path, version).stat().st_mtime
        except FileNotFoundError:
            return None
        return dt.datetime.fromtimestamp(modified, dt.UTC)


def tell(archive: Archive, event_id: str) -> EventStory:
    """Put the story of an event together.

    Raises:
        NotFound: no table and no dead letter knows the id.
    """
    event = _event(archive, event_id)
    exceptions = _exceptions(archive, event_id)
    letters = _letters(archive, event, exceptions, event_id)
    if event is None and not exceptions and not letters:
        raise NotFound(
            f"no event {event_id!r} has been read",
            fix="check the id; if its file has arrived only now, materialize its day first. A line that is no JSON has no"
            " event id: look for it with `etl-assets dead-letters list`",
            event_id=event_id,
        )
    letters_first = _first_refusals(archive, letters, exceptions)
    happenings = [
        *_accepted(archive, event),
        *(_exception(archive, row) for row in {row["exception_id"]: row for row in (*letters_first, *exceptions)}.values()),
        *_handed_in(archive, letters),
    ]
    orders = _normalized(archive, event)
    happenings += [happening for happening, _ in orders]
    happenings += _committed(archive, event)
    audited = list(_audited(archive, event_id, event, exceptions, letters_first, happenings))
    return EventStory(
        event_id=event_id,
        event=event,
        happenings=tuple(sorted(audited, key=_in_order)),
        waiting_for=_waiting_for(event, audited),
        dead_letters=tuple(letters),
        order=_order(archive, event),
    )


def _event(archive: Archive, event_id: str) -> dict[str, Any] | None:
    """The accepted event: its day first, by reading one column, then the row in that day's files alone."""
    days = [row["partition_date"] for row in archive.rows(RAW_EVENTS.name, ("partition_date",), event_id=[event_id])]
    for row in archive.rows(RAW_EVENTS.name, _RAW_COLUMNS, partition_date=days, event_id=[event_id]):
        row["file"], row["line"] = archive.file_and_line(row["source"], row["source_position"])
        return row
    return None


def _exceptions(archive: Archive, event_id: str) -> list[dict[str, Any]]:
    return [
        {**row, "table": contract.name}
        for contract in EXCEPTIONS_TABLES
        for row in archive.rows(contract.name, _EXCEPTION_COLUMNS, event_id=[event_id])
    ]


def _letters(
    archive: Archive, event: dict[str, Any] | None, exceptions: list[dict[str, Any]], event_id: str
) -> list[Letter]:
    """The letters that name the event, and those whose replay it came from: they may name none, or another."""
    positions = [row for row in (event, *exceptions) if row is not None and row["source"] == REPLAYS]
    replayed = {_letter_id(row["source_position"]) for row in positions}
    letters = {letter.dead_letter_id: letter for letter in find_letters_of(archive.domain, event_id)}
    for letter in read_letters(archive.domain, sorted(replayed - letters.keys())):
        letters[letter.dead_letter_id] = letter
    return [replace(letter, record=None) for letter in letters.values()]


def _first_refusals(
    archive: Archive, letters: list[Letter], exceptions: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The exceptions that the letters began with: a record that was corrected may have named no event, or another."""
    missing = {letter.dead_letter_id for letter in letters} - {row["exception_id"] for row in exceptions}
    days = {letter.partition_date for letter in letters}
    return [
        {**row, "table": contract.name}
        for contract in EXCEPTIONS_TABLES
        for row in archive.rows(
            contract.name, _EXCEPTION_COLUMNS, partition_date=days if missing else (), exception_id=missing
        )
    ]


def _accepted(archive: Archive, event: dict[str, Any] | None) -> list[Happening]:
    if event is None:
        return []
    again = event["source"] == REPLAYS
    return [
        Happening(
            at=event["ingested_at"],
            stage=INGEST,
            outcome=(Outcome.REPLAYED if again else Outcome.ACCEPTED).value,
            table=RAW_EVENTS.name,
            offset=event["offset"],
            file=event["file"],
            line=event["line"],
            attempt=_attempt(event["source_position"]) if again else 1,
            domain=event["ingest_domain"],
        )
    ]


def _exception(archive: Archive, row: dict[str, Any]) -> Happening:
    file, line = archive.file_and_line(row["source"], row["source_position"])
    again = row["stage"] == INGEST and row["source"] == REPLAYS
    return Happening(
        at=row["failed_at"],
        stage=row["stage"],
        outcome=row["outcome"],
        table=row["table"],
        offset=row["original_offset"],
        file=file,
        line=line,
        reason=row["reason"],
        error=row["error"],
        attempt=_attempt(row["source_position"]) if again else 1,
        domain=row["domain"],
    )


def _handed_in(archive: Archive, letters: list[Letter]) -> Iterator[Happening]:
    for letter in letters:
        for stage in (INGEST, NORMALIZE):
            folder = archive.domain.replays_path(stage) / letter.partition_date.isoformat()
            for file in folder.glob(f"{letter.dead_letter_id}.*.jsonl"):
                yield Happening(
                    at=dt.datetime.fromtimestamp(file.stat().st_mtime, dt.UTC),
                    stage=stage,
                    outcome=_HANDED_IN,
                    file=str(file),
                    line=1,
                    attempt=int(file.name.split(".")[1]),
                )


def _normalized(archive: Archive, event: dict[str, Any] | None) -> list[tuple[Happening, dict[str, Any]]]:
    columns = ("offset", "transform_domain", "batch_id")
    return [
        (
            Happening(
                at=archive.committed_at(NORMALIZED_ORDERS.name, row["batch_id"]),
                stage=NORMALIZE,
                outcome=Outcome.NORMALIZED.value,
                table=NORMALIZED_ORDERS.name,
                offset=row["offset"],
                domain=row["transform_domain"],
            ),
            row,
        )
        for row in _rows_of(archive, NORMALIZED_ORDERS.name, columns, event)
    ]


def _committed(archive: Archive, event: dict[str, Any] | None) -> list[Happening]:
    columns = ("normalized_offset", "sink_domain", "committed_at")
    return [
        Happening(
            at=row["committed_at"],
            stage=_COMMIT,
            outcome=Outcome.COMMITTED.value,
            table=WAREHOUSE_ROWS.name,
            offset=row["normalized_offset"],
            domain=row["sink_domain"],
        )
        for row in _rows_of(archive, WAREHOUSE_ROWS.name, columns, event)
    ]


def _rows_of(
    archive: Archive, table: str, columns: Iterable[str], event: dict[str, Any] | None
) -> list[dict[str, Any]]:
    if event is None:
        return []
    return archive.rows(table, columns, partition_date=[event["partition_date"]], event_id=[event["event_id"]])
