"""The record of a delivery: one row of the table of deliveries, with the cursor; and rows a target rejected.

Belongs here: committing them, by data files of this process, without Spark. Does not belong here: the
delivery.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.contracts.reasons import Outcome, RecordEncoding
from etl_assets.contracts.spark_types import struct_type
from etl_assets.delta.log.cursor import cursor_name, read_cursors
from etl_assets.delta.read.data_files import new_data_file
from etl_assets.delta.read.rows import KnownFiles
from etl_assets.delta.write.commit import commit
from etl_assets.delta.write.write import DeferredRows, Write
from etl_assets.sinks.sink import Delivered, Rejection, SinkPosition
from etl_assets.steps.exceptions import Exceptions, Stamps, commit_exceptions
from etl_assets.steps.step import StepContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from etl_assets.contracts.columns import TableContract
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
    """Return the position of the last recorded delivery; None if there is none."""
    if record.version() < 0 or read_cursors(record, table, [None])[None] < 0:
        return None
    snapshot = record.snapshot()
    newest = None if snapshot is None else snapshot.maximum("_batch_id")
    if snapshot is None or newest is None:
        return None
    import pyarrow.dataset as ds

    columns = ["table_id", "to_version", "tombstones"]
    (row,) = snapshot.dataset().to_table(columns=columns, filter=ds.field("_batch_id") == newest).to_pylist()
    return SinkPosition(table_id=row["table_id"], version=row["to_version"], tombstones=row["tombstones"])


def last_recorded(record: Table) -> int:
    """Return the number of the last recorded delivery: the version that wrote it; -1 if there is none."""
    snapshot = record.snapshot()
    newest = None if snapshot is None else snapshot.maximum("_batch_id")
    return -1 if newest is None else newest


def commit_record(context: StepContext, record: Table, made: DeliveryRecord, *, table: str, base: int) -> int:
    """Append a delivery, with the cursor on the table, and return the version."""
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
    done_commit = commit(
        record,
        Write(
            rows=_deferred(context, contract, [row]),
            base_version=base,
            cursors={cursor_name(table, None): after.version},
            files=lambda folder, _known: _write(folder, contract, [row]),
        ),
        wait_seconds=context.lock_wait_seconds,
    )
    return done_commit.version


def commit_rejections(
    context: StepContext, rejects: TableContract, stage: str, rejections: Sequence[Rejection]
) -> None:
    """Add rows that a target did not accept to their table, each once however often it is delivered."""
    if not rejections:
        return
    day = context.clock().date()
    context_day = day.isoformat()

    def make(stamps: Stamps) -> Exceptions:
        rows = [
            {
                "exception_id": _digest(stage, each.keys, each.row),
                "stage": stage,
                "outcome": Outcome.REJECTED.value,
                "reason": each.reason,
                "error": each.error,
                "record": each.row,
                "record_encoding": RecordEncoding.UTF8.value,
                "source": stage,
                "source_position": f"{context_day}/{each.keys}"[:1_000],
                "domain": stamps.domain,
                "failed_at": stamps.failed_at,
                "partition_date": day,
                "batch_id": stamps.batch_id,
            }
            for each in {_digest(stage, one.keys, one.row): one for one in rejections}.values()
        ]
        return Exceptions(
            frame=_deferred(context, rejects, rows),
            files=lambda folder, known: _write_new(folder, rejects, rows, known),
        )

    commit_exceptions(context, rejects, make, output=stage, days=[day])


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _deferred(context: StepContext, contract: TableContract, rows: list[dict[str, Any]]) -> DeferredRows:
    schema = struct_type(contract)

    def frame() -> DataFrame:
        from etl_assets.delta.session import frame_of

        return frame_of(
            context.spark, [tuple(row.get(name) for name in contract.names) for row in rows], schema
        )

    return DeferredRows(schema=schema, frame=frame)


def _write_new(folder: Path, contract: TableContract, rows: list[dict[str, Any]], known: KnownFiles) -> int:
    """Write the rows that the table does not have, and return the number of the others."""
    import pyarrow.parquet as pq

    there = {
        value
        for files in known.values()
        for file in files
        for value in pq.ParquetFile(file).read(columns=["exception_id"]).column(0).to_pylist()
    }
    new = [row for row in rows if row["exception_id"] not in there]
    _write(folder, contract, new)
    return len(rows) - len(new)


def _write(folder: Path, contract: TableContract, rows: Sequence[Mapping[str, Any]]) -> int:
    import pyarrow as pa

    from etl_assets.delta.log.partition_values import folder_of

    by_folder: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        of = {name: str(row[name]) for name in contract.delta_partition}
        by_folder.setdefault(folder_of(of, contract.delta_partition), []).append(row)
    schema = data_file_schema(contract, without=contract.delta_partition)
    folder.mkdir(parents=True, exist_ok=True)
    for index, (name, of_folder) in enumerate(by_folder.items()):
        path = folder / name / f"part-{index:05d}-{uuid.uuid4()}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_data_file(path, schema) as file:
            file.write_table(pa.Table.from_pylist([dict(row) for row in of_folder], schema=schema))
    return 0
