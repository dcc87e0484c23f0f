"""PostgreSQL cut off, killed and stopped in a delivery: the delivery is there once or not at all."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import psycopg
import pytest

from etl_assets.errors import SinkFenced, SinkUnavailable
from etl_assets.pipelines.sink_specs import PostgresSinkSpec
from etl_assets.settings.connections import PostgresConnection
from etl_assets.settings.secret import Secret
from etl_assets.sinks.postgres import sink as module
from etl_assets.sinks.postgres.open import open_postgres
from etl_assets.sinks.postgres.sink import PostgresSink
from etl_assets.sinks.sink import Delivery
from etl_assets.stack.postgres import PostgresServer
from etl_assets_tests.reference.fault_proxy import Fault, FaultProxy
from etl_assets_tests.sinks.contract import CONTRACT, at, delivery, in_the_middle

OLD = [(number, "old") for number in range(20)]
NEW = [(number, "new") for number in range(10, 30)]
AFTER = {*OLD[2:10], *NEW}


@dataclass(frozen=True)
class Site:
    """A server of its own, and the network before it."""

    server: PostgresServer
    proxy: FaultProxy

    def opened(self, table: str) -> PostgresSink:
        connection = PostgresConnection(
            type="postgres",
            host="127.0.0.1",
            port=self.proxy.port,
            database="postgres",
            user=self.server.user,
            password=Secret("${FAULTS_PASSWORD}"),
            write=("*",),
        )
        spec = PostgresSinkSpec(type="postgres", connection="c", table=f"marts.{table}")
        sink = open_postgres(spec, connection, None, table)  # ty: ignore[invalid-argument-type]
        sink.prepare(CONTRACT)
        return sink

    def stored(self, table: str) -> set[tuple[int, str]]:
        with psycopg.connect(self.server.url) as session:
            return set(session.execute(f"SELECT id, name FROM marts.{table}".encode()).fetchall())


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with PostgresServer(durable=False) as server:
        proxy = FaultProxy(server.port, random.Random(1))
        yield Site(server, proxy)
        proxy.close()


@pytest.fixture
def begun(site: Site, request, monkeypatch) -> Iterator[tuple[str, PostgresSink]]:
    """A target with one delivery."""
    monkeypatch.setenv("FAULTS_PASSWORD", site.server.password)
    table = f"t{abs(hash(request.node.name)):x}"
    sink = site.opened(table)
    sink.deliver(delivery(None, at(1), OLD, whole=True))
    yield table, sink
    sink.close()


def test_a_delivery_whose_answer_to_commit_is_lost_is_there_once(site, begun, monkeypatch):
    table, sink = begun
    given = delivery(at(1), at(2), NEW, [0, 1])
    with ExitStack() as network, monkeypatch.context() as patched:
        # The next thing that this process sends is COMMIT, and the server carries it out.
        lost = site.proxy.fault(Fault.ANSWERS_LOST)
        patched.setattr(module, "failpoint", lambda *_, **__: network.enter_context(lost))
        with pytest.raises(SinkUnavailable):
            sink.deliver(given)
    again = site.opened(table)
    assert again.position() == at(2)
    assert site.stored(table) == AFTER
    with pytest.raises(SinkFenced):
        again.deliver(given)
    again.close()


def test_a_connection_that_ends_in_a_delivery_leaves_nothing_of_it(site, begun):
    table, sink = begun
    given = delivery(at(1), at(2), NEW, [0, 1])
    with ExitStack() as network:
        cut = in_the_middle(given, lambda: network.enter_context(site.proxy.fault(Fault.REFUSED)))
        with pytest.raises(SinkUnavailable):
            sink.deliver(cut)
        with pytest.raises(SinkUnavailable):
            site.opened(table)
    repeated(site, table, given)


def test_a_server_that_is_killed_in_a_delivery_and_started_again_has_nothing_of_it(site, begun):
    table, sink = begun
    given = delivery(at(1), at(2), NEW, [0, 1])
    with pytest.raises(SinkUnavailable):
        sink.deliver(in_the_middle(given, site.server.kill))
    site.server.start()
    repeated(site, table, given)


def test_a_server_that_is_stopped_in_a_delivery_ends_it_when_it_goes_on(site, begun):
    table, sink = begun

    def stopped() -> None:
        site.server.pause()
        threading.Timer(1, site.server.resume).start()

    began = time.monotonic()
    sink.deliver(in_the_middle(delivery(at(1), at(2), NEW, [0, 1]), stopped))
    assert time.monotonic() - began > 0.9
    assert (sink.position(), site.stored(table)) == (at(2), AFTER)


def repeated(site: Site, table: str, given: Delivery) -> None:
    """The target is as it was; the same delivery by another connection is there once."""
    assert site.stored(table) == set(OLD)
    again = site.opened(table)
    assert again.position() == at(1)
    again.deliver(given)
    assert (again.position(), site.stored(table)) == (at(2), AFTER)
    again.close()
