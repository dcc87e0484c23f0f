"""The rows of a query by COPY, on their way into staged files.

Belongs here: texts of the server, and their columns. Does not belong here: which rows (`table_copy.py`,
`page_copy.py`, `rows_again.py`), and what their texts mean (`values.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from select import POLLIN, poll
from typing import TYPE_CHECKING, Any

from etl_assets.sources.postgres_cdc.changed_rows import ChangePlace

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from psycopg import pq

    from etl_assets.sources.postgres_cdc.staged_changes import StagedChangesWriter

_BYTES_AT_ONCE = 8 << 20
"""About how many bytes of rows are held, beyond the last one."""


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """What was written.

    Attributes:
        number: How many rows.
        last: The texts of the last one, in the order of the table's columns; none if there was no row.
    """

    number: int
    last: tuple[bytes | None, ...]


def write_rows(
    session: psycopg.Connection,
    query: bytes,
    writer: StagedChangesWriter,
    place: ChangePlace,
    values: Sequence[Any] | None = None,
) -> WrittenRows:
    """Write the rows of a query.

    Args:
        session: The session.
        query: The query, with the columns of the writer's table. With parameters, `%` begins one.
        writer: Where the rows are written.
        place: The place of the first row in the log; the others follow it.
        values: Values of the query's parameters; None: it has none.
    """
    number, last, width = 0, (), len(writer.relation.columns)
    for rows in _rows_at_once(session, query, values):
        columns = _columns_of(rows.getbuffer(), width)
        writer.rows(columns, place.numbered(place.sequence + number))
        number += len(columns[0])
        last = tuple(column[-1].as_py() for column in columns)
    return WrittenRows(number, last)


def _rows_at_once(
    session: psycopg.Connection, query: bytes, values: Sequence[Any] | None
) -> Iterator[BytesIO]:
    """Yield the rows of a query as the server writes them as CSV, some at a time."""
    statement = b"COPY (" + query + b") TO STDOUT (FORMAT csv)"
    with session.cursor() as cursor, cursor.copy(statement, values):
        held, size = BytesIO(), 0
        for row in _rows(session.pgconn):
            size += held.write(row)
            if size >= _BYTES_AT_ONCE:
                yield held
                held, size = BytesIO(), 0
        if size:
            yield held


def _rows(connection: pq.abc.PGconn) -> Iterator[memoryview]:
    """Yield the rows of the COPY that a connection is in, to its end.

    psycopg's own iterator has two generators for each row, and takes twice as long.

    Raises:
        psycopg.Error: the server ended it.
    """
    from psycopg import errors, pq

    socket = poll()
    socket.register(connection.socket, POLLIN)
    while True:
        size, row = connection.get_copy_data(1)
        if size > 0:
            yield row
        elif size < 0:
            break
        else:
            socket.poll()
            connection.consume_input()
    # All results are taken before an error is raised: the session is left ready for the next statement.
    for result in [*iter(connection.get_result, None)]:
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise errors.error_from_result(result)


def _columns_of(rows: memoryview, number: int) -> list[pa.BinaryArray]:
    """Return the columns of rows that the server wrote as CSV: an empty value without quotes is null."""
    import pyarrow as pa
    from pyarrow import csv

    names = list(map(str, range(number)))
    table = csv.read_csv(
        pa.BufferReader(rows),
        read_options=csv.ReadOptions(column_names=names, block_size=len(rows)),
        # A table of one column may have rows that are empty lines.
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.binary()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return [column.combine_chunks() for column in table.itercolumns()]
