"""The Kafka sink on a real broker, read by consumers with read_committed."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from contextlib import suppress
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from etl_assets.errors import SinkFenced, SinkRefused, SinkUnavailable
from etl_assets.sinks.kafka import topics
from etl_assets.sinks.kafka.sink import KafkaSink
from etl_assets.sinks.kafka.topics import NewTopicSettings
from etl_assets.sources.kafka.heard import Heard
from etl_assets.stack.kafka import KafkaServer
from etl_assets_tests.reference.peak_memory import growth
from etl_assets_tests.sinks.contract import SinkContract
from etl_assets_tests.sinks.deliveries import CONTRACT, at, delivery, film, many


@pytest.fixture
def topic() -> str:
    return f"films-{uuid.uuid4().hex[:8]}"


def sink_of(url: str, topic: str, **options) -> KafkaSink:
    sink = KafkaSink(
        {"bootstrap.servers": url},
        topic,
        pipeline="films",
        name="kafka",
        create=NewTopicSettings(partitions=3),
        **options,
    )
    sink.prepare(CONTRACT)
    return sink


def messages(url: str, topic: str, *, level: str = "read_committed") -> list[Any]:
    """Read a topic to its end as any consumer would."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": url,
            "group.id": uuid.uuid4().hex,
            "isolation.level": level,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in partitions])
    found, ended = [], set()
    deadline = time.monotonic() + 60
    while len(ended) < len(partitions):
        assert time.monotonic() < deadline
        message: Any = consumer.poll(1)
        if message is None:
            continue
        if message.error() is None:
            found.append(message)
        elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return found


def state(url: str, topic: str) -> dict[str, int]:
    """The newest value of each key; asserts that no version has a key twice."""
    rows, seen = {}, set()
    for each in messages(url, topic):
        film_id = json.loads(each.key())["film_id"]
        mark = (film_id, dict(each.headers())["etl-assets-version"])
        assert mark not in seen, mark
        seen.add(mark)
        rows.pop(film_id, None)
        if each.value() is not None:
            rows[film_id] = json.loads(each.value())["count"]
    return rows


