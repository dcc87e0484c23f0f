"""A query over PostgreSQL. The server writes the records as JSON, and ADBC carries them in Arrow buffers.

One column of texts that end with a line break is, in Arrow, one buffer: the content of the file. No row
becomes an object of Python. Many rows of a full load are read by several sessions at a time, each a part of
the keys, all under one snapshot.

Belongs here: SQL of PostgreSQL. Does not belong here: which rows are wanted (`source.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from etl_assets.contracts.arrow_calls import call
from etl_assets.errors import SourceRefused, SourceUnavailable
from etl_assets.pipelines.query_text import as_table
from etl_assets.sources.sql.bounds import Key, KeyBounds, Pair
from etl_assets.sources.sql.database import QueryColumn
from etl_assets.sources.sql.postgres_errors import adbc_module, psycopg_module, query_error
from etl_assets.sources.sql.postgres_text import (
    ID_ALIAS,
    KEY_ALIAS,
    PLAIN,
    TIMES,
    column_of,
    literal,
    quoted,
    row_of,
    text_of,
    texts_of,
    value_of,
)
from etl_assets.sources.sql.staged import join_files
from etl_assets.sources.sql.typed_rows import IS_PLAIN, MAX_OTHERS, TypedRows

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

_SETTINGS = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "SET LOCAL TimeZone = 'UTC'",
    "SET LOCAL DateStyle = 'ISO, YMD'",
    "SET LOCAL IntervalStyle = 'iso_8601'",
    "SET LOCAL extra_float_digits = 1",
    "SET LOCAL bytea_output = 'hex'",
    "SET LOCAL standard_conforming_strings = on",
)
"""Of each transaction, for itself only: a query cannot change what the next one runs under."""
_BATCH_BYTES = 4 << 20
PARALLEL_ROWS = 100_000
"""A range with a limit of fewer rows is read by one session: each runs the query for itself."""


@dataclass(kw_only=True)
class PostgresQuery:
    """A checked query over PostgreSQL.

    Attributes:
        name: The connection, for messages.
        address: libpq's connection string; it is in no message.
        query: One statement that reads.
        key: Column of the incremental key.
        id: Column that orders rows of equal keys.
        statement_timeout_seconds: For one statement, by the server.
        sessions: How many sessions read one range at a time.
    """

    name: str
    address: str = field(repr=False)
    query: str
    key: str
    id: str
    statement_timeout_seconds: float = 600.0
    sessions: int = 1
    _open: psycopg.Connection | None = field(default=None, init=False, repr=False)
    _columns: tuple[QueryColumn, ...] = field(default=(), init=False)
    _in_snapshot: bool = field(default=False, init=False)
    _held: str = field(default="", init=False)
    _cut: tuple[KeyBounds, tuple[Pair, ...]] | None = field(default=None, init=False)

    def columns(self) -> tuple[QueryColumn, ...]:
        """Return the columns of the result."""
        with self.snapshot(), self._asked():
            assert self._open is not None
            cursor = self._open.execute(self._raw(f"SELECT q.* FROM {as_table(self.query)} LIMIT 0"))
            described = [(each.name, each.type_code) for each in cursor.description or ()]
            types: dict[int, str] = dict(
                self._open.execute(
                    "SELECT oid::int8, typname FROM pg_catalog.pg_type WHERE oid = ANY (%s)",
                    ([oid for _, oid in described],),
                ).fetchall()
            )
        self._columns = tuple(column_of(name, types.get(oid, "unknown")) for name, oid in described)
        return self._columns

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Run a block in one read-only transaction of one snapshot."""
        if self._in_snapshot:
            yield
            return
        self._begin()
        try:
            yield
        finally:
            self._end()

    def hold(self) -> str:
        """Begin one snapshot for all calls until `release`, or go on with it; return its name."""
        if self._held:
            try:
                self._one("SELECT 1")
                return self._held
            except (SourceUnavailable, SourceRefused):
                self.release()
        self._begin()
        found = self._one("SELECT pg_export_snapshot()")
        assert found is not None  # a function has one row
        self._held = found[0]
        return self._held

    def release(self) -> None:
        """Let go of the snapshot that is held."""
        if self._held:
            self._held = ""
            self._end()

    def last(self, bounds: KeyBounds, limit: int) -> Pair | None:
        """Return the last pair of the first rows. Where many sessions read them, the same look cuts them."""
        sessions = self.sessions if limit >= PARALLEL_ROWS else 1
        page = (
            f"SELECT {self._key} AS k, {self._id} AS i FROM {as_table(self.query)}"
            f" WHERE {self._where(bounds)} ORDER BY 1, 2 LIMIT {limit}"
        )
        if sessions == 1:
            found = self._all(
                f"SELECT k::text, i::text FROM ({page}) AS p ORDER BY p.k DESC, p.i DESC LIMIT 1"
            )
        else:
            found = self._all(
                "SELECT k::text, i::text FROM (SELECT k, i, row_number() OVER w AS n,"
                f" lead(true) OVER w AS more FROM ({page}) AS p WINDOW w AS (ORDER BY k, i)) AS r"
                f" WHERE n % {-(-limit // sessions)} = 0 OR more IS NULL ORDER BY n"
            )
        if not found:
            return None
        types = {each.name: each.type for each in self._described}
        *cuts, end = (
            Pair(key=Key(type=types[self.key], text=key), id=Key(type=types[self.id], text=id_))
            for key, id_ in found
        )
        if sessions > 1:
            self._cut = replace(bounds, until=end), tuple(cuts)
        return end

    def digest(self, bounds: KeyBounds | None) -> str:
        """Return the number of rows and the sum of their hashes, which the server computes."""
        found = self._one(
            "SELECT count(*)::text, coalesce(sum(hashtextextended(line, 0)::numeric), 0)::text"
            f" FROM ({self._lines(bounds, ordered=False)}) AS p"
        )
        assert found is not None  # an aggregate has one row
        return ":".join(found)

    def write(self, bounds: KeyBounds | None, path: Path) -> None:
        """Write rows by COPY into Arrow buffers, which are the file."""
        self.columns()
        parts = [bounds] if bounds is None else self._parts(bounds)
        lines = [self._lines(each, ordered=True) for each in parts]
        paths = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, len(parts)))]
        if len(parts) == 1:
            self._write(lines[0], path)
            return
        with ThreadPoolExecutor(len(parts), "sql-read") as pool:
            written = pool.map(self._write, lines, paths)
            for _ in written:
                pass
        join_files(path, paths[1:])

    def write_columns(self, bounds: KeyBounds, rows: TypedRows, path: Path, others: Path) -> None:
        """Write rows by COPY as columns into an Arrow file, and those that are not plain as lines of JSON.

        Both are read under one snapshot. The lines are in the order of the rows that are not plain, if rows
        come in order. Where most rows are not plain, there are lines only.

        Raises:
            SourceRefused: the query has not the columns; see `TypedRows.selected`.
        """
        described = {each.name: each.type for each in self.columns()}
        statement = self._columns_of(bounds, rows)
        keys = (described[self.key], described[self.id])
        with self._session() as cursor:
            found = _OtherRows(keys=keys, where=f"({self._key}, {self._id})")
            cursor.execute(statement)
            _write_arrow(self._streamed(cursor.fetch_record_batch(), statement), rows, found, path)
            if not found.number:
                return
            if found.number > MAX_OTHERS:
                path.unlink()
                self._save(cursor, self._lines(bounds, ordered=True), others)
                return
            self._save(cursor, self._lines(bounds, ordered=True, only=found.condition()), others)

    def _columns_of(self, bounds: KeyBounds, rows: TypedRows) -> str:
        """Return the statement whose rows are some columns, the key and the id."""
        selected = rows.selected(self.columns(), source=self.name)
        named = ", ".join(f"{each} AS c{number}" for number, each in enumerate(selected))
        order = f" ORDER BY {self._key}, {self._id}" if rows.in_order else ""
        return (
            f"SELECT {named}, {self._key} AS {KEY_ALIAS}, {self._id} AS {ID_ALIAS}"
            f" FROM {as_table(self.query)} WHERE {self._where(bounds)}{order}"
        )

    def write_ids(self, names: Sequence[str], path: Path) -> None:
        """Write the ids of rows by COPY."""
        ids = [each for each in self.columns() if each.name in names]
        values = ", ".join(value_of(each) for each in ids)
        there = " AND ".join(f"q.{quoted(each.name)} IS NOT NULL" for each in ids)
        record = f"(SELECT row_to_json(r) FROM (SELECT {values}) AS r)::text"
        self._write(f"SELECT {record} || E'\\n' AS line FROM {as_table(self.query)} WHERE {there}", path)

    def row_bytes(self) -> int:
        """Return the mean of the first 100 rows."""
        lines = f"SELECT * FROM ({self._lines(KeyBounds(), ordered=False)} LIMIT 100) AS s"
        found = self._one(f"SELECT ceil(avg(octet_length(line)))::int8 FROM ({lines}) AS p")
        return int(found[0]) if found and found[0] is not None else 1

    def count(self, bounds: KeyBounds, limit: int) -> int:
        """Return the number of rows, at most `limit`."""
        rows = f"SELECT 1 FROM {as_table(self.query)} WHERE {self._where(bounds)} LIMIT {limit}"
        found = self._one(f"SELECT count(*) FROM ({rows}) AS p")
        return int(found[0]) if found else 0

    def lacks_keys(self) -> bool:
        """Return whether a row has no key or no id."""
        return (
            self._one(f"SELECT 1 FROM {as_table(self.query)} WHERE {self._where(None)} LIMIT 1") is not None
        )

    def first_time(self, bounds: KeyBounds) -> dt.datetime | None:
        """Return the least key if it is a time with a zone."""
        if next(each.type for each in self._described if each.name == self.key) != "timestamptz":
            return None
        found = self._one(
            f"SELECT {self._key} FROM {as_table(self.query)} WHERE {self._where(bounds)}"
            f" AND isfinite({self._key}) ORDER BY {self._key} LIMIT 1"
        )
        return None if found is None else found[0]

    def repeated_pair(self, limit: int) -> bool:
        """Return whether a pair stands twice among the first rows."""
        rows = f"SELECT {self._key} AS k, {self._id} AS i FROM {as_table(self.query)} LIMIT {limit}"
        return (
            self._one(
                f"SELECT 1 FROM ({rows}) AS p WHERE k IS NOT NULL AND i IS NOT NULL"
                " GROUP BY k, i HAVING count(*) > 1 LIMIT 1"
            )
            is not None
        )

    def close(self) -> None:
        """Close the connection."""
        self._held, self._in_snapshot = "", False
        if self._open is not None:
            self._open.close()
            self._open = None

    def _parts(self, bounds: KeyBounds) -> list[KeyBounds]:
        """Return bounds cut as `last` has cut them. Without one snapshot for all sessions they stay whole."""
        if not self._held or self._cut is None or self._cut[0] != bounds:
            return [bounds]
        ends = (*self._cut[1], bounds.until)
        begins = (bounds.after, *self._cut[1])
        return [KeyBounds(after=after, until=until) for after, until in zip(begins, ends, strict=True)]

    @property
    def _described(self) -> tuple[QueryColumn, ...]:
        return self._columns or self.columns()

    @property
    def _key(self) -> str:
        return f"q.{quoted(self.key)}"

    @property
    def _id(self) -> str:
        return f"q.{quoted(self.id)}"

    @property
    def _settings(self) -> tuple[str, ...]:
        milliseconds = max(1, int(self.statement_timeout_seconds * 1000))
        return (*_SETTINGS, f"SET LOCAL statement_timeout = {milliseconds}")

    def _lines(self, bounds: KeyBounds | None, *, ordered: bool, only: str = "") -> str:
        """Return the statement whose rows are records as JSON, each with a line break.

        With a condition, only the rows that meet it are read.

        Rows in order are those to read. They have their fields in the order of canonical JSON, which is then
        written once less. Others are hashed, as the digests of positions have been.
        """
        columns = sorted(self._described, key=lambda each: each.name) if ordered else self._described
        values = ", ".join(value_of(each) for each in columns)
        rows = (
            f"SELECT {self._key} AS {KEY_ALIAS}, {self._id} AS {ID_ALIAS},"
            f" (SELECT row_to_json(r) FROM (SELECT {values}) AS r)::text AS line"
            f" FROM {as_table(self.query)} WHERE {self._where(bounds)}{f' AND {only}' if only else ''}"
        )
        line = "line || E'\\n'"
        if any(each.type not in PLAIN for each in self._described):
            # A value of the type json is kept as it was written, with its line breaks between tokens.
            line = "translate(line, E'\\n\\r', '  ') || E'\\n'"
        order = f" ORDER BY {KEY_ALIAS}, {ID_ALIAS}" if ordered else ""
        return f"SELECT {line} AS line FROM ({rows}) AS l{order}"

    def _write(self, lines: str, path: Path) -> None:
        """Write the one column of a statement into a file, under the snapshot that is held."""
        with self._session() as cursor:
            self._save(cursor, lines, path)

    @contextmanager
    def _session(self) -> Generator[Any]:
        """Return the cursor of a session of ADBC, under the snapshot that is held or one of its own."""
        dbapi = adbc_module()
        with self._asked(), dbapi.connect(self.address) as connection, connection.cursor() as cursor:
            for setting in self._settings:
                cursor.execute(setting)
            if self._held:
                self._join_snapshot(cursor)
            from adbc_driver_postgresql import StatementOptions

            cursor.adbc_statement.set_options(
                **{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(_BATCH_BYTES)}
            )
            yield cursor

    def _save(self, cursor: Any, lines: str, path: Path) -> None:
        cursor.execute(lines)
        with path.open("wb") as file:
            for batch in self._streamed(cursor.fetch_record_batch(), lines):
                for part in texts_of(batch.column(0)):
                    file.write(part)

    def _streamed(self, batches: Iterable[pa.RecordBatch], lines: str) -> Iterator[pa.RecordBatch]:
        """Yield batches. An error among them has no SQLSTATE: the server is asked for it by the statement."""
        import pyarrow as pa

        try:
            yield from batches
        except (OSError, pa.ArrowException) as error:
            self._one(f"SELECT count(l) FROM ({lines}) AS l")
            self._failed(error, None, None)

    def _join_snapshot(self, cursor: Any) -> None:
        import adbc_driver_manager

        try:
            cursor.execute(f"SET TRANSACTION SNAPSHOT '{self._held}'")
        except adbc_driver_manager.Error as error:
            self.release()
            raise SourceUnavailable(
                f"the snapshot of the connection {self.name} has ended with its session",
                fix="the step is repeated, and goes on where it stopped",
                source=self.name,
            ) from error

    def _begin(self) -> None:
        """Begin a read-only transaction of one snapshot."""
        psycopg = psycopg_module()
        with self._asked():
            if self._open is None or self._open.closed or self._open.broken:
                self._open = psycopg.connect(
                    self.address,
                    autocommit=True,
                    client_encoding="utf8",
                    prepare_threshold=None,  # a plan that the server keeps fails once a column has changed
                )
            self._open.execute("BEGIN")
            for setting in self._settings:
                self._open.execute(self._raw(setting))
        self._in_snapshot = True

    def _end(self) -> None:
        """Leave the transaction, which only read, by a rollback; a lost connection has left it."""
        self._in_snapshot = False
        try:
            if self._open is not None:
                self._open.execute("ROLLBACK")
        except psycopg_module().Error:
            self.close()

    def _where(self, bounds: KeyBounds | None) -> str:
        if bounds is None:
            return f"({self._key} IS NULL OR {self._id} IS NULL)"
        parts = [f"{self._key} IS NOT NULL", f"{self._id} IS NOT NULL"]
        if bounds.after is not None:
            if bounds.overlap is not None:
                parts.append(f"{self._key} > {self._before(bounds)}")
            else:
                parts.append(f"({self._key}, {self._id}) > {row_of(bounds.after)}")
        if bounds.until is not None:
            parts.append(f"({self._key}, {self._id}) <= {row_of(bounds.until)}")
        return " AND ".join(parts)

    @staticmethod
    def _before(bounds: KeyBounds) -> str:
        assert bounds.after is not None
        assert bounds.overlap is not None
        key = bounds.after.key
        if key.type in TIMES:
            return f"{literal(key)} - interval '{bounds.overlap} seconds'"
        return f"{literal(Key(type='numeric', text=key.text))} - {bounds.overlap}"

    def _one(self, statement: str) -> tuple[Any, ...] | None:
        return next(iter(self._all(statement)), None)

    def _all(self, statement: str) -> list[tuple[Any, ...]]:
        with self.snapshot(), self._asked():
            assert self._open is not None
            return self._open.execute(self._raw(statement)).fetchall()

    @staticmethod
    def _raw(statement: str) -> Any:
        """Return a statement as bytes: without parameters, psycopg leaves `%` and `:x` in it alone."""
        return statement.encode()

    @contextmanager
    def _asked(self) -> Generator[None]:
        import adbc_driver_manager

        psycopg = psycopg_module()
        try:
            yield
        except psycopg.Error as error:
            self._failed(error, error.sqlstate, error.diag.message_primary)
        except adbc_driver_manager.Error as error:
            self._failed(error, error.sqlstate, None)

    def _failed(self, error: Exception, sqlstate: str | None, message: str | None) -> NoReturn:
        """Raise what the platform calls an error of the server."""
        self.release()
        raise query_error(self.name, error, sqlstate, message) from error


