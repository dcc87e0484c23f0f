"""The full history of one event, assembled from the tables. No JVM.

The stages' own tables are the source, so the history is correct even while audit_log lags. Entries of
audit_log are matched to it. One column is read to find the event's day; all later reads are confined to the
days the event was seen on.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.reasons import Outcome
from etl_assets.delta.log.cursor import cursor_name
from etl_assets.delta.log.entries import UNDO, commit_notes, entry_path
from etl_assets.delta.log.lasting_cursors import REMEMBERED_COMMITS
from etl_assets.observability import history
from etl_assets.observability.dead_letters import DeadLetter, read_dead_letters
from etl_assets.observability.history import HistoryEntry, SourceFolders, shown_time
from etl_assets.observability.rows import find_rows
from etl_assets.orders import history_entries as happenings
from etl_assets.orders.order_deliveries import deliveries_of_order, replays_of_order
from etl_assets.orders.tables.audit_log import AUDIT_LOG
from etl_assets.orders.tables.exceptions import NORMALIZED_ORDERS_EXCEPTIONS, RAW_EVENTS_EXCEPTIONS
from etl_assets.orders.tables.normalized_orders import NORMALIZED_ORDERS
from etl_assets.orders.tables.order_status_view import ORDER_STATUS_VIEW
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS
from etl_assets.sources.landing import REPLAYS
from etl_assets.sources.replays import INGEST, NORMALIZE, replay_of, replays_folder
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from pathlib import Path

    from etl_assets.placement.domains import FailureDomain

_LATEST = dt.datetime.max.replace(tzinfo=dt.UTC)
_REJECTS = (RAW_EVENTS_EXCEPTIONS, NORMALIZED_ORDERS_EXCEPTIONS)
_EXCEPTION_COLUMNS = tuple(name for name in RAW_EVENTS_EXCEPTIONS.names if name != "record")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHistory:
    """All that is known about an event.

    Attributes:
        event_id: Id of the event.
        event: The accepted event, with raw_events' columns; None if it was never accepted.
        file: File of the accepted event.
        line: Line in that file.
        happenings: History entries, in order of time.
        waiting_for: Stages that have yet to process the event, and sinks that have yet to get its order.
        dead_letters: Its dead letters, without their records.
        order: Row of its order in order_status_view; None if there is none yet.
    """

    event_id: str
    event: dict[str, Any] | None
    file: str | None
    line: int | None
    happenings: tuple[HistoryEntry, ...]
    waiting_for: tuple[str, ...]
    dead_letters: tuple[DeadLetter, ...]
    order: dict[str, Any] | None

    @property
    def repeats(self) -> tuple[HistoryEntry, ...]:
        """History entries in which the id was seen again, with the same content or another."""
        return tuple(
            each for each in self.happenings if each.outcome in (Outcome.DUPLICATE, Outcome.CONFLICT)
        )

    def as_json(self) -> dict[str, Any]:
        """Return the history as one object, with `file`, `line` and `offset` of the accepted event at the
        top.
        """
        return {
            "event_id": self.event_id,
            "file": self.file,
            "line": self.line,
            "offset": None if self.event is None else self.event["offset"],
            "event": self.event,
            "happenings": [each.as_json() for each in self.happenings],
            "repeats": [each.as_json() for each in self.repeats],
            "waiting_for": list(self.waiting_for),
            "dead_letters": [letter.as_json() for letter in self.dead_letters],
            "order": self.order,
        }

    def head(self) -> Iterator[str]:
        """Yield what the event is, and where it came from."""
        yield f"event     {self.event_id}"
        if self.event is None:
            yield "          was never accepted"
            return
        event = self.event
        yield (
            f"          {event['event_type']} version {event['schema_version']} of {event['tenant_id']}"
            f" about {event['aggregate_id']}, occurred at {shown_time(event['occurred_at'])}"
        )
        where = event["source_position"] if self.file is None else f"{self.file}, line {self.line}"
        yield f"from      {where}"
        yield f"offset    {event['offset']} in raw_events, day {event['partition_date']}"
        if event["trace_id"] is not None:
            yield f"trace     {event['trace_id']}"

    def foot(self) -> Iterator[str]:
        """Yield the present state of its order."""
        if self.order is None:
            return
        order = self.order
        reached = [
            f"{name} {shown_time(order[f'{name}_at'])}"
            for name in ("created", "paid", "shipped", "delivered", "canceled")
            if order[f"{name}_at"] is not None
        ]
        money = f"total {order['order_total']}, paid {order['paid_total']} {order['currency'] or ''}".rstrip()
        yield f"order     {order['order_id']} is {order['order_status']}: {money}; {', '.join(reached)}"


def tell(domain: FailureDomain, landing: Path, event_id: str) -> EventHistory | None:
    """Assemble the history of an event; None if no table has the id.

    Args:
        domain: Failure domain of the tables and replays.
        landing: The landing folder.
        event_id: Id of the event.
    """
    return _Teller(domain, SourceFolders.of(landing, replays_folder(domain, INGEST)), event_id).tell()


class _Teller:
    def __init__(self, domain: FailureDomain, folders: SourceFolders, event_id: str) -> None:
        self._domain = domain
        self._folders = folders
        self._event_id = event_id

    def tell(self) -> EventHistory | None:
        event = self._event()
        exceptions = [
            (contract.name, row)
            for contract in _REJECTS
            for row in self._rows(contract.name, _EXCEPTION_COLUMNS, event_id=[self._event_id])
        ]
        letters = self._letters([row for row in (event, *(row for _, row in exceptions)) if row is not None])
        exceptions += self._first_refusals(letters, {row["exception_id"] for _, row in exceptions})
        if event is None and not exceptions and not letters:
            return None
        told = [history.excepted(row, table, self._folders) for table, row in exceptions]
        told += self._handings_in(letters)
        if event is not None:
            told += [
                happenings.accepted(event, self._folders),
                *self._orders(event, told),
                *self._commits(event),
                *self._undone(event),
            ]
        order = self._order(event)
        waiting = _waiting_for({(each.stage, each.outcome) for each in told})
        commits = [] if event is None else self._rows_of(event, WAREHOUSE_ROWS.name, ("batch_id",))
        # An event that was refused reaches no sink.
        at_sinks = deliveries_of_order(self._domain, order, commits) if commits or waiting else {}
        replayed = list(replays_of_order(self._domain, order)) if order is not None and commits else []
        delivered = [each for each in at_sinks.values() if each is not None and each not in replayed]
        days = {row["partition_date"] for row in (event, *(row for _, row in exceptions)) if row is not None}
        accepted = next((each for each in told if each.table == RAW_EVENTS.name), None)
        return EventHistory(
            event_id=self._event_id,
            event=event,
            file=None if accepted is None else accepted.file,
            line=None if accepted is None else accepted.line,
            happenings=tuple(_in_order([*self._audited(told, days), *delivered, *replayed], accepted)),
            waiting_for=(*waiting, *(name for name, entry in at_sinks.items() if entry is None)),
            dead_letters=tuple(letters),
            order=order,
        )

    def _event(self) -> dict[str, Any] | None:
        found = self._rows(RAW_EVENTS.name, ("partition_date",), event_id=[self._event_id])
        days = [row["partition_date"] for row in found]
        rows = self._rows(RAW_EVENTS.name, RAW_EVENTS.names, partition_date=days, event_id=[self._event_id])
        return rows[0] if rows else None

    def _letters(self, rows: Sequence[dict[str, Any]]) -> list[DeadLetter]:
        """Return the dead letters of the event, and those whose correction it is.

        The latter may carry no event id, or another one.
        """
        replayed = {replay_of(row["source_position"])[0] for row in rows if row["source"] == REPLAYS}
        found = [
            *read_dead_letters(self._domain, event_id=[self._event_id]),
            *read_dead_letters(self._domain, dead_letter_id=replayed),
        ]
        by_id = {letter.dead_letter_id: letter for letter in found}
        return sorted(by_id.values(), key=lambda letter: letter.failed_at)

    def _first_refusals(
        self, letters: Sequence[DeadLetter], known: set[str]
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return the exceptions that the dead letters started from and that do not carry the event's id."""
        days = {letter.partition_date for letter in letters}
        missing = {letter.dead_letter_id for letter in letters} - known
        return [
            (contract.name, row)
            for contract in _REJECTS
            for row in self._rows(
                contract.name, _EXCEPTION_COLUMNS, partition_date=days, exception_id=missing
            )
        ]

    def _handings_in(self, letters: Sequence[DeadLetter]) -> list[HistoryEntry]:
        return [
            history.handed_in(stage, file)
            for letter in letters
            for stage in (INGEST, NORMALIZE)
            for file in (replays_folder(self._domain, stage) / letter.partition_date.isoformat()).glob(
                f"{letter.dead_letter_id}.*.jsonl"
            )
        ]

    def _orders(self, event: dict[str, Any], told: Sequence[HistoryEntry]) -> list[HistoryEntry]:
        columns = ("raw_offset", "offset", "transform_domain", "batch_id")
        refused = [
            each.attempt for each in told if each.stage == NORMALIZE and each.outcome == Outcome.REJECTED
        ]
        return [
            happenings.normalized(
                row,
                self._committed_at(NORMALIZED_ORDERS.name, row["batch_id"]),
                attempt=max(refused, default=0) + 1,
            )
            for row in self._rows_of(event, NORMALIZED_ORDERS.name, columns)
        ]

    def _commits(self, event: dict[str, Any]) -> list[HistoryEntry]:
        columns = ("normalized_offset", "sink_domain", "committed_at")
        return [happenings.committed(row) for row in self._rows_of(event, WAREHOUSE_ROWS.name, columns)]

    def _undone(self, event: dict[str, Any]) -> list[HistoryEntry]:
        """Return the undos that removed the event's day from a table after the event was accepted.

        The search covers the commits that are still remembered.
        """
        found = []
        for table, stage, position in (
            (NORMALIZED_ORDERS.name, NORMALIZE, event["offset"]),
            (WAREHOUSE_ROWS.name, happenings.COMMIT, event["offset"]),
        ):
            there = platform_table(table, self._domain)
            # Before `path`: that is then the folder in which this version was found.
            version = there.version()
            rewound = {
                cursor_name(source, day)
                for source in self._domain.catalog.inputs_of(table)
                for day in (event["partition_date"], None)
            }
            found += [
                history.taken_back(note, table, stage, str(position))
                for note in islice(commit_notes(there.path, version), REMEMBERED_COMMITS)
                if UNDO in note.user_metadata
                and any((note.user_metadata.get("cursors") or {}).get(name) == -1 for name in rewound)
                and note.at >= event["ingested_at"]
            ]
        return found

    def _audited(self, told: Sequence[HistoryEntry], days: Iterable[dt.date]) -> list[HistoryEntry]:
        """Return each entry with whether audit_log has it, and fill unknown times from audit_log."""
        columns = ("stage", "source_position", "outcome", "recorded_at")
        positions = {each.position for each in told}
        rows = self._rows(AUDIT_LOG.name, columns, partition_date=days, source_position=positions)
        recorded = {
            (row["stage"], row["source_position"], row["outcome"]): row["recorded_at"] for row in rows
        }
        return [
            each
            if each.outcome in (history.HANDED_IN, history.TAKEN_BACK)
            else replace(each, audited=each.audit_key in recorded, at=each.at or recorded.get(each.audit_key))
            for each in told
        ]

    def _order(self, event: dict[str, Any] | None) -> dict[str, Any] | None:
        if event is None:
            return None
        columns = [name for name in ORDER_STATUS_VIEW.names if not name.endswith("_amounts")]
        rows = self._rows(
            ORDER_STATUS_VIEW.name, columns, tenant_id=[event["tenant_id"]], order_id=[event["aggregate_id"]]
        )
        return rows[0] if rows else None

    def _rows_of(self, event: dict[str, Any], table: str, columns: Iterable[str]) -> list[dict[str, Any]]:
        return self._rows(
            table, columns, partition_date=[event["partition_date"]], event_id=[event["event_id"]]
        )

    def _rows(self, table: str, columns: Iterable[str], **where: Iterable[Any]) -> list[dict[str, Any]]:
        values = {name: list(some) for name, some in where.items()}
        return list(find_rows(platform_table(table, self._domain), columns=tuple(columns), where=values))

    def _committed_at(self, table: str, version: int) -> dt.datetime | None:
        """Return the modification time of a version's log entry; None once the entry was cleaned up."""
        try:
            modified = entry_path(platform_table(table, self._domain).path, version).stat().st_mtime
        except FileNotFoundError:
            return None
        return dt.datetime.fromtimestamp(modified, dt.UTC)


