"""Opening the sink: the connection to the server, with its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from etl_assets.errors import RuntimeMissing, SinkUnavailable
from etl_assets.settings.connections import OWN_IDENTITY_OFF, PostgresConnection

if TYPE_CHECKING:
    from etl_assets.pipelines.sink_specs.base import BaseSinkSpec
    from etl_assets.pipelines.sink_specs.postgres import PostgresSinkSpec
    from etl_assets.settings import Settings
    from etl_assets.settings.connections import Connection
    from etl_assets.sinks.postgres.sink import PostgresSink


def open_postgres(
    spec: BaseSinkSpec, connection: Connection, settings: Settings, pipeline: str
) -> PostgresSink:
    """Open the sink.

    Raises:
        SinkUnavailable: the server does not answer, or does not let this user in.
        SettingsError: the host of a connection over REST is not allowed.
        RuntimeMissing: the package psycopg is not installed.
    """
    try:
        import psycopg
    except ImportError as error:
        raise RuntimeMissing(
            "the package psycopg is not installed", fix="pip install 'etl-assets[postgres]'"
        ) from error
    from etl_assets.sinks.postgres.failures import named
    from etl_assets.sinks.postgres.sink import PostgresSink

    assert isinstance(connection, PostgresConnection)
    spec = cast("PostgresSinkSpec", spec)
    schema, _, table = spec.table.partition(".")
    target = f"postgres://{connection.host}:{connection.port}/{connection.database}/{spec.table}"
    milliseconds = 1_000 * connection.statement_timeout_seconds
    try:
        address = connection.address_of(connection.host, connection.port)
    except OSError as error:
        raise SinkUnavailable(
            f"{target} cannot be reached: the host has no address",
            fix="see whether its name is right, and whether this machine can resolve it",
            sink=target,
        ) from error
    with named(target):
        session = psycopg.connect(
            host=connection.host,
            hostaddr=address,
            **({} if address is None else OWN_IDENTITY_OFF),
            port=connection.port,
            dbname=connection.database,
            user=connection.user,
            password=None if connection.password is None else connection.password.value(),
            sslmode=connection.sslmode,
            sslrootcert=connection.sslrootcert,
            connect_timeout=connection.connect_timeout_seconds,
            **connection.keepalive,
            application_name="etl-assets",
            client_encoding="utf8",
            # A writer that was paused in its transaction holds up another for so long at most.
            options=f"-c statement_timeout={milliseconds}"
            f" -c idle_in_transaction_session_timeout={milliseconds}"
            f" -c lock_timeout={1_000 * connection.lock_timeout_seconds}"
            " -c timezone=UTC -c datestyle=ISO -c search_path=pg_catalog",
            autocommit=True,
        )
    return PostgresSink(
        session=session, schema=schema, table=table, target=target, owner=(pipeline, spec.sink_name)
    )
