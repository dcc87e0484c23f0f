"""Calls: what is sent for a row.

Belongs here: path, body and headers of a call, without secrets. Does not belong here: sending (`client.py`).
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from etl_assets.pipelines.sink_specs.webhook import PLACEHOLDER
from etl_assets.sinks.kafka.records import keys as keys_of
from etl_assets.sinks.kafka.records import records, traceparents

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.contracts.columns import TableContract
    from etl_assets.sinks.sink import Delivery


class RowChange(StrEnum):
    """What happened to the row of a call."""

    NEW = "new"
    CHANGED = "changed"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that has to be made.

    Attributes:
        change: What happened to the row.
        keys: The keys of the row as JSON.
        path: The path below the connection's address; None if the values of the keys make none.
        body: The row as JSON; of a deleted one its keys.
        id: Identifies the call, also when it is repeated.
        traceparent: The trace context of the row's record; None if it has none.
    """

    change: RowChange
    keys: bytes
    path: str | None
    body: bytes
    id: str
    traceparent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMaker:
    """Makes the calls of one delivery.

    Attributes:
        contract: The contract of the table.
        path: The path as declared.
        scope: Identifies the delivery among all of all sinks.
    """

    contract: TableContract
    path: str
    scope: str

    def of_rows(self, batch: pa.RecordBatch, was_there: Sequence[bool]) -> Iterator[Call]:
        """Yield the call of each row."""
        parts = (records(batch, self.contract), self._paths(batch), traceparents(batch, self.contract))
        for (key, body), path, trace, there in zip(*parts, was_there, strict=True):
            change = RowChange.CHANGED if there else RowChange.NEW
            yield Call(change=change, keys=key, path=path, body=body, id=self._id(key), traceparent=trace)

    def of_deleted(self, batch: pa.RecordBatch) -> Iterator[Call]:
        """Yield the call of each key of a deleted row."""
        for key, path in zip(keys_of(batch, self.contract), self._paths(batch), strict=True):
            yield Call(change=RowChange.DELETED, keys=key, path=path, body=key, id=self._id(key))

    def _id(self, key: bytes) -> str:
        return hashlib.sha256(self.scope.encode() + b"\0" + key).hexdigest()

    def _paths(self, batch: pa.RecordBatch) -> Iterator[str | None]:
        names = dict.fromkeys(PLACEHOLDER.findall(self.path))
        values = {name: batch.column(name).to_pylist() for name in names}
        for index in range(batch.num_rows):
            parts = {name: _part(values[name][index]) for name in names}
            path = PLACEHOLDER.sub(lambda found, parts=parts: parts[found[1]], self.path)
            # A server may take an empty part, `.` and `..` for another path, also when they are escaped.
            dangerous = any(part in ("", ".", "..") for part in path.split("/"))
            yield None if dangerous else path


def scope_of(delivery: Delivery, sink: str) -> str:
    """Return what identifies a delivery: the sink, the table by its id, its version, and a number."""
    return f"{sink}\0{delivery.after.table_id}\0{delivery.after.version}\0{delivery.number}"


def left_of(batches: Iterator[pa.RecordBatch], done: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the batches that have rows after the first `done`, each with its first such row."""
    for batch in batches:
        if done < batch.num_rows:
            yield batch, done
        done = max(0, done - batch.num_rows)


def _part(value: Any) -> str:
    match value:
        case bool():
            text = str(value).lower()
        case Decimal():
            text = f"{value:f}"
        case dt.datetime():
            text = value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
        case _:
            text = str(value)
    return quote(text, safe="")
