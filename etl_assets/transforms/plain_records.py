"""Plain records to typed columns, in Arrow and without Spark.

A record is plain if each value has the form in which its type is mostly written (a JSON number for INT, a
text as in RFC 3339 for TIMESTAMP), no value is missing that must be there, and no rule is broken. What plain
values become is what `typed_records.py` makes of them. That a record is not plain says nothing about it:
Spark judges it, so that one place rejects records.

Belongs here: which records are plain, and their values. Does not belong here: reading records and writing
rows (`steps/plain_stage.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING

from etl_assets.contracts.arrow_calls import call
from etl_assets.contracts.arrow_rules import holds
from etl_assets.contracts.arrow_types import arrow_type
from etl_assets.contracts.column_types import MAX_DECIMAL_PRECISION, DecimalType, ScalarType
from etl_assets.contracts.columns import Column
from etl_assets.contracts.json_fields import json_fields
from etl_assets.contracts.rules import AtLeast, AtMost, MaxCharacters, NotEmpty, NotNull, OneOf
from etl_assets.contracts.tables.tombstones import IS_TRUNCATE
from etl_assets.delta.write.changes import IS_DELETED
from etl_assets.transforms.plain_kinds import PlainKinds
from etl_assets.transforms.typed_records import RecordColumn

if TYPE_CHECKING:
    import pyarrow as pa

_RULES = (NotNull, AtLeast, AtMost, OneOf, NotEmpty, MaxCharacters)
"""Rules that mean the same in Arrow and in Spark. Regular expressions do not."""
_TEXTS = ("STRING", "DATE", "TIMESTAMP")
"""Types whose plain values are texts in JSON."""
_DATE = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z"
_TIME = (
    r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
    r"(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])?\z"
)
_ZONE = r"(Z|[+-][0-9]{2}:[0-9]{2})\z"
_FIRST_DAY, _LAST_DAY = "0001-01-03", "9999-12-29"
"""Times and days before and after these are at the edge of what a column holds."""
_NO_FOLDERS = ("", "__HIVE_DEFAULT_PARTITION__")
"""Texts whose files would lie where those of null do."""
_MAX_SPLITS = 1_000
"""How often records are cut in half to find those that are not plain, before all that are left are taken for
such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRecords:
    """The columns that are taken from records.

    Attributes:
        columns: The columns, all of simple types.
        required: Names of columns without which a record is not plain.
        kinds: How deletes and truncates are known; None if records are none.
        laid_out_by: A text column by which files are laid out: an empty text is not plain.
    """

    columns: tuple[RecordColumn, ...]
    required: frozenset[str]
    kinds: PlainKinds | None = None
    laid_out_by: str | None = None

    @classmethod
    def of(
        cls,
        columns: Sequence[RecordColumn],
        required: frozenset[str],
        *,
        kinds: PlainKinds | None = None,
        laid_out_by: str | None = None,
    ) -> PlainRecords | None:
        """Return the columns; None if only Spark can take them."""
        types = {each.field: _json_type(each.column) for each in columns}
        if not columns or any(types[each.field] != _json_type(each.column) for each in columns):
            return None
        if None in types.values() or not all(_has_plain_rules(each.column) for each in columns):
            return None
        return cls(columns=tuple(columns), required=required, kinds=kinds, laid_out_by=laid_out_by)

    def typed(self, records: pa.Array) -> tuple[pa.Table, pa.Array]:
        """Return the columns of the plain records among some, and the positions of these, in their order.

        Records that may be changes have `_is_deleted` and `_is_truncate` too. Of a delete or a truncate only
        the values that it needs count.

        Args:
            records: JSON objects in canonical form.
        """
        import numpy as np
        import pyarrow as pa

        positions, tables = [np.empty(0, dtype=np.int64)], [self._schema().empty_table()]
        for first, rows, is_plain in self._pieces(records):
            tables.append(rows.filter(is_plain))
            positions.append(first + np.flatnonzero(is_plain.to_numpy(zero_copy_only=False)))
        return pa.concat_tables(tables), pa.array(np.concatenate(positions))

    def rules_hold(self, rows: pa.Table) -> pa.Array:
        """Return which of some typed rows have what the columns require and break no rule."""
        import pyarrow as pa

        found = [pa.repeat(pa.scalar(True), rows.num_rows)]
        for each in self.columns:
            found += self._rules(each.column, rows.column(each.column.name).combine_chunks())
        return reduce(_and, found)

    def _pieces(self, records: pa.Array) -> Iterator[tuple[int, pa.Table, pa.Array]]:
        """Yield what could be read: the position of its first record, the columns, and which are plain."""
        import pyarrow as pa

        left, splits = [(0, len(records))] if len(records) else [], 0
        while left:
            first, number = left.pop()
            try:
                yield first, *self._read(records.slice(first, number))
            except (pa.ArrowInvalid, pa.ArrowCapacityError):  # a record of another form is among them
                if number > 1 and splits < _MAX_SPLITS:
                    splits += 1
                    half = number // 2
                    left += [(first + half, number - half), (first, half)]

    def _read(self, records: pa.Array) -> tuple[pa.Table, pa.Array]:
        """Return the columns of all of some records, and which of these are plain.

        Raises:
            pa.ArrowInvalid: a value is of another kind.
        """
        parsed = json_fields(records, {each.field: _json_type(each.column) for each in self.columns})
        values: dict[str, pa.Array] = {}
        conditions: dict[str, list[pa.Array]] = {}
        for each in self.columns:
            column, name = parsed.column(each.field).combine_chunks(), each.column.name
            values[name], conditions[name] = _value(each, column, records)
        return self.judged(values, conditions, len(records))

    def judged(
        self, values: Mapping[str, pa.Array], conditions: Mapping[str, Sequence[pa.Array]], number: int
    ) -> tuple[pa.Table, pa.Array]:
        """Return typed values as rows, and which of them are plain.

        Args:
            values: The values of each column, by its name.
            conditions: For each column what holds for its plain values, beside its rules.
            number: How many rows there are.
        """
        import pyarrow as pa

        is_plain = pa.repeat(pa.scalar(True), number)
        for each in self.columns:
            name = each.column.name
            if found := [*conditions[name], *self._rules(each.column, values[name])]:
                waived = [] if self.kinds is None else self.kinds.waived(name, values)
                is_plain = call("and", is_plain, reduce(_or, waived, reduce(_and, found)))
        flags = {} if self.kinds is None else self.kinds.flags(values, number)
        columns = [*(values[each.column.name] for each in self.columns), *flags.values()]
        return pa.Table.from_arrays(columns, schema=self._schema()), is_plain

    def _rules(self, column: Column, value: pa.Array) -> list[pa.Array]:
        """Return the conditions that the values of a column meet in plain records."""
        found = [
            call("or_kleene", call("is_null", value), holds(rule, value))
            for rule in column.rules
            if not isinstance(rule, NotNull)
        ]
        if column.name in self.required or not column.nullable:
            found.append(call("is_valid", value))
        if column.name == self.laid_out_by:
            found += [call("coalesce", call("not_equal", value, text), True) for text in _NO_FOLDERS]
        return found

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        flags = [] if self.kinds is None else [(IS_DELETED, pa.bool_()), (IS_TRUNCATE, pa.bool_())]
        columns = [(each.column.name, arrow_type(each.column.parsed_type)) for each in self.columns]
        return pa.schema([*columns, *flags])


