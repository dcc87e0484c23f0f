"""Events of a batch that have been accepted before, in the batch or in history: duplicates and conflicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.reasons import Outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REPEATS_SCHEMA = "ordinal BIGINT, outcome STRING, original_offset BIGINT, original_ordinal BIGINT"


def find_duplicates(events: DataFrame, history: DataFrame | None) -> DataFrame:
    """Return the events that do not become rows, because their id has been accepted before.

    Of several events with one id, the one in history is the original, else the first in source order. An
    event with the same content (equal fingerprint) is a duplicate, any other a conflict. An event that
    history has from the same source position, with the same content, is that very row, read again, and no
    duplicate of itself: its outcome is `accepted`.

    Args:
        events: `event_id, fingerprint, ordinal BIGINT, source, source_position`; `ordinal` rises in source
            order.
        history: `event_id, fingerprint, offset, source, source_position` of accepted events; None if there
            are none. It is read once, and not shuffled when the batch is small.

    Returns:
        `REPEATS_SCHEMA`. `original_offset` is the offset of an original in history. `original_ordinal` is the
        ordinal of an original in the batch, whose offsets are not assigned yet.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    same_id = Window.partitionBy("event_id").orderBy("ordinal")
    ranked = _suspects(events, history).withColumn(
        "first", F.first(F.struct("fingerprint", "ordinal")).over(same_id)
    )
    is_known = F.col("known").isNotNull()
    met_again = F.expr(
        "known.source = source AND known.source_position = source_position AND known.fingerprint ="
        " fingerprint"
    )
    return ranked.where(is_known | (F.col("ordinal") != F.col("first.ordinal"))).select(
        "ordinal",
        F.when(is_known & met_again, F.lit(Outcome.ACCEPTED.value))
        .when(is_known, _outcome("fingerprint", "known.fingerprint"))
        .otherwise(_outcome("fingerprint", "first.fingerprint"))
        .alias("outcome"),
        F.col("known.offset").alias("original_offset"),
        F.when(~is_known, F.col("first.ordinal")).alias("original_ordinal"),
    )


def find_duplicates_in_process(
    events: Iterable[Mapping[str, Any]], known: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[int, str, int | None, int | None]]:
    """Find the same rows as `find_duplicates` for a few events, in this process.

    Args:
        events: Events with the columns that `find_duplicates` takes.
        known: The accepted events of history that have an id of the batch, by that id.

    Yields:
        Rows of `REPEATS_SCHEMA`.
    """
    first: dict[str, Mapping[str, Any]] = {}
    for event in sorted(events, key=itemgetter("ordinal")):
        if (stands := known.get(event["event_id"])) is not None:
            offset, ordinal = stands["offset"], None
        elif (stands := first.setdefault(event["event_id"], event)) is not event:
            offset, ordinal = None, stands["ordinal"]
        else:
            continue
        yield event["ordinal"], _outcome_in_process(event, stands).value, offset, ordinal


def _outcome_in_process(event: Mapping[str, Any], stands: Mapping[str, Any]) -> Outcome:
    if stands["fingerprint"] != event["fingerprint"]:
        return Outcome.CONFLICT
    met_again = all(stands[name] == event[name] for name in ("source", "source_position"))
    return Outcome.ACCEPTED if met_again else Outcome.DUPLICATE


def _suspects(events: DataFrame, history: DataFrame | None) -> DataFrame:
    """Return the events that may repeat another one, with the `known` event of their id.

    So only these few events are sorted.

    Ids that may occur twice in the batch are found by their hash. This may include an event too many, and
    never misses one.
    """
    from pyspark.sql import functions as F

    fields = ("fingerprint", "offset", "source", "source_position")
    if history is None:
        nothing = F.lit(None).cast(
            "struct<fingerprint:string,offset:bigint,source:string,source_position:string>"
        )
        met = events.withColumn("known", nothing)
    else:
        of_batch = history.join(events.select("event_id").distinct(), "event_id", "left_semi")
        met = events.join(of_batch.select("event_id", F.struct(*fields).alias("known")), "event_id", "left")
    id_hash = F.xxhash64("event_id").alias("id_hash")
    twice = events.groupBy(id_hash).count().where("count > 1").select("id_hash", F.lit(True).alias("twice"))
    return (
        met.withColumn("id_hash", id_hash).join(twice, "id_hash", "left").where("twice OR known IS NOT NULL")
    )


def _outcome(one: str, other: str):  # noqa: ANN202 - pyspark's Column is imported only for type checking
    from pyspark.sql import functions as F

    return F.when(F.col(one) == F.col(other), F.lit(Outcome.DUPLICATE.value)).otherwise(
        F.lit(Outcome.CONFLICT.value)
    )
