"""What became of a row at the sinks that follow its table. No JVM.

Belongs here: which delivery had a row, whether its target refused it, and replays of that. Does not belong
here: the form of a history (`history.py`).
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.reasons import Outcome
from etl_assets.contracts.tables import REPLAYS as REPLAYS_TABLE
from etl_assets.observability.history import DELIVERED, HANDED_IN, HistoryEntry
from etl_assets.observability.rows import find_rows
from etl_assets.sources.landing import REPLAYS
from etl_assets.sources.replays import replay_of, source_position
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.contracts.columns import TableContract
    from etl_assets.placement.domains import FailureDomain

_COLUMNS = ("_batch_id", "to_version", "from_version", "whole", "rejected", "began_at", "seconds", "domain")
_REJECTED_COLUMNS = (
    "exception_id",
    "source",
    "source_position",
    "outcome",
    "reason",
    "error",
    "failed_at",
    "domain",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkHistory:
    """The deliveries of a table to one sink.

    Attributes:
        domain: Failure domain of the tables.
        table: The table that the sink follows.
        deliveries: The table of deliveries.
        rejects: The table of rows that the target did not accept.
    """

    domain: FailureDomain
    table: TableContract
    deliveries: TableContract
    rejects: TableContract

    def entry(self, row: Mapping[str, Any], version: int) -> HistoryEntry | None:
        """Return what the first delivery that had a row made of it; None if it is not delivered yet.

        Args:
            row: The row as the table has it, with its keys.
            version: The version of the table that wrote it.
        """
        delivery = next((each for each in self.recorded() if each["to_version"] >= version), None)
        return None if delivery is None else self.told(row, delivery, version)

    def recorded(self) -> list[dict[str, Any]]:
        """Return the deliveries of the table, the first one first, and none of a table before it."""
        table, followed = (platform_table(each.name, self.domain) for each in (self.deliveries, self.table))
        # A table that was created again has another id, and versions of its own.
        snapshot = followed.snapshot()
        of_table = {"table_id": [] if snapshot is None else [snapshot.table_id]}
        return sorted(find_rows(table, columns=_COLUMNS, where=of_table), key=lambda each: each["_batch_id"])

    def told(self, row: Mapping[str, Any], delivery: Mapping[str, Any], version: int) -> HistoryEntry:
        """Return what a delivery made of a row.

        Args:
            row: The row as the table has it, with its keys.
            delivery: The delivery, as `recorded` returns it.
            version: The version of the table that the row is from.
        """
        ended = delivery["began_at"] + dt.timedelta(seconds=delivery["seconds"])
        refused = self._refusal(row, delivery["began_at"], ended) if delivery["rejected"] != 0 else None
        if refused is not None:
            return self._judged(refused) if _is_replay(refused) else self._judged(refused, str(version))
        return HistoryEntry(
            at=ended,
            stage=self.deliveries.name,
            outcome=DELIVERED,
            position=str(version),
            table=self.deliveries.name,
            error=f"with version {delivery['to_version']} of {self.table.name}",
            domain=delivery["domain"],
        )

    def _refusal(
        self, row: Mapping[str, Any], began: dt.datetime, ended: dt.datetime
    ) -> dict[str, Any] | None:
        """Return the row of the rejects that has the keys, of the days of a delivery or of a replay in it."""
        last_day = began.date() + dt.timedelta(days=(ended - began).days + 1)

        def is_of_delivery(each: Mapping[str, Any]) -> bool:
            at = each["failed_at"]
            return began <= at <= ended if _is_replay(each) else began.date() <= at.date() <= last_day

        rejected = (each for each in self._rejects(row) if each["outcome"] == Outcome.REJECTED)
        return max(filter(is_of_delivery, rejected), key=lambda each: each["failed_at"], default=None)

    def letters(self, row: Mapping[str, Any]) -> list[str]:
        """Return the ids of the dead letters of a row's key."""
        return [each["exception_id"] for each in self._rejects(row) if not _is_replay(each)]

    def replays(self, row: Mapping[str, Any]) -> Iterator[HistoryEntry]:
        """Yield when rows of the key were submitted again, and what became of that."""
        table = platform_table(REPLAYS_TABLE.name, self.domain)
        where = {"stage": [self.deliveries.name], "dead_letter_id": self.letters(row)}
        columns = ("dead_letter_id", "attempt", "content", "handed_in_at", "partition_date", "domain")
        for each in find_rows(table, columns=columns, where=where):
            yield HistoryEntry(
                at=each["handed_in_at"],
                stage=self.deliveries.name,
                outcome=HANDED_IN,
                position=source_position(each["partition_date"], each["dead_letter_id"], each["attempt"]),
                table=REPLAYS_TABLE.name,
                error=f"by {json.loads(each['content'])['by']}",
                attempt=each["attempt"],
                domain=each["domain"],
            )
        yield from map(self._judged, filter(_is_replay, self._rejects(row)))

    def _judged(self, found: Mapping[str, Any], position: str | None = None) -> HistoryEntry:
        """Return the entry of a row of the rejects."""
        return HistoryEntry(
            at=found["failed_at"],
            stage=self.deliveries.name,
            outcome=found["outcome"],
            position=position or found["source_position"],
            table=self.rejects.name,
            reason=found["reason"],
            error=found["error"],
            attempt=replay_of(found["source_position"])[1] if _is_replay(found) else 1,
            domain=found["domain"],
        )

    def _rejects(self, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows of the rejects that are about a row's key: rejections, and results of replays."""
        found = list(find_rows(platform_table(self.rejects.name, self.domain), columns=_REJECTED_COLUMNS))
        first = [
            each
            for each in found
            if not _is_replay(each) and _is_of(each["source_position"], row, self.table.merge_key)
        ]
        ids = {each["exception_id"] for each in first}
        again = [each for each in found if _is_replay(each) and replay_of(each["source_position"])[0] in ids]
        return [*first, *again]


def sink_entries(
    sinks: Sequence[SinkHistory], rows: Sequence[Mapping[str, Any]], version_column: str
) -> Iterator[tuple[str, HistoryEntry | None]]:
    """Yield, for each sink and row, the name of the deliveries and the entry; None: not delivered yet."""
    for sink in sinks:
        for row in rows:
            yield sink.deliveries.name, sink.entry(row, row[version_column])


def _is_replay(row: Mapping[str, Any]) -> bool:
    return row["source"] == REPLAYS


def _is_of(position: str, row: Mapping[str, Any], keys: Sequence[str]) -> bool:
    """Return whether the source position of a rejected row, `<day>/<keys as JSON>`, has the keys of a row."""
    told: Any = None
    with suppress(ValueError):  # keys of a thousand characters and more are cut off
        told = json.loads(position.partition("/")[2])
    return isinstance(told, dict) and all(_is_equal(row[name], told.get(name)) for name in keys)


def _is_equal(value: Any, told: Any) -> bool:
    """Return whether a value is what a sink wrote as JSON, each in its own form of times and numbers."""
    if value is None or told is None:
        return value is told
    if isinstance(value, bool):
        return value == told
    if isinstance(value, dt.datetime) and isinstance(told, str):
        with suppress(ValueError):
            at = dt.datetime.fromisoformat(told)
            return at.replace(tzinfo=at.tzinfo or dt.UTC) == value.replace(tzinfo=value.tzinfo or dt.UTC)
    return str(value) == str(told)
