"""Output formats of a query's rows: a table for people, JSON and CSV for machines, printed as they are read.

Every writer prints at most `most` rows, and returns whether there were more.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from etl_assets.errors import QueryRefused

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.query.sql import QueryResult

_PARTS_PRINTED_TOGETHER = 1_000
_LINE_ENDS_AND_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}


def write_json(result: QueryResult, most: int | None) -> bool:
    """Print one list of objects."""
    rows = Rows(result, most)
    objects = (f"{', ' if number else ''}{json.dumps(row)}" for number, row in enumerate(rows.objects()))
    _print(itertools.chain("[", objects, "]\n"))
    return rows.cut


def write_jsonl(result: QueryResult, most: int | None) -> bool:
    """Print one object per line."""
    rows = Rows(result, most)
    _print(f"{json.dumps(row)}\n" for row in rows.objects())
    return rows.cut


def write_csv(result: QueryResult, most: int | None) -> bool:
    """Print a header line, then a line per row.

    Null is an empty field, and an empty text is "". A quoted text may contain line breaks.
    """
    rows = Rows(result, most)
    lines = itertools.chain([result.schema.names], rows)
    _print(f"{','.join(map(_csv_field, line))}\n" for line in lines)
    return rows.cut


def write_table(result: QueryResult, most: int | None) -> bool:
    """Print a table; on a terminal that is too narrow for it, print each row as a list of its columns."""
    from rich.console import Console

    rows = Rows(result, most)
    names = [_shown(name) for name in result.schema.names]
    cells = [["null" if value is None else _shown(_text(value)) for value in row] for row in rows]
    console = Console()
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    wide = sum(widths) + 3 * len(widths) + 1
    if console.is_terminal and wide > console.width:
        _show_records(names, cells)
    else:
        _show_columns(result.schema, names, cells, wide)
    return rows.cut


WRITERS: Mapping[str, Callable[[QueryResult, int | None], bool]] = {
    "table": write_table,
    "json": write_json,
    "jsonl": write_jsonl,
    "csv": write_csv,
}


class Rows:
    """Rows of a result as JSON values, at most `most` of them.

    Afterwards `cut` is whether there were more.
    """

    def __init__(self, result: QueryResult, most: int | None) -> None:
        self.cut = False
        self._result, self._most = result, most

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        rows = itertools.chain.from_iterable(map(_rows, self._result.batches()))
        yield from rows if self._most is None else itertools.islice(rows, self._most)
        self.cut = self._most is not None and next(rows, None) is not None

    def objects(self) -> Iterator[dict[str, Any]]:
        """Return the rows as objects by column name.

        Raises:
            QueryRefused: two columns have the same name.
        """
        names = self._result.schema.names
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise QueryRefused(
                f"{len(twice)} names are those of several columns of the result, and JSON has a name once:"
                f" {', '.join(twice)}",
                fix="list the columns instead of *, and name them apart: SELECT a.event_id AS first,"
                " b.event_id AS second",
            )
        return (dict(zip(names, row, strict=True)) for row in self)


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    columns = [
        [json_value(value, field.type) for value in _in_microseconds(column).to_pylist()]
        for field, column in zip(batch.schema, batch.columns, strict=True)
    ]
    return zip(*columns, strict=True)


def _in_microseconds(column: pa.Array) -> pa.Array:
    """Truncate nanoseconds, which Python's times lack.

    Only times that the engine itself computes, such as now(), have them; those of tables do not.
    """
    import pyarrow as pa

    kind = column.type
    fine = pa.types.is_timestamp(kind) and kind.unit == "ns"
    return column.cast(pa.timestamp("us", kind.tz), safe=False) if fine else column


def json_value(value: Any, kind: pa.DataType) -> Any:
    """Convert a value to JSON.

    Decimals, times and non-finite numbers become texts, bytes become Base64, maps become objects.
    """
    import pyarrow as pa

    if value is None or isinstance(value, (str, bool, int)):
        return value
    if pa.types.is_map(kind):
        return {str(json_value(key, kind.key_type)): json_value(item, kind.item_type) for key, item in value}
    if pa.types.is_struct(kind):
        return {field.name: json_value(value[field.name], field.type) for field in kind}
    if isinstance(value, list):
        return [json_value(each, kind.value_type) for each in value]
    if isinstance(value, float):
        return (
            value
            if math.isfinite(value)
            else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        )
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    return f"{value:f}" if isinstance(value, decimal.Decimal) else str(value)


def _print(parts: Iterable[str]) -> None:
    """Print many parts with few calls, because each call flushes. Escape sequences are data, and are kept."""
    left = iter(parts)
    while some := list(itertools.islice(left, _PARTS_PRINTED_TOGETHER)):
        click.echo("".join(some), nl=False, color=True)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shown(text: str) -> str:
    """Return a text as one line that is harmless to a terminal."""
    return text.translate(_LINE_ENDS_AND_CONTROLS)


def _csv_field(value: Any) -> str:
    if value is None:
        return ""
    text = _text(value)
    plain = text and not any(each in text for each in ',"\r\n')
    return text if plain else '"{}"'.format(text.replace('"', '""'))


def _show_columns(schema: pa.Schema, names: list[str], cells: list[list[str]], width: int) -> None:
    import pyarrow as pa
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name, field in zip(names, schema, strict=True):
        numeric = (
            pa.types.is_integer(field.type)
            or pa.types.is_floating(field.type)
            or pa.types.is_decimal(field.type)
        )
        table.add_column(Text(name), justify="right" if numeric else "left", no_wrap=True)
    for row in cells:
        # `Text` shows the text as it is: rich would read square brackets as markup.
        table.add_row(*map(Text, row))
    Console(width=max(width, 1), soft_wrap=True).print(table)


def _show_records(names: list[str], cells: list[list[str]]) -> None:
    longest = max(map(len, names))
    for number, row in enumerate(cells, 1):
        click.echo(f"-- row {number}")
        for name, value in zip(names, row, strict=True):
            click.echo(f"{name:{longest}}  {value}")
