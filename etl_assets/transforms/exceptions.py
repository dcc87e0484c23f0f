"""What a stage refuses or meets again, as rows of its exceptions table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import DeadLetterReason, Outcome, RecordEncoding
from etl_assets.transforms.line_positions import RUN_KEY, ordinal, source_position

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def ingest_exceptions(
    events: DataFrame, rejected: DataFrame, blocks: DataFrame, repeats: DataFrame
) -> DataFrame:
    """The lines that do not become rows.

    Args:
        events: The lines that are events.
        rejected: The others, as `parse_events` has them.
        blocks: `file_index, block_start, lines_before, source, file_position` for each block.
        repeats: What `find_repeats` found.

    Returns:
        The columns of an exceptions table but domain, time and batch.
    """
    from pyspark.sql import functions as F

    met = repeats.where(F.col("outcome").isin(Outcome.DUPLICATE.value, Outcome.CONFLICT.value))
    repeated = events.withColumn("ordinal", ordinal()).join(F.broadcast(met), "ordinal")
    exceptional = rejected.unionByName(repeated, allowMissingColumns=True)
    conflict = F.col("outcome") == Outcome.CONFLICT.value
    located = exceptional.join(blocks, list(RUN_KEY)).withColumn("source_position", source_position())
    return located.select(
        _exception_id("ingest", "record", "fingerprint"),
        F.lit("ingest").alias("stage"),
        F.coalesce("outcome", F.lit(Outcome.REJECTED.value)).alias("outcome"),
        F.when(conflict, F.lit(DeadLetterReason.FINGERPRINT_CONFLICT.value))
        .when(F.col("outcome").isNull(), F.col("reason"))
        .alias("reason"),
        F.when(
            conflict,
            F.lit("an event with this id and other content was accepted before; the first one stands"),
        )
        .when(F.col("outcome").isNull(), F.col("error"))
        .alias("error"),
        F.when(conflict, _as_wire_event()).otherwise(F.col("record")).alias("record"),
        F.when(conflict, F.lit(RecordEncoding.UTF8.value))
        .otherwise(F.col("record_encoding"))
        .alias("record_encoding"),
        "source",
        "source_position",
        "event_id",
        "original_offset",
        "trace_id",
        "partition_date",
    )


def normalize_exceptions(refused: DataFrame) -> DataFrame:
    """The events that break their contract.

    Args:
        refused: Those of `normalize_orders` with a reason.

    Returns:
        The columns of an exceptions table but domain, time and batch.
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


def _exception_id(stage: str, *content: str) -> Column:
    """Id of a record's exception at a stage: the same whenever and however often the record is judged.

    Args:
        stage: The stage.
        content: Columns of what stood at the source position, where that may change: a landing file that was changed
            after it had been read may hold another bad record on the same line.
    """
    from pyspark.sql import functions as F

    return F.sha2(F.concat_ws("|", F.lit(stage), "source", "source_position", *content), 256).alias(
        "exception_id"
    )


def _as_wire_event():  # noqa: ANN202
    """The event of a conflict as one JSON object again, with its canonical payload."""
    from pyspark.sql import functions as F

    head = F.to_json(
        F.struct(
            "event_id",
            "tenant_id",
            "aggregate_id",
            "event_type",
            "schema_version",
            F.date_format("occurred_at", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias("timestamp"),
            "trace_id",
            "span_id",
        )
    )
    return F.concat(F.regexp_replace(head, r"\}$", ""), F.lit(',"payload":'), F.col("payload"), F.lit("}"))
