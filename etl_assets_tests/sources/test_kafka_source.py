"""Kafka topics, read from a real broker: every record of a committed transaction has one outcome."""

from __future__ import annotations

import base64
import datetime as dt
import json
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from etl_assets.delta.log.checkpoint import checkpoint_in_place
from etl_assets.delta.log.log_truncation import find_old_log, remove_old_log
from etl_assets.errors import SourceLost, SourceRefused, SourceUnavailable
from etl_assets.failpoints import Failpoint
from etl_assets.sources.kafka import clients
from etl_assets.sources.kafka.source import KafkaTopic
from etl_assets.stack.kafka import KafkaServer
from etl_assets_tests.sources.topics import REJECTS, SOURCE, Topic, today


def millis(day: dt.date) -> int:
    return int(dt.datetime(day.year, day.month, day.day, 12, tzinfo=dt.UTC).timestamp() * 1_000)


@pytest.mark.spark
def test_records_of_several_partitions_and_days_are_stored_once_in_order_without_aborted_ones(
    kafka_server, tmp_path, spark
):
    topic = Topic.create(kafka_server.url, tmp_path, partitions=3, max_batch_records=7_000)
    producer = topic.producer(**{"transactional.id": topic.name})
    producer.init_transactions()
    first, expected = dt.date(2026, 2, 1), list[str]()
    for number in range(60):
        producer.begin_transaction()
        for each in range(300):
            name, is_lost = f"{number}-{each}", number % 3 == 1
            value = json.dumps({"id": name, "age": each}).encode()
            day = first + dt.timedelta(days=number // 20)
            producer.produce(topic.name, value, partition=each % 3, timestamp=millis(day))
            if not is_lost:
                expected.append(name)
        producer.flush()
        if number % 3 == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    report = topic.ingest(session=spark)
    accepted = topic.accepted()
    assert report.commits > 1, "the batches are bounded"
    assert Counter(row["record_id"] for row in accepted) == Counter(expected)
    assert [row["offset"] for row in accepted] == list(range(len(expected)))
    assert {str(row["partition_date"]) for row in accepted} == {f"2026-02-0{day}" for day in (1, 2, 3)}
    for partition in range(3):
        place = f"{topic.name}/{partition}:"
        of = [row for row in accepted if row["source_position"].startswith(place)]
        offsets = [int(row["source_position"].removeprefix(place)) for row in of]
        assert offsets == sorted(set(offsets))
        wanted = [name for name in expected if int(name.partition("-")[2]) % 3 == partition]
        assert [row["record_id"] for row in of] == wanted
    assert any("other days" in note for note in report.notes)
    assert topic.ingest().commits == 0, "nothing is read twice"


def test_a_day_is_one_data_file_whatever_the_number_of_partitions(kafka_server, tmp_path):
    """A plan that an earlier version left has the order that its rejects were found in."""
    topic = Topic.create(kafka_server.url, tmp_path, partitions=2)
    days = [dt.date(2026, 2, 1), dt.date(2026, 2, 2)]
    for partition in range(2):
        for day in days:
            records = [{"id": f"{partition}-{day}-{number}"} for number in range(3)]
            topic.send(records, partition=partition, timestamp=millis(day))
    source = KafkaTopic(
        options={"bootstrap.servers": kafka_server.url},
        topic=topic.name,
        start="earliest",
        on_lost="fail",
        table="people",
    )
    with closing(source):
        wanted = source.plan({}, max_bytes=1 << 20, max_records=100)
        assert wanted is not None
        earlier = {name: value for name, value in wanted.details.items() if name != "by_day"}
        orders = []
        for number, planned in enumerate((wanted, replace(wanted, details=earlier))):
            folder = tmp_path / f"range-{number}"
            folder.mkdir()
            files = source.read(planned, folder).files
            orders.append([(int(each.name[0]), days.index(each.day)) for each in files])
    assert orders[0] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert orders[1] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    topic.ingest()
    snapshot = topic.table.snapshot()
    assert snapshot is not None
    assert len(list(snapshot.files())) == len(days)
    assert [row["offset"] for row in topic.accepted()] == list(range(12))


def test_every_kind_of_bad_record_is_a_dead_letter_with_its_bytes_and_place(kafka_server, tmp_path):
    topic = Topic.create(kafka_server.url, tmp_path, max_record_bytes=2_000)
    bad = [None, b"", b"  \n", b"\xff\xfe\x00", b'{"id": "x"', b"[1]", b'{"age": 1}', b'"' + b"a" * 9_000]
    topic.send([{"id": "a"}, *bad, b'{"id":\n "b",\r\n "age": 2}\n', {"id": "a"}, {"id": "a", "age": 3}])
    topic.ingest()
    assert [row["record"] for row in topic.accepted()] == ['{"id":"a"}', '{"age":2,"id":"b"}']
    places = {int(row["source_position"].rpartition(":")[2]): row for row in topic.rejected()}
    assert {place: row["reason"] for place, row in places.items() if row["outcome"] == "rejected"} == {
        1: "NotAnObject",
        2: "MalformedJson",
        3: "MalformedJson",
        4: "InvalidUtf8",
        5: "MalformedJson",
        6: "NotAnObject",
        7: "MissingField",
        8: "RecordTooLarge",
    }
    assert (places[10]["outcome"], places[11]["outcome"]) == ("duplicate", "conflict")
    assert base64.b64decode(places[4]["record"]) == bad[3]
    assert places[5]["record"] == '{"id": "x"'
    assert places[8]["record"] == '"' + "a" * 4_095


def test_keys_headers_and_tombstones_become_fields_that_do_not_make_duplicates_differ(kafka_server, tmp_path):
    topic = Topic.create(
        kafka_server.url,
        tmp_path,
        include=["key", "offset", "partition", "timestamp", "headers.trace"],
        tombstones="keep",
        id=["kafka.key"],
    )
    more: dict[str, Any] = {
        "key": b"k1",
        "headers": {"trace": "00-1"},
        "timestamp": millis(dt.date(2026, 2, 1)),
    }
    topic.send([{"age": 1}, {"age": 1}, {"kafka.key": "mine"}], **more)
    topic.send([None], key=b"\xff", timestamp=millis(dt.date(2026, 2, 1)))
    topic.ingest()
    found = [json.loads(row["record"]) for row in topic.accepted()]
    assert found == [
        {
            "age": 1,
            "kafka.key": "k1",
            "kafka.offset": 0,
            "kafka.partition": 0,
            "kafka.timestamp": more["timestamp"],
            "kafka.headers.trace": "00-1",
        },
        {
            "kafka.key": "/w==",
            "kafka.offset": 3,
            "kafka.partition": 0,
            "kafka.timestamp": more["timestamp"],
            "kafka.headers.trace": None,
            "kafka.tombstone": True,
        },
    ]
    assert [(row["outcome"], row["reason"]) for row in topic.rejected()] == [
        ("duplicate", None),
        ("rejected", "DuplicateKey"),
    ]


def test_records_without_an_id_are_known_by_their_offset_in_the_topic_of_that_id(kafka_server, tmp_path):
    topic = Topic.create(kafka_server.url, tmp_path, id=[], on_lost="earliest")
    topic.send([{"age": 1}, {"age": 1}])
    topic.ingest()
    topic.delete_topic()
    time.sleep(1)
    topic.create_topic()
    topic.send([{"age": 1}])
    report = topic.ingest()
    assert [row["source_position"] for row in topic.accepted()] == [f"{topic.name}/0:{n}" for n in (0, 1, 0)]
    assert any("deleted and created again" in note for note in report.notes)


def test_a_topic_that_was_created_again_is_reported_and_not_read_silently(kafka_server, tmp_path):
    topic = Topic.create(kafka_server.url, tmp_path)
    topic.send([{"id": "a"}])
    topic.ingest()
    topic.delete_topic()
    time.sleep(1)
    topic.create_topic()
    topic.send([{"id": "b"}, {"id": "c"}])
    with pytest.raises(SourceLost, match="deleted and created again"):
        topic.ingest()
    assert [row["record_id"] for row in topic.accepted()] == ["a"]


def test_what_retention_removed_before_it_was_read_is_named_and_skipped_only_when_told(
    kafka_server, tmp_path
):
    topic = Topic.create(kafka_server.url, tmp_path)
    topic.send([{"id": str(n)} for n in range(5)])
    topic.ingest()
    topic.send([{"id": str(n)} for n in range(5, 10)])
    topic.delete_before(0, 8)
    with pytest.raises(SourceLost, match="offsets 5 to 7") as raised:
        topic.ingest()
    assert "on_lost: earliest" in raised.value.fix
    topic.declare(on_lost="earliest")
    report = topic.ingest()
    assert [row["record_id"] for row in topic.accepted()] == ["0", "1", "2", "3", "4", "8", "9"]
    assert any("offsets 5 to 7" in note for note in report.notes)


def test_a_topic_that_lost_its_end_or_partitions_is_reported_and_read_on_only_when_told(
    kafka_server, tmp_path
):
    """As after brokers that lost what was acknowledged: the topic has the same id, and ends earlier."""
    topic = Topic.create(kafka_server.url, tmp_path)
    topic.send([{"id": "a"}, {"id": "b"}])

    def plan(positions: dict[str, Any], on_lost: str = "fail") -> Any:
        options = {"bootstrap.servers": kafka_server.url}
        source = KafkaTopic(
            options=options, topic=topic.name, start="earliest", on_lost=on_lost, table="people"
        )
        with closing(source):
            return source.plan(positions, max_bytes=1 << 20, max_records=100)

    read = dict(plan({}).end)
    beyond, without = {**read, f"{topic.name}/0": 99}, {**read, f"{topic.name}/1": 5}
    with pytest.raises(SourceLost, match="ends at 2, before the position 99"):
        plan(beyond)
    with pytest.raises(SourceLost, match=f"not there any more: {topic.name}/1"):
        plan(without)
    again = plan(beyond, "earliest")
    assert (again.begin, again.notes[0][:5]) == ({f"{topic.name}/0": 0}, "lost,")
    assert plan(without, "earliest").end[f"{topic.name}/1"] is None


def test_a_new_partition_is_read_from_its_beginning_also_by_a_source_that_began_at_the_end(
    kafka_server, tmp_path
):
    topic = Topic.create(kafka_server.url, tmp_path, start="latest")
    topic.send([{"id": "old"}])
    topic.ingest()
    topic.send([{"id": "new"}])
    topic.add_partitions(2)
    topic.send([{"id": "added"}], partition=1)
    report = topic.ingest()
    assert [row["record_id"] for row in topic.accepted()] == ["new", "added"]
    assert any("is new" in note for note in report.notes)


def test_a_source_that_begins_at_a_time_reads_no_earlier_record(kafka_server, tmp_path):
    topic = Topic.create(kafka_server.url, tmp_path, start="2026-02-02T00:00:00Z")
    topic.send([{"id": "a"}], timestamp=millis(dt.date(2026, 2, 1)))
    topic.send([{"id": "b"}], timestamp=millis(dt.date(2026, 2, 2)))
    topic.ingest()
    assert [row["record_id"] for row in topic.accepted()] == ["b"]


def test_a_missing_topic_is_refused_and_names_the_fix(kafka_server, tmp_path):
    topic = Topic.create(kafka_server.url, tmp_path)
    topic.name = "another"
    topic.declare()
    with pytest.raises(SourceRefused, match="another") as raised:
        topic.ingest()
    assert "create the topic" in raised.value.fix


@pytest.mark.kill
@pytest.mark.parametrize(
    "failpoint",
    [
        f"{Failpoint.STAGE_AFTER_WRITE}@{SOURCE}",
        f"{Failpoint.TABLE_DURING_COMMIT}@{REJECTS}",
        f"{Failpoint.EXCEPTIONS_AFTER_COMMIT}@{SOURCE}",
        f"{Failpoint.TABLE_BEFORE_COMMIT}@{SOURCE}",
        f"{Failpoint.TABLE_AFTER_COMMIT}@{SOURCE}",
    ],
)
def test_after_a_kill_the_range_is_read_again_and_every_record_has_one_outcome(
    kafka_server, tmp_path, failpoint
):
    topic = Topic.create(kafka_server.url, tmp_path)
    topic.send([{"id": "a"}, {"no": 1}])
    topic.ingest()
    topic.send([{"id": "b"}, {"id": "a"}, {"no": 2}])
    topic.ingest_and_die(failpoint)
    topic.send([{"id": "b"}, {"id": "c"}])
    topic.ingest()
    assert [(row["offset"], row["record_id"]) for row in topic.accepted()] == [(0, "a"), (1, "b"), (2, "c")]
    place = f"{topic.name}/0:"
    assert [(row["source_position"], row["outcome"]) for row in topic.rejected()] == [
        (f"{place}1", "rejected"),
        (f"{place}3", "duplicate"),
        (f"{place}4", "rejected"),
        (f"{place}5", "duplicate"),
    ]
    assert topic.positions[f"{topic.name}/0"] == 7


@pytest.mark.kill
def test_a_plan_whose_records_retention_removed_is_taken_back(kafka_server, tmp_path):
    topic = Topic.create(kafka_server.url, tmp_path, on_lost="earliest")
    topic.send([{"id": "a"}])
    topic.ingest()
    topic.send([{"no": 1}, {"id": "b"}])
    topic.ingest_and_die(f"{Failpoint.EXCEPTIONS_AFTER_COMMIT}@{SOURCE}")
    topic.delete_before(0, 2)
    topic.ingest()
    assert [row["record_id"] for row in topic.accepted()] == ["a", "b"]
    assert topic.rejected() == []


def test_a_broker_that_is_gone_is_unavailable_and_back_it_is_read_to_the_end(tmp_path, monkeypatch):
    from etl_assets.sources.kafka import source

    monkeypatch.setattr(source, "ANSWER_SECONDS", 3.0)
    with KafkaServer() as server:
        topic = Topic.create(server.url, tmp_path, partitions=2)
        topic.send([{"id": f"a{n}"} for n in range(500)])
        topic.ingest()
        topic.send([{"id": f"b{n}"} for n in range(500)], partition=1)
        server.kill()
        with pytest.raises(SourceUnavailable):
            topic.ingest()
        server.start()
        topic.ingest()
    assert len(topic.accepted()) == 1_000
    assert today() in {row["partition_date"] for row in topic.accepted()}


def test_positions_last_when_the_log_is_truncated_and_its_first_entries_are_gone(kafka_server, tmp_path):
    topic = Topic.create(kafka_server.url, tmp_path)
    for number in range(4):
        topic.send([{"id": str(number)}])
        topic.ingest()
    table, before = topic.table, topic.positions
    checkpoint_in_place(table.path, table.version())
    old = find_old_log(table.path, 1)
    remove_old_log(table.path, old, table=table.name)
    assert old.names
    assert topic.positions == before
    topic.send([{"id": "more"}])
    topic.ingest()
    assert [row["record_id"] for row in topic.accepted()] == ["0", "1", "2", "3", "more"]
    assert topic.positions[f"{topic.name}/0"] == 5


def test_another_domain_goes_on_at_the_position_when_the_one_that_ingests_is_lost(kafka_server, tmp_path):
    topic = Topic.create(kafka_server.url, tmp_path, domains=["a", "b", "c"])
    topic.send([{"id": "a"}, {"id": "b"}])
    topic.ingest()
    (lost,) = {row["ingest_domain"] for row in rows_in(topic, "a")}
    topic.send([{"id": "c"}])
    (topic.home.path / lost).rename(topic.home.path / "gone")
    topic.ingest()
    left = next(name for name in "abc" if name != lost)
    found = rows_in(topic, left)
    assert [(row["offset"], row["record_id"]) for row in found] == [(0, "a"), (1, "b"), (2, "c")]
    assert found[-1]["ingest_domain"] != lost


def rows_in(topic: Topic, domain: str) -> list[dict[str, Any]]:
    return sorted(topic.home.rows(SOURCE, root=domain), key=lambda row: row["offset"])


def test_reading_goes_on_as_soon_as_the_clients_queue_has_room(kafka_server, tmp_path, monkeypatch):
    """Waiting a second each time that the queue is full takes twelve seconds, and reading takes two."""
    little = {"queued.max.messages.kbytes": 64, "fetch.message.max.bytes": 16 << 10}
    monkeypatch.setattr(clients, "_OPTIONS", {**clients._OPTIONS, **little})
    topic = Topic.create(kafka_server.url, tmp_path)
    topic.send({"id": f"r{number}", "more": "x" * 1_000} for number in range(12_000))
    options = {"bootstrap.servers": kafka_server.url}
    source = KafkaTopic(options=options, topic=topic.name, start="earliest", on_lost="fail", table=SOURCE)
    with closing(source):
        wanted = source.plan({}, max_bytes=1 << 30, max_records=12_000)
        assert wanted is not None
        (tmp_path / "range").mkdir()
        before = time.monotonic()
        found = source.read(wanted, tmp_path / "range")
    assert found.read.end[f"{topic.name}/0"] == 12_000
    assert time.monotonic() - before < 8
