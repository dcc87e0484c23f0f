"""The history of a record of a declared pipeline, assembled from its tables. No JVM.

Belongs here: finding a record by its id, and what its tables say of it. Does not belong here: the form of a
history (`history.py`).
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from etl_assets.contracts import canonical_json
from etl_assets.contracts.reasons import Outcome
from etl_assets.delta.log.cursor import read_cursors
from etl_assets.delta.log.entries import entry_path
from etl_assets.ingest.json_records import MAX_ID_CHARACTERS
from etl_assets.observability.dead_letters import DeadLetter, read_dead_letters
from etl_assets.observability.delivery_history import SinkHistory, sink_entries
from etl_assets.observability.history import (
    HistoryEntry,
    SourceFolders,
    excepted,
    handed_in,
)
from etl_assets.observability.record_origin import origin_of, trace_id_of_record
from etl_assets.observability.rows import find_rows
from etl_assets.pipelines.declared import BATCH_ID, OFFSET
from etl_assets.sources.landing import REPLAYS
from etl_assets.sources.replays import replay_of, replays_folder
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.ingest.file_source import FileSource
    from etl_assets.pipelines.declared import DeclaredTables
    from etl_assets.placement.domains import FailureDomain

_LATEST = dt.datetime.max.replace(tzinfo=dt.UTC)
_REPLAYED = re.compile(r"@[0-9a-f]{16}\.[0-9]+")
"""What the id of a replayed record has after the id of the rejected one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHistory:
    """All that is known about a record, and about the corrections of it that were replayed.

    Attributes:
        pipeline: Name of its pipeline.
        record_id: Its id.
        source_table: The table of accepted records.
        table: The pipeline's table.
        record: The accepted record that came last, with the source table's columns; None if it was never
            accepted.
        file: File of that record.
        line: Line in that file.
        rows: Rows of the pipeline's table that are from it now.
        happenings: History entries, in order of time.
        waiting_for: Stages that have yet to process it, and sinks that have yet to get its rows.
        dead_letters: Its dead letters, without their records.
        origin: Where it came from, in words; None if it was never accepted.
        trace_id: Id of its W3C trace; None if it has none.
    """

    pipeline: str
    record_id: str
    source_table: str
    table: str
    record: dict[str, Any] | None
    file: str | None
    line: int | None
    rows: tuple[dict[str, Any], ...]
    happenings: tuple[HistoryEntry, ...]
    waiting_for: tuple[str, ...]
    dead_letters: tuple[DeadLetter, ...]
    origin: str | None
    trace_id: str | None

    @property
    def is_left_out(self) -> bool:
        """Whether the table has read the record and has no row from it, though nothing rejected it."""
        if self.record is None or self.rows or self.waiting_for:
            return False
        rejected = (each.offset for each in self.happenings if each.outcome == Outcome.REJECTED)
        return self.record["offset"] not in rejected

    def head(self) -> Iterator[str]:
        """Yield what the record is, and where it came from."""
        yield f"record    {self.record_id} of {self.pipeline}"
        if self.record is None:
            yield "          was never accepted"
            return
        record = self.record
        yield f"from      {self.origin}"
        yield f"offset    {record['offset']} in {self.source_table}, day {record['partition_date']}"
        if self.trace_id is not None:
            yield f"trace     {self.trace_id}"

    def foot(self) -> Iterator[str]:
        """Yield its rows in the pipeline's table, or why there is none."""
        for row in self.rows:
            shown = ", ".join(f"{name} {value}" for name, value in row.items() if not name.startswith("_"))
            yield f"row       in {self.table}: {shown}"
        if self.is_left_out:
            yield (
                f"row       none in {self.table}: a filter or another transform left it out, or a row of a"
                " later record has its key"
            )

    def as_json(self) -> dict[str, Any]:
        """Return the history as one object."""
        return {
            "pipeline": self.pipeline,
            "record_id": self.record_id,
            "file": self.file,
            "line": self.line,
            "origin": self.origin,
            "trace_id": self.trace_id,
            "offset": None if self.record is None else self.record["offset"],
            "record": self.record,
            "happenings": [each.as_json() for each in self.happenings],
            "waiting_for": list(self.waiting_for),
            "left_out": self.is_left_out,
            "dead_letters": [letter.as_json() for letter in self.dead_letters],
            "rows": list(self.rows),
        }


