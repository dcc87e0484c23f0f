"""Changes that do not have all values of their row: what they lack is taken from other changes of its key.

A row has a text column with what it lacked when it arrived: a JSON object from the name of a field to the
place in the sequence of the change that its value is from, or to the empty text if no change has had it yet.
NULL: the row has all values of its own place. So a value is replaced by one of a later place only, and the
row ends up the same in whatever order the changes arrive.

A stored row that gets a value from a change older than itself takes the `_offset` of that change, which
arrived later, so that the MERGE knows it as newer.

Belongs here: completing changes. Does not belong here: which of them are late (`changes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from etl_assets.contracts.sql_text import identifier
from etl_assets.contracts.tables.tombstones import IS_TRUNCATE
from etl_assets.delta.write.changes import IS_DELETED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_IS_STORED = "_is_stored"
_PLACES = "map<string,string>"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialChanges:
    """Columns of changes that may lack values.

    Attributes:
        keys: Columns that identify a row.
        sequence: The column that places a change in the sequence, a text.
        arrival: The column that counts changes in the order of their arrival.
        lacks: The column that says what a row lacks.
        fields: For each column that may be lacked, the name of its field.
    """

    keys: tuple[str, ...]
    sequence: str
    arrival: str
    lacks: str
    fields: Mapping[str, str]

    def with_stored(self, changes: DataFrame, stored: DataFrame) -> DataFrame:
        """Return changes with the stored rows of their keys, if one of them lacks something.

        Args:
            changes: Changes with `_is_deleted` and `_is_truncate`.
            stored: The table's rows.

        Returns:
            The changes and rows, with `_is_stored`; the changes alone if all of them are whole.
        """
        from pyspark.sql import functions as F

        lacks = F.col(identifier(self.lacks)).isNotNull()
        if self.lacks not in stored.columns:  # a table that has no commit since the column was declared
            stored = stored.where("false").withColumn(self.lacks, F.lit(None).cast("string"))
        if changes.where(lacks).isEmpty() and stored.where(lacks).isEmpty():
            return changes
        keys = [_column(name).alias(f"_key_{number}") for number, name in enumerate(self.keys)]
        changed = changes.where(~F.col(IS_TRUNCATE)).select(*keys).distinct()
        same = (_column(name) == F.col(f"_key_{number}") for number, name in enumerate(self.keys))
        wanted = [name for name in stored.columns if name in changes.columns]
        beside = stored.join(changed, reduce(and_, same), "left_semi").select(*map(_column, wanted))
        flags = {IS_DELETED: F.lit(False), IS_TRUNCATE: F.lit(False), _IS_STORED: F.lit(True)}
        return changes.withColumn(_IS_STORED, F.lit(False)).unionByName(
            beside.withColumns(flags), allowMissingColumns=True
        )

    def completed(self, rows: DataFrame) -> DataFrame:
        """Return changes in which a row that lacks values has them from the other changes of its key.

        Args:
            rows: What `with_stored` returned, without late changes.

        Returns:
            The changes; one for each key of which a row lacks something. A stored row is among them if it got
            a value.
        """
        from pyspark.sql import functions as F

        if _IS_STORED not in rows.columns:
            return rows
        keys = [identifier(name) for name in self.keys]
        lacks = F.col(identifier(self.lacks)).isNotNull()
        affected = rows.where(lacks).select(*keys).distinct()
        whole = rows.where(~F.col(_IS_STORED)).join(affected, list(self.keys), "left_anti")
        partial = rows.join(affected, list(self.keys), "left_semi")
        names = [name for name in rows.columns if name not in self.keys]
        newest = F.max_by(F.struct(*map(_column, names)), F.struct(*map(_column, self._order))).alias(
            "_newest"
        )
        best = [self._best(name, field).alias(f"_best_{n}") for n, (name, field) in self._numbered()]
        found = partial.groupBy(*keys).agg(newest, *best)
        made = self._filled(found, names)
        return whole.select(*map(_column, made.columns)).unionByName(made).drop(_IS_STORED)

    @property
    def _order(self) -> tuple[str, str]:
        return self.sequence, self.arrival

    def _numbered(self) -> list[tuple[int, tuple[str, str]]]:
        return list(enumerate(self.fields.items()))

    def _best(self, name: str, field: str) -> Column:
        """Return the newest value of a column that a change or a row of the key has, with its place."""
        from pyspark.sql import functions as F

        lacked = F.from_json(_column(self.lacks), _PLACES)[F.lit(field)]
        place = F.coalesce(lacked, _column(self.sequence))
        has_value = ~F.col(IS_DELETED) & (place != "")
        value = F.struct(
            _column(name).alias("value"), place.alias("place"), _column(self.arrival).alias("arrival")
        )
        return F.max_by(value, F.when(has_value, F.struct(place, _column(self.arrival))))

    def _filled(self, found: DataFrame, names: list[str]) -> DataFrame:
        """Return the newest rows with the values that they lack."""
        from pyspark.sql import functions as F

        lacked = F.from_json(F.col(f"_newest.{identifier(self.lacks)}"), _PLACES)
        numbers = {name: number for number, (name, _) in self._numbered()}
        columns: dict[str, Column] = {name: F.col(f"_newest.{identifier(name)}") for name in names}
        arrivals = [columns[self.arrival]]
        for name, number in numbers.items():
            is_lacked = lacked[F.lit(self.fields[name])].isNotNull()
            columns[name] = F.when(is_lacked, F.col(f"_best_{number}.value")).otherwise(columns[name])
            arrivals.append(F.when(is_lacked, F.col(f"_best_{number}.arrival")))
        places = F.create_map(
            *(
                each
                for name, number in numbers.items()
                for each in (F.lit(self.fields[name]), F.col(f"_best_{number}.place"))
            )
        )
        known = F.transform_values(lacked, lambda field, place: F.coalesce(places[field], place))
        text = F.when(lacked.isNotNull(), F.to_json(known))
        is_new = ~columns[_IS_STORED] | ~text.eqNullSafe(columns[self.lacks])
        columns[self.lacks] = text
        if len(arrivals) > 1:
            columns[self.arrival] = F.greatest(*arrivals)
        kept = [_column(name) for name in self.keys]
        return found.where(is_new).select(*kept, *(each.alias(name) for name, each in columns.items()))


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(identifier(name))
