"""A query over any database that SQLAlchemy knows, by its dialect and driver.

The query goes to the driver as it is: SQLAlchemy replaces nothing in it, so `:x` in a literal stays. Values
of positions are parameters of the driver. Proven on SQLite; a database whose driver opens no read-only
transaction needs a user who can only read.

Belongs here: SQL that most databases understand. Does not belong here: PostgreSQL (`postgres.py`).
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from etl_assets.errors import RuntimeMissing, SourceRefused, SourceUnavailable
from etl_assets.pipelines.query_text import as_table
from etl_assets.sources.sql.bounds import Key, KeyBounds, Pair
from etl_assets.sources.sql.database import QueryColumn

if TYPE_CHECKING:
    import sqlalchemy as sa

_FETCHED_ROWS = 1_000
_READ_ONLY = {
    "sqlite": "PRAGMA query_only = on",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
    "mariadb": "SET SESSION TRANSACTION READ ONLY",
    "oracle": "SET TRANSACTION READ ONLY",
    "postgresql": "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
}


@dataclass(kw_only=True)
class AlchemyQuery:
    """A checked query over a database.

    Attributes:
        name: The connection, for messages.
        url: SQLAlchemy's URL; it is in no message.
        query: One statement that reads.
        key: Column of the incremental key.
        id: Column that orders rows of equal keys.
    """

    name: str
    url: sa.URL = field(repr=False)
    query: str
    key: str
    id: str
    _open: sa.Connection | None = field(default=None, init=False, repr=False)

    def columns(self) -> tuple[QueryColumn, ...]:
        """Return the columns of the result. Their types are those of values, and are not known."""
        with self.snapshot(), self._asked():
            result = self._run(f"SELECT q.* FROM {as_table(self.query)} WHERE 1 = 0", ())
            return tuple(
                QueryColumn(name=name, type="", orders=True, overlaps=True) for name in list(result.keys())
            )

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Run a block in one transaction, which is rolled back."""
        if self._open is not None and self._open.in_transaction():
            yield
            return
        connection = self._connected()
        with self._asked():
            connection.begin()
        try:
            yield
        finally:
            connection.rollback()

    def hold(self) -> str:
        """Return no name: each call sees the database as it is then."""
        return ""

    def release(self) -> None:
        """Do nothing: no snapshot is held."""

    def last(self, bounds: KeyBounds, limit: int) -> Pair | None:
        """Return the last pair of the first rows."""
        values: list[Any] = []
        where = self._where(bounds, values)
        page = self._limited(
            f"{self._key} AS k, {self._id} AS i FROM {as_table(self.query)} WHERE {where}",
            "ORDER BY 1, 2",
            limit,
        )
        statement = self._limited(f"k, i FROM ({page}) p", "ORDER BY k DESC, i DESC", 1)
        with self.snapshot(), self._asked():
            found = self._run(statement, values).fetchone()
        if found is None:
            return None
        values = list(found)
        return Pair(key=self._as_key(values[0]), id=self._as_key(values[1]))

    def digest(self, bounds: KeyBounds | None) -> str:
        """Return the number of rows and the sum of their hashes."""
        count = total = 0
        for line in self._lines(bounds, ordered=False):
            count += 1
            total += int.from_bytes(hashlib.blake2b(line, digest_size=8).digest())
        return f"{count}:{total}"

    def write(self, bounds: KeyBounds | None, path: Path) -> None:
        """Write rows, a few at a time."""
        with path.open("wb") as file:
            for line in self._lines(bounds, ordered=True):
                file.write(line)

    def write_ids(self, names: Sequence[str], path: Path) -> None:
        """Write some columns, a few rows at a time."""
        columns = [f"q.{self._quoted(name)}" for name in names]
        there = " AND ".join(f"{column} IS NOT NULL" for column in columns)
        with path.open("wb") as file:
            for line in self._records(
                f"SELECT {', '.join(columns)} FROM {as_table(self.query)} WHERE {there}", []
            ):
                file.write(line)

    def row_bytes(self) -> int:
        """Return the mean of the first 100 rows."""
        statement = self._limited(f"q.* FROM {as_table(self.query)}", "", 100)
        with self.snapshot(), self._asked():
            result = self._run(statement, ())
            names = list(result.keys())
            sizes = [len(self._line(names, row)) for row in result.fetchall()]
        return -(-sum(sizes) // len(sizes)) if sizes else 1

    def count(self, bounds: KeyBounds, limit: int) -> int:
        """Return the number of rows, at most `limit`."""
        values: list[Any] = []
        where = self._where(bounds, values)
        rows = self._limited(f"1 AS one FROM {as_table(self.query)} WHERE {where}", "", limit)
        with self.snapshot(), self._asked():
            return int(self._run(f"SELECT count(*) FROM ({rows}) p", values).scalar_one())

    def lacks_keys(self) -> bool:
        """Return whether a row has no key or no id."""
        statement = self._limited(
            f"1 AS one FROM {as_table(self.query)} WHERE {self._where(None, [])}", "", 1
        )
        with self.snapshot(), self._asked():
            return self._run(statement, ()).fetchone() is not None

    def first_time(self, bounds: KeyBounds) -> dt.datetime | None:
        """Return None: most drivers do not say which zone a time has."""
        return None

    def repeated_pair(self, limit: int) -> bool:
        """Return whether a pair stands twice among the first rows."""
        rows = self._limited(
            f"{self._key} AS k, {self._id} AS i FROM {as_table(self.query)}"
            f" WHERE {self._key} IS NOT NULL AND {self._id} IS NOT NULL",
            "",
            limit,
        )
        statement = f"SELECT 1 FROM ({rows}) p GROUP BY k, i HAVING count(*) > 1"
        with self.snapshot(), self._asked():
            return self._run(statement, ()).fetchone() is not None

    def close(self) -> None:
        """Close the connection."""
        if self._open is not None:
            self._open.close()
            self._open.engine.dispose()
            self._open = None

    @property
    def _key(self) -> str:
        return f"q.{self._quoted(self.key)}"

    @property
    def _id(self) -> str:
        return f"q.{self._quoted(self.id)}"

    def _quoted(self, name: str) -> str:
        return self._connected().dialect.identifier_preparer.quote_identifier(name)

    def _connected(self) -> sa.Connection:
        if self._open is not None and not self._open.invalidated:
            return self._open
        self.close()
        try:
            import sqlalchemy as sa
        except ImportError as error:
            raise RuntimeMissing(
                "the package sqlalchemy is not installed, which reads databases",
                fix="pip install 'etl-assets[sql]'",
            ) from error
        with self._asked():
            engine = sa.create_engine(self.url, poolclass=sa.pool.NullPool, hide_parameters=True)
            self._open = engine.connect().execution_options(stream_results=True)
            if statement := _READ_ONLY.get(engine.dialect.name):
                self._open.exec_driver_sql(statement)
                self._open.rollback()
        return self._open

    def _run(self, statement: str, values: list[Any] | tuple[()]) -> sa.CursorResult[Any]:
        """Run a statement in which the character NUL stands for each parameter."""
        connection = self._connected()
        style = connection.dialect.paramstyle
        if style in ("format", "pyformat") and values:
            statement = statement.replace("%", "%%")
        parts = statement.split("\0")
        marks = [_mark(style, number) for number in range(1, len(parts))]
        text = parts[0] + "".join(mark + part for mark, part in zip(marks, parts[1:], strict=True))
        if style in ("named", "pyformat"):
            named = {f"p{number}": value for number, value in enumerate(values, start=1)}
            return connection.exec_driver_sql(text, named or None)
        return connection.exec_driver_sql(text, tuple(values) or None)

    def _limited(self, rest: str, order: str, limit: int) -> str:
        match self._connected().dialect.name:
            case "mssql":
                return f"SELECT TOP {limit} {rest} {order}"
            case "oracle":
                return f"SELECT {rest} {order} FETCH FIRST {limit} ROWS ONLY"
            case _:
                return f"SELECT {rest} {order} LIMIT {limit}"

    def _where(self, bounds: KeyBounds | None, values: list[Any]) -> str:
        """Return a condition, and add its values in the order of their marks."""
        key, id_ = self._key, self._id
        if bounds is None:
            return f"({key} IS NULL OR {id_} IS NULL)"
        parts = [f"{key} IS NOT NULL", f"{id_} IS NOT NULL"]
        if bounds.after is not None:
            first, second = _value(bounds.after.key), _value(bounds.after.id)
            if bounds.overlap is not None:
                parts.append(f"{key} > \0")
                values.append(self._before(first, bounds.overlap))
            else:
                parts.append(f"({key} > \0 OR ({key} = \0 AND {id_} > \0))")
                values += [first, first, second]
        if bounds.until is not None:
            first, second = _value(bounds.until.key), _value(bounds.until.id)
            parts.append(f"({key} < \0 OR ({key} = \0 AND {id_} <= \0))")
            values += [first, first, second]
        return " AND ".join(parts)

    def _before(self, value: Any, overlap: Decimal) -> Any:
        match value:
            case dt.date():
                return value - dt.timedelta(seconds=float(overlap))
            case int() | Decimal():
                before = value - overlap
                return int(before) if isinstance(value, int) and before == int(before) else before
            case _:
                raise SourceRefused(
                    f"no overlap can be taken from `{self.key}`, whose values are texts",
                    fix="remove overlap, or use a key that is a time or a number",
                    source=self.name,
                )

    def _lines(self, bounds: KeyBounds | None, *, ordered: bool) -> Iterator[bytes]:
        values: list[Any] = []
        order = f" ORDER BY {self._key}, {self._id}" if ordered else ""
        where = self._where(bounds, values)
        return self._records(f"SELECT q.* FROM {as_table(self.query)} WHERE {where}{order}", values)

    def _records(self, statement: str, values: list[Any]) -> Iterator[bytes]:
        with self.snapshot(), self._asked():
            result = self._run(statement, values)
            names = list(result.keys())
            while rows := result.fetchmany(_FETCHED_ROWS):
                for row in rows:
                    yield self._line(names, row)

    def _line(self, names: list[str], row: Any) -> bytes:
        record = {name: _json(value) for name, value in zip(names, row, strict=True)}
        try:
            return orjson.dumps(record, default=_exact, option=orjson.OPT_APPEND_NEWLINE)
        except orjson.JSONEncodeError as error:
            raise SourceRefused(
                f"the query of the connection {self.name} returns a value that JSON has no form for",
                fix="cast the column to text in the query",
                source=self.name,
            ) from error

    def _as_key(self, value: Any) -> Key:
        kind = next((name for name, (type_, _) in _KINDS.items() if type(value) is type_), None)
        if kind is None:
            raise SourceRefused(
                f"a value of `{self.key}` or `{self.id}` is of the type {type(value).__name__}, which"
                " positions cannot hold",
                fix="cast the column in the query to an integer, a decimal, a time, a date or a text",
                source=self.name,
            )
        text = value.isoformat() if isinstance(value, dt.date) else str(value)
        return Key(type=kind, text=text)

    @contextmanager
    def _asked(self) -> Generator[None]:
        from sqlalchemy import exc

        try:
            yield
        except (exc.ProgrammingError, exc.DataError, exc.NotSupportedError, exc.IntegrityError) as error:
            raise self._refused(error) from error
        except exc.NoSuchModuleError as error:
            raise SourceRefused(
                f"the driver of the connection {self.name} is not installed",
                fix="install the package of the driver",
                source=self.name,
            ) from error
        except exc.OperationalError as error:
            # SQLite calls a missing column or table one too.
            if self.url.get_backend_name() == "sqlite" and "locked" not in str(error.orig):
                raise self._refused(error) from error
            raise SourceUnavailable(
                f"the database of the connection {self.name} does not answer ({type(error.orig).__name__})",
                fix="start it, or correct the connection",
                source=self.name,
            ) from error
        except exc.DBAPIError as error:
            raise SourceUnavailable(
                f"the connection {self.name} was lost ({type(error.orig).__name__})",
                fix="the step is repeated",
                source=self.name,
            ) from error

    def _refused(self, error: Any) -> SourceRefused:
        return SourceRefused(
            f"the database of the connection {self.name} refuses the query ({type(error.orig).__name__})",
            fix="run the query in a client of the database, and correct it",
            source=self.name,
        )


_KINDS: dict[str, tuple[type, Any]] = {
    "integer": (int, int),
    "numeric": (Decimal, Decimal),
    "timestamp": (dt.datetime, dt.datetime.fromisoformat),
    "date": (dt.date, dt.date.fromisoformat),
    "uuid": (uuid.UUID, uuid.UUID),
    "text": (str, str),
}


def _value(key: Key) -> Any:
    return _KINDS[key.type][1](key.text)


def _mark(style: str, number: int) -> str:
    match style:
        case "qmark":
            return "?"
        case "format":
            return "%s"
        case "pyformat":
            return f"%(p{number})s"
        case "numeric" | "numeric_dollar":
            return f"{':' if style == 'numeric' else '$'}{number}"
        case _:
            return f":p{number}"


def _json(value: Any) -> Any:
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    if isinstance(value, float) and value - value != 0:
        return str(value)  # NaN and infinity
    return value


def _exact(value: Any) -> Any:
    match value:
        case Decimal():
            return str(value)
        case bytes() | memoryview() | bytearray():
            return base64.b64encode(value).decode()
        case dt.timedelta():
            return str(value)
        case _:
            raise TypeError(type(value).__name__)
