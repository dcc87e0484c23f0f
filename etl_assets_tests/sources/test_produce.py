"""The producer: what it sends once, what it sends again under the same ids, and what it refuses."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

import etl_assets
from etl_assets.errors import InputError, SinkFenced, SinkRefused
from etl_assets.failpoints import Failpoint
from etl_assets.sinks.kafka.produced_ids import event_id_of, traceparent_of
from etl_assets.sinks.kafka.produced_lines import LineFields, check_file, checked, file_lines
from etl_assets_tests.commands.home import BIN
from etl_assets_tests.sources.topics import Topic


def declared(kafka_server, folder: Path, *, partitions: int = 1, **source: Any) -> Topic:
    topic = Topic.create(kafka_server.url, folder, partitions=partitions, **source)
    connection = {"type": "kafka", "bootstrap_servers": [kafka_server.url], "write": [topic.name]}
    topic.home.begin(start_date="2026-01-01", connections={"events": connection})
    return topic


def records_of(topic: Topic, *, isolation: str = "read_committed") -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": topic.brokers,
            "group.id": "test",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    found: list[Any] = []
    try:
        described = consumer.list_topics(topic.name, timeout=10).topics[topic.name]
        ends = dict.fromkeys(described.partitions, False)
        consumer.assign([TopicPartition(topic.name, each, OFFSET_BEGINNING) for each in ends])
        until = time.monotonic() + 20
        while not all(ends.values()):
            assert time.monotonic() < until
            record = consumer.poll(0.5)
            if record is not None and record.error() is None:
                found.append(record)
            elif record is not None:
                ends[record.partition()] = True
    finally:
        consumer.close()
    return found


def fed(topic: Topic, text: bytes) -> subprocess.CompletedProcess[bytes]:
    call = [BIN / "etl-assets", "produce", "people", "-", "--input-id", "day-1", "--key-field", "age"]
    environment = {**os.environ, "ETL_ASSETS_HOME": str(topic.home.path)}
    return subprocess.run(call, input=text, capture_output=True, env=environment, timeout=60, check=False)


def write(folder: Path, lines: list[str]) -> Path:
    path = folder / "people.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_records_have_ids_and_a_trace_and_the_rest_of_a_line_stays_as_it_is(kafka_server, tmp_path):
    topic = declared(kafka_server, tmp_path)
    lines = ['{"age": 1.10}', "", "{}", '{"id": "mine", "age": 12345678901234567890.5}']
    path = write(tmp_path, lines)
    sent = topic.home.start("produce", "people", str(path), "--json").ended(60)
    assert sent.code == 0, sent
    figures = json.loads(sent.out)
    input_id = figures["input_id"]
    assert (figures["records"], figures["transactions"]) == (3, 1)
    found = records_of(topic)
    ids = [event_id_of(input_id, 0), event_id_of(input_id, 1), "mine"]
    assert [each.value().decode() for each in found] == [
        f'{{"id":"{ids[0]}","age": 1.10}}',
        f'{{"id":"{ids[1]}"}}',
        lines[3],
    ]
    for each, event_id in zip(found, ids, strict=True):
        assert dict(each.headers()) == {
            "event_id": event_id.encode(),
            "traceparent": traceparent_of(input_id, event_id).encode(),
        }
    again = topic.home.start("produce", "people", str(path)).ended(60)
    assert again.code == 0, again
    topic.ingest()
    assert [row["record_id"] for row in topic.accepted()] == ids
    assert Counter(row["outcome"] for row in topic.rejected()) == {"duplicate": 3}


@pytest.mark.kill
def test_a_producer_that_is_killed_and_repeated_sends_each_event_once(kafka_server, tmp_path):
    topic = declared(kafka_server, tmp_path, partitions=3)
    path = write(tmp_path, [json.dumps({"age": number}) for number in range(2_000)])
    call = ("produce", "people", str(path), "--records-per-transaction", "40")
    for where in (Failpoint.SINK_BEFORE_TARGET_COMMIT, Failpoint.SINK_AFTER_TARGET_COMMIT):
        died = topic.home.start(*call, failpoint=f"{where}@{topic.name}").ended(60)
        assert died.code == -signal.SIGKILL, died
    dice = random.Random(7)
    for _ in range(3):
        running = topic.home.start(*call)
        running.wait(0.6 + dice.random() * 0.8)
        running.send(signal.SIGKILL)
        running.ended(10)
    done = topic.home.start(*call).ended(60)
    assert done.code == 0, done
    topic.ingest()
    accepted = topic.accepted()
    assert sorted(json.loads(row["record"])["age"] for row in accepted) == list(range(2_000))
    outcomes = Counter(row["outcome"] for row in topic.rejected())
    assert set(outcomes) == {"duplicate"}, outcomes


def test_standard_input_is_sent_under_the_id_that_is_given(kafka_server, tmp_path):
    topic = declared(kafka_server, tmp_path, include=["headers.event_id"], id=["kafka.headers.event_id"])
    text = b'{"age": 1}\n{"age": 1}\nno JSON\n'
    first = fed(topic, text)
    assert first.returncode == 1
    assert b"line 3 is no JSON" in first.stderr
    assert records_of(topic) == [], "the transaction is aborted"
    second = fed(topic, b'{"age": 1}\n{"age": 1}\n{"age": 3}')
    assert second.returncode == 0, second.stderr
    topic.ingest()
    assert [json.loads(row["record"])["age"] for row in topic.accepted()] == [1, 1, 3]
    assert [each.key() for each in records_of(topic)] == [b"1", b"1", b"3"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"id": ', "line 4 is no JSON"),
        (b"[1]", "line 4 is no JSON object"),
        (b'{"id": null}', "line 4 has no single value in id"),
        (b'{"id": [1]}', "line 4 has no single value in id"),
        (b"\xff", "line 4 is no JSON"),
    ],
)
def test_a_line_that_cannot_be_sent_is_named(line, says):
    with pytest.raises(InputError, match=says):
        checked(line, 4, LineFields(id_field="id"))


def test_a_record_without_its_key_is_refused():
    with pytest.raises(InputError, match="customer"):
        checked(b'{"id": "a"}', 1, LineFields(key_field="customer"))


def test_a_file_that_changes_while_it_is_sent_is_refused(tmp_path):
    path = write(tmp_path, ['{"a": 1}', '{"a": 2}'])
    digest, size, lines = check_file(path, LineFields())
    assert lines == 2
    with path.open("a") as file:
        file.write('{"a": 3}\n')
    assert len(list(file_lines(path, LineFields(), digest=digest, size=size))) == 2, (
        "what was checked is sent"
    )
    path.write_text('{"a": 1}\n{"a": 4}\n')
    with pytest.raises(InputError, match="changed while"):
        list(file_lines(path, LineFields(), digest=digest, size=size))


def test_nothing_of_a_file_with_a_bad_line_is_sent(kafka_server, tmp_path):
    topic = declared(kafka_server, tmp_path)
    path = write(tmp_path, ['{"age": 1}', "no"])
    refused = topic.home.start("produce", "people", str(path), "--records-per-transaction", "1").ended(60)
    assert refused.code == 1
    assert "line 2 is no JSON" in refused.err
    assert records_of(topic, isolation="read_uncommitted") == []


def test_a_pipeline_whose_records_would_count_twice_is_refused(kafka_server, tmp_path):
    topic = declared(kafka_server, tmp_path, id=[])
    path = write(tmp_path, ["{}"])
    refused = topic.home.start("produce", "people", str(path)).ended(60)
    assert refused.code == 1
    assert "kafka.headers.event_id" in refused.err
    unknown = topic.home.start("produce", "peeple", str(path)).ended(60)
    assert "did you mean 'people'" in unknown.err


def test_the_library_sends_in_transactions_and_takes_nothing_back_that_is_committed(
    kafka_server, tmp_path, monkeypatch
):
    topic = declared(kafka_server, tmp_path)
    home = topic.home.path
    with etl_assets.produce("events", topic.name, input_id="a", home=home) as producer:
        producer.send({"id": "a", "age": 1}, key="k", event_id="a", headers={"more": "x"})
    with pytest.raises(ZeroDivisionError):
        _send_and_fail(topic)
    assert [json.loads(each.value())["id"] for each in records_of(topic)] == ["a", "b"]
    with pytest.raises(InputError, match="traceparent"):
        etl_assets.produce("events", topic.name, input_id="c", home=home).send({}, traceparent="x")


def _send_and_fail(topic: Topic) -> None:
    with etl_assets.produce("events", topic.name, input_id="b", home=topic.home.path) as producer:
        producer.send({"id": "b"})
        producer.commit()
        producer.send({"id": "c"})
        raise ZeroDivisionError


def test_a_second_producer_of_the_same_input_ends_the_first_ones_transaction(kafka_server, tmp_path):
    topic = declared(kafka_server, tmp_path)
    first = etl_assets.produce("events", topic.name, input_id="a", home=topic.home.path)
    first.send({"id": "a"})
    with etl_assets.produce("events", topic.name, input_id="a", home=topic.home.path) as second:
        second.send({"id": "a"})
    with pytest.raises(SinkFenced):
        first.commit()
    assert len(records_of(topic)) == 1


def test_a_topic_that_the_connection_does_not_allow_is_refused(kafka_server, tmp_path):
    topic = Topic.create(kafka_server.url, tmp_path)
    with pytest.raises(SinkRefused) as caught:
        etl_assets.produce("events", topic.name, input_id="a", home=topic.home.path)
    assert "connections.events.write" in caught.value.fix


def test_a_missing_topic_and_a_record_too_large_for_it_are_refused(kafka_server, tmp_path):
    topic = declared(kafka_server, tmp_path)
    with (
        pytest.raises(SinkRefused, match="MSG_SIZE_TOO_LARGE"),
        etl_assets.produce("events", topic.name, input_id="a", home=topic.home.path) as producer,
    ):
        producer.send(b"x" * 2_000_000)
    topic.delete_topic()
    with (
        pytest.raises(SinkRefused, match="UNKNOWN_TOPIC"),
        etl_assets.produce("events", topic.name, input_id="a", home=topic.home.path) as producer,
    ):
        producer.send({"id": "a"})
