"""Memory of the process that reads a topic levels off, however many batches it reads."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from etl_assets.ingest import range_step
from etl_assets.sources.kafka.source import KafkaTopic
from etl_assets_tests.reference.peak_memory import resident_mib
from etl_assets_tests.sources.topics import Topic

PADDING = "x" * 200
BATCHES = 24


def read(topic: Topic, records: int, monkeypatch: pytest.MonkeyPatch, session: Any = None) -> list[int]:
    """Read records in `BATCHES` batches by one step, and return the memory at each, in MiB."""
    topic.declare(max_batch_records=records // BATCHES)
    topic.send({"id": f"r{number:09d}", "age": number, "more": PADDING} for number in range(records))
    resident: list[int] = []
    monkeypatch.setattr(range_step, "failpoint", lambda *_, **__: resident.append(resident_mib()))
    report = topic.ingest(session=session)
    assert (report.commits, report.total()["accepted"]) == (BATCHES, records)
    return resident


def expect_level(resident: list[int], *, mib: int, name: str, tell: Callable[[str], None]) -> None:
    """The last third of the batches needs no more than those before, apart from what allocators keep."""
    before, last = max(resident[: 2 * BATCHES // 3]), max(resident[2 * BATCHES // 3 :])
    tell(f"Kafka source, {name}: {resident[0]} MiB at the first batch, {before} at most, {last} at the end")
    assert last - before < mib


def test_memory_levels_off_over_many_batches(kafka_server, tmp_path, monkeypatch, tell):
    topic = Topic.create(kafka_server.url, tmp_path)
    resident = read(topic, BATCHES * 2_000, monkeypatch)
    expect_level(resident, mib=8, name=f"{BATCHES} batches of 2,000 records", tell=tell)


def test_messages_are_let_go_of_before_the_garbage_collector_counts_them(kafka_server, tmp_path):
    """If they stayed, it would look at all objects of the process again and again."""
    topic = Topic.create(kafka_server.url, tmp_path)
    topic.send({"id": f"r{number:09d}", "age": number} for number in range(40_000))
    options = {"bootstrap.servers": kafka_server.url}
    source = KafkaTopic(options=options, topic=topic.name, start="earliest", on_lost="fail", table="people")
    with closing(source):
        wanted = source.plan({}, max_bytes=1 << 30, max_records=40_000)
        assert wanted is not None
        (tmp_path / "first").mkdir()
        source.read(wanted, tmp_path / "first")  # imports what it needs, which is collected as well
        (tmp_path / "second").mkdir()
        before = collections_of_old_objects()
        read = source.read(wanted, tmp_path / "second")
        after = collections_of_old_objects()
    assert read.read.end[f"{topic.name}/0"] == 40_000
    assert after - before < 2


def collections_of_old_objects() -> int:
    return sum(generation["collections"] for generation in gc.get_stats()[1:])


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.spark
def test_memory_of_the_driver_levels_off_over_many_large_batches(
    kafka_server, tmp_path, monkeypatch, spark, tell
):
    topic = Topic.create(kafka_server.url, tmp_path)
    resident = read(topic, BATCHES * 100_000, monkeypatch, session=spark)
    expect_level(resident, mib=60, name=f"{BATCHES} batches of 100,000 records", tell=tell)
