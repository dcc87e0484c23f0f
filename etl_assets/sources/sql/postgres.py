"""A query over PostgreSQL. The server writes the records as JSON, and ADBC carries them in Arrow buffers.

One column of texts that end with a line break is, in Arrow, one buffer: the content of the file. No row
becomes an object of Python.

Belongs here: SQL of PostgreSQL. Does not belong here: which rows are wanted (`source.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from etl_assets.errors import RuntimeMissing, SourceRefused, SourceUnavailable
from etl_assets.pipelines.query_text import as_table
from etl_assets.sources.sql.bounds import Key, KeyBounds, Pair
from etl_assets.sources.sql.database import QueryColumn

if TYPE_CHECKING:
    import psycopg

_TIMES = frozenset({"date", "timestamp", "timestamptz"})
_NUMBERS = frozenset({"int2", "int4", "int8", "numeric"})
_ORDERED = _TIMES | _NUMBERS | {"uuid", "text", "varchar", "bpchar"}
_PLAIN = _ORDERED | {"bool", "float4", "float8", "time", "timetz", "interval", "bytea", "jsonb"}
"""Types whose JSON has no line breaks."""
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
_LATER = ("08", "40", "53", "55", "57", "58")
"""Classes of SQLSTATE after which the same query may succeed."""
_BATCH_BYTES = 4 << 20


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
    """

    name: str
    address: str = field(repr=False)
    query: str
    key: str
    id: str
    statement_timeout_seconds: float = 600.0
    _open: psycopg.Connection | None = field(default=None, init=False, repr=False)
    _columns: tuple[QueryColumn, ...] = field(default=(), init=False)
    _in_snapshot: bool = field(default=False, init=False)

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
        self._columns = tuple(_column(name, types.get(oid, "unknown")) for name, oid in described)
        return self._columns

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Run a block in one read-only transaction of one snapshot."""
        if self._in_snapshot:
            yield
            return
        psycopg = _psycopg()
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
        try:
            yield
        finally:
            self._in_snapshot = False
            # A transaction that only read is left by a rollback, and a lost connection has left it.
            try:
                self._open.execute("ROLLBACK")
            except psycopg.Error:
                self.close()

    def last(self, bounds: KeyBounds, limit: int) -> Pair | None:
        """Return the last pair of the first rows."""
        page = (
            f"SELECT {self._key} AS k, {self._id} AS i FROM {as_table(self.query)}"
            f" WHERE {self._where(bounds)} ORDER BY 1, 2 LIMIT {limit}"
        )
        found = self._one(f"SELECT k::text, i::text FROM ({page}) AS p ORDER BY p.k DESC, p.i DESC LIMIT 1")
        if found is None:
            return None
        types = {each.name: each.type for each in self._described}
        return Pair(key=Key(type=types[self.key], text=found[0]), id=Key(type=types[self.id], text=found[1]))

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
        dbapi = _adbc()
        with self._asked(), dbapi.connect(self.address) as connection, connection.cursor() as cursor:
            for setting in self._settings:
                cursor.execute(setting)
            from adbc_driver_postgresql import StatementOptions

            cursor.adbc_statement.set_options(
                **{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(_BATCH_BYTES)}
            )
            cursor.execute(self._lines(bounds, ordered=True))
            with path.open("wb") as file:
                for batch in cursor.fetch_record_batch():
                    for part in _texts(batch.column(0)):
                        file.write(part)

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
        if self._open is not None:
            self._open.close()
            self._open = None

    @property
    def _described(self) -> tuple[QueryColumn, ...]:
        return self._columns or self.columns()

    @property
    def _key(self) -> str:
        return f"q.{_quoted(self.key)}"

    @property
    def _id(self) -> str:
        return f"q.{_quoted(self.id)}"

    @property
    def _settings(self) -> tuple[str, ...]:
        milliseconds = max(1, int(self.statement_timeout_seconds * 1000))
        return (*_SETTINGS, f"SET LOCAL statement_timeout = {milliseconds}")

    def _lines(self, bounds: KeyBounds | None, *, ordered: bool) -> str:
        """Return the statement whose rows are records as JSON, each with a line break."""
        values = ", ".join(_value(each) for each in self._described)
        rows = (
            f"SELECT {self._key} AS {_K}, {self._id} AS {_I}, (SELECT row_to_json(r) FROM (SELECT {values})"
            f" AS r)::text AS line FROM {as_table(self.query)} WHERE {self._where(bounds)}"
        )
        line = "line || E'\\n'"
        if any(each.type not in _PLAIN for each in self._described):
            # A value of the type json is kept as it was written, with its line breaks between tokens.
            line = "translate(line, E'\\n\\r', '  ') || E'\\n'"
        order = f" ORDER BY {_K}, {_I}" if ordered else ""
        return f"SELECT {line} AS line FROM ({rows}) AS l{order}"

    def _where(self, bounds: KeyBounds | None) -> str:
        if bounds is None:
            return f"({self._key} IS NULL OR {self._id} IS NULL)"
        parts = [f"{self._key} IS NOT NULL", f"{self._id} IS NOT NULL"]
        if bounds.after is not None:
            if bounds.overlap is not None:
                parts.append(f"{self._key} > {self._before(bounds)}")
            else:
                parts.append(f"({self._key}, {self._id}) > {_row(bounds.after)}")
        if bounds.until is not None:
            parts.append(f"({self._key}, {self._id}) <= {_row(bounds.until)}")
        return " AND ".join(parts)

    @staticmethod
    def _before(bounds: KeyBounds) -> str:
        assert bounds.after is not None
        assert bounds.overlap is not None
        key = bounds.after.key
        if key.type in _TIMES:
            return f"{_literal(key)} - interval '{bounds.overlap} seconds'"
        return f"{_literal(Key(type='numeric', text=key.text))} - {bounds.overlap}"

    def _one(self, statement: str) -> tuple[Any, ...] | None:
        with self.snapshot(), self._asked():
            assert self._open is not None
            return self._open.execute(self._raw(statement)).fetchone()

    @staticmethod
    def _raw(statement: str) -> Any:
        """Return a statement as bytes: without parameters, psycopg leaves `%` and `:x` in it alone."""
        return statement.encode()

    @contextmanager
    def _asked(self) -> Generator[None]:
        import adbc_driver_manager

        psycopg = _psycopg()
        try:
            yield
        except psycopg.Error as error:
            self._failed(error, error.sqlstate, error.diag.message_primary)
        except adbc_driver_manager.Error as error:
            self._failed(error, error.sqlstate, None)

    def _failed(self, error: Exception, sqlstate: str | None, message: str | None) -> NoReturn:
        """Raise what the platform calls an error of the server.

        The words of other classes than 42, syntax and privileges, may have values of rows.
        """
        if not sqlstate or sqlstate.startswith(_LATER):
            raise SourceUnavailable(
                f"the database of the connection {self.name} does not answer"
                f" ({type(error).__name__}{f', SQLSTATE {sqlstate}' if sqlstate else ''})",
                fix="start it, or correct the connection; after a timeout (57014): an index on the"
                " incremental key and the id",
                source=self.name,
            ) from error
        words = f": {message}" if message and sqlstate.startswith(("42", "25")) else ""
        raise SourceRefused(
            f"the database of the connection {self.name} refuses the query"
            f" ({type(error).__name__}, SQLSTATE {sqlstate}){words}",
            fix="correct the query, or the user's privileges",
            source=self.name,
        ) from error


_K, _I = "_etl_assets_key", "_etl_assets_id"


def _column(name: str, type_: str) -> QueryColumn:
    refusal = ""
    if name == "?column?":
        refusal = "it has no name; add `AS name`"
    elif type_ == "money":
        refusal = "its texts depend on the server's locale; cast it to numeric"
    return QueryColumn(
        name=name,
        type=type_,
        orders=type_ in _ORDERED,
        overlaps=type_ in _TIMES | _NUMBERS,
        refusal=refusal,
    )


def _value(column: QueryColumn) -> str:
    """Return the value of a column for JSON. What JSON has no exact form for is a text."""
    name = _quoted(column.name)
    match column.type:
        case "numeric":
            value = f"q.{name}::text"
        case "bytea":
            value = f"translate(encode(q.{name}, 'base64'), E'\\n', '')"
        case _:
            value = f"q.{name}"
    return f"{value} AS {name}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(key: Key) -> str:
    text = key.text.replace("'", "''")
    return f"'{text}'::pg_catalog.{_quoted(key.type)}"


def _row(pair: Pair) -> str:
    return f"({_literal(pair.key)}, {_literal(pair.id)})"


def _texts(column: Any) -> Iterator[memoryview]:
    """Yield the bytes of a column of texts, without making objects of them."""
    import pyarrow as pa

    if len(column) == 0:
        return
    width = 8 if pa.types.is_large_string(column.type) else 4
    _, offsets, content = column.buffers()
    view = memoryview(offsets).cast("q" if width == 8 else "i")
    start, end = view[column.offset], view[column.offset + len(column)]
    if content is not None:
        yield memoryview(content)[start:end]


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise _missing("psycopg") from error
    return psycopg


def _adbc() -> Any:
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as error:
        raise _missing("adbc-driver-postgresql") from error
    return dbapi


def _missing(package: str) -> RuntimeMissing:
    return RuntimeMissing(
        f"the package {package} is not installed, which reads PostgreSQL",
        fix="pip install 'etl-assets[postgres]'",
    )
