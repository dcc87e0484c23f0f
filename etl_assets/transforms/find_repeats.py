"""Which events of a batch have been accepted before, in the batch or in history: duplicates and conflicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import Outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def find_repeats(events: DataFrame, history: DataFrame | None) -> DataFrame:
    """The events that do not become rows, because their id has been accepted before.

    Of several events with one id, the one in history stands, else the first in source order. One that says the same
    (equal fingerprint) is a duplicate, another a conflict. An event that history took from the same source position is
    that very row, met again, and no duplicate of itself: its outcome is `accepted`.

    Args:
        events: `event_id, fingerprint, ordinal BIGINT, source, source_position`; `ordinal` rises in source order.
        history: `event_id, fingerprint, offset, source, source_position` of accepted events, or None when there are
            none. It is read once, and not shuffled when the batch is small.

    Returns:
        `ordinal, outcome, original_offset`; the last is that of the accepted event where it is in history, and null
        where it is in the batch, whose offsets are not dealt yet.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    same_id = Window.partitionBy("event_id").orderBy("ordinal")
    ranked = events.select(
        "event_id",
        "fingerprint",
        "ordinal",
        "source",
        "source_position",
        F.first(F.struct("fingerprint", "ordinal")).over(same_id).alias("first"),
    )
    if history is None:
        repeats = ranked.where("ordinal != first.ordinal")
        return repeats.select(
            "ordinal",
            _outcome("fingerprint", "first.fingerprint").alias("outcome"),
            F.lit(None).cast("bigint").alias("original_offset"),
        )
    known = history.join(events.select("event_id").distinct(), "event_id", "left_semi").select(
        "event_id",
        F.struct("fingerprint", "offset", "source", "source_position").alias("known"),
    )
    met_again = F.expr("known.source = source AND known.source_position = source_position")
    return (
        ranked.join(known, "event_id", "left")
        .where("known IS NOT NULL OR ordinal != first.ordinal")
        .select(
            "ordinal",
            F.when(F.col("known").isNull(), _outcome("fingerprint", "first.fingerprint"))
            .when(met_again, F.lit(Outcome.ACCEPTED.value))
            .otherwise(_outcome("fingerprint", "known.fingerprint"))
            .alias("outcome"),
            F.col("known.offset").alias("original_offset"),
        )
    )


def _outcome(one: str, other: str):  # noqa: ANN202 - pyspark's Column is imported only for type checking
    from pyspark.sql import functions as F

    return F.when(F.col(one) == F.col(other), F.lit(Outcome.DUPLICATE.value)).otherwise(
        F.lit(Outcome.CONFLICT.value)
    )
