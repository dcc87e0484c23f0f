"""Errors of PostgreSQL while it is read, as the platform calls them, and the two packages that read it."""

from __future__ import annotations

from typing import Any

from etl_assets.errors import RuntimeMissing, SourceRefused, SourceUnavailable

_LATER = ("08", "25P03", "40", "53", "55", "57", "58")
"""Classes of SQLSTATE after which the same query may succeed."""


def query_error(
    name: str, error: Exception, sqlstate: str | None, message: str | None
) -> SourceUnavailable | SourceRefused:
    """Return the platform's error for one of the server.

    The words of other classes than 42, syntax and privileges, may have values of rows.

    Args:
        name: The connection.
        error: The driver's error.
        sqlstate: Its SQLSTATE, if it is known.
        message: The server's words.
    """
    if not sqlstate or sqlstate.startswith(_LATER):
        return SourceUnavailable(
            f"the database of the connection {name} does not answer"
            f" ({type(error).__name__}{f', SQLSTATE {sqlstate}' if sqlstate else ''})",
            fix="start it, or correct the connection; after a timeout (57014): an index on the"
            " incremental key and the id",
            source=name,
        )
    words = f": {message}" if message and sqlstate.startswith(("42", "25")) else ""
    return SourceRefused(
        f"the database of the connection {name} refuses the query"
        f" ({type(error).__name__}, SQLSTATE {sqlstate}){words}",
        fix="correct the query, or the user's privileges",
        source=name,
    )


def psycopg_module() -> Any:
    """Return psycopg.

    Raises:
        RuntimeMissing: it is not installed.
    """
    try:
        import psycopg
    except ImportError as error:
        raise _missing("psycopg") from error
    return psycopg


def adbc_module() -> Any:
    """Return ADBC's driver for PostgreSQL.

    Raises:
        RuntimeMissing: it is not installed.
    """
    try:
        import adbc_driver_postgresql
    except ImportError as error:
        raise _missing("adbc-driver-postgresql") from error
    return adbc_driver_postgresql


def _missing(package: str) -> RuntimeMissing:
    return RuntimeMissing(
        f"the package {package} is not installed, which reads PostgreSQL",
        fix="pip install 'etl-assets[postgres]'",
    )