def _has_plain_rules(column: Column) -> bool:
    of_double = column.type == "DOUBLE" and any(not isinstance(rule, NotNull) for rule in column.rules)
    return not of_double and all(isinstance(rule, _RULES) for rule in column.rules)


def _json_type(column: Column) -> pa.DataType | None:
    """Return as what Arrow reads a plain value; None for a type that has none."""
    import pyarrow as pa

    if not isinstance(column.parsed_type, ScalarType | DecimalType):
        return None
    return pa.string() if column.type in _TEXTS else arrow_type(column.parsed_type)


def _value(each: RecordColumn, column: pa.Array, records: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
    """Return the values of a column, and conditions that hold for those of plain records.

    Raises:
        pa.ArrowInvalid: a text is no day or time.
    """
    import pyarrow as pa

    type_ = each.column.parsed_type
    if isinstance(type_, DecimalType):
        return column, [
            *_fits(type_, column),
            call("invert", _matches(records, _odd_decimal(each.field, type_))),
        ]
    if each.column.type == "DATE":
        is_day = _is_plain_text(column, _DATE)
        return _where(is_day, column).cast(pa.date32()), [is_day]
    if each.column.type == "TIMESTAMP":
        is_time = _is_plain_text(column, _TIME)
        times = _where(is_time, column)
        has_zone = call("coalesce", _matches(times, _ZONE), True)
        in_utc = call("binary_join_element_wise", times, "Z", "")
        return call("if_else", has_zone, times, in_utc).cast(pa.timestamp("us", tz="UTC")), [is_time]
    return column, []


def _fits(type_: DecimalType, column: pa.Array) -> list[pa.Array]:
    """Return the condition that a number has not too many digits before the point."""
    import pyarrow as pa

    most = pa.scalar(Decimal((0, (9,) * type_.precision, -type_.scale)), column.type)
    return [call("coalesce", call("less_equal", call("abs", column), most), True)]


def _odd_decimal(field: str, type_: DecimalType) -> str:
    """Return the pattern of records with a number that Arrow takes for a decimal and the platform does not.

    It has an exponent, or no digit before or after the point. Or it has so many digits before the point that
    they do not fit with all decimals: Arrow then returns another number, without an error.
    """
    too_many = MAX_DECIMAL_PRECISION - type_.scale + 1
    key = re.escape(json.dumps(field, ensure_ascii=False) + ":")
    return key + f'"?[+-]?([0-9.]*[eE]|[.]|[0-9]*[.]"|[0-9]{{{too_many}}})'


def _is_plain_text(column: pa.Array, pattern: str) -> pa.Array:
    """Return whether a text has a form, and lies within the years that a column holds; true for null."""
    has_form = _matches(column, pattern)
    after = call("greater_equal", column, _FIRST_DAY)
    before = call("less", column, _LAST_DAY)
    return call("coalesce", call("and", has_form, call("and", after, before)), True)


def _where(condition: pa.Array, column: pa.Array) -> pa.Array:
    """Return values, null where a condition does not hold."""
    import pyarrow as pa

    return call("if_else", condition, column, pa.scalar(None, column.type))


def _matches(column: pa.Array, pattern: str) -> pa.Array:
    import pyarrow.compute as pc

    options = pc.MatchSubstringOptions(pattern)
    return pc.call_function("match_substring_regex", [column], options)


def _and(one: pa.Array, other: pa.Array) -> pa.Array:
    return call("and", one, other)


def _or(one: pa.Array, other: pa.Array) -> pa.Array:
    return call("or", one, other)
