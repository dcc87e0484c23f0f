"""Control stores of tests: SQLite in a temporary folder, and a database of a real PostgreSQL server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from etl_assets.control.store import ControlStore, StoreClock, postgres_store, sqlite_store
from etl_assets.settings.connections import PostgresConnection

PASSWORD = "CONTROL_TEST_PASSWORD"


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def open_again(request, tmp_path_factory) -> Iterator[Callable[..., ControlStore]]:
    """Opens the module's store, as often as it is called."""
    monkeypatch = pytest.MonkeyPatch()
    opened: list[ControlStore] = []
    if request.param == "sqlite":
        path: Path = tmp_path_factory.mktemp("control") / "control.db"

        def make(clock: StoreClock | None) -> ControlStore:
            return sqlite_store(path, clock=clock)
    else:
        server = request.getfixturevalue("postgres_server")
        monkeypatch.setenv(PASSWORD, server.password)
        name = f"control_{uuid.uuid4().hex[:8]}"
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        found = PostgresConnection.model_validate(
            {
                "type": "postgres",
                "host": "127.0.0.1",
                "port": server.port,
                "database": name,
                "user": server.user,
                "password": f"${{{PASSWORD}}}",
            }
        )

        def make(clock: StoreClock | None) -> ControlStore:
            return postgres_store(found, clock=clock)

    def open_one(clock: StoreClock | None = None) -> ControlStore:
        opened.append(make(clock))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()
    monkeypatch.undo()
