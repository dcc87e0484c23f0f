"""PostgreSQL as the project starts it."""

from __future__ import annotations

import psycopg
import pytest

from etl_assets.errors import AddressUnusable, ServerNotStarted
from etl_assets.processes import is_there
from etl_assets.stack.postgres import PostgresServer


@pytest.fixture(scope="module")
def server():
    with PostgresServer(durable=False, settings={"max_connections": "17"}) as server:
        yield server


def test_it_asks_for_the_password_and_has_the_settings(server):
    with psycopg.connect(server.url) as connection:
        shown = [
            connection.execute(f"SHOW {name}").fetchone()
            for name in ("wal_level", "fsync", "synchronous_commit", "max_connections")
        ]
    assert shown == [("logical",), ("off",), ("on",), ("17",)]
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(server.url.replace(server.password, "guessed"))


def test_a_killed_server_comes_back_with_what_was_committed(server):
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE kept (id int)")
        connection.execute("INSERT INTO kept VALUES (1)")
        connection.commit()
        connection.execute("INSERT INTO kept VALUES (2)")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
    server.start()
    with psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT id FROM kept").fetchall() == [(1,)]
    server.stop()
    server.start()
    with psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT id FROM kept").fetchall() == [(1,)]


def test_a_paused_server_answers_again_when_it_is_resumed(server):
    server.pause()
    try:
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            psycopg.connect(server.url, connect_timeout=2)
    finally:
        server.resume()
    psycopg.connect(server.url, connect_timeout=60).close()


def test_a_used_port_is_named(server):
    with pytest.raises(AddressUnusable, match=f"PostgreSQL cannot listen on port {server.port}"):
        PostgresServer(port=server.port).__enter__()


def test_a_server_that_cannot_start_shows_the_end_of_its_log():
    with pytest.raises(ServerNotStarted, match="unrecognized configuration parameter") as raised:
        PostgresServer(settings={"no_such_setting": "1"}).__enter__()
    assert not raised.value.fields["log"].exists(), "the temporary folder is gone"


def test_nothing_is_left_of_a_closed_server():
    with PostgresServer(durable=False) as server:
        pid, folder = server.pid, server.folder
    assert not is_there(pid)
    assert not folder.exists()
