"""Changes of keyed rows: upserts, deletes and truncates, applied by a sequence whatever the order of arrival.

The newest change of a key decides whether the table has a row of it. A delete leaves no row, so its place in
the sequence is kept as a tombstone in a table beside; that of a truncate is a tombstone without key. A change
that is older than the tombstone of its key, or than a truncate, is late. Of changes at one place a delete
wins.

Belongs here: what is late, which tombstones changes leave, and the rows of the MERGE. Does not belong here:
where changes come from, and the commits (`steps/apply_changes.py`, `io_managers/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from etl_assets.contracts.sql_text import identifier
from etl_assets.contracts.tables.tombstones import IS_TRUNCATE
from etl_assets.delta.write.upsert import UpsertSpec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

IS_DELETED = "_is_deleted"
"""Column of changes, true or false: whether one deletes the row of its key. `_is_truncate` is another:
whether it is a truncate, which has no key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeColumns:
    """What columns of changes mean.

    Attributes:
        keys: Columns that identify a row.
        order: One or two columns that place a change in the sequence, the first one first; never null in a
            change. NULL in a stored row is older than any change.
    """

    keys: tuple[str, ...]
    order: tuple[str, ...]

    @property
    def tombstone_key(self) -> tuple[str, ...]:
        """Columns that identify a tombstone."""
        return (IS_TRUNCATE, *self.keys)

    @property
    def upsert_of_tombstones(self) -> UpsertSpec:
        """The merge of tombstones, of which the newest stands."""
        return UpsertSpec(
            merge_key=self.tombstone_key,
            ordering=self.order[0],
            tie_breaker=self.order[1] if len(self.order) > 1 else None,
            nullable_keys=True,
        )


def tombstones_in(changes: DataFrame, columns: ChangeColumns) -> DataFrame:
    """Return the tombstones that changes leave: the newest delete of each key, and the newest truncate.

    Args:
        changes: Keys, order, `_is_deleted` and `_is_truncate`.
        columns: Their meaning.

    Returns:
        `_is_truncate`, the keys, which are null for a truncate, and the order.
    """
    from pyspark.sql import functions as F

    newest = F.max(F.struct(*map(_column, columns.order))).alias("_newest")
    order = [F.col("_newest")[name].alias(name) for name in columns.order]
    keys = [_column(name) for name in columns.keys]
    deletes = changes.where(F.col(IS_DELETED) & ~F.col(IS_TRUNCATE)).groupBy(*keys).agg(newest)
    truncates = changes.where(F.col(IS_TRUNCATE)).agg(newest).where(F.col("_newest").isNotNull())
    without_key = [F.lit(None).cast(changes.schema[name].dataType).alias(name) for name in columns.keys]
    return deletes.select(F.lit(False).alias(IS_TRUNCATE), *keys, *order).unionByName(
        truncates.select(F.lit(True).alias(IS_TRUNCATE), *without_key, *order)
    )


def without_late(changes: DataFrame, tombstones: DataFrame, columns: ChangeColumns) -> DataFrame:
    """Return the upserts and deletes that are not late; truncates are left out.

    Args:
        changes: As for `tombstones_in`, with any other columns.
        tombstones: All tombstones that are kept, those of these changes included.
        columns: Their meaning.
    """
    from pyspark.sql import functions as F

    names = {name: f"_tombstone_{number}" for number, name in enumerate((*columns.keys, *columns.order))}
    kept = tombstones.select(IS_TRUNCATE, *(_column(name).alias(alias) for name, alias in names.items()))
    kept = kept.withColumnRenamed(IS_TRUNCATE, "_tombstone")
    mine = [_column(name) for name in columns.order]
    theirs = [F.col(names[name]) for name in columns.order]
    same_key = reduce(and_, (_column(name).eqNullSafe(F.col(names[name])) for name in columns.keys))
    late = _is_older(mine, theirs) | (_is_same(mine, theirs) & ~F.col(IS_DELETED))
    live = changes.where(~F.col(IS_TRUNCATE))
    live = live.join(kept.where(~F.col("_tombstone")), same_key & late, "left_anti")
    return live.join(F.broadcast(kept.where(F.col("_tombstone"))), _is_older(mine, theirs), "left_anti")


def truncated_rows(
    stored: DataFrame, newest: DataFrame, tombstones: DataFrame, columns: ChangeColumns
) -> DataFrame:
    """Return deletes of the stored rows that a truncate removes and no change decides on.

    Args:
        stored: The table's rows.
        newest: The newest changes, one for each key.
        tombstones: All tombstones that are kept.
        columns: Their meaning.

    Returns:
        Keys, order and `_is_deleted`.
    """
    from pyspark.sql import functions as F

    truncates = tombstones.where(F.col(IS_TRUNCATE)).select(
        *(_column(name).alias(f"_truncate_{number}") for number, name in enumerate(columns.order))
    )
    places = [F.col(f"_truncate_{number}") for number in range(len(columns.order))]
    mine = [_column(name) for name in columns.order]
    older = mine[0].isNull() | _is_older(mine, places)
    rows = stored.select(*map(_column, (*columns.keys, *columns.order)))
    gone = rows.join(F.broadcast(truncates), older, "inner").select(
        *map(_column, columns.keys),
        *(place.alias(name) for place, name in zip(places, columns.order, strict=True)),
        F.lit(True).alias(IS_DELETED),
    )
    decided = newest.select(
        *(_column(name).alias(f"_decided_{number}") for number, name in enumerate(columns.keys))
    )
    same_key = (
        _column(name).eqNullSafe(F.col(f"_decided_{number}")) for number, name in enumerate(columns.keys)
    )
    return gone.join(decided, reduce(and_, same_key), "left_anti")


def _is_older(mine: Sequence[Column], theirs: Sequence[Column]) -> Column:
    from pyspark.sql import functions as F

    older = F.lit(False)
    for one, other in reversed(list(zip(mine, theirs, strict=True))):
        older = (one < other) | ((one == other) & older)
    return older


def _is_same(mine: Sequence[Column], theirs: Sequence[Column]) -> Column:
    return reduce(and_, (one == other for one, other in zip(mine, theirs, strict=True)))


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(identifier(name))
