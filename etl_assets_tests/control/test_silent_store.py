"""A store whose server is stopped in the middle of a statement: it accepts bytes, and never answers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy as sa

from etl_assets.control.run_controls import RunControls
from etl_assets.control.store import ControlStore, postgres_store
from etl_assets.settings.connections import PostgresConnection


@pytest.fixture
def store(postgres_server, monkeypatch) -> Iterator[ControlStore]:
    monkeypatch.setenv("SILENT_STORE", postgres_server.password)
    with psycopg.connect(postgres_server.url, autocommit=True) as session:
        session.execute("DROP DATABASE IF EXISTS silent_store")
        session.execute("CREATE DATABASE silent_store")
    found = PostgresConnection.model_validate(
        {
            "type": "postgres",
            "host": "127.0.0.1",
            "port": postgres_server.port,
            "database": "silent_store",
            "user": postgres_server.user,
            "password": "${SILENT_STORE}",
            "connect_timeout_seconds": 3,
        }
    )
    made = postgres_store(found)
    yield made
    made.close()


def test_a_server_that_stops_answering_is_waited_for_a_few_seconds_and_asked_again_when_it_is_back(store):
    controls = RunControls(store)
    asked = controls.request_run("films", "test")
    with store.reading() as connection:
        backend = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
    os.kill(backend, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert controls.state_of("films").run_id == asked.id  # by a new session
        assert time.monotonic() - began < 30
    finally:
        os.kill(backend, signal.SIGCONT)
