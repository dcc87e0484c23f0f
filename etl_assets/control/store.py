"""The control store: SQLite in the home folder, or PostgreSQL. Connections, transactions, the clock, errors.

Belongs here: opening, and what holds for every transaction. Does not belong here: rows (`rows.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import event, exc

from etl_assets.control.known_states import STORE_FILE as FILE
from etl_assets.control.migrate import is_current, migrate
from etl_assets.errors import (
    ControlStoreUnavailable,
    ControlStoreUnusable,
    RuntimeMissing,
    SettingsError,
)

if TYPE_CHECKING:
    from etl_assets.settings import Settings
    from etl_assets.settings.connections import PostgresConnection


_WRITES = "etl_assets_writes"
_SQLITE_WAIT_SECONDS = 15.0
"""How long a transaction waits for that of another process; each takes milliseconds."""

_IDLE_TOO_LONG = "25P03"
"""The server ended the session of a process that was stopped within a transaction."""

StoreClock = Callable[[sa.Connection], dt.datetime]
"""Returns the time (UTC) in a transaction."""


class ControlStore:
    """A database with the tables of the control plane, at the version of this code.

    Any number of processes may use one. A transaction is whole or nothing, whenever its process is killed.

    Args:
        engine: SQLAlchemy's engine.
        name: The database in messages, without credentials.
        clock: Clock of its rows; by default that of PostgreSQL's server, or of this machine for SQLite. It
            decides when a backoff is over, and nothing about leases.
    """

    def __init__(self, engine: sa.Engine, *, name: str, clock: StoreClock | None = None) -> None:
        self._engine, self._name = engine, name
        self._clock = clock or (_machine_clock if engine.dialect.name == "sqlite" else _server_clock)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    @property
    def engine(self) -> sa.Engine:
        """SQLAlchemy's engine."""
        return self._engine

    @contextmanager
    def reading(self) -> Generator[sa.Connection]:
        """Run a block in a transaction that only reads.

        Raises:
            ControlStoreUnavailable: the database does not answer.
            ControlStoreUnusable: it refuses what is asked.
        """
        with self._named(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Generator[sa.Connection]:
        """Run a block in a transaction that is committed at its end, or rolled back by an error.

        Raises:
            ControlStoreUnavailable: the database does not answer; whether a commit was done is unknown then.
            ControlStoreUnusable: it refuses what is asked.
        """
        with self._named(), self._engine.connect() as connection:
            connection = connection.execution_options(**{_WRITES: True})
            with connection.begin():
                yield connection

    def now(self, connection: sa.Connection) -> dt.datetime:
        """Return the time of the store's clock."""
        return self._clock(connection)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _prepare(self) -> None:
        with self.reading() as connection:
            current = is_current(connection)
        if not current:
            with self.writing() as connection:
                migrate(connection)

    @contextmanager
    def _named(self) -> Generator[None]:
        # The driver's words may hold values, so only their kind is shown.
        try:
            yield
        except (exc.DBAPIError, exc.TimeoutError) as error:
            if not _may_pass(error):
                raise self._unusable(error) from error
            raise ControlStoreUnavailable(
                f"the control store {self._name} does not answer ({_kind(error)})",
                fix="bring it back, or look at `control.connection` and the disk of the home folder; asking"
                " again is safe",
            ) from error

    def _unusable(self, error: exc.SQLAlchemyError) -> ControlStoreUnusable:
        return ControlStoreUnusable(
            f"the control store {self._name} refuses a statement ({_kind(error)})",
            fix="give its user the right to create and write tables, or restore what another program changed",
        )


def open_store(settings: Settings) -> ControlStore:
    """Open the store of an installation, and bring its tables to the version of this code.

    Raises:
        SettingsError: `control.connection` is no connection to PostgreSQL, or its password is not set.
        ControlStoreUnavailable: the database does not answer.
        ControlStoreUnusable: it refuses, or a newer release has written it.
    """
    name = settings.control.connection
    if name is None:
        return sqlite_store(settings.home / FILE)
    from etl_assets.settings.connections import PostgresConnection

    # Not one over REST: those are in this store.
    of_file = settings.file_connections
    found = of_file.get(name)
    if not isinstance(found, PostgresConnection):
        usable = [each for each, of in of_file.items() if isinstance(of, PostgresConnection)]
        raise SettingsError(
            f"control.connection: {name!r} is no connection of type postgres",
            fix=f"add it under `connections:`, or use one of: {', '.join(usable) or 'none is there'}",
            field="control.connection",
            value=name,
        )
    return postgres_store(found)


def sqlite_store(path: Path, *, clock: StoreClock | None = None) -> ControlStore:
    """Open a store in a file, and create it if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    url = sa.URL.create("sqlite", database=str(path))
    engine = sa.create_engine(url, connect_args={"timeout": _SQLITE_WAIT_SECONDS}, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def connected(connection: Any, record: object) -> None:
        connection.isolation_level = None  # transactions begin below, not at the first write
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # A reader that becomes a writer could be refused; a writer takes its turn at the beginning.
        writes = connection.get_execution_options().get(_WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return ControlStore(engine, name=str(path), clock=clock)


def postgres_store(found: PostgresConnection, *, clock: StoreClock | None = None) -> ControlStore:
    """Open a store in a PostgreSQL database."""
    try:
        from etl_assets.control.postgres_session import LimitedSession
    except ImportError as error:
        raise RuntimeMissing(
            "the package psycopg is not installed", fix="pip install 'etl-assets[postgres]'"
        ) from error
    milliseconds = 1_000 * found.connect_timeout_seconds
    arguments: dict[str, Any] = {
        "user": found.user,
        "password": None if found.password is None else found.password.value(),
        "host": found.host,
        "port": found.port,
        "dbname": found.database,
        "sslmode": found.sslmode,
        "connect_timeout": found.connect_timeout_seconds,
        "application_name": "etl-assets control",
        # A process that was stopped within a transaction holds up others for so long at most.
        "options": f"-c statement_timeout={milliseconds} -c lock_timeout={milliseconds}"
        f" -c idle_in_transaction_session_timeout={milliseconds} -c timezone=UTC",
        **found.keepalive,
    }
    if found.sslrootcert is not None:
        arguments["sslrootcert"] = found.sslrootcert

    def connect() -> LimitedSession:
        session = LimitedSession.connect(**arguments)
        # Longer than the server's own timeouts, which give a better reason.
        session.limit_seconds = found.connect_timeout_seconds + 2.0
        return session

    engine = sa.create_engine(
        "postgresql+psycopg://", creator=connect, pool_pre_ping=True, hide_parameters=True
    )
    return ControlStore(engine, name=f"{found.host}:{found.port}/{found.database}", clock=clock)


def _machine_clock(connection: sa.Connection) -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _server_clock(connection: sa.Connection) -> dt.datetime:
    found = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
    return found.astimezone(dt.UTC)


def _may_pass(error: exc.SQLAlchemyError) -> bool:
    if isinstance(error, exc.OperationalError | exc.InterfaceError | exc.TimeoutError):
        return True
    return _kind(error) == _IDLE_TOO_LONG


def _kind(error: exc.SQLAlchemyError) -> str:
    original = getattr(error, "orig", None)
    state = getattr(original, "sqlstate", None) or getattr(original, "sqlite_errorname", None)
    return state or type(original or error).__name__
