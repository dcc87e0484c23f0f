"""The rows of a table at one place in the log, read in chunks by their keys.

A snapshot belongs to the session that reads it. If the session ends before the copy, another one goes on
after the last key with a newer snapshot. That is no gap: each row is placed in the log where its snapshot is,
and the slot has all changes since the first snapshot.

Belongs here: snapshots and rows. Does not belong here: when a table is copied (`source.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etl_assets.errors import SourceUnavailable
from etl_assets.sources.postgres_cdc.changed_rows import ChangePlace
from etl_assets.sources.postgres_cdc.heap_pages import read_file_numbers
from etl_assets.sources.postgres_cdc.log_server import LogServer
from etl_assets.sources.postgres_cdc.lsn import parse_lsn
from etl_assets.sources.postgres_cdc.rows_by_copy import write_rows
from etl_assets.sources.postgres_cdc.source_table import SourceTable
from etl_assets.sources.sql.postgres_text import quoted

if TYPE_CHECKING:
    from etl_assets.sources.postgres_cdc.staged_changes import StagedChangesWriter

_ROW_BYTES = "SELECT coalesce(avg(pg_column_size(r.*)), 1)::int8 FROM (SELECT * FROM {table} LIMIT 100) AS r"
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8"
_JSON_PER_BYTE = 3
"""A row as JSON, with the names of its columns, is about so many times as long as in the table."""


@dataclass(slots=True, kw_only=True)
class TableCopy:
    """Reads a table by the session of a server.

    Attributes:
        server: The server.
    """

    server: LogServer
    _place: ChangePlace | None = field(default=None, init=False)
    _file_numbers: str | None = field(default=None, init=False)
    """The files of the table before the snapshot; None: nobody wants to know."""

    def place(self, table: SourceTable | None = None) -> ChangePlace:
        """Return the place in the log at which rows are read; begin a snapshot if none is held.

        The snapshot has every transaction that was committed up to that place and no other: a temporary slot
        gives it, which sees commits in the order of the log. The place is directly before the first commit
        that the snapshot does not have.

        Args:
            table: The table whose rows `write` reads.
        """
        import psycopg

        if self._place is not None and self.server.has_transaction:
            return self._place
        self.release()
        self._file_numbers = None if table is None else read_file_numbers(self.server.session, table.oid)
        name = f"etl_assets_{uuid.uuid4().hex}"
        with psycopg.connect(self.server.replication_address, autocommit=True) as sender:
            statement = f"CREATE_REPLICATION_SLOT {quoted(name)} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT"
            row = sender.execute(statement.encode()).fetchone()
            assert row is not None  # the command has one row
            _, lsn, snapshot, _ = row
            session = self.server.session
            session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            session.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
            now = session.execute(_NOW.encode()).fetchone()
        assert now is not None  # a function has one row
        self._place = ChangePlace(lsn=parse_lsn(lsn) - 1, sequence=0, committed_at=now[0])
        return self._place

    def write(
        self,
        writer: StagedChangesWriter,
        table: SourceTable,
        after: Sequence[str] | None,
        limit: int,
        place: ChangePlace,
    ) -> tuple[int, tuple[str, ...]]:
        """Write the next rows in the order of their keys.

        Args:
            writer: Where they are written.
            table: The table.
            after: The key of the last row that was read, as texts; None: from the beginning.
            limit: How many at most.
            place: The place of the first row in the log; the others follow it.

        Returns:
            How many rows were written, and the key of the last one, as texts.

        Raises:
            SourceUnavailable: the table's files were replaced since the snapshot. No row of them counts.
        """
        query, values = self._query(table, after, limit)
        written = write_rows(self.server.session, query, writer, place, values)
        self._expect_same_files(table)
        return written.number, _key_of(table, written.last) if written.number else tuple(after or ())

    def _expect_same_files(self, table: SourceTable) -> None:
        """Expect the files from before the snapshot, which sees no rows of newer ones.

        `TRUNCATE`, `VACUUM FULL` and a rewriting `ALTER TABLE` write newer ones. Since rows were read, the
        transaction has a lock on the table that none of them gets past.
        """
        if self._file_numbers in (None, read_file_numbers(self.server.session, table.oid)):
            return
        self.release()
        raise files_were_replaced(table, self.server.name)

    def limit(self, table: SourceTable, max_rows: int, max_bytes: int) -> int:
        """Return how many rows a chunk has."""
        row = self.server.session.execute(_ROW_BYTES.format(table=table.name).encode()).fetchone()
        assert row is not None  # an aggregate has one row
        return max(1, min(max_rows, max_bytes // (max(1, row[0]) * _JSON_PER_BYTE)))

    def release(self) -> None:
        """End the snapshot."""
        if self._place is not None and self.server.has_transaction:
            self.server.session.execute("ROLLBACK")
        self._place = None

    @staticmethod
    def _query(table: SourceTable, after: Sequence[str] | None, limit: int) -> tuple[bytes, Sequence[Any]]:
        keys = ", ".join(_literal(quoted(key)) for key in table.keys)
        where = ""
        if after is not None:
            bounds = ", ".join(f"%s::{_literal(type_)}" for type_ in table.key_types)
            where = f" WHERE ({keys}) > ({bounds})"
        columns, name = _literal(column_list(table)), _literal(table.name)
        query = f"SELECT {columns} FROM {name}{where} ORDER BY {keys} LIMIT {limit}"
        return query.encode(), tuple(after or ())


def files_were_replaced(table: SourceTable, connection: str) -> SourceUnavailable:
    """Return the error of a batch whose snapshot does not see the rows of a table any more."""
    return SourceUnavailable(
        f"the files of {table.name} were replaced while a batch of its copy began",
        fix="nothing: the step is repeated",
        source=connection,
    )


def column_list(table: SourceTable) -> str:
    """Return the columns of a table that the log has, for a SELECT."""
    return ", ".join(quoted(each.name) for each in table.relation.columns)


def _key_of(table: SourceTable, row: Sequence[bytes | None]) -> tuple[str, ...]:
    """Return the key of a row, as texts."""
    texts = {column.name: text for column, text in zip(table.relation.columns, row, strict=True)}
    key = [texts[name] for name in table.keys]
    assert None not in key  # `find_source_table` refuses keys that may be null
    return tuple(text.decode() for text in key if text is not None)


def _literal(text: str) -> str:
    """Return a text of a statement with parameters, in which `%` begins one."""
    return text.replace("%", "%%")
