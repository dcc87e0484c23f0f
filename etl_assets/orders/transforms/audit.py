"""Rows of the stages' tables to audit rows: one for each record, stage and attempt."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import Outcome
from etl_assets.sources.landing import REPLAYS
from etl_assets.transforms.dead_letters import replay_attempt

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_RECORD = ("source", "source_position", "attempt")
"""Columns that identify a record and its attempt at ingest."""


def audit_accepted(raw_events: DataFrame) -> DataFrame:
    """Return audit rows of accepted events; replays of dead letters have the outcome `replayed`."""
    from pyspark.sql import functions as F

    again = F.col("source") == REPLAYS
    return raw_events.select(
        F.lit("ingest").alias("stage"),
        "event_id",
        "source",
        "source_position",
        F.when(again, replay_attempt("source_position")).otherwise(F.lit(1)).alias("attempt"),
        F.when(again, F.lit(Outcome.REPLAYED.value))
        .otherwise(F.lit(Outcome.ACCEPTED.value))
        .alias("outcome"),
        F.col("ingest_domain").alias("domain"),
        "offset",
        F.col("ingested_at").alias("recorded_at"),
        "trace_id",
        "partition_date",
    )


def audit_normalized(orders: DataFrame, refused_before: DataFrame, recorded_at: object) -> DataFrame:
    """Return audit rows of normalized events; an event that was rejected before has the next attempt.

    Args:
        orders: normalized_orders' columns.
        refused_before: `event_id, attempt` of this stage's rejects.
        recorded_at: When the batch was recorded; the rows have no time of their own.
    """
    from pyspark.sql import functions as F

    refused = refused_before.groupBy("event_id").agg(F.max("attempt").alias("__attempt"))
    return orders.join(refused, "event_id", "left").select(
        F.lit("normalize").alias("stage"),
        "event_id",
        F.lit("raw_events").alias("source"),
        F.col("raw_offset").cast("string").alias("source_position"),
        (F.coalesce("__attempt", F.lit(0)) + 1).alias("attempt"),
        F.lit(Outcome.NORMALIZED.value).alias("outcome"),
        F.col("transform_domain").alias("domain"),
        "offset",
        F.lit(recorded_at).alias("recorded_at"),
        "trace_id",
        "partition_date",
    )


def audit_committed(rows: DataFrame) -> DataFrame:
    """Return audit rows of events that became warehouse rows."""
    from pyspark.sql import functions as F

    return rows.select(
        F.lit("commit").alias("stage"),
        "event_id",
        F.lit("normalized_orders").alias("source"),
        F.col("normalized_offset").cast("string").alias("source_position"),
        F.lit(1).alias("attempt"),
        F.lit(Outcome.COMMITTED.value).alias("outcome"),
        F.col("sink_domain").alias("domain"),
        F.col("normalized_offset").alias("offset"),
        F.col("committed_at").alias("recorded_at"),
        "trace_id",
        "partition_date",
    )


def audit_exceptions(exceptions: DataFrame) -> DataFrame:
    """Return audit rows of a stage's exceptions: rejects, and at ingest also duplicates and conflicts."""
    from pyspark.sql import functions as F

    at_ingest = F.col("stage") == "ingest"
    again = F.col("source") == REPLAYS
    return exceptions.select(
        "stage",
        "event_id",
        F.when(at_ingest, F.col("source")).otherwise(F.lit("raw_events")).alias("source"),
        F.when(at_ingest, F.col("source_position"))
        .otherwise(F.col("original_offset").cast("string"))
        .alias("source_position"),
        F.when(again, replay_attempt("source_position")).otherwise(F.lit(1)).alias("attempt"),
        "outcome",
        "domain",
        F.when(at_ingest, F.col("original_offset")).alias("offset"),
        F.col("failed_at").alias("recorded_at"),
        "trace_id",
        "partition_date",
    )


def files_read_again(raw_events: DataFrame) -> DataFrame:
    """Return the files that several batches have read, because they changed in between, as `file`.

    There are few, or none.
    """
    from pyspark.sql import functions as F

    batches = raw_events.groupBy(_file().alias("file")).agg(
        F.min("batch_id").alias("__first"), F.max("batch_id").alias("__last")
    )
    return batches.where("__first < __last").select("file")


def first_outcomes(
    accepted: DataFrame | None, refused: DataFrame | None, read_again: DataFrame | None
) -> list[DataFrame]:
    """Return the first outcome of each record at ingest.

    A line has a second outcome if its file was changed after it had been read.

    Args:
        accepted: Audit rows of accepted events; None if there are none.
        refused: Audit rows of ingest's exceptions, few compared with `accepted`; None if there are none.
        read_again: The files of accepted events whose lines may have two outcomes in `accepted` alone, from
            `files_read_again`; None if there are none.

    Returns:
        Frames whose union has the audit rows.
    """
    from pyspark.sql import functions as F

    if accepted is None:
        return [] if refused is None else [_first(refused)]
    key = list(_RECORD)
    positions = []
    if refused is not None:
        positions.append(refused.select(*key))
    if read_again is not None:
        of_files = accepted.join(F.broadcast(read_again), _file() == F.col("file"), "left_semi")
        positions.append(of_files.select(*key))
    if not positions:
        return [accepted]
    several = reduce(lambda one, other: one.unionByName(other), positions).distinct()
    found = accepted.join(several, key, "left_semi")
    found = found if refused is None else found.unionByName(refused)
    return [accepted.join(several, key, "left_anti"), _first(found)]


def _first(rows: DataFrame) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    first = Window.partitionBy(*_RECORD).orderBy("recorded_at", "outcome")
    return rows.withColumn("__rank", F.row_number().over(first)).where("__rank = 1").drop("__rank")


def _file() -> Column:
    """Return the column of the source position without its line, which follows the last colon."""
    from pyspark.sql import functions as F

    line = F.substring_index("source_position", ":", -1)
    return F.substring(F.col("source_position"), F.lit(1), F.length("source_position") - F.length(line) - 1)
