"""Tables that apply Debezium's events from Kafka and from files: they equal the table of the database,
whatever is sent twice, arrives late, or dies in between.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from etl_assets.failpoints import Failpoint
from etl_assets.steps.step import StepReport
from etl_assets_tests.commands.home import Home
from etl_assets_tests.reference.schema_registry import RegistryServer
from etl_assets_tests.sources.debezium_log import (
    AVRO,
    AVRO_KEY,
    COLUMNS,
    TYPES,
    Event,
    Log,
    avro,
    document,
    plain,
    wrapped,
)
from etl_assets_tests.sources.topics import SOURCE, Topic

TABLE = "people"
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "debezium"


def follow(topic: Topic, *, columns: Any = None, **source: Any) -> None:
    """Declare the pipeline with a topic of events."""
    reading = {"type": "kafka", "connection": "events", "topic": topic.name, **source.pop("reading", {})}
    spec = {
        "name": TABLE,
        "source": {"type": "debezium", "from": reading, **source},
        "columns": columns or COLUMNS,
        "table": {"keys": ["id"]},
    }
    (topic.home.path / "pipelines" / "people.yaml").write_text(json.dumps(spec), "utf-8")


def send(topic: Topic, events: list[Event], partition: int = 0) -> None:
    producer = topic.producer()
    for key, value in events:
        producer.produce(topic.name, value, key=key, partition=partition)
        producer.poll(0)
    assert producer.flush(30) == 0


def stored(topic: Topic) -> dict[int, Any]:
    rows = topic.home.rows(TABLE)
    found = {row["id"]: tuple(row[name] for name in ("name", "note", "price", "at")) for row in rows}
    assert len(found) == len(rows)
    return found


def totals(report: StepReport, *names: str) -> dict[str, int]:
    total = report.total()
    return {name: total[name] for name in names if total[name]}


FORMS = [
    ("postgresql", "plain"),
    ("mysql", "wrapped"),
    ("sqlserver", "avro"),
    ("oracle", "plain"),
    ("mongodb", "document"),
]


@contextmanager
def followed(connector: str, form: str, brokers: str, folder: Path) -> Generator[tuple[Topic, Log]]:
    """A topic that a pipeline follows, and the log of a connector that writes one form of events."""
    topic = Topic.create(brokers, folder, partitions=2)
    with RegistryServer() as registry:
        if form == "avro":
            connection = {
                "type": "kafka",
                "bootstrap_servers": [brokers],
                "schema_registry": {"url": registry.url},
            }
            topic.home.begin(start_date="2026-01-01", connections={"events": connection})
            log = Log(connector, avro(registry.register("value", AVRO), AVRO))
            log.write_key = avro(registry.register("key", AVRO_KEY), AVRO_KEY)
            follow(topic, reading={"format": "avro"})
        else:
            log = Log(connector, {"plain": plain, "wrapped": wrapped, "document": document}[form])
            columns = {**COLUMNS, "id": {"type": "bigint", "from": "_id"}} if form == "document" else None
            follow(topic, columns=columns, **({"types": TYPES} if form == "plain" else {}))
        log.snapshot(6)
        log.work(20)
        if connector == "mysql":
            log.truncate()
        log.work(20)
        yield topic, log


def deliveries(log: Log, form: str) -> Generator[list[Event]]:
    """The events of a log in any order, some of them twice, with others between them."""
    events, dice = [*log.events, *([] if form == "avro" else log.others())], random.Random(log.connector)
    dice.shuffle(events)
    half = len(events) // 2
    yield events[:half]
    again = [*events[half:], *dice.sample(events, 12)]
    dice.shuffle(again)
    yield again


def rejected(topic: Topic) -> list[Any]:
    return [row["reason"] for row in topic.rejected() if row["outcome"] != "duplicate"]


@pytest.mark.parametrize(("connector", "form"), FORMS)
def test_records_are_those_of_the_source_after_repeated_and_reordered_deliveries(
    connector, form, kafka_server, tmp_path
):
    with followed(connector, form, kafka_server.url, tmp_path) as (topic, log):
        for partition, events in enumerate(deliveries(log, form)):
            send(topic, events, partition)
            topic.ingest()
        assert rejected(topic) == []
    records = [json.loads(row["record"]) for row in topic.accepted()]
    assert held(records, "_id" if form == "document" else "id") == log.rows
    ids = [each["debezium.id"] for each in records]
    changes = sum(value is not None for _, value in log.events)
    assert len(ids) == len(set(ids)) == changes


def held(records: list[dict[str, Any]], key: str) -> dict[int, Any]:
    """What records say, applied in the order of their places."""
    rows: dict[int, Any] = {}
    for each in sorted(records, key=lambda record: record["debezium.position"]):
        match each["debezium.change"]:
            case "truncate":
                rows.clear()
            case "delete":
                rows.pop(each[key], None)
            case _:
                note = each["note"] if "debezium.unavailable" not in each else rows[each[key]][1]
                at = dt.datetime.fromisoformat(each["at"])
                rows[each[key]] = (each["name"], note, Decimal(each["price"]), at)
    return rows


@pytest.mark.spark
@pytest.mark.parametrize(
    ("connector", "form"),
    [pytest.param(*each, marks=pytest.mark.full) for each in FORMS],
)
def test_a_table_equals_the_source_after_repeated_and_reordered_deliveries(
    connector, form, kafka_server, tmp_path, spark
):
    with followed(connector, form, kafka_server.url, tmp_path) as (topic, log):
        for partition, events in enumerate(deliveries(log, form)):
            send(topic, events, partition)
            topic.ingest()
            topic.load(spark)
        assert stored(topic) == log.rows
        assert rejected(topic) == []
        assert topic.load(spark).commits == 0


@pytest.mark.kill
@pytest.mark.parametrize(
    "failpoint",
    [
        f"{Failpoint.TABLE_AFTER_COMMIT}@{SOURCE}",
        pytest.param(f"{Failpoint.STAGE_AFTER_WRITE}@{SOURCE}", marks=pytest.mark.full),
        pytest.param(f"{Failpoint.TABLE_BEFORE_COMMIT}@{SOURCE}", marks=pytest.mark.full),
    ],
)
def test_a_killed_process_takes_each_change_once(failpoint, kafka_server, tmp_path):
    topic = Topic.create(kafka_server.url, tmp_path)
    follow(topic, types=TYPES, reading={"max_batch_records": 5})
    log = Log("mysql", plain)
    log.work(12)
    send(topic, [*log.events, (None, b'{"op": "c"}')])
    topic.ingest_and_die(failpoint)
    send(topic, log.events[:4])
    topic.ingest()
    accepted = [row["record_id"] for row in topic.accepted()]
    changes = sum(value is not None for _, value in log.events)
    assert len(accepted) == len(set(accepted)) == changes
    assert rejected(topic) == ["MalformedEvent"]


def test_what_is_no_change_is_counted_and_what_cannot_be_used_is_a_dead_letter(kafka_server, tmp_path):
    topic = Topic.create(kafka_server.url, tmp_path)
    follow(topic, types=TYPES)
    log = Log("mysql", plain)
    log.snapshot(2)
    log._remove(1)
    send(topic, [*log.events, *log.others(), (None, b"{"), (None, b'{"op": "c", "source": {}}')])
    report = topic.ingest()
    assert totals(report, "read", "accepted", "rejected", "skipped") == {
        "read": 9, "accepted": 3, "rejected": 2, "skipped": 4,
    }  # fmt: skip
    assert sorted(rejected(topic)) == ["MalformedEvent", "MalformedJson"]
    assert {row["source"] for row in topic.accepted()} == {"debezium"}
    assert topic.ingest().commits == 0


@pytest.mark.spark
@pytest.mark.full
def test_events_of_files_are_the_same_whatever_the_order_of_the_files(tmp_path, spark):
    topic = Topic("", "", Home(path=tmp_path / "home").begin(start_date="2026-01-01"))
    landing = topic.home.path / "landing"
    landing.mkdir()
    spec = {
        "name": TABLE,
        "source": {
            "type": "debezium",
            "from": {"type": "files", "path": "landing/*.jsonl", "settle_seconds": 0},
            "types": TYPES,
        },
        "columns": COLUMNS,
        "table": {"keys": ["id"]},
    }
    (topic.home.path / "pipelines").mkdir()
    (topic.home.path / "pipelines" / "people.yaml").write_text(json.dumps(spec), "utf-8")
    log = Log("postgresql", plain, seed=3)
    log.snapshot(5)
    log.work(30)
    lines = [value for _, value in log.events if value is not None]
    for name, some in (("b", lines[20:]), ("a", lines[:20])):
        (landing / f"{name}.jsonl").write_bytes(b"\n".join(some) + b"\n")
        topic.ingest()
        topic.load(spark)
    assert stored(topic) == log.rows
    assert rejected(topic) == []


@pytest.mark.spark
@pytest.mark.full
def test_the_example_of_the_guide_has_the_rows_that_its_events_leave(tmp_path, spark):
    topic = Topic("", "", Home(path=tmp_path / "home").begin(start_date="2026-01-01"))
    shutil.copytree(EXAMPLE, topic.home.path, dirs_exist_ok=True)
    (topic.home.path / "pipelines" / "customers.yaml").rename(topic.home.path / "pipelines" / "people.yaml")
    declared = topic.home.path / "pipelines" / "people.yaml"
    declared.write_text(declared.read_text("utf-8").replace("name: customers", "name: people"), "utf-8")
    time.sleep(2.1)  # files are read once they have settled
    report = topic.ingest()
    assert totals(report, "accepted", "skipped", "duplicate") == {"accepted": 6, "skipped": 1, "duplicate": 1}
    topic.load(spark)
    rows = {row["id"]: (row["name"], row["notes"], row["balance"]) for row in topic.home.rows(TABLE)}
    assert rows == {
        1: ("Anne Marie", "prefers letters", Decimal("13.00")),
        3: ("Cem", "paid", Decimal("0.00")),
    }
