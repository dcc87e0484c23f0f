"""Changes of one table, collected row by row and handed out as Arrow columns.

Belongs here: one schema version of one table, within a batch. Does not belong here: where a batch ends, and
what a table of the platform makes of the changes (`delta/write/changes.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from etl_assets.errors import MessageMalformed, SourceRefused
from etl_assets.sources.postgres_cdc.lsn import lsn_text
from etl_assets.sources.postgres_cdc.messages import (
    UNCHANGED,
    DeleteMessage,
    InsertMessage,
    RelationMessage,
    UpdateMessage,
    Values,
)
from etl_assets.sources.postgres_cdc.types import PostgresType, ValuePolicies, value_type
from etl_assets.sources.postgres_cdc.values import to_arrow

if TYPE_CHECKING:
    import pyarrow as pa


class ChangeEffect(StrEnum):
    """What a change does to the row of its keys."""

    UPSERT = "upsert"
    DELETE = "delete"
    TRUNCATE = "truncate"


class SourceOperation(StrEnum):
    """What the database did.

    INSERT, DELETE: also the two halves of an update that changes the key. COPY: no change: a row that was
    read, or, of a truncate, the beginning of another copy of the table.
    """

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"
    COPY = "copy"


# Arrow takes eight times as long for members of an enum as for texts.
_UPSERT, _DELETE = ChangeEffect.UPSERT.value, ChangeEffect.DELETE.value
_INSERTED, _UPDATED, _DELETED = (
    each.value for each in (SourceOperation.INSERT, SourceOperation.UPDATE, SourceOperation.DELETE)
)


class ChangePlace(NamedTuple):
    """Where a change is in the log.

    Attributes:
        lsn: Place of its commit.
        sequence: Its place among all of its transaction.
        committed_at: Time of the commit by the server's clock, in microseconds since 1970.
    """

    lsn: int
    sequence: int
    committed_at: int

    def numbered(self, sequence: int) -> ChangePlace:
        """Return another place of the same transaction."""
        return self._replace(sequence=sequence)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """Changes in the order of the log.

    Attributes:
        relation: The table as it was.
        keys: Names of the columns that identify a row.
        changes: What each change does, of `ChangeEffect`.
        operations: What the database did, of `SourceOperation`.
        commit_lsns: Place of each change's commit in the log.
        sequences: Place of each change among all of its transaction.
        committed_at: Time of each change's commit; of a copied row that of the copy's snapshot.
        rows: The values. Of a delete those of the keys, of a truncate none.
        unchanged: Columns that an upsert leaves as they are, by the number of its row; their nulls are no
            values.
        moved: Numbers of such rows that had another key before. The delete of the old key is directly before.
        refused: Why a row cannot be kept, by its number: column and reason.
    """

    relation: RelationMessage
    keys: frozenset[str]
    changes: pa.StringArray
    operations: pa.StringArray
    commit_lsns: pa.Int64Array
    sequences: pa.Int64Array
    committed_at: pa.TimestampArray
    rows: pa.RecordBatch
    unchanged: Mapping[int, tuple[str, ...]]
    moved: frozenset[int]
    refused: Mapping[int, str]


class RowCollector:
    """Collects the changes of one schema version of a table.

    Args:
        relation: The table.
        keys: Names of the columns that identify a row.
    """

    def __init__(self, relation: RelationMessage, keys: Collection[str]) -> None:
        identity = [each.name for each in relation.columns if each.is_key]
        if missing := sorted(set(keys) - set(identity)):
            raise SourceRefused(
                f"the replica identity of {relation.schema}.{relation.name} lacks the key"
                f" {', '.join(missing)}; it has {', '.join(identity) or 'no columns'}",
                fix="use its columns as keys, or change it: ALTER TABLE ... REPLICA IDENTITY USING INDEX"
                " ..., or FULL",
                source=f"{relation.schema}.{relation.name}",
            )
        self.relation = relation
        self._width = len(relation.columns)
        self._key_names = frozenset(keys)
        self._keys = frozenset(number for number, each in enumerate(relation.columns) if each.name in keys)
        self._empty: Values = (None,) * self._width
        # A list for each column, not one of tuples: the garbage collector would go through all of these.
        self._rows: list[Values] = []
        self._changes: list[str] = []
        self._operations: list[str] = []
        self._lsns: list[int] = []
        self._sequences: list[int] = []
        self._times: list[int] = []
        self._unchanged: dict[int, tuple[str, ...]] = {}
        self._moved: set[int] = set()

    def __len__(self) -> int:
        return len(self._changes)

    def insert(self, message: InsertMessage, place: ChangePlace) -> None:
        """Collect a new row."""
        self._expect_width(message.new, place.lsn)
        self._add(_UPSERT, _INSERTED, message.new, place)

    def update(self, message: UpdateMessage, place: ChangePlace) -> None:
        """Collect a changed row. If its keys changed, the row of the old ones is deleted before it."""
        new, old = message.new, message.old
        self._expect_width(new, place.lsn)
        if old is None and UNCHANGED not in new:  # as nearly all are
            self._add(_UPSERT, _UPDATED, new, place)
            return
        if old is not None:
            self._expect_width(old, place.lsn)
        lacks_values = UNCHANGED in new
        if lacks_values and old is not None:
            new = self._filled(new, old, only_keys=message.old_is_key)
            lacks_values = UNCHANGED in new
        is_moved = old is not None and any(old[number] != new[number] for number in self._keys)
        if old is not None and is_moved:
            self._add(_DELETE, _DELETED, self._only_keys(old), place)
        if lacks_values:
            columns = zip(self.relation.columns, new, strict=True)
            names = tuple(column.name for column, value in columns if value is UNCHANGED)
            self._unchanged[len(self._changes)] = names
            if is_moved:
                self._moved.add(len(self._changes))
            new = tuple(None if value is UNCHANGED else value for value in new)
        self._add(_UPSERT, _INSERTED if is_moved else _UPDATED, new, place)

    def delete(self, message: DeleteMessage, place: ChangePlace) -> None:
        """Collect a row that is gone."""
        self._expect_width(message.old, place.lsn)
        self._add(_DELETE, _DELETED, self._only_keys(message.old), place)

    def truncate(self, place: ChangePlace, operation: SourceOperation = SourceOperation.TRUNCATE) -> None:
        """Collect that the table was emptied."""
        self._add(ChangeEffect.TRUNCATE.value, operation.value, self._empty, place)

    def collected(self, types: Mapping[int, PostgresType], policies: ValuePolicies) -> ChangedRows:
        """Return what was collected.

        Args:
            types: The types of the server that the columns may have.
            policies: What becomes of values without an equivalent.
        """
        import pyarrow as pa

        # No row has UNCHANGED any more.
        # Not by `zip`: its iterator for each row lets the garbage collector go through the whole process.
        columns = [list(map(itemgetter(number), self._rows)) for number in range(self._width)]
        rows, refused = _typed(self.relation, columns, types, policies)
        return ChangedRows(
            relation=self.relation,
            keys=self._key_names,
            changes=pa.array(self._changes, pa.string()),
            operations=pa.array(self._operations, pa.string()),
            commit_lsns=pa.array(self._lsns, pa.int64()),
            sequences=pa.array(self._sequences, pa.int64()),
            committed_at=pa.array(self._times, pa.timestamp("us", "UTC")),
            rows=rows,
            unchanged=dict(self._unchanged),
            moved=frozenset(self._moved),
            refused=refused,
        )

    def _add(self, change: str, operation: str, values: Values, place: ChangePlace) -> None:
        self._rows.append(values)
        self._changes.append(change)
        self._operations.append(operation)
        self._lsns.append(place.lsn)
        self._sequences.append(place.sequence)
        self._times.append(place.committed_at)

    def _only_keys(self, values: Values) -> Values:
        return tuple(value if number in self._keys else None for number, value in enumerate(values))

    def _filled(self, new: Values, old: Values, *, only_keys: bool) -> Values:
        """Return the new row with values of the old one where they were not sent."""
        return tuple(
            before if value is UNCHANGED and (column.is_key or not only_keys) else value
            for value, before, column in zip(new, old, self.relation.columns, strict=True)
        )

    def _expect_width(self, values: Values, lsn: int) -> None:
        if len(values) == self._width:
            return
        raise MessageMalformed(
            f"a row of {self.relation.schema}.{self.relation.name} at {lsn_text(lsn)} has {len(values)}"
            f" values, but the relation sent before it has {self._width} columns",
            fix="nothing was read of it; run again, so that the server sends the relation again",
            kind="row",
            offset=0,
        )


def copied_rows(
    relation: RelationMessage,
    columns: Sequence[pa.BinaryArray],
    types: Mapping[int, PostgresType],
    policies: ValuePolicies,
    place: ChangePlace,
) -> ChangedRows:
    """Return rows of a table as upserts at one place in the log.

    Args:
        relation: The table.
        columns: The texts of its columns.
        types: The types of the server that the columns may have.
        policies: What becomes of values without an equivalent.
        place: The place of the first row; the others follow it.
    """
    import numpy as np
    import pyarrow as pa

    rows, refused = _typed(relation, columns, types, policies)
    sequences = np.arange(place.sequence, place.sequence + rows.num_rows, dtype=np.int64)
    return ChangedRows(
        relation=relation,
        keys=frozenset(),  # no row had another one before
        changes=pa.repeat(pa.scalar(ChangeEffect.UPSERT.value), rows.num_rows),
        operations=pa.repeat(pa.scalar(SourceOperation.COPY.value), rows.num_rows),
        commit_lsns=pa.repeat(pa.scalar(place.lsn, pa.int64()), rows.num_rows),
        sequences=pa.array(sequences),
        committed_at=pa.repeat(pa.scalar(place.committed_at, pa.timestamp("us", "UTC")), rows.num_rows),
        rows=rows,
        unchanged={},
        moved=frozenset(),
        refused=refused,
    )


def _typed(
    relation: RelationMessage,
    columns: Sequence[Sequence[bytes | None] | pa.BinaryArray],
    types: Mapping[int, PostgresType],
    policies: ValuePolicies,
) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Return the values of rows, and why some rows cannot be kept."""
    import pyarrow as pa

    fields, arrays, refused = [], [], dict[int, str]()
    for column, texts in zip(relation.columns, columns, strict=True):
        type_ = value_type(column.type_oid, column.type_modifier, types, policies)
        found = to_arrow(type_, texts)
        fields.append(pa.field(column.name, type_.arrow))
        arrays.append(found.array)
        for number, reason in found.refused.items():
            refused.setdefault(number, f"{column.name}: {reason}")
    return pa.record_batch(arrays, schema=pa.schema(fields)), refused
