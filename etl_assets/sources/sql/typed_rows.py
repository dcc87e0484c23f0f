"""Rows of a query as the columns of a table, without JSON between them.

A row is plain if each of its values is one of its column's type, and nothing is missing or breaks a rule.
What a plain row becomes is what its JSON would become (`transforms/plain_records.py`). A row that is not
plain may be good or bad: it is read again as JSON, and judged as records are.

Belongs here: which types of PostgreSQL make which columns, and which rows are plain. Does not belong here:
asking the database (`postgres.py`), and the rules of columns, which the caller checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from etl_assets.contracts.arrow_calls import call
from etl_assets.contracts.arrow_types import arrow_type
from etl_assets.contracts.column_types import DecimalType
from etl_assets.contracts.columns import Column
from etl_assets.errors import SourceRefused
from etl_assets.sources.sql.postgres_text import quoted

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.sources.sql.database import QueryColumn

IS_PLAIN = "_is_plain"
"""Column that says whether a row is plain. The values of one that is not mean nothing."""
MAX_OTHERS = 10_000
"""With more rows that are not plain, all rows of a range are read as JSON."""
_WHOLE = {"int2", "int4", "int8"}
_TAKES: Mapping[str, Mapping[str, str]] = {
    "STRING": {"text": "", "varchar": "", **dict.fromkeys((*_WHOLE, "numeric", "uuid", "bool"), "text")},
    "INT": dict.fromkeys(_WHOLE, ""),
    "BIGINT": dict.fromkeys(_WHOLE, ""),
    "DOUBLE": {"float8": ""},
    "DECIMAL": {**dict.fromkeys(_WHOLE, "text"), "numeric": ""},
    "BOOLEAN": {"bool": ""},
    "DATE": {"date": ""},
    "TIMESTAMP": {"timestamptz": "", "timestamp": ""},
}
"""For each type of a column, the types of PostgreSQL that it takes, and to what they are cast."""
_DAYS = (-719_160, 2_932_893)
"""Days since 1970 between which a day is plain: not at the edge of what a column holds."""
_MICROSECONDS = 86_400_000_000
_SIGN_OF_TEXT = 6
"""A character of a text has at most this many bytes in JSON."""

RulesHold = Callable[["pa.Table"], "pa.Array"]
"""Returns which of some rows have all that their columns require."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedField:
    """A column, and the column of the query's result that it is taken from."""

    column: Column
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedRows:
    """The columns that are taken from the rows of a query.

    Attributes:
        fields: The columns.
        rules_hold: Checks the rules of the columns.
        max_record_bytes: Greatest size of a row as JSON. One that may be larger is not plain.
        in_order: Whether rows must come in the order of their keys.
    """

    fields: tuple[TypedField, ...]
    rules_hold: RulesHold
    max_record_bytes: int
    in_order: bool = True

    def selected(self, described: Sequence[QueryColumn], *, source: str) -> list[str]:
        """Return SQL for each column, over a row `q` of the query.

        Raises:
            SourceRefused: the query has no such column, or one of a type that the column does not take.
        """
        types = {each.name: each.type for each in described}
        return [self._selected(each, types, source) for each in self.fields]

    def schema(self) -> pa.Schema:
        """Return the schema of `typed`."""
        import pyarrow as pa

        fields = [(each.column.name, arrow_type(each.column.parsed_type)) for each in self.fields]
        return pa.schema([*fields, (IS_PLAIN, pa.bool_())])

    def typed(self, columns: Sequence[pa.Array], texts_of_keys: Sequence[pa.Array]) -> pa.RecordBatch:
        """Return rows as the columns, with `IS_PLAIN`.

        Args:
            columns: The values as ADBC returns them, in the order of `fields`.
            texts_of_keys: Those columns of the row's key that are texts: an empty one is no id.
        """
        import pyarrow as pa

        values, conditions, sizes = [], [], []
        for each, column in zip(self.fields, columns, strict=True):
            value, condition = plain_values(each.column, _storage(column))
            values.append(value)
            conditions += condition
            if pa.types.is_string(value.type):
                sizes.append(call("binary_length", value))
        conditions += [call("coalesce", call("not_equal", text, ""), False) for text in texts_of_keys]
        conditions += self._small(sizes)
        rows = pa.Table.from_arrays(values, schema=pa.schema(list(self.schema())[:-1]))
        is_plain = reduce(lambda one, other: call("and", one, other), conditions, self.rules_hold(rows))
        return pa.RecordBatch.from_arrays([*values, is_plain], schema=self.schema())

    def _selected(self, each: TypedField, types: Mapping[str, str], source: str) -> str:
        type_ = types.get(each.field)
        name = each.column.name
        if type_ is None:
            raise SourceRefused(
                f"{source}: the query returns no column {each.field!r}, which the column {name} takes",
                fix=f"let the query return it; it returns {', '.join(types)}",
                source=source,
            )
        takes = _TAKES["DECIMAL" if isinstance(each.column.parsed_type, DecimalType) else each.column.type]
        if type_ not in takes:
            raise SourceRefused(
                f"{source}: {each.field} is {type_}, and with keep_records: false a column of type"
                f" {each.column.type} takes {', '.join(takes)}",
                fix=f"cast {each.field} in the query, or remove keep_records",
                source=source,
            )
        cast = takes[type_]
        return f"q.{quoted(each.field)}{f'::pg_catalog.{cast}' if cast else ''}"

    def _small(self, sizes: Sequence[pa.Array]) -> list[pa.Array]:
        """Return the condition that rows are surely no larger as JSON than a record may be."""
        import pyarrow.compute as pc

        most = self.max_record_bytes // _SIGN_OF_TEXT - 64 * len(self.fields)
        greatest = sum(pc.call_function("max", [each]).as_py() or 0 for each in sizes)
        if greatest <= most:
            return []
        whole = reduce(lambda one, other: call("add", one, other), [call("coalesce", s, 0) for s in sizes])
        return [call("less_equal", whole, max(most, 0))]


