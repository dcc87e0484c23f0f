"""A query over PostgreSQL. The server writes the records as JSON, and ADBC carries them in Arrow buffers.

One column of texts that end with a line break is, in Arrow, one buffer: the content of the file. No row
becomes an object of Python. Many rows of a full load are read by several sessions at a time, each a part of
the keys, all under one snapshot.

Belongs here: SQL of PostgreSQL. Does not belong here: which rows are wanted (`source.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from etl_assets.pipelines.query_text import as_table
from etl_assets.sources.sql.bounds import Key, KeyBounds, Pair
from etl_assets.sources.sql.database import QueryColumn
from etl_assets.sources.sql.other_rows import OtherRows, write_columns_to
from etl_assets.sources.sql.postgres_session import PostgresSession
from etl_assets.sources.sql.postgres_text import (
    ID_ALIAS,
    KEY_ALIAS,
    PLAIN,
    TIMES,
    column_of,
    literal,
    quoted,
    row_of,
    value_of,
)
from etl_assets.sources.sql.staged import join_files
from etl_assets.sources.sql.typed_rows import MAX_OTHERS, TypedRows

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
    _columns: tuple[QueryColumn, ...] = field(default=(), init=False)
    _session: PostgresSession = field(init=False, repr=False)
    _cut: tuple[KeyBounds, tuple[Pair, ...]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._session = PostgresSession(
            name=self.name,
            address=self.address,
            statement_timeout_seconds=self.statement_timeout_seconds,
        )

    def columns(self) -> tuple[QueryColumn, ...]:
        """Return the columns of the result."""
        found = self._session.described(f"SELECT q.* FROM {as_table(self.query)} LIMIT 0")
        self._columns = tuple(column_of(name, type_) for name, type_ in found)
        return self._columns

    def snapshot(self) -> AbstractContextManager[None]:
        """Run a block in one read-only transaction of one snapshot."""
        return self._session.snapshot()

    def hold(self) -> str:
        """Begin one snapshot for all calls until `release`, or go on with it; return its name."""
        return self._session.hold()

    def release(self) -> None:
        """Let go of the snapshot that is held."""
        self._session.release()

    def last(self, bounds: KeyBounds, limit: int) -> Pair | None:
        """Return the last pair of the first rows. Where many sessions read them, the same look cuts them."""
        sessions = self.sessions if limit >= PARALLEL_ROWS else 1
        page = (
            f"SELECT {self._key} AS k, {self._id} AS i FROM {as_table(self.query)}"
            f" WHERE {self._where(bounds)} ORDER BY 1, 2 LIMIT {limit}"
        )
        if sessions == 1:
            found = self._session.all(
                f"SELECT k::text, i::text FROM ({page}) AS p ORDER BY p.k DESC, p.i DESC LIMIT 1"
            )
        else:
            found = self._session.all(
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
        found = self._session.one(
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
        with self._session.reader() as session:
            found = OtherRows(keys=keys, where=f"({self._key}, {self._id})")
            with session.rows(statement) as batches:
                write_columns_to(path, self._session.streamed(batches, statement), rows, found)
            if not found.number:
                return
            if found.number > MAX_OTHERS:
                path.unlink()
                self._session.save(session, self._lines(bounds, ordered=True), others)
                return
            self._session.save(session, self._lines(bounds, ordered=True, only=found.condition()), others)

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
        found = self._session.one(f"SELECT ceil(avg(octet_length(line)))::int8 FROM ({lines}) AS p")
        return int(found[0]) if found and found[0] is not None else 1

    def count(self, bounds: KeyBounds, limit: int) -> int:
        """Return the number of rows, at most `limit`."""
        rows = f"SELECT 1 FROM {as_table(self.query)} WHERE {self._where(bounds)} LIMIT {limit}"
        found = self._session.one(f"SELECT count(*) FROM ({rows}) AS p")
        return int(found[0]) if found else 0

    def lacks_keys(self) -> bool:
        """Return whether a row has no key or no id."""
        found = self._session.one(f"SELECT 1 FROM {as_table(self.query)} WHERE {self._where(None)} LIMIT 1")
        return found is not None

    def first_time(self, bounds: KeyBounds) -> dt.datetime | None:
        """Return the least key if it is a time with a zone."""
        if next(each.type for each in self._described if each.name == self.key) != "timestamptz":
            return None
        found = self._session.one(
            f"SELECT {self._key} FROM {as_table(self.query)} WHERE {self._where(bounds)}"
            f" AND isfinite({self._key}) ORDER BY {self._key} LIMIT 1"
        )
        return None if found is None else found[0]

    def repeated_pair(self, limit: int) -> bool:
        """Return whether a pair stands twice among the first rows."""
        rows = f"SELECT {self._key} AS k, {self._id} AS i FROM {as_table(self.query)} LIMIT {limit}"
        return (
            self._session.one(
                f"SELECT 1 FROM ({rows}) AS p WHERE k IS NOT NULL AND i IS NOT NULL"
                " GROUP BY k, i HAVING count(*) > 1 LIMIT 1"
            )
            is not None
        )

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _parts(self, bounds: KeyBounds) -> list[KeyBounds]:
        """Return bounds cut as `last` has cut them. Without one snapshot for all sessions they stay whole."""
        if not self._session.held or self._cut is None or self._cut[0] != bounds:
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
        with self._session.reader() as session:
            self._session.save(session, lines, path)

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
