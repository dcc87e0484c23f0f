"""Reading a target while others are served: few connections, short statements, and no waiting in a line.

Belongs here: connections for single reads. Does not belong here: statements, which are their readers'.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import dict_row

from etl_assets.errors import SinkUnavailable
from etl_assets.sinks.postgres.failures import named

if TYPE_CHECKING:
    from psycopg.sql import Composed

    from etl_assets.settings.connections import PostgresConnection

_MAX_CONNECTIONS = 4
_MAX_WAITING = 32
_CONNECT_SECONDS = 3
_STATEMENT_SECONDS = 2
_ANSWER_SECONDS = 6.0


class PostgresReader:
    """Reads single rows over at most 4 connections, which are read-only and opened when they are needed.

    It has threads of its own: a server that hangs holds up nothing else of the process.

    Args:
        connection: The connection of the platform file.
        target: The target for people.
    """

    def __init__(self, connection: PostgresConnection, target: str) -> None:
        self._connection, self._target = connection, target
        self._threads = ThreadPoolExecutor(_MAX_CONNECTIONS, thread_name_prefix="postgres-reader")
        self._of_thread = threading.local()
        self._waiting = 0

    async def first(self, query: Composed, values: Sequence[object]) -> Mapping[str, Any] | None:
        """Return the first row of a query; None if it has none.

        Raises:
            SinkUnavailable: the server does not answer in time, or too many reads wait for it.
            SinkRefused: the server refuses.
            SettingsError: an environment variable that the connection names is not set.
        """
        if self._waiting >= _MAX_WAITING:
            raise self._unavailable("too many reads wait for it")
        self._waiting += 1
        used: list[psycopg.Connection] = []
        reading = self._threads.submit(self._read, query, values, used)
        # Counted until the thread is free, which may be later than the answer to the client.
        loop = asyncio.get_running_loop()
        reading.add_done_callback(lambda _: _call_soon(loop, self._is_done))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(reading), _ANSWER_SECONDS)
        except TimeoutError:
            for session in used[-1:]:
                _interrupt(session)
            raise self._unavailable(f"no answer within {_ANSWER_SECONDS:g} s") from None

    def close(self) -> None:
        """Take no further reads. Connections end with the process."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _is_done(self) -> None:
        self._waiting -= 1

    def _read(
        self,
        query: Composed,
        values: Sequence[object],
        used: list[psycopg.Connection],
    ) -> Mapping[str, Any] | None:
        with named(self._target):
            session = getattr(self._of_thread, "session", None)
            if session is not None:
                used.append(session)
                try:
                    return session.cursor(row_factory=dict_row).execute(query, values).fetchone()
                except psycopg.OperationalError:
                    if not session.broken:
                        raise  # such as the statement timeout
                    self._of_thread.session = None  # the server was restarted since: once more
                    with suppress(psycopg.Error):
                        session.close()
            session = self._of_thread.session = self._open()
            used.append(session)
            return session.cursor(row_factory=dict_row).execute(query, values).fetchone()

    def _open(self) -> psycopg.Connection:
        where = self._connection
        return psycopg.connect(
            host=where.host,
            port=where.port,
            dbname=where.database,
            user=where.user,
            password=None if where.password is None else where.password.value(),
            sslmode=where.sslmode,
            sslrootcert=where.sslrootcert,
            connect_timeout=min(_CONNECT_SECONDS, where.connect_timeout_seconds),
            tcp_user_timeout=1_000 * _CONNECT_SECONDS,
            application_name="etl-assets serve",
            client_encoding="utf8",
            options=f"-c statement_timeout={1_000 * _STATEMENT_SECONDS} -c default_transaction_read_only=on"
            " -c timezone=UTC -c datestyle=ISO -c search_path=pg_catalog",
            autocommit=True,
        )

    def _unavailable(self, why: str) -> SinkUnavailable:
        return SinkUnavailable(
            f"{self._target} does not answer: {why}",
            fix="send the request again; see the connection in the platform file, and the server's log",
            sink=self._target,
        )


def _interrupt(session: psycopg.Connection[Any]) -> None:
    """Wake the thread that waits for a server which does not answer, not even to say that it is gone."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(session.fileno())) as connection:
        connection.shutdown(socket.SHUT_RDWR)


def _call_soon(loop: asyncio.AbstractEventLoop, call: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed: the process ends
        loop.call_soon_threadsafe(call)