def script(url: str, topic: str, body: str, **environ: str) -> Any:  # a process with pipes
    code = f"""
        import os, signal, sys
        from etl_assets_tests.sinks.deliveries import *
        from etl_assets.sinks.kafka.sink import KafkaSink
        sink = KafkaSink({{"bootstrap.servers": {url!r}}}, {topic!r}, pipeline="films", name="kafka")
        sink.prepare(CONTRACT)
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code) + textwrap.dedent(body)],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_rows_and_deletes_follow_the_table(kafka_server, topic):
    url = kafka_server.url
    sink = sink_of(url, topic)
    assert sink.position() is None
    done = sink.deliver(delivery(None, at(1), [film("a"), film("b")], whole=True))
    assert (done.written, done.deleted) == (2, 0)
    sink.deliver(delivery(at(1), at(2), [film("a", 2), film("c")], ["b"]))
    assert sink.position() == at(2)
    assert state(url, topic) == {"a": 2, "c": 1}
    # A whole delivery deletes what it does not bring, and not what others wrote.
    other = confluent_kafka.Producer({"bootstrap.servers": url})
    other.produce(topic, b"theirs", b'{"film_id":"theirs"}', headers=[("etl-assets-version", b"0")])
    other.flush(30)
    done = sink.deliver(delivery(at(2), at(3), [film("c", 9)], whole=True))
    assert (done.written, done.deleted) == (1, 1)
    last = {each.key(): each.value() for each in messages(url, topic)}
    assert last[b'{"film_id":"a"}'] is None
    assert last[b'{"film_id":"theirs"}'] == b"theirs"
    # A topic that was deleted and created again has nothing.
    admin = AdminClient({"bootstrap.servers": url})
    admin.delete_topics([topic])[topic].result()
    time.sleep(1)
    again = sink_of(url, topic)
    assert again.position() is None
    with pytest.raises(SinkFenced):
        again.deliver(delivery(at(3), at(4), [film("z")]))


def test_a_topic_that_the_broker_still_lists_after_its_deletion_is_created_again(
    kafka_server, topic, monkeypatch
):
    admin, settings = AdminClient({"bootstrap.servers": kafka_server.url}), NewTopicSettings(partitions=3)
    before = topics.ensure(admin, topic, settings, Heard())
    listings = [admin.list_topics(timeout=30)]
    admin.delete_topics([topic])[topic].result()
    time.sleep(1)
    # A broker may answer so for a moment; here it is made to.
    now = admin.list_topics
    monkeypatch.setattr(admin, "list_topics", lambda **more: listings.pop() if listings else now(**more))
    after = topics.ensure(admin, topic, settings, Heard())
    assert after.topic_id != before.topic_id
    assert after.partitions == 3


def test_values_and_headers(kafka_server, topic):
    sink_of(kafka_server.url, topic).deliver(delivery(None, at(7), [film("a")]))
    (message,) = messages(kafka_server.url, topic)
    assert message.key() == b'{"film_id":"a"}'
    assert b'"amount":12.3,' in message.value()
    assert json.loads(message.value()) == {
        "film_id": "a",
        "day": "2026-01-01",
        "amount": 12.3,
        "seen_at": "2026-01-01T12:00:00.123456Z",
        "flag": True,
        "score": 0.5,
        "count": 1,
        "big": 2**53 + 1,
        "tags": ["a", None],
        "rates": {"x": 1},
        "maker": {"name": "É", "born": "1970-01-01"},
    }
    headers = dict(message.headers())
    assert headers["etl-assets-pipeline"] == b"films"
    assert headers["etl-assets-version"] == b"7"


def test_the_newer_of_two_producers_fences_the_older(kafka_server, topic):
    url = kafka_server.url
    first, second = sink_of(url, topic), sink_of(url, topic)

    def rows():
        yield from delivery(None, at(1), [film("late")]).rows()
        # The older one has sent its rows and not committed.
        second.deliver(delivery(None, at(1), [film("a")]))

    with pytest.raises(SinkFenced):
        first.deliver(dataclasses.replace(delivery(None, at(1)), rows=rows))
    assert state(url, topic) == {"a": 1}
    with pytest.raises(SinkFenced, match="begins at"):
        first.deliver(delivery(None, at(2), [film("late")]))
    assert sink_of(url, topic).position() == at(1)


@pytest.mark.kill
@pytest.mark.parametrize(
    "point", ["sink.during_delivery", "sink.before_target_commit", "sink.after_target_commit"]
)
def test_a_killed_delivery_is_there_once_or_not_at_all(kafka_server, topic, point):
    url = kafka_server.url
    sink_of(url, topic).deliver(delivery(None, at(1), [film("a"), film("b")]))
    body = """
        dead = delivery(at(1), at(2), [film(f"x{n}", 2) for n in range(50)], ["b"])
        sink.deliver(dead)
    """
    killed = script(url, topic, body, ETL_ASSETS_FAILPOINT=point)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    sink = sink_of(url, topic)
    done = point == "sink.after_target_commit"
    assert sink.position() == (at(2) if done else at(1))
    if not done:
        sink.deliver(delivery(at(1), at(2), [film(f"x{n}", 2) for n in range(50)], ["b"]))
    assert state(url, topic) == {"a": 1, **{f"x{n}": 2 for n in range(50)}}


@pytest.mark.kill
def test_a_writer_that_was_paused_with_its_transaction_open_loses(kafka_server, topic):
    url = kafka_server.url
    sink_of(url, topic).deliver(delivery(None, at(1), [film("a")]))
    late = script(
        url,
        topic,
        """
        commit = sink._commit
        def paused(producer):
            producer.flush(30)
            print("paused", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
            commit(producer)
        sink._commit = paused
        try:
            sink.deliver(delivery(at(1), at(2), [film("late")]))
        except Exception as error:
            print(type(error).__name__, flush=True)
        """,
    )
    try:
        assert late.stdout.readline() == "paused\n"
        assert len(messages(url, topic, level="read_uncommitted")) == 2
        sink = sink_of(url, topic)
        assert sink.position() == at(1)
        sink.deliver(delivery(at(1), at(2), [film("a", 2)]))
        late.send_signal(signal.SIGCONT)
        assert late.stdout.readline() == "SinkFenced\n"
        late.communicate(timeout=30)
    finally:
        late.kill()
        late.communicate()
    assert state(url, topic) == {"a": 2}


@pytest.mark.kill
@pytest.mark.slow
def test_a_broker_that_is_killed_in_a_transaction_has_each_row_once(topic):
    with KafkaServer() as server:
        sink = sink_of(server.url, topic)
        sink.deliver(delivery(None, at(1), [film("a")]))
        bounced = []

        def rows():
            for number, batch in enumerate(many(None, at(2), 20_000).rows()):
                yield batch
                if number == 1 and not bounced:
                    bounced.append(1)
                    server.kill()
                    server.start()

        wanted = dataclasses.replace(delivery(at(1), at(2)), rows=rows)
        # As a step does: each attempt begins at the position that the topic has.
        for _ in range(5):
            with suppress(SinkUnavailable, SinkFenced):
                if sink.position() == at(2):
                    break
                sink.deliver(wanted)
            sink = sink_of(server.url, topic)
        assert bounced
        assert sink.position() == at(2)
        assert len(state(server.url, topic)) == 20_001


def test_a_row_that_is_too_large_is_rejected_and_the_rest_is_delivered(kafka_server, topic):
    url = kafka_server.url
    new = NewTopic(topic, num_partitions=1, config={"max.message.bytes": "2000"})
    admin = AdminClient({"bootstrap.servers": url})
    admin.create_topics([new])[topic].result()
    rejected = []
    rows = [film("a"), {**film("big"), "tags": ["x" * 3000]}] + [film(f"n{n}") for n in range(500)]
    done = sink_of(url, topic).deliver(delivery(None, at(1), rows, rejected=rejected))
    assert (done.written, done.rejected) == (501, 1)
    assert [each.keys for each in rejected] == ['{"film_id":"big"}']
    assert rejected[0].reason == "RecordTooLarge"
    assert "big" not in state(url, topic)
    assert len(state(url, topic)) == 501


def test_a_missing_topic_is_refused_unless_it_is_to_be_created(kafka_server, topic):
    sink = KafkaSink({"bootstrap.servers": kafka_server.url}, topic, pipeline="films", name="kafka")
    with pytest.raises(SinkRefused, match=f"there is no topic {topic}"):
        sink.prepare(CONTRACT)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(kafka_server, topic, tell):
    sink = sink_of(kafka_server.url, topic)
    sink.deliver(many(None, at(1), 50_000))
    began, cpu = time.monotonic(), time.process_time()
    with growth() as grown:
        sink.deliver(many(at(1), at(2), 200_000))
    took = time.monotonic() - began
    tell(f"Kafka, 200,000 rows: {grown.mib} MiB more, {took:.1f} s, {time.process_time() - cpu:.1f} CPU-s")
    assert grown.mib < 100
    began = time.monotonic()
    assert sink.position() == at(2)
    tell(f"Kafka, position: {1000 * (time.monotonic() - began):.0f} ms")


class TestKafkaSinkContract(SinkContract):
    """It keeps the contract of sinks."""

    @pytest.fixture
    def opened(self, kafka_server, topic):
        return lambda: KafkaSink(
            {"bootstrap.servers": kafka_server.url},
            topic,
            pipeline="films",
            name="kafka",
            create=NewTopicSettings(),
        )

    @pytest.fixture
    def stored(self, kafka_server, topic):
        def rows():
            last = {each.key(): each.value() for each in messages(kafka_server.url, topic)}
            found = [json.loads(each) for each in last.values() if each is not None]
            return {(each["id"], each["name"]) for each in found}

        return rows
