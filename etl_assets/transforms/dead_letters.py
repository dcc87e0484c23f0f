"""Exceptions to dead letters: which ones are new, which were replayed, and the state of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import DeadLetterState, Outcome
from etl_assets.contracts.tables.dead_letters import DEAD_LETTERS
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
    incoming: DataFrame, stored: DataFrame, replayed: DataFrame, stages: DataFrame, done: DataFrame
) -> DataFrame:
    """Return the dead letters that have to be written, in their current state.

    A dead letter is replayed once its record was accepted, also if it was discarded while that attempt
    waited. A record is replayed to a source as a new one, and accepted under the number of its attempt; a
    later stage may still reject it, under the same number. A stage that takes replays itself has accepted the
    record when its table has its event.

    Args:
        incoming: `dead_letters_of` the exceptions read.
        stored: dead_letters' columns: the dead letters that exist.
        replayed: `dead_letter_id, attempts, is_final` of replayed records that sources accepted, and of rows
            that targets of sinks took. After a target there is no later stage, so that is final.
        stages: `stage` of those stages that take replays themselves.
        done: `stage, event_id` of the events in the tables of these stages.

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
    # discarded, unless it was closed by a source: then a later stage has rejected that attempt since.
    by_source = F.col("__stored") & (F.col("state") == DeadLetterState.REPLAYED.value)
    last = Window.partitionBy("dead_letter_id").orderBy(
        F.desc("attempts"), by_source, F.desc("__stored"), "stage"
    )
    latest = both.withColumn("__rank", F.row_number().over(last)).where("__rank = 1").drop("__rank")
    accepted = replayed.groupBy("dead_letter_id").agg(
        F.max("attempts").alias("__accepted"),
        F.max(F.when(F.col("is_final"), F.col("attempts"))).alias("__final"),
    )
    judged = (
        latest.join(accepted, "dead_letter_id", "left")
        .join(F.broadcast(stages.withColumn("__takes_replays", F.lit(True))), "stage", "left")
        .join(done.distinct().withColumn("__done", F.lit(True)), ["stage", "event_id"], "left")
    )
    is_open = F.col("state") == DeadLetterState.OPEN.value
    succeeded = F.when(F.col("__takes_replays"), F.col("__done").isNotNull()).otherwise(
        F.coalesce(F.col("__accepted") > F.col("attempts"), F.lit(False))
        | F.coalesce(F.col("__final") >= F.col("attempts"), F.lit(False))
    )
    is_discarded = F.col("state") == DeadLetterState.DISCARDED.value
    # An attempt that was accepted after the dead letter was discarded; a stage that takes replays itself has
    # no number of it.
    later = F.col("__takes_replays").isNull() & F.coalesce(
        F.col("__accepted") > F.col("attempts"), F.lit(False)
    )
    closed = (is_open & succeeded) | (is_discarded & later)
    accepted_attempt = F.when(F.col("__takes_replays").isNull(), F.col("__accepted"))
    return (
        judged.withColumn("__closed", closed)
        .where(~F.col("__stored") | F.col("__closed"))
        .withColumn(
            "state",
            F.when(F.col("__closed"), F.lit(DeadLetterState.REPLAYED.value)).otherwise(F.col("state")),
        )
        .withColumn(
            "attempts",
            F.when(F.col("__closed"), F.coalesce(accepted_attempt, F.col("attempts") + 1)).otherwise(
                F.col("attempts")
            ),
        )
        .select(*columns)
    )
