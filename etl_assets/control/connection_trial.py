"""Trying a connection: connect to its system once, within seconds, and change nothing there.

Belongs here: one way of connecting for each type of connection over REST, and whose fault a failure is. Does
not belong here: what the system then does (`sinks/`, `sources/`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from etl_assets.errors import EtlAssetsError, RuntimeMissing, SettingsError
from etl_assets.serve.problems import ProblemDetails
from etl_assets.settings.connections import (
    Connection,
    PostgresConnection,
    SearchConnection,
    SqlConnection,
    WebhookConnection,
)

SECONDS = 5
_SHOWN = 300


def tried(connection: Connection, *, seconds: int | None = None) -> float:
    """Connect, and return how many seconds it took.

    Raises:
        ProblemDetails: 422 for a secret that cannot be read or an address that is not allowed, 502 if the
            system refuses or is not reached, 504 if it is silent, 503 if a package is missing here.
    """
    begun, seconds = time.monotonic(), seconds or SECONDS
    try:
        _WAYS[type(connection)](connection, seconds)
    except SettingsError as error:
        raise ProblemDetails(422, "connection-unusable", f"{error.message}: {error.fix}") from error
    except RuntimeMissing as error:
        raise ProblemDetails(503, "package-missing", f"{error.message}: {error.fix}") from error
    # The drivers have classes of their own for what fails outside.
    except Exception as error:
        took = time.monotonic() - begun
        if took >= seconds - 0.1:  # all of them have this limit
            why = f"the system did not answer within {seconds} s"
            raise ProblemDetails(504, "outside-slow", f"{why}; see whether it runs and is reached") from error
        words = _words(error, connection)
        raise ProblemDetails(502, "outside-refuses", f"no connection: {words}") from error
    return time.monotonic() - begun


def _words(error: Exception, connection: Connection) -> str:
    """Return what a driver says, in one line and without secrets."""
    said = error.message if isinstance(error, EtlAssetsError) else str(error) or type(error).__name__
    text = " ".join(said.split())
    for secret in sorted((each.value() for each in connection.secrets()), key=len, reverse=True):
        text = text.replace(secret, "…")
    return "".join(each for each in text if each.isprintable())[:_SHOWN]


def _postgres(found: PostgresConnection, seconds: int) -> None:
    from etl_assets.sources.sql.connect import postgres_address

    address = postgres_address(found)
    import psycopg

    psycopg.connect(address, connect_timeout=seconds).close()


def _sql(found: SqlConnection, seconds: int) -> None:
    import sqlalchemy as sa

    from etl_assets.sources.sql.connect import sqlalchemy_url

    limits = {"connect_timeout": seconds, "read_timeout": seconds, "write_timeout": seconds}
    try:
        engine = sa.create_engine(sqlalchemy_url(found), connect_args=limits, hide_parameters=True)
    except ImportError as error:
        raise RuntimeMissing(
            f"the driver {found.driver} is not installed", fix=f"pip install {found.driver.partition('+')[2]}"
        ) from error
    try:
        engine.connect().close()
    finally:
        engine.dispose()


def _search(found: SearchConnection, seconds: int) -> None:
    from etl_assets.sinks.search.client import Patience, SearchClient
    from etl_assets.sinks.search.open import server_of

    patience = Patience(attempts=1, timeout_seconds=seconds)
    client = SearchClient(server_of(found), sink="search", patience=patience)
    try:
        client.send("GET", "/")
    finally:
        client.close()


def _webhook(found: WebhookConnection, seconds: int) -> None:
    from etl_assets.sinks.webhook.client import WebhookClient
    from etl_assets.sinks.webhook.open import receiver_of

    WebhookClient(receiver_of(found, seconds=seconds), sink="webhook").reach()


_WAYS: Mapping[type[Connection], Callable[[Any, int], None]] = {
    PostgresConnection: _postgres,
    SqlConnection: _sql,
    SearchConnection: _search,
    WebhookConnection: _webhook,
}