def find_record(
    domain: FailureDomain, source: FileSource, tables: DeclaredTables, record_id: str
) -> RecordHistory | None:
    """Assemble the history of a record; None if no table of the pipeline has its id.

    Args:
        domain: Failure domain of the tables.
        source: The files of the pipeline.
        tables: The pipeline's tables.
        record_id: The record's id; of several fields, their values as a JSON list.
    """
    for each in _stored_ids(record_id):
        if (found := _Search(domain, source, tables, each).history()) is not None:
            return found
    return None


def _stored_ids(record_id: str) -> Iterator[str]:
    """Yield how an id may be stored: as it is, a list as canonical JSON, or one of texts, as in a CSV
    file.
    """
    yield record_id if len(record_id) <= MAX_ID_CHARACTERS else sha256(record_id.encode()).hexdigest()
    with suppress(ValueError, TypeError):  # not JSON, or a text that is not Unicode
        values = json.loads(record_id, parse_float=Decimal)
        if isinstance(values, list):
            texts = [
                each if isinstance(each, str) else canonical_json.write(each).decode() for each in values
            ]
            yield from dict.fromkeys(canonical_json.write(each).decode() for each in (values, texts))


class _Search:
    def __init__(
        self, domain: FailureDomain, source: FileSource, tables: DeclaredTables, record_id: str
    ) -> None:
        self._domain, self._tables, self._id = domain, tables, record_id
        self._source, self._table = tables.source.name, tables.table.name
        self._folders = SourceFolders(
            by_source={each.source: each.place for each in source.folders},
            without_days=frozenset(each.source for each in source.folders if not each.by_day),
        )

    def history(self) -> RecordHistory | None:
        # 1. Find the record, in the source table and among what the stages rejected.
        records = self._records()
        offsets = [record["offset"] for record in records]
        refused = [
            *self._excepted(self._tables.source_rejects.name, event_id=[self._id]),
            *self._excepted(self._tables.rejects.name, original_offset=offsets),
        ]
        letters = self._letters(records, [row for _, row in refused])
        if not records and not refused and not letters:
            return None
        # 2. Find what became of it.
        rows = self._rows(self._table, self._tables.table.names, **{OFFSET: offsets})
        told = [excepted(row, name, self._folders, ingest=self._source) for name, row in refused]
        told += [self._accepted(record) for record in records]
        told += [self._stored(row) for row in rows]
        told += self._handings_in(letters)
        at_sinks = list(sink_entries(self._sinks(), rows, BATCH_ID))
        replayed, letters_of_sinks = self._replays_at_sinks(rows)
        told += [entry for _, entry in at_sinks if entry is not None and entry not in replayed]
        told += replayed
        letters += letters_of_sinks
        last = records[-1] if records else None
        entry = None if last is None else self._accepted(last)
        origin = None if last is None else origin_of(self._tables.spec, last)
        if entry is not None and entry.file is not None:
            origin = f"{entry.file}, line {entry.line}"
        return RecordHistory(
            pipeline=self._tables.spec.name,
            record_id=self._id,
            source_table=self._source,
            table=self._table,
            record=last,
            file=None if entry is None else entry.file,
            line=None if entry is None else entry.line,
            rows=tuple(rows),
            happenings=tuple(sorted(told, key=lambda each: each.order(_LATEST))),
            waiting_for=(
                *self._waiting_for(records),
                *dict.fromkeys(name for name, entry in at_sinks if entry is None),
            ),
            dead_letters=tuple(letters),
            origin=origin,
            trace_id=trace_id_of_record(self._tables.spec, last, tuple(rows)),
        )

    def _sinks(self) -> list[SinkHistory]:
        return [
            SinkHistory(
                domain=self._domain,
                table=self._tables.table,
                deliveries=each,
                rejects=self._tables.rejects_of(each),
            )
            for each in self._tables.deliveries
        ]

    def _replays_at_sinks(
        self, rows: Sequence[dict[str, Any]]
    ) -> tuple[list[HistoryEntry], list[DeadLetter]]:
        """Return the replays of rows that targets rejected, and the dead letters of all rejected ones."""
        pairs = [(sink, row) for sink in self._sinks() for row in rows]
        ids = [each for sink, row in pairs for each in sink.letters(row)]
        letters = read_dead_letters(self._domain, dead_letter_id=ids) if ids else []
        return [entry for sink, row in pairs for entry in sink.replays(row)], letters

    def _records(self) -> list[dict[str, Any]]:
        """Return the accepted records: the record itself, and corrections of it, by offset."""
        # One column finds the days and offsets, which confine the reading of the others.
        places = ("partition_date", "offset", "record_id")
        found = self._rows(self._source, places, record_id=[self._id])
        again = find_rows(
            platform_table(self._source, self._domain),
            columns=places,
            where={"source": [REPLAYS]},
            prefix=("record_id", f"{self._id}@"),
        )
        found += [each for each in again if _REPLAYED.fullmatch(each["record_id"], len(self._id))]
        days = {each["partition_date"] for each in found}
        offsets = {each["offset"] for each in found}
        records = self._rows(self._source, self._tables.source.names, partition_date=days, offset=offsets)
        return sorted(records, key=lambda record: record["offset"])

    def _excepted(self, table: str, **where: Iterable[Any]) -> list[tuple[str, dict[str, Any]]]:
        columns = tuple(name for name in self._tables.rejects.names if name != "record")
        return [(table, row) for row in self._rows(table, columns, **where)]

    def _letters(
        self, records: Sequence[dict[str, Any]], refused: Sequence[dict[str, Any]]
    ) -> list[DeadLetter]:
        ids = {row["exception_id"] for row in refused if row["outcome"] != Outcome.DUPLICATE}
        ids |= {
            replay_of(row["source_position"])[0] for row in (*records, *refused) if row["source"] == REPLAYS
        }
        found = read_dead_letters(self._domain, dead_letter_id=list(ids)) if ids else ()
        return sorted(found, key=lambda letter: letter.failed_at)

    def _handings_in(self, letters: Sequence[DeadLetter]) -> list[HistoryEntry]:
        folder = replays_folder(self._domain, self._source)
        return [
            handed_in(self._source, file)
            for letter in letters
            for file in (folder / letter.partition_date.isoformat()).glob(f"{letter.dead_letter_id}.*.jsonl")
        ]

    def _accepted(self, record: dict[str, Any]) -> HistoryEntry:
        again = record["source"] == REPLAYS
        file, line = self._folders.file_and_line(record["source"], record["source_position"])
        return HistoryEntry(
            at=record["ingested_at"],
            stage=self._source,
            outcome=(Outcome.REPLAYED if again else Outcome.ACCEPTED).value,
            position=record["source_position"],
            table=self._source,
            offset=record["offset"],
            file=file,
            line=line,
            attempt=replay_of(record["source_position"])[1] if again else 1,
            domain=record["ingest_domain"],
        )

    def _stored(self, row: dict[str, Any]) -> HistoryEntry:
        try:
            entry = entry_path(platform_table(self._table, self._domain).path, row[BATCH_ID])
            at = dt.datetime.fromtimestamp(entry.stat().st_mtime, dt.UTC)
        except FileNotFoundError:
            at = None  # the log no longer has the version
        return HistoryEntry(
            at=at,
            stage=self._table,
            outcome=Outcome.COMMITTED.value,
            position=str(row[OFFSET]),
            table=self._table,
        )

    def _waiting_for(self, records: Sequence[dict[str, Any]]) -> tuple[str, ...]:
        if not records:
            return ()
        cursor = read_cursors(platform_table(self._table, self._domain), self._source, [None])[None]
        return (self._table,) if records[-1]["batch_id"] > cursor else ()

    def _rows(self, table: str, columns: Sequence[str], **where: Iterable[Any]) -> list[dict[str, Any]]:
        values = {name: list(some) for name, some in where.items()}
        return list(find_rows(platform_table(table, self._domain), columns=tuple(columns), where=values))