def _in_order(told: Iterable[HistoryEntry], accepted: HistoryEntry | None) -> list[HistoryEntry]:
    """Sort the entries as they happened.

    A duplicate or conflict follows the accepted event, although a batch records its duplicates first.
    """
    if accepted is None or accepted.at is None:
        return sorted(told, key=lambda each: each.order(_LATEST))
    began = accepted.at
    known = [
        replace(
            each,
            at=max(each.at or began, began),
            offset=accepted.offset if each.offset is None else each.offset,
        )
        if each.outcome in (Outcome.DUPLICATE, Outcome.CONFLICT)
        else each
        for each in told
    ]
    return sorted(known, key=lambda each: each.order(began))


def _waiting_for(told: set[tuple[str, str]]) -> tuple[str, ...]:
    """Return the stages that the event has reached and that have no entry for it."""
    if not told & {(INGEST, Outcome.ACCEPTED.value), (INGEST, Outcome.REPLAYED.value)}:
        return ()
    if (NORMALIZE, Outcome.NORMALIZED.value) in told:
        done = (happenings.COMMIT, Outcome.COMMITTED.value) in told
        return () if done else (happenings.COMMIT,)
    refused = (NORMALIZE, Outcome.REJECTED.value) in told
    again = (NORMALIZE, history.HANDED_IN) in told
    return () if refused and not again else (NORMALIZE, happenings.COMMIT)