@dataclass(slots=True, kw_only=True)
class _OtherRows:
    """The pairs of rows that are not plain.

    Attributes:
        keys: Types of the two columns of a pair.
        where: SQL for a row's pair.
    """

    keys: tuple[str, str]
    where: str
    number: int = field(default=0, init=False)
    _pairs: list[Pair] = field(default_factory=list, init=False)

    def add(self, keys: pa.Array, ids: pa.Array) -> None:
        """Take notice of rows, by the two columns of their pairs."""
        self.number += len(keys)
        if self.number > MAX_OTHERS:
            return
        try:
            pairs = list(zip(keys.to_pylist(), ids.to_pylist(), strict=True))
        except (ValueError, OverflowError):  # Python has no such time: all rows are read as lines
            self.number = MAX_OTHERS + 1
            return
        of_key, of_id = self.keys
        self._pairs += [
            Pair(key=Key(type=of_key, text=text_of(key)), id=Key(type=of_id, text=text_of(id_)))
            for key, id_ in pairs
        ]

    def condition(self) -> str:
        """Return SQL that these rows meet."""
        rows = ", ".join(map(row_of, self._pairs))
        return f"{self.where} IN (SELECT * FROM (VALUES {rows}) AS others)"


def _write_arrow(batches: Iterable[pa.RecordBatch], rows: TypedRows, others: _OtherRows, path: Path) -> None:
    import pyarrow as pa

    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema()) as writer:
        for batch in batches:
            if not batch.num_rows:
                continue
            *columns, key, id_ = batch.columns
            texts = [each for each in (key, id_) if pa.types.is_string(each.type)]
            typed = rows.typed(columns, texts)
            writer.write_batch(typed)
            is_plain = typed.column(IS_PLAIN)
            if is_plain.false_count:
                is_other = call("invert", is_plain)
                others.add(key.filter(is_other), id_.filter(is_other))
