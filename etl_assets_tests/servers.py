"""Real servers for tests, one of each kind for a process of pytest, started when a test first asks for it.

Tests that share one keep apart by names of their own: a database, topic, index or bucket for each test. A
test that kills, stops or restarts a server starts its own by the classes of `etl_assets.stack`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etl_assets.stack.kafka import KafkaServer
from etl_assets.stack.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """PostgreSQL with `wal_level=logical`; commits are not forced to the disk."""
    with PostgresServer(durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[KafkaServer]:
    """One broker. Topics are not made by themselves."""
    with KafkaServer() as server:
        yield server
