"""Brokers that are killed, stopped or cut off while a command reads: afterwards each record is there once."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from etl_assets.stack.kafka import KafkaServer
from etl_assets.stack.server import free_port
from etl_assets_tests.commands.home import Running
from etl_assets_tests.reference.fault_proxy import Fault, FaultProxy
from etl_assets_tests.sources.topics import Topic

pytestmark = [pytest.mark.kill]

RECORDS = 6_000
PADDING = "x" * 1_000
"""Six megabytes: a slow network needs seconds for them."""


@pytest.fixture(scope="module")
def network() -> Iterator[tuple[KafkaServer, FaultProxy]]:
    """A broker that sends its clients through a bad network."""
    port = free_port()
    proxy = FaultProxy(port, random.Random(7))
    try:
        with KafkaServer(port=port, advertised_port=proxy.port) as server:
            yield server, proxy
    finally:
        proxy.close()


def is_reading(home: Path) -> bool:
    return any(path.stat().st_size > 100_000 for path in home.rglob("*.arrows"))


@contextmanager
def reading(topic: Topic, proxy: FaultProxy) -> Generator[Running]:
    """A run that is in the middle of a range."""
    with proxy.fault(Fault.SLOW):
        run = topic.home.start("run")
        until = time.monotonic() + 60
        while not is_reading(topic.home.path):
            assert time.monotonic() < until, f"it did not begin to read\n{run.err}"
            assert run.wait(0.02) is None, f"it has ended before the fault\n{run.err}"
    yield run


def test_a_read_that_is_cut_off_in_the_middle_goes_on_and_has_each_record_once(network, tmp_path):
    _, proxy = network
    topic = Topic.create(f"127.0.0.1:{proxy.port}", tmp_path)
    topic.send([{"id": f"r{n}", "more": PADDING * 20} for n in range(300)])
    with ThreadPoolExecutor(1) as threads:
        with proxy.fault(Fault.SLOW):
            reading = threads.submit(topic.ingest)
            until = time.monotonic() + 60
            while not is_reading(topic.home.path):
                assert time.monotonic() < until
                assert not reading.done(), "it has ended before the fault"
                time.sleep(0.02)
        with proxy.fault(Fault.REFUSED):
            time.sleep(1)
        reading.result(60)
    assert [row["record_id"] for row in topic.accepted()] == [f"r{n}" for n in range(300)]
    assert topic.rejected() == []


@pytest.mark.full
@pytest.mark.spark
def test_after_a_broker_that_dies_stops_or_is_cut_off_each_record_is_there_once(network, tmp_path):
    server, proxy = network
    topic = Topic.create(f"127.0.0.1:{proxy.port}", tmp_path, partitions=2)
    sent = 0

    def send() -> None:
        nonlocal sent
        for partition in range(2):
            first = sent + partition * (RECORDS // 2)
            records = ({"id": f"r{first + n}", "age": n, "more": PADDING} for n in range(RECORDS // 2))
            topic.send(records, partition=partition)
        sent += RECORDS

    # 1. Killed in the middle of a range, and started again.
    send()
    with reading(topic, proxy) as run:
        server.kill()
        time.sleep(1)
        server.start()
        finish(topic, run)
    # 2. Stopped in the middle of a range: connections stay, and nothing is answered.
    send()
    with reading(topic, proxy) as run:
        server.pause()
        time.sleep(5)
        server.resume()
        finish(topic, run)
    # 3. Cut off in the middle of a range.
    send()
    with reading(topic, proxy) as run:
        with proxy.fault(Fault.REFUSED):
            time.sleep(3)
        finish(topic, run)
    again = topic.home.start("run").ended(120)
    assert again.code == 0, again
    counts = Counter(row["record_id"] for row in topic.accepted())
    assert counts == {f"r{number}": 1 for number in range(sent)}
    assert topic.rejected() == [], "nothing was read twice"
    assert [row["offset"] for row in topic.accepted()] == list(range(sent))


def finish(topic: Topic, run: Running) -> None:
    """Let the run end as it will; the next one reads what it left."""
    done = run.ended(150)
    if done.code != 0:
        assert "SourceUnavailable" in done.err, done
        sys.stderr.write("the run gave up; another one goes on\n")
        assert topic.home.start("run").ended(150).code == 0
