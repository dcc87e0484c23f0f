"""What PostgreSQL refuses, as errors of the platform: not now, never, or one row."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from etl_assets.errors import SinkRefused, SinkUnavailable

OF_ROWS = (
    psycopg.DataError,
    psycopg.IntegrityError,
    errors.ProgramLimitExceeded,
    errors.RaiseException,
)
"""Errors that the values of a row cause."""


@contextmanager
def named(target: str) -> Generator[None]:
    """Report errors of PostgreSQL as errors of a sink.

    Raises:
        SinkUnavailable: the server, or the way to it, failed.
        SinkRefused: the server refuses for good.
    """
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
        raise SinkUnavailable(
            f"{target} does not answer: {words(error)}",
            fix="nothing, if it comes back: the delivery is repeated; otherwise see the connection in the"
            " platform file, and the server's log",
            sink=target,
        ) from error
    except psycopg.Error as error:
        raise SinkRefused(
            f"{target} refuses: {words(error)}",
            fix="give the connection's user the privilege, or correct the table, and run again",
            sink=target,
        ) from error


def words(error: psycopg.Error) -> str:
    """Return the server's words on one line: not its details, which may have values of other rows."""
    text = error.diag.message_primary or str(error) or type(error).__name__
    return " ".join(text.split())[:500]
