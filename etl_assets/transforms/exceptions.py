"""Rejects and repeats of a stage as rows of its exceptions table.

They are built in Arrow for ingest, and in Spark for normalize.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import DeadLetterReason, Outcome, RecordEncoding

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

INGEST = "ingest"
"""Name of the stage that accepts events."""
_CONFLICT = "an event with this id and other content was accepted before; the first one stands"


def rejected_lines(
    lines: pa.Table, sources: pa.Array, positions: pa.Array, stage: str = INGEST
) -> dict[str, pa.Array]:
    """Return exceptions for lines that are not events.

    Args:
        lines: `event_id, reason, error, record, record_encoding` of each line.
        sources: The source of each line.
        positions: The source position of each line.
        stage: Name of the stage.

    Returns:
        The columns of an exceptions table that are not null, without domain, time, batch and day.
    """
    import pyarrow as pa

    told = ("event_id", "reason", "error", "record", "record_encoding")
    return {
        **_met(stage, sources, positions, lines.column("record")),
        "outcome": pa.repeat(Outcome.REJECTED.value, lines.num_rows),
        **{name: lines.column(name) for name in told},
    }


def repeated_events(
    events: pa.Table,
    sources: pa.Array,
    positions: pa.Array,
    original_offsets: pa.Array,
    conflicts: Mapping[int, str],
    stage: str = INGEST,
) -> dict[str, pa.Array]:
    """Return exceptions for events whose id has been accepted before.

    Args:
        events: `event_id, fingerprint` of each event, and `trace_id` if events have one.
        sources: The source of each event.
        positions: The source position of each event.
        original_offsets: For each event, the offset of the accepted event with its id.
        conflicts: The original records of events whose content differs from the accepted event, by row of
            `events`.
        stage: Name of the stage.

    Returns:
        The columns of an exceptions table, without domain, time, batch and day.
    """
    import pyarrow as pa

    rows = range(events.num_rows)

    def of_conflicts(value: str) -> pa.Array:
        return pa.array([value if row in conflicts else None for row in rows], pa.string())

    outcomes = [Outcome.CONFLICT.value if row in conflicts else Outcome.DUPLICATE.value for row in rows]
    records = [conflicts.get(row) for row in rows]
    return {
        **_met(stage, sources, positions, events.column("fingerprint")),
        "outcome": pa.array(outcomes, pa.string()),
        "reason": of_conflicts(DeadLetterReason.FINGERPRINT_CONFLICT.value),
        "error": of_conflicts(_CONFLICT),
        "record": pa.array(records, pa.string()),
        "record_encoding": of_conflicts(RecordEncoding.UTF8.value),
        "event_id": events.column("event_id"),
        "original_offset": original_offsets,
        **({"trace_id": events.column("trace_id")} if "trace_id" in events.column_names else {}),
    }


def normalize_exceptions(refused: DataFrame) -> DataFrame:
    """Return exceptions for events that break their contract.

    Args:
        refused: The rows of `normalize_orders` with a reason.

    Returns:
        The columns of an exceptions table without domain, time and batch.
    """
    from pyspark.sql import functions as F

    return refused.select(
        _exception_id("normalize"),
        F.lit("normalize").alias("stage"),
        F.lit(Outcome.REJECTED.value).alias("outcome"),
        "reason",
        "error",
        F.col("payload").alias("record"),
        F.lit(RecordEncoding.UTF8.value).alias("record_encoding"),
        "source",
        "source_position",
        "event_id",
        F.col("raw_offset").alias("original_offset"),
        "trace_id",
        "partition_date",
    )


def rejected_records(rejects: DataFrame, records: DataFrame, *, stage: str) -> DataFrame:
    """Return exceptions for records that do not become rows of a declared table.

    Args:
        rejects: `_offset`, `_reason` and `_error`; a record may be there more than once.
        records: The source table's columns, with at least the rejected records.
        stage: The table's name.

    Returns:
        The columns of an exceptions table without domain, time and batch; one row per record.
    """
    from pyspark.sql import functions as F

    first = rejects.groupBy("_offset").agg(F.min(F.struct("_error", "_reason")).alias("_first"))
    return first.join(records, F.col("_offset") == F.col("offset"), "left").select(
        # A file that was changed after it had been read may have another record at the same position.
        _exception_id(stage, "record_id"),
        F.lit(stage).alias("stage"),
        F.lit(Outcome.REJECTED.value).alias("outcome"),
        F.col("_first._reason").alias("reason"),
        F.col("_first._error").alias("error"),
        "record",
        F.lit(RecordEncoding.UTF8.value).alias("record_encoding"),
        "source",
        "source_position",
        F.col("record_id").alias("event_id"),
        F.col("_offset").alias("original_offset"),
        F.lit(None).cast("string").alias("trace_id"),
        "partition_date",
    )


def _exception_id(stage: str, *more: str) -> Column:
    """Return the id of a record's exception at a stage: the same each time the record is validated."""
    from pyspark.sql import functions as F

    return F.sha2(F.concat_ws("|", F.lit(stage), "source", "source_position", *more), 256).alias(
        "exception_id"
    )


def _met(
    stage: str, sources: pa.Array, positions: pa.Array, contents: pa.ChunkedArray
) -> dict[str, pa.Array]:
    """Return the columns that place some records of ingest, with the ids of their exceptions.

    An id depends on the content at the position as well. A landing file that was changed after it had been
    read may have another bad record on the same line.
    """
    import pyarrow as pa

    columns = (sources.to_pylist(), positions.to_pylist(), contents.to_pylist())
    ids = [_sha256([stage, *record]) for record in zip(*columns, strict=True)]
    return {
        "exception_id": pa.array(ids, pa.string()),
        "stage": pa.repeat(stage, len(ids)),
        "source": sources,
        "source_position": positions,
    }


def _sha256(parts: Iterable[str]) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()
