"""Real servers for tests, one of each kind for a run of pytest, started when a test first asks for it.

Processes of one run share them: the one that started a server ends it when the others are done with it. Tests
that share one keep apart by names of their own: a database, topic, index or bucket for each test. A test that
kills, stops or restarts a server starts its own by the classes of `etl_assets.stack`.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

import psycopg
import pytest

from etl_assets.stack.kafka import KafkaServer
from etl_assets.stack.managed import ManagedServer
from etl_assets.stack.opensearch import OpenSearchServer
from etl_assets.stack.postgres import PostgresServer
from etl_assets.stack.s3 import S3Server

AnyServer = TypeVar("AnyServer", bound=ManagedServer)
POSTGRES_BINARIES = "POSTGRES_BINARIES"
"""Environment variable that names the `bin` folder of another version of PostgreSQL; see CONTRIBUTING.md."""
_borrowed, _own = ExitStack(), ExitStack()
"""What this process uses of others, and what it has started."""


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> PostgresServer:
    """PostgreSQL with `wal_level=logical`; commits are not forced to the disk."""
    make = partial(PostgresServer, durable=False, binaries=postgres_binaries())
    return _shared("postgres", make, tmp_path_factory)


def postgres_binaries() -> Path | None:
    """Return the folder of the PostgreSQL that `POSTGRES_BINARIES` names; None: the newest one installed."""
    named = os.environ.get(POSTGRES_BINARIES)
    return None if named is None else Path(named)


def needs_postgres(session: psycopg.Connection, version: int) -> None:
    """Skip a test on a server that is older, and does not have what the test is about."""
    if session.info.server_version < version * 10_000:
        pytest.skip(f"PostgreSQL has this from version {version} on")


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> KafkaServer:
    """One broker. Topics are not made by themselves."""
    return _shared("kafka", KafkaServer, tmp_path_factory)


@pytest.fixture(scope="session")
def opensearch_server(tmp_path_factory: pytest.TempPathFactory) -> OpenSearchServer:
    """One node, without passwords."""
    return _shared("opensearch", OpenSearchServer, tmp_path_factory)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> S3Server:
    """An S3-compatible store in memory. Buckets are made by the tests."""
    return _shared("s3", S3Server, tmp_path_factory)


def end_servers() -> None:
    """End the servers that this process has started, as soon as no other process uses them."""
    _borrowed.close()  # first, because the others may be waiting for it
    _own.close()


def _shared(kind: str, make: Callable[..., AnyServer], factory: pytest.TempPathFactory) -> AnyServer:
    """Return the run's server of a kind; `make` starts it if there is none.

    `end_servers` ends it, not a fixture: the wait for other processes would count as time of a test.
    """
    base = factory.getbasetemp()
    of_run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    place, lock, users = (of_run / f"{kind}.{name}" for name in ("json", "lock", "users"))
    with lock.open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if place.exists():
            using = _borrowed.enter_context(users.open("w"))
            found = json.loads(place.read_text("utf-8"))
            server = make(Path(found["folder"]), found["port"])
        else:
            using = _own.enter_context(users.open("w"))
            server = _own.enter_context(make())
            place.write_text(json.dumps({"folder": str(server.folder), "port": server.port}), "utf-8")
            _own.callback(_withdraw, place, lock, using)
        fcntl.flock(using, fcntl.LOCK_SH)
    return server


def _withdraw(place: Path, lock: Path, using: IO[str]) -> None:
    """Offer a server to no more processes, and wait for those that use it."""
    with lock.open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        place.unlink()
    fcntl.flock(using, fcntl.LOCK_EX)
