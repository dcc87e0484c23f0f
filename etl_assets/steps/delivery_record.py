"""The record of a delivery: one row of the table of deliveries, with the cursors.

Belongs here: committing and reading it. Does not belong here: the delivery (`deliver.py`), and rows that a
target rejected (`delivery_rejects.py`).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.tables import REPLAYS
from etl_assets.delta.log.cursor import cursor_name, read_cursors
from etl_assets.delta.write.commit import commit
from etl_assets.delta.write.write import Write
from etl_assets.observability.rows import find_rows
from etl_assets.sinks.sink import Delivered, SinkPosition
from etl_assets.steps.few_rows import deferred, write_rows
from etl_assets.steps.step import StepContext

if TYPE_CHECKING:
    from etl_assets.delta.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRecord:
    """A row of the table of deliveries. `done` is None if the process that delivered died first."""

    before: SinkPosition | None
    after: SinkPosition
    whole: bool | None
    done: Delivered | None
    guarantee: str
    domain: str
    began_at: dt.datetime
    seconds: float


def recorded_position(record: Table, table: str) -> SinkPosition | None:
    """Return the position of the last recorded delivery; None if there is none.

    Raises:
        FilesGone, ReplicaCorrupt: a file of the record is gone or damaged.
    """
    if record.version() < 0 or read_cursors(record, table, [None])[None] < 0:
        return None
    snapshot = record.snapshot()
    newest = None if snapshot is None else snapshot.maximum("_batch_id")
    if snapshot is None or newest is None:
        return None
    columns = ["table_id", "to_version", "tombstones"]
    (row,) = find_rows(record, columns=columns, where={"_batch_id": [newest]})
    return SinkPosition(
        table_id=row["table_id"],
        version=row["to_version"],
        tombstones=row["tombstones"],
        replays=read_cursors(record, REPLAYS.name, [None])[None],
    )


def last_recorded(record: Table) -> int:
    """Return the number of the last recorded delivery: the version that wrote it; -1 if there is none."""
    snapshot = record.snapshot()
    newest = None if snapshot is None else snapshot.maximum("_batch_id")
    return -1 if newest is None else newest


def commit_record(context: StepContext, record: Table, made: DeliveryRecord, *, table: str, base: int) -> int:
    """Append a delivery, with the cursors on the table and on the replays, and return the version."""
    contract = record.contract
    assert contract is not None  # it is declared
    before, after, done = made.before, made.after, made.done
    row: dict[str, Any] = {
        "to_version": after.version,
        "from_version": None if before is None else before.version,
        "table_id": after.table_id,
        "tombstones": after.tombstones,
        "whole": made.whole,
        **{
            name: None if done is None else getattr(done, name)
            for name in ("written", "unchanged", "deleted", "rejected")
        },
        "guarantee": made.guarantee,
        "domain": made.domain,
        "began_at": made.began_at,
        "seconds": made.seconds,
        "_batch_id": base + 1,
    }
    # The requests that this delivery took up are done with its record.
    replays = {cursor_name(REPLAYS.name, None): after.replays} if after.replays >= 0 else {}
    done_commit = commit(
        record,
        Write(
            rows=deferred(context, contract, [row]),
            base_version=base,
            cursors={cursor_name(table, None): after.version, **replays},
            files=lambda folder, _known: write_rows(folder, contract, [row]),
        ),
        wait_seconds=context.lock_wait_seconds,
    )
    return done_commit.version