def _storage(column: pa.Array) -> pa.Array:
    """Return the values of an extension type: ADBC has numeric as texts of one."""
    return getattr(column, "storage", column)


def plain_values(column: Column, found: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
    """Return the values of a column, and conditions that hold for plain ones.

    Args:
        column: The column.
        found: Values of a type that it takes, as ADBC returns them: decimals are texts.
    """
    import pyarrow as pa

    type_ = column.parsed_type
    wanted = arrow_type(type_)
    if isinstance(type_, DecimalType):
        return _decimal(type_, found)
    if pa.types.is_integer(wanted):
        return _whole(wanted, found)
    if column.type == "DOUBLE":
        # JSON has no infinity, and its form of -0 is not this one.
        inverse = call("divide", pa.scalar(1.0), found)
        is_plain = call("and", call("is_finite", found), call("not_equal", inverse, pa.scalar(-_INF)))
        return found, [call("coalesce", is_plain, True)]
    if column.type in ("DATE", "TIMESTAMP"):
        unit = 1 if column.type == "DATE" else _MICROSECONDS
        number = found.view(pa.int32() if column.type == "DATE" else pa.int64())
        low, high = (day * unit for day in _DAYS)
        within = call("and", call("greater_equal", number, low), call("less", number, high))
        is_plain = call("coalesce", within, True)
        return _where_any_not(is_plain, found).cast(wanted), [is_plain]
    return found.cast(wanted), []


_INF = float("inf")


def _whole(wanted: pa.DataType, found: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
    import pyarrow as pa

    if found.type.bit_width <= wanted.bit_width:
        return found.cast(wanted), []
    limits = (-(2 ** (wanted.bit_width - 1)), 2 ** (wanted.bit_width - 1) - 1)
    within = call(
        "and",
        call("greater_equal", found, pa.scalar(limits[0], found.type)),
        call("less_equal", found, pa.scalar(limits[1], found.type)),
    )
    is_plain = call("coalesce", within, True)
    return _where_any_not(is_plain, found).cast(wanted), [is_plain]


def _decimal(type_: DecimalType, found: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
    """Return texts of PostgreSQL's numeric as decimals: digits and a point, or a name such as NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = arrow_type(type_)
    try:
        return found.cast(wanted), []
    except pa.ArrowInvalid:  # one does not fit
        whole = type_.precision - type_.scale
        digits = f"[0-9]{{1,{whole}}}" if whole else "0"
        fraction = f"([.][0-9]{{1,{type_.scale}}}0*)?" if type_.scale else "([.]0+)?"
        pattern = pc.MatchSubstringOptions(rf"\A-?{digits}{fraction}\z")
        is_plain = call("coalesce", pc.call_function("match_substring_regex", [found], pattern), True)
        return _where_any_not(is_plain, found).cast(wanted), [is_plain]


def _where_any_not(condition: pa.Array, column: pa.Array) -> pa.Array:
    """Return values, null where a condition does not hold."""
    import pyarrow as pa

    if condition.false_count == 0:
        return column
    return call("if_else", condition, column, pa.scalar(None, column.type))
