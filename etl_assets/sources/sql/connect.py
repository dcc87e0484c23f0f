"""Opening a query by a connection of the platform file. Secrets are read here and nowhere else."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from etl_assets.errors import RuntimeMissing, SourceRefused, SourceUnavailable
from etl_assets.pipelines.source_specs import SqlLoad
from etl_assets.settings.connections import OWN_IDENTITY_OFF, PostgresConnection, SqlConnection
from etl_assets.sources.sql.alchemy import AlchemyQuery
from etl_assets.sources.sql.full_load import SqlFullLoad
from etl_assets.sources.sql.postgres import PostgresQuery
from etl_assets.sources.sql.source import SqlQuery

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import URL

    from etl_assets.pipelines.source_specs import SqlSource
    from etl_assets.settings import Settings
    from etl_assets.sources.sql.bounds import KeyBounds
    from etl_assets.sources.sql.database import Database
    from etl_assets.sources.sql.typed_rows import TypedRows


def open_query(
    source: SqlSource, settings: Settings, *, name: str, rows: TypedRows | None = None
) -> SqlQuery | SqlFullLoad:
    """Return a declared query that can be read. Nothing is connected yet.

    Args:
        source: The source.
        settings: The platform file.
        name: What messages call it.
        rows: The columns to read, where no records are kept.

    Raises:
        SourceRefused: the connection is missing, or columns cannot be read by it.
        SettingsError: an environment variable with a secret is not set.
    """
    database = query_database(source, settings)
    if source.load is SqlLoad.FULL:
        return SqlFullLoad(
            name=name, database=database, id=source.id, interval_seconds=source.load_interval_seconds
        )
    write_columns = None
    if rows is not None:
        if not isinstance(database, PostgresQuery):
            raise SourceRefused(
                f"{name}: keep_records: false reads by connections of type postgres, and"
                f" {source.connection} is of type sql",
                fix="use a connection of type postgres, or remove keep_records",
                source=name,
            )
        write_columns = partial(_write_columns, database, rows)
    return SqlQuery(
        write_columns=write_columns,
        name=name,
        database=database,
        key=source.keys[0],
        id=source.keys[1],
        overlap=source.overlap,
        detect_deletes_seconds=source.detect_deletes_interval_seconds,
    )


def _write_columns(
    database: PostgresQuery, rows: TypedRows, bounds: KeyBounds, path: Path, others: Path
) -> None:
    database.write_columns(bounds, rows, path, others)


def query_database(source: SqlSource, settings: Settings) -> Database:
    """Return the database of a declared query.

    Raises:
        SourceRefused: the connection is missing.
        SettingsError: an environment variable with a secret is not set.
    """
    match settings.connections.get(source.connection):
        case PostgresConnection() as found:
            return PostgresQuery(
                name=source.connection,
                address=postgres_address(found),
                query=source.query,
                key=source.keys[0],
                id=source.keys[1],
                statement_timeout_seconds=found.statement_timeout_seconds,
                sessions=found.read_sessions,
            )
        case SqlConnection() as found:
            return _by_sqlalchemy(found, source)
    known = [
        name
        for name, each in settings.connections.items()
        if isinstance(each, PostgresConnection | SqlConnection)
    ]
    raise SourceRefused(
        f"the platform file has no connection {source.connection!r} of type postgres or sql",
        fix=f"add it under `connections:`, or use one of: {', '.join(known) or 'none is there'}",
        source=source.connection,
    )


def postgres_address(found: PostgresConnection) -> str:
    """Return libpq's connection string of a connection, with its password.

    Raises:
        RuntimeMissing: the package psycopg is not installed.
        SettingsError: a secret cannot be read, or the host of a connection over REST is not allowed.
        SourceUnavailable: that host has no address now.
    """
    try:
        from psycopg.conninfo import make_conninfo
    except ImportError as error:
        raise RuntimeMissing(
            "the package psycopg is not installed, which reads PostgreSQL",
            fix="pip install 'etl-assets[postgres]'",
        ) from error
    address = _address(found, found.host, found.port)
    options = {
        "host": found.host,
        "hostaddr": address,
        **({} if address is None else OWN_IDENTITY_OFF),
        "port": found.port,
        "dbname": found.database,
        "user": found.user,
        "password": None if found.password is None else found.password.value(),
        "sslmode": found.sslmode,
        "sslrootcert": found.sslrootcert,
        "connect_timeout": found.connect_timeout_seconds,
        **found.keepalive,
        "client_encoding": "utf8",
        "options": f"-c lock_timeout={found.lock_timeout_seconds * 1000}",
        "application_name": "etl-assets",
    }
    return make_conninfo("", **{name: value for name, value in options.items() if value is not None})


def _address(found: PostgresConnection | SqlConnection, host: str, port: int) -> str | None:
    try:
        return found.address_of(host, port)
    except OSError as error:
        raise SourceUnavailable(
            f"{host}:{port} cannot be reached: the host has no address",
            fix="see whether its name is right, and whether this machine can resolve it",
            source=host,
        ) from error


def _by_sqlalchemy(found: SqlConnection, source: SqlSource) -> AlchemyQuery:
    return AlchemyQuery(
        name=source.connection,
        url=sqlalchemy_url(found),
        query=source.query,
        key=source.keys[0],
        id=source.keys[1],
    )


def sqlalchemy_url(found: SqlConnection) -> URL:
    """Return SQLAlchemy's URL of a connection, with its password.

    Raises:
        RuntimeMissing: the package sqlalchemy is not installed.
        SettingsError: a secret cannot be read, or the host of a connection over REST is not allowed.
        SourceUnavailable: that host has no address now.
    """
    try:
        import sqlalchemy as sa
    except ImportError as error:
        raise RuntimeMissing(
            "the package sqlalchemy is not installed, which reads databases",
            fix="pip install 'etl-assets[sql]'",
        ) from error
    address = None if found.host is None else _address(found, found.host, found.port or 0)
    return sa.URL.create(
        found.driver,
        username=found.user,
        password=None if found.password is None else found.password.value(),
        host=address or found.host,
        port=found.port,
        database=found.database,
        query=dict(found.options),
    )
