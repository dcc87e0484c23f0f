"""A session of PostgreSQL that reads: one read-only transaction of one snapshot, which sessions of ADBC join.

Belongs here: transactions, and errors of the server. Does not belong here: which statements (`postgres.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from etl_assets.errors import SourceRefused, SourceUnavailable
from etl_assets.sources.sql.arrow_session import ArrowSession
from etl_assets.sources.sql.postgres_errors import psycopg_module, query_error
from etl_assets.sources.sql.postgres_text import texts_of

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


@dataclass(kw_only=True)
class PostgresSession:
    """A session.

    Attributes:
        name: The connection, for messages.
        address: libpq's connection string; it is in no message.
        statement_timeout_seconds: For one statement, by the server.
        held: Name of the snapshot that is held; empty without one.
    """

    name: str
    address: str = field(repr=False)
    statement_timeout_seconds: float
    held: str = field(default="", init=False)
    _open: psycopg.Connection | None = field(default=None, init=False, repr=False)
    _in_snapshot: bool = field(default=False, init=False)

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
        if self.held:
            try:
                self.one("SELECT 1")
                return self.held
            except (SourceUnavailable, SourceRefused):
                self.release()
        self._begin()
        found = self.one("SELECT pg_export_snapshot()")
        assert found is not None  # a function has one row
        self.held = found[0]
        return self.held

    def release(self) -> None:
        """Let go of the snapshot that is held."""
        if self.held:
            self.held = ""
            self._end()

    def described(self, statement: str) -> list[tuple[str, str]]:
        """Return names and types of a statement's columns."""
        with self.snapshot(), self._asked():
            assert self._open is not None
            cursor = self._open.execute(self._raw(statement))
            described = [(each.name, each.type_code) for each in cursor.description or ()]
            types: dict[int, str] = dict(
                self._open.execute(
                    "SELECT oid::int8, typname FROM pg_catalog.pg_type WHERE oid = ANY (%s)",
                    ([oid for _, oid in described],),
                ).fetchall()
            )
        return [(name, types.get(oid, "unknown")) for name, oid in described]

    def one(self, statement: str) -> tuple[Any, ...] | None:
        return next(iter(self.all(statement)), None)

    def all(self, statement: str) -> list[tuple[Any, ...]]:
        with self.snapshot(), self._asked():
            assert self._open is not None
            return self._open.execute(self._raw(statement)).fetchall()

    @contextmanager
    def reader(self) -> Generator[ArrowSession]:
        """Return a session of ADBC, under the snapshot that is held or one of its own."""
        with self._asked(), ArrowSession.opened(self.address) as session:
            for setting in self._settings:
                session.run(setting)
            if self.held:
                self._join_snapshot(session)
            yield session

    def save(self, session: ArrowSession, lines: str, path: Path) -> None:
        """Write the one column of a statement into a file."""
        with session.rows(lines) as batches, path.open("wb") as file:
            for batch in self.streamed(batches, lines):
                for part in texts_of(batch.column(0)):
                    file.write(part)

    def streamed(self, batches: Iterable[pa.RecordBatch], lines: str) -> Iterator[pa.RecordBatch]:
        """Yield batches. An error among them has no SQLSTATE: the server is asked for it by the statement."""
        import pyarrow as pa

        try:
            yield from batches
        except (OSError, pa.ArrowException) as error:
            self.one(f"SELECT count(l) FROM ({lines}) AS l")
            self._failed(error, None, None)

    def close(self) -> None:
        """Close the connection."""
        self.held, self._in_snapshot = "", False
        if self._open is not None:
            self._open.close()
            self._open = None

    @property
    def _settings(self) -> tuple[str, ...]:
        milliseconds = max(1, int(self.statement_timeout_seconds * 1000))
        return (*_SETTINGS, f"SET LOCAL statement_timeout = {milliseconds}")

    def _join_snapshot(self, session: ArrowSession) -> None:
        import adbc_driver_manager

        try:
            session.run(f"SET TRANSACTION SNAPSHOT '{self.held}'")
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
            self._open.execute(self._raw("; ".join(("BEGIN", *self._settings))))
        self._in_snapshot = True

    def _end(self) -> None:
        """Leave the transaction, which only read, by a rollback; a lost connection has left it."""
        self._in_snapshot = False
        try:
            if self._open is not None:
                self._open.execute("ROLLBACK")
        except psycopg_module().Error:
            self.close()

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
