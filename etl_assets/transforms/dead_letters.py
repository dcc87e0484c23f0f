"""Exceptions to dead letters: which ones are new, which were replayed, and the state of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import DeadLetterState, Outcome
from etl_assets.orders.tables.dead_letters import DEAD_LETTERS
from etl_assets.sources.landing import REPLAYS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REPLAY_POSITION = r"^[0-9-]+/([0-9a-f]{64})\\.([0-9]+)\\.jsonl:"
STATE_COLUMNS = ("batch_id", "partition_date")


def dead_letters_of(exceptions: DataFrame) -> DataFrame:
    """Return exceptions as open dead letters; duplicates are left out.

    A replayed record that is rejected again keeps its dead letter: the new row supersedes it with a higher
    number of attempts.

    Args:
        exceptions: Columns of an exceptions table.

    Returns:
        dead_letters' columns without `batch_id`.
    """
    from pyspark.sql import functions as F

    again = F.col("source") == REPLAYS
    refused = exceptions.where(F.col("outcome").isin(Outcome.REJECTED.value, Outcome.CONFLICT.value))
    return refused.select(
        F.when(again, replayed_letter("source_position"))
        .otherwise(F.col("exception_id"))
        .alias("dead_letter_id"),
        "stage",
        "reason",
        "error",
        "record",
        "record_encoding",
        "source",
        "source_position",
        "event_id",
        "trace_id",
        F.when(again, replay_attempt("source_position")).otherwise(F.lit(1)).alias("attempts"),
        F.lit(DeadLetterState.OPEN.value).alias("state"),
        "failed_at",
        "partition_date",
    )


def replayed_letter(position: str):  # noqa: ANN201 - pyspark's Column is imported only for type checking
    """Return the id of the dead letter in a source position of the replays."""
    from pyspark.sql import functions as F

    return F.expr(f"regexp_extract({position}, '{_REPLAY_POSITION}', 1)")


def replay_attempt(position: str):  # noqa: ANN201
    """Return the number of the attempt in a source position of the replays: 2 for the first replay."""
    from pyspark.sql import functions as F

    return F.expr(f"try_cast(regexp_extract({position}, '{_REPLAY_POSITION}', 2) AS INT)")


def current_letters(
    incoming: DataFrame, stored: DataFrame, replayed: DataFrame, normalized: DataFrame
) -> DataFrame:
    """Return the dead letters that have to be written, in their current state.

    Args:
        incoming: `dead_letters_of` the exceptions read.
        stored: dead_letters' columns: the dead letters that exist.
        replayed: `dead_letter_id, attempts` of replayed records that were accepted.
        normalized: `event_id` of events that are in normalized_orders.

    Returns:
        dead_letters' columns without `batch_id`, one row for each dead letter that is new, superseded or
        changes its state.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    columns = [name for name in DEAD_LETTERS.names if name != "batch_id"]
    both = incoming.select(*columns, F.lit(False).alias("__stored")).unionByName(
        stored.select(*columns, F.lit(True).alias("__stored"))
    )
    # For one dead letter the last attempt counts. At the same attempt the stored row wins, as it may be
    # discarded.
    last = Window.partitionBy("dead_letter_id").orderBy(F.desc("attempts"), F.desc("__stored"))
    latest = both.withColumn("__rank", F.row_number().over(last)).where("__rank = 1").drop("__rank")
    accepted = replayed.groupBy("dead_letter_id").agg(F.max("attempts").alias("__accepted"))
    done = normalized.select("event_id", F.lit(True).alias("__normalized")).distinct()
    judged = latest.join(accepted, "dead_letter_id", "left").join(done, "event_id", "left")
    is_open = F.col("state") == DeadLetterState.OPEN.value
    succeeded = F.when(F.col("stage") == "ingest", F.col("__accepted").isNotNull()).otherwise(
        F.col("__normalized").isNotNull()
    )
    closed = is_open & succeeded
    at_ingest = F.when(F.col("stage") == "ingest", F.col("__accepted"))
    return (
        judged.withColumn("__closed", closed)
        .where(~F.col("__stored") | F.col("__closed"))
        .withColumn(
            "state",
            F.when(F.col("__closed"), F.lit(DeadLetterState.REPLAYED.value)).otherwise(F.col("state")),
        )
        .withColumn(
            "attempts",
            F.when(F.col("__closed"), F.coalesce(at_ingest, F.col("attempts") + 1)).otherwise(
                F.col("attempts")
            ),
        )
        .select(*columns)
    )
