"""What became of a row at the sinks that follow its table. No JVM.

Belongs here: which delivery had a row, and whether its target refused it. Does not belong here: the form of a
history (`history.py`).
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.reasons import Outcome
from etl_assets.observability.history import DELIVERED, HistoryEntry
from etl_assets.observability.rows import find_rows
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.contracts.columns import TableContract
    from etl_assets.placement.domains import FailureDomain

_COLUMNS = ("_batch_id", "to_version", "from_version", "whole", "rejected", "began_at", "seconds", "domain")
_REJECTED_COLUMNS = ("source_position", "reason", "error", "failed_at", "domain")


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
            return HistoryEntry(
                at=refused["failed_at"],
                stage=self.deliveries.name,
                outcome=Outcome.REJECTED.value,
                position=str(version),
                table=self.rejects.name,
                reason=refused["reason"],
                error=refused["error"],
                domain=refused["domain"],
            )
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
        """Return the row of the rejects that has the keys, of the days of a delivery."""
        days = [began.date() + dt.timedelta(days=number) for number in range((ended - began).days + 2)]
        rejects = platform_table(self.rejects.name, self.domain)
        found = find_rows(rejects, columns=_REJECTED_COLUMNS, where={"partition_date": days})
        of_row = [each for each in found if _is_of(each["source_position"], row, self.table.merge_key)]
        return max(of_row, key=lambda each: each["failed_at"], default=None)


def sink_entries(
    sinks: Sequence[SinkHistory], rows: Sequence[Mapping[str, Any]], version_column: str
) -> Iterator[tuple[str, HistoryEntry | None]]:
    """Yield, for each sink and row, the name of the deliveries and the entry; None: not delivered yet."""
    for sink in sinks:
        for row in rows:
            yield sink.deliveries.name, sink.entry(row, row[version_column])


def _is_of(source_position: str, row: Mapping[str, Any], keys: Sequence[str]) -> bool:
    """Return whether the source position of a rejected row, `<day>/<keys as JSON>`, has the keys of a row."""
    told: Any = None
    with suppress(ValueError):  # keys of a thousand characters and more are cut off
        told = json.loads(source_position.partition("/")[2])
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
