"""Rows of the stages' tables to audit rows: one for each record, stage and attempt."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import Outcome
from etl_assets.sources.landing import REPLAYS
from etl_assets.transforms.dead_letters import replay_attempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def audit_accepted(raw_events: DataFrame) -> DataFrame:
    """Accepted events; those that came as the replay of a dead letter are `replayed`."""
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
    """Normalized events; those that had been refused before are one attempt further.

    Args:
        orders: normalized_orders' columns.
        refused_before: `event_id, attempt` of this stage's refusals.
        recorded_at: When the batch was recorded; the rows do not carry a time of their own.
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
    """Events that became warehouse rows."""
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
    """What a stage refused or met again."""
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


def first_outcomes(accepted: Sequence[DataFrame], refused: DataFrame) -> list[DataFrame]:
    """Of each record at ingest the first outcome: a line has another one once its file was changed after it had been read.

    Args:
        accepted: Audit rows of accepted events, none or one frame.
        refused: Audit rows of what ingest refused or met again, few beside them.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    key = ["source", "source_position", "attempt"]
    positions = refused.select(*key).distinct()
    several = reduce(
        lambda one, other: one.unionByName(other),
        (rows.join(positions, key, "left_semi") for rows in accepted),
        refused,
    )
    first = Window.partitionBy(*key).orderBy("recorded_at", "outcome")
    kept = several.withColumn("__rank", F.row_number().over(first)).where("__rank = 1").drop("__rank")
    return [*(rows.join(positions, key, "left_anti") for rows in accepted), kept]
