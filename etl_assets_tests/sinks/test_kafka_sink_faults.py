"""A broker that is stopped or cut off in a delivery: each row is there once, or none of them."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from etl_assets.errors import SinkFenced, SinkUnavailable
from etl_assets.failpoints import Failpoint
from etl_assets.sinks.kafka import sink as module
from etl_assets.sinks.kafka.sink import KafkaSink
from etl_assets.sinks.kafka.topics import NewTopicSettings
from etl_assets.stack.kafka import KafkaServer
from etl_assets.stack.server import free_port
from etl_assets_tests.reference.fault_proxy import Fault, FaultProxy
from etl_assets_tests.sinks.contract import CONTRACT, at, delivery, in_the_middle
from etl_assets_tests.sinks.test_kafka_sink import messages

pytestmark = pytest.mark.kill

OLD = [(number, "old") for number in range(20)]
NEW = [(number, "new") for number in range(10, 30)]
AFTER = {**dict(OLD[2:]), **dict(NEW)}


@dataclass(frozen=True)
class Site:
    """A broker of its own, which sends its clients through a network that may fail."""

    server: KafkaServer
    proxy: FaultProxy

    def opened(self, topic: str, **options: int) -> KafkaSink:
        sink = KafkaSink(
            {"bootstrap.servers": f"127.0.0.1:{self.proxy.port}", "reconnect.backoff.max.ms": 200},
            topic,
            pipeline="films",
            name="kafka",
            create=NewTopicSettings(partitions=2),
            **options,
        )
        sink.prepare(CONTRACT)
        return sink

    def stored(self, topic: str) -> dict[int, str]:
        """The rows that a consumer has in the end; no delivery may have brought a key twice."""
        rows: dict[int, str] = {}
        seen: set[tuple[int, bytes]] = set()
        for each in messages(f"127.0.0.1:{self.proxy.port}", topic):
            key = json.loads(each.key())["id"]
            mark = (key, dict(each.headers())["etl-assets-version"])
            assert mark not in seen
            seen.add(mark)
            rows.pop(key, None)
            if each.value() is not None:
                rows[key] = json.loads(each.value())["name"]
        return rows


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    port = free_port()
    proxy = FaultProxy(port, random.Random(1))
    with KafkaServer(port=port, advertised_port=proxy.port) as server:
        yield Site(server, proxy)
    proxy.close()


@pytest.fixture
def topic(site: Site) -> str:
    """A topic with one delivery."""
    topic = f"films-{uuid.uuid4().hex[:8]}"
    site.opened(topic).deliver(delivery(None, at(1), OLD, whole=True))
    return topic


def test_a_broker_that_is_stopped_in_a_delivery_has_each_row_once_when_it_goes_on(site, topic):
    sink = site.opened(topic)

    def stopped() -> None:
        site.server.pause()
        threading.Timer(1.5, site.server.resume).start()

    began = time.monotonic()
    sink.deliver(in_the_middle(delivery(at(1), at(2), NEW, [0, 1]), stopped))
    assert time.monotonic() - began > 1.4
    assert (site.opened(topic).position(), site.stored(topic)) == (at(2), AFTER)


def test_a_delivery_that_is_cut_off_for_a_moment_has_each_row_once(site, topic):
    sink, network = site.opened(topic), ExitStack()

    def cut() -> None:
        network.enter_context(site.proxy.fault(Fault.REFUSED))
        threading.Timer(1, network.close).start()

    sink.deliver(in_the_middle(delivery(at(1), at(2), NEW, [0, 1]), cut))
    assert (site.opened(topic).position(), site.stored(topic)) == (at(2), AFTER)


def test_a_delivery_that_is_cut_off_for_too_long_leaves_nothing_and_is_repeated(site, topic):
    given = delivery(at(1), at(2), NEW, [0, 1])
    sink = site.opened(topic, transaction_timeout_seconds=2)
    sink.position()
    network = ExitStack()

    def cut() -> None:
        time.sleep(0.5)  # the client has sent what it has
        network.enter_context(site.proxy.fault(Fault.REFUSED))
        threading.Timer(4, network.close).start()  # rows wait for two seconds

    with pytest.raises(SinkUnavailable):
        sink.deliver(in_the_middle(given, cut))
    sent = messages(f"127.0.0.1:{site.proxy.port}", topic, level="read_uncommitted")
    assert len(sent) > len(OLD), "some of its rows are there, and no reader sees them"
    assert site.stored(topic) == dict(OLD)
    again = site.opened(topic)
    assert again.position() == at(1)
    again.deliver(given)
    assert (again.position(), site.stored(topic)) == (at(2), AFTER)


def test_a_delivery_whose_answers_to_commit_are_lost_is_there_once(site, topic, monkeypatch):
    given = delivery(at(1), at(2), NEW, [0, 1])
    sink, network = site.opened(topic), ExitStack()
    sink.position()

    def lost(point: Failpoint, **_: object) -> None:
        if point is Failpoint.SINK_BEFORE_TARGET_COMMIT:
            network.enter_context(site.proxy.fault(Fault.ANSWERS_LOST))
            threading.Timer(1, network.close).start()

    monkeypatch.setattr(module, "failpoint", lost)
    sink.deliver(given)
    monkeypatch.undo()
    again = site.opened(topic)
    assert (again.position(), site.stored(topic)) == (at(2), AFTER)
    with pytest.raises(SinkFenced):
        again.deliver(given)
