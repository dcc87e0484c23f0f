"""What a table has now of the keys that were requested again for a sink, and what of it is delivered.

A key that the table has is delivered with its row of now. One that is gone is delivered as deleted. One whose
row of now the target certainly has is not delivered again.

Belongs here: this decision, and the rows. Does not belong here: the requests (`sinks/replay_requests.py`),
and the record of results (`delivery_rejects.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from etl_assets.observability.rows import find_rows
from etl_assets.sinks.position import SinkPosition
from etl_assets.steps.delivery_rows import ROWS_AT_ONCE, DeliveryRows, RowsSince, tuples_of
from etl_assets.steps.rows_by_key import Keys, keys_table, rows_of, versions_of

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.delta.table import Table
    from etl_assets.sinks.replay_requests import ReplayRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDelivery:
    """A recorded delivery.

    Attributes:
        after: The version of the table that the target had afterwards.
        before: The version that it had before; None if it had none.
        whole: Whether it had every row; None if that is not known.
        rejected: How many rows the target did not accept; None if that is not known.
        ended_at: When it had ended, just before its record.
    """

    after: int
    before: int | None
    whole: bool | None
    rejected: int | None
    ended_at: dt.datetime


def past_deliveries(record: Table, table_id: str) -> list[PastDelivery]:
    """Return the recorded deliveries of a table, in their order.

    Raises:
        FilesGone, ReplicaCorrupt: a file of the record is gone or damaged.
    """
    columns = [
        "_batch_id",
        "table_id",
        "to_version",
        "from_version",
        "whole",
        "rejected",
        "began_at",
        "seconds",
    ]
    rows = find_rows(record, columns=columns, where={"table_id": [table_id]})
    return [
        PastDelivery(
            after=row["to_version"],
            before=row["from_version"],
            whole=row["whole"],
            rejected=row["rejected"],
            ended_at=row["began_at"] + dt.timedelta(seconds=row["seconds"]),
        )
        for row in sorted(rows, key=lambda each: each["_batch_id"])
    ]


def delivered_with(version: int, past: Sequence[PastDelivery]) -> int | None:
    """Return the version of the delivery that had a row, if the target certainly accepted it; None if not.

    The first delivery since the row was written had it, and each later one of every row. The target accepted
    it if neither the last of these nor a delivery after that rejected any row.

    Args:
        version: The version of the table that wrote the row.
        past: The deliveries, in their order.
    """
    since = [place for place, each in enumerate(past) if each.after >= version]
    if not since:
        return None
    had_it = max([since[0], *(place for place in since if past[place].whole)])
    if any(each.rejected != 0 for each in past[had_it:]):
        return None
    return past[had_it].after


@dataclass(frozen=True, kw_only=True)
class RequestedRows:
    """The requested keys at one version of a table.

    Attributes:
        requests: The requests.
        rows: The table at the version.
        past: The deliveries that are recorded.
    """

    requests: tuple[ReplayRequest, ...]
    rows: DeliveryRows
    past: Sequence[PastDelivery]

    def result(self, request: ReplayRequest) -> str:
        """Return what became of a request whose row the target has not rejected, in words."""
        name = self.rows.contract.name
        if (version := self._versions.get(request.keys)) is None:
            return f"its row is gone from {name}, and was delivered as deleted"
        if (earlier := delivered_with(version, self.past)) is not None:
            return f"a delivery before had its row of now, with version {earlier} of {name}"
        return f"delivered with version {self.rows.position.version} of {name}"

    def added_to(self, found: RowsSince, before: SinkPosition | None) -> RowsSince:
        """Return what a delivery brings together with the requested keys, each key once.

        Args:
            found: What came after `before`.
            before: The target's position; None if every row is delivered anyway.
        """
        if before is None or not self.requests:
            return found
        version = before.version
        gone = self._gone(found)
        return replace(
            found,
            rows=lambda: chain(found.rows(), self._old_rows(version)),
            deleted=lambda: chain(found.deleted(), gone.to_batches(ROWS_AT_ONCE)),
            has_deleted=found.has_deleted or gone.num_rows > 0,
        )

    def was_there(
        self, otherwise: Callable[[pa.RecordBatch], Sequence[bool]]
    ) -> Callable[[pa.RecordBatch], Sequence[bool]]:
        """Return what tells which keys of some rows the target had: of a requested key, before its row was
        rejected.
        """
        if not self.requests:
            return otherwise
        names = list(self.rows.contract.merge_key)

        def there(batch: pa.RecordBatch) -> list[bool]:
            keys = tuples_of(batch, names)
            return [
                found if (by := self._rejected_by(key)) is None else key in self._keys_at(by.before)
                for key, found in zip(keys, otherwise(batch), strict=True)
            ]

        return there

    def _rejected_by(self, key: Keys) -> PastDelivery | None:
        """Return the delivery that rejected the row of a requested key first; None if it is under way.

        It is the first one that ended later: a delivery that was killed and continued began again after it
        had rejected the row.
        """
        request = self._first.get(key)
        if request is None:
            return None
        return next((each for each in self.past if each.ended_at >= request.rejected_at), None)

    @cached_property
    def _first(self) -> Mapping[Keys, ReplayRequest]:
        """The request of each key whose row was rejected first."""
        ordered = sorted(self.requests, key=lambda each: each.rejected_at, reverse=True)
        return {each.keys: each for each in ordered}

    def _keys_at(self, version: int | None) -> Mapping[Keys, Any] | set[Keys]:
        """Return which requested keys had a row at a version; all of them if it cannot be read any more."""
        if version is None:
            return {}
        if version not in self._known:
            position = replace(self.rows.position, version=version, tombstones=-1)
            old = self.rows.at(position)
            self._known[version] = versions_of(old, self._keys) if old.is_readable() else self._keys
        return self._known[version]

    @cached_property
    def _known(self) -> dict[int, Mapping[Keys, Any] | set[Keys]]:
        return {}

    @cached_property
    def _keys(self) -> set[Keys]:
        return {each.keys for each in self.requests}

    @cached_property
    def _versions(self) -> Mapping[Keys, int]:
        """The version that wrote the row of each key; of those that have a row."""
        return versions_of(self.rows, self._keys)

    def _old_rows(self, version: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows that a delivery from a version does not bring, and the target may lack."""
        wanted = {
            key
            for key, written in self._versions.items()
            if written <= version and delivered_with(written, self.past) is None
        }
        return rows_of(self.rows, wanted)

    def _gone(self, found: RowsSince) -> pa.Table:
        """Return the keys without a row, but for those that the delivery brings as deleted."""
        names = list(self.rows.contract.merge_key)
        deleted = {key for batch in found.deleted() for key in tuples_of(batch, names)}
        return keys_table(self.rows, self._keys - self._versions.keys() - deleted)
