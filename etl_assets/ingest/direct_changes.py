"""Staged changes of a log as the columns of a table, without JSON between them.

What a plain change becomes is what its record would become. A column whose values have another form in JSON
than in the table, such as bytes, is taken through JSON by itself. A change that is not plain may be good or
bad: its record is judged.

Belongs here: which changes are plain, and their values. Does not belong here: reading files
(`direct_columns.py`), and judging records (`direct_lines.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from etl_assets.contracts.arrow_calls import call
from etl_assets.contracts.arrow_types import arrow_type
from etl_assets.contracts.column_types import DecimalType
from etl_assets.contracts.columns import Column
from etl_assets.sources.canonical_rows import canonical_rows
from etl_assets.sources.postgres_cdc.staged import REFUSED
from etl_assets.sources.sql.typed_rows import plain_values
from etl_assets.transforms.plain_records import PlainRecords
from etl_assets.transforms.typed_records import RecordColumn

if TYPE_CHECKING:
    import pyarrow as pa

_SIGN_OF_TEXT = 6
"""A character of a text has at most this many bytes in JSON."""
_BYTES_OF_COLUMN = 64
"""The name and the value of any other column have at most so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedChanges:
    """The columns that are taken from changes.

    Attributes:
        records: The same columns of records, with their rules.
        max_record_bytes: Greatest size of a change as JSON. One that may be larger is not plain.
    """

    records: PlainRecords
    max_record_bytes: int

    def typed(self, changes: pa.RecordBatch) -> tuple[pa.Table, pa.Array]:
        """Return the columns of some changes with the kinds of these, and which changes are plain.

        The values of a change that is not plain mean nothing.
        """
        values, conditions = {}, {}
        for each in self.records.columns:
            values[each.column.name], conditions[each.column.name] = _values(each, changes)
        rows, is_plain = self.records.judged(values, conditions, changes.num_rows)
        is_taken = call("is_null", changes.column(REFUSED))
        return rows, reduce(
            lambda one, other: call("and", one, other), self._small(changes), call("and", is_plain, is_taken)
        )

    def _small(self, changes: pa.RecordBatch) -> Iterator[pa.Array]:
        """Yield the condition that changes are surely no larger as JSON than a record may be."""
        import pyarrow as pa
        import pyarrow.compute as pc

        names = changes.schema.names
        most = self.max_record_bytes - _BYTES_OF_COLUMN * len(names) - len("".join(names).encode())
        sizes = []
        for name, column in zip(names, changes.columns, strict=True):
            if pa.types.is_nested(column.type):
                sizes.append(call("binary_length", canonical_rows({name: column})))
            elif pa.types.is_string(column.type) or pa.types.is_binary(column.type):
                sizes.append(call("multiply", call("binary_length", column), _SIGN_OF_TEXT))
        if sum(pc.call_function("max", [each]).as_py() or 0 for each in sizes) > most:
            sizes = [call("coalesce", each, 0) for each in sizes]
            yield call("less_equal", reduce(lambda one, other: call("add", one, other), sizes), most)


def _values(each: RecordColumn, changes: pa.RecordBatch) -> tuple[pa.Array, list[pa.Array]]:
    """Return the values of a column, and conditions that hold for plain ones."""
    import pyarrow as pa

    wanted = arrow_type(each.column.parsed_type)
    if each.field not in changes.schema.names:
        return pa.nulls(changes.num_rows, wanted), []
    found = changes.column(each.field)
    if not _has_form_of(each.column, found.type):
        return _through_json(each, found)
    if isinstance(each.column.parsed_type, DecimalType):
        return found.cast(wanted), []
    return plain_values(each.column, found)


def _has_form_of(column: Column, type_: pa.DataType) -> bool:
    """Return whether values of a type are those of a column, or none of it, without a look at their JSON."""
    from pyarrow import types

    wanted = column.parsed_type
    if isinstance(wanted, DecimalType):
        return (
            types.is_decimal(type_)
            and type_.scale <= wanted.scale
            and type_.precision - type_.scale <= wanted.precision - wanted.scale
        )
    match column.type:
        case "STRING":
            return types.is_string(type_) or types.is_integer(type_) or types.is_boolean(type_)
        case "INT" | "BIGINT":
            return types.is_integer(type_)
        case "DOUBLE":
            return types.is_float64(type_)
        case "BOOLEAN":
            return types.is_boolean(type_)
        case "DATE":
            return types.is_date32(type_)
        case "TIMESTAMP":
            return types.is_timestamp(type_) and type_.unit == "us"
    return False


def _through_json(each: RecordColumn, found: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
    """Return the values that a column takes from the JSON of others, and which of these are plain."""
    import numpy as np
    import pyarrow as pa

    # Rules are for the caller: of a delete, they do not count.
    records = PlainRecords.of(
        [replace(each, column=replace(each.column, nullable=True, rules=()))], frozenset()
    )
    assert records is not None  # a column of a nested type is refused in the declaration
    typed, places = records.typed(canonical_rows({each.field: found}))
    is_there = np.zeros(len(found), dtype=bool)
    is_there[places.to_numpy()] = True
    is_plain, values = pa.array(is_there), typed.column(each.column.name).combine_chunks()
    return call("replace_with_mask", pa.nulls(len(found), values.type), is_plain, values), [is_plain]
