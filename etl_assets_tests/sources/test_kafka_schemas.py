"""Values with a schema of a registry: what they become, and what is a dead letter with its bytes."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import socket
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from etl_assets.contracts.envelope import BadRecord
from etl_assets.errors import SourceRefused, SourceUnavailable
from etl_assets.failpoints import Failpoint
from etl_assets.sources.kafka import registry
from etl_assets.sources.kafka.registry import RegistryClient
from etl_assets.sources.kafka.registry_values import RegistryValues
from etl_assets_tests.reference.schema_registry import RegistryServer
from etl_assets_tests.sources.topics import SOURCE, Topic

PAYMENT = {
    "type": "record",
    "name": "Payment",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {
            "name": "amount",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2},
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "seen", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "raw", "type": "bytes"},
        {"name": "rate", "type": "double"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["CARD", "CASH"]}},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {
            "name": "customer",
            "type": {
                "type": "record",
                "name": "Customer",
                "fields": [{"name": "name", "type": "string"}, {"name": "of", "type": ["null", "Customer"]}],
            },
        },
    ],
}
VALUE: dict[str, Any] = {
    "id": "p1",
    "amount": Decimal("12345678901234.50"),
    "at": dt.datetime(2026, 2, 1, 12, 30, tzinfo=dt.UTC),
    "seen": None,
    "day": dt.date(2026, 2, 1),
    "key": uuid.UUID(int=7),
    "raw": b"\x00\xff",
    "rate": 1e-9,
    "kind": "CASH",
    "tags": {"a": 1},
    "customer": {"name": "Ann", "of": {"name": "Bo", "of": None}},
}
PERSON = {
    "type": "record",
    "name": "Person",
    "fields": [{"name": "id", "type": "string"}, {"name": "age", "type": ["null", "int"], "default": None}],
}


def framed(schema_id: int, content: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + content


def avro(schema_id: int, schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema, {}), value)
    return framed(schema_id, stream.getvalue())


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as found:
        yield found


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_PAUSE_SECONDS", 0.0)


def values_of(server: RegistryServer, *, is_avro: bool = True, **options: Any) -> RegistryValues:
    return RegistryValues(RegistryClient(server.url, timeout_seconds=2, **options), is_avro=is_avro)


def test_an_avro_record_becomes_the_json_that_columns_take(server: RegistryServer):
    number = server.register("payments-value", PAYMENT)
    values = values_of(server)
    found = values.decode(avro(number, PAYMENT, VALUE))
    assert isinstance(found, bytes)
    assert json.loads(found) == {
        "id": "p1",
        "amount": "12345678901234.50",
        "at": "2026-02-01T12:30:00Z",
        "seen": None,
        "day": "2026-02-01",
        "key": "00000000-0000-0000-0000-000000000007",
        "raw": "AP8=",
        "rate": 1e-9,
        "kind": "CASH",
        "tags": {"a": 1},
        "customer": {"name": "Ann", "of": {"name": "Bo", "of": None}},
    }
    assert b"0.000000001" in found, "the canonical form takes no exponents"
    values.decode(avro(number, PAYMENT, VALUE))
    assert server.requests == [f"/schemas/ids/{number}"], "a schema is asked for once"


def test_a_schema_that_refers_to_others_is_put_together(server: RegistryServer):
    street = {
        "type": "record",
        "name": "Street",
        "namespace": "a",
        "fields": [{"name": "s", "type": "string"}],
    }
    town = {
        "type": "record",
        "name": "Town",
        "namespace": "a",
        "fields": [{"name": "at", "type": "a.Street"}],
    }
    server.register("street", street)
    server.register("town", town, references=[("a.Street", "street", 1)])
    fields: list[Any] = [{"name": "id", "type": "string"}, {"name": "town", "type": ["null", "a.Town"]}]
    home = {"type": "record", "name": "Home", "fields": fields}
    number = server.register("home", home, references=[("a.Town", "town", 1)])
    whole = json.loads(json.dumps(home).replace('"a.Town"', json.dumps(town)))
    whole = json.loads(json.dumps(whole).replace('"a.Street"', json.dumps(street)))
    value = {"id": "h", "town": {"at": {"s": "High"}}}
    assert values_of(server).decode(avro(number, whole, value)) == json.dumps(value).replace(" ", "").encode()


def test_json_with_a_schema_is_the_record_behind_the_id(server: RegistryServer):
    number = server.register("p", {"type": "object"}, type_="JSON")
    values = values_of(server, is_avro=False)
    assert values.decode(framed(number, b'{"id": "a"}')) == b'{"id": "a"}'
    bad = values.decode(framed(number, b'{"id": '))
    assert isinstance(bad, BadRecord)
    assert (bad.reason.value, bad.start) == ("MalformedJson", framed(number, b'{"id": '))


def bad_values(server: RegistryServer) -> dict[str, tuple[bytes, str, str]]:
    person = server.register("person", PERSON)
    text = server.register("text", {"type": "object"}, type_="JSON")
    proto = server.register("proto", "message A {}", type_="PROTOBUF")
    broken = server.register("broken", {"type": "nonsense"})
    floats = server.register(
        "floats", {"type": "record", "name": "F", "fields": [{"name": "f", "type": "double"}]}
    )
    endless = server.register("endless", {"type": "array", "items": "null"})
    lost = server.register("lost", PERSON, references=[("a", "nowhere", 1)])
    node = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
    deep = server.register("deep", node)
    times = server.register("times", {"type": "long", "logicalType": "timestamp-millis"})
    good = avro(person, PERSON, {"id": "a", "age": 1})
    nan = avro(floats, {"type": "double"}, float("nan"))
    return {
        "empty": (b"", "MalformedValue", "5 bytes"),
        "short": (b"\0\0\0", "MalformedValue", "5 bytes"),
        "plain JSON": (b'{"id": "a"}', "MalformedValue", "schema registry"),
        "other magic byte": (b"\x01" + good[1:], "MalformedValue", "zero byte"),
        "unknown id": (framed(999, good[5:]), "UnknownSchema", "no schema 999"),
        "cut short": (good[:-2], "MalformedValue", "are no value of the schema"),
        "left over": (good + b"x", "MalformedValue", "are no value of the schema"),
        "no UTF-8": (framed(person, b"\x04\xff\xfe\x00"), "MalformedValue", "UnicodeDecodeError"),
        "no such branch": (framed(person, b"\x02a\x08"), "MalformedValue", "are no value"),
        "long text": (framed(person, b"\xfe\xff\xff\xff\xff\xff\x7fa"), "MalformedValue", "are no value"),
        "nothing": (framed(person, b""), "MalformedValue", "are no value"),
        "other type": (framed(text, b"{}"), "UnknownSchema", "type JSON"),
        "protobuf": (framed(proto, b""), "UnknownSchema", "type PROTOBUF"),
        "no schema": (framed(broken, b""), "UnknownSchema", "cannot be used"),
        "no number": (nan, "MalformedValue", "ValueError"),
        "endless": (framed(endless, b"\xfe\xff\xff\xff\xff\xff\x7f\x00"), "UnknownSchema", "no bytes"),
        "lost reference": (framed(lost, good[5:]), "UnknownSchema", "nowhere"),
        "deep": (framed(deep, b"\x02" * 1_000_000 + b"\x00"), "MalformedValue", "are no value"),
        "a time that is none": (
            framed(times, b"\xfe" + b"\xff" * 8 + b"\x01"),
            "MalformedValue",
            "are no value",
        ),
    }


def test_what_cannot_be_read_is_rejected_with_its_bytes_and_the_reason(server: RegistryServer):
    values = values_of(server)
    for name, (value, reason, words) in bad_values(server).items():
        found = values.decode(value)
        assert isinstance(found, BadRecord), name
        assert (found.reason.value, found.start) == (reason, value), (name, found.error)
        assert words in found.error, (name, found.error)
    values.decode(framed(999, b""))
    assert server.requests.count("/schemas/ids/999") == 1, "an unknown id is not asked for at each record"


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_registry_that_does_not_answer_is_unavailable_and_no_record_is_rejected(server, status):
    number = server.register("person", PERSON)
    server.status = status
    values, value = values_of(server), avro(number, PERSON, {"id": "a"})
    with pytest.raises(SourceUnavailable, match=f"status {status}"):
        values.decode(value)
    server.status = 0
    assert values.decode(value) == b'{"id":"a","age":null}'


def test_a_registry_that_is_gone_or_silent_is_unavailable(server: RegistryServer):
    server.delay_seconds = 0.5
    client = RegistryClient(server.url, timeout_seconds=0.1)
    with pytest.raises(SourceUnavailable, match="does not answer"):
        client.schema(1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = RegistryClient(f"http://127.0.0.1:{free.getsockname()[1]}", timeout_seconds=1)
        with pytest.raises(SourceUnavailable, match=r"schema_registry\.url"):
            gone.schema(1)


def test_a_wrong_password_is_refused_without_showing_it(server: RegistryServer):
    server.user = "etl:höhere-Weihen"
    number = server.register("person", PERSON)
    assert RegistryClient(server.url, user="etl", password="höhere-Weihen").schema(number)
    with pytest.raises(SourceRefused) as caught:
        RegistryClient(server.url, user="etl", password="hunter2-long").schema(number)
    assert "schema_registry.user" in caught.value.fix
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (0, b"<html>", "no JSON"),
        (0, b"[]", "no JSON object"),
        (0, b"{}", "no schema"),
        (302, None, "status 302"),
        (404, b'{"error_code": 404}', "path of schemas"),
        (404, b"gone", "no JSON"),
    ],
)
def test_an_address_that_is_no_registry_is_refused(server: RegistryServer, status, body, says):
    server.register("person", PERSON, schema_id=1)
    server.status, server.body, server.location = status, body, "http://127.0.0.1:1/"
    with pytest.raises(SourceRefused, match=says):
        RegistryClient(server.url).schema(1)
    assert len(server.requests) == 1


def declared(kafka_server, tmp_path: Path, server: RegistryServer, **source: Any) -> Topic:
    topic = Topic.create(kafka_server.url, tmp_path, format="avro", **source)
    connection = {"type": "kafka", "bootstrap_servers": [kafka_server.url]}
    topic.home.begin(
        start_date="2026-01-01",
        connections={"events": connection | {"schema_registry": {"url": server.url}}},
    )
    return topic


def test_a_topic_of_avro_records_has_one_outcome_for_each(kafka_server, tmp_path, server):
    topic = declared(kafka_server, tmp_path, server, include=["key"], tombstones="keep")
    number = server.register("person", PERSON)
    bad = [value for value, _, _ in bad_values(server).values() if len(value) < 1_000]
    topic.send(
        [avro(number, PERSON, {"id": "a", "age": 1}), *bad, avro(number, PERSON, {"id": "b"})], key=b"k"
    )
    topic.send([avro(number, PERSON, {"id": "a", "age": 2}), avro(number, PERSON, {"id": "", "age": 2})])
    topic.send([avro(number, PERSON, {"id": "c"})], key=None)
    topic.ingest()
    assert [json.loads(row["record"]) for row in topic.accepted()] == [
        {"id": "a", "age": 1, "kafka.key": "k"},
        {"id": "b", "age": None, "kafka.key": "k"},
        {"id": "c", "age": None, "kafka.key": None},
    ]
    rejected = {int(row["source_position"].rpartition(":")[2]): row for row in topic.rejected()}
    assert sorted(rejected) == [*range(1, len(bad) + 1), len(bad) + 2, len(bad) + 3]
    for place, value in enumerate(bad, 1):
        row = rejected[place]
        kept = row["record"].encode()
        kept = base64.b64decode(kept) if row["record_encoding"] == "base64" else kept
        assert kept == value, "the original bytes"
        assert row["reason"] in ("MalformedValue", "UnknownSchema")
    assert rejected[len(bad) + 2]["outcome"] == "conflict"
    assert rejected[len(bad) + 3]["record"] == '{"id":"","age":2}'


def test_a_registry_that_is_gone_for_a_while_costs_no_record(kafka_server, tmp_path, server):
    topic = declared(kafka_server, tmp_path, server)
    number = server.register("person", PERSON)
    topic.send([avro(number, PERSON, {"id": name}) for name in "ab"])
    server.status = 503
    with pytest.raises(SourceUnavailable):
        topic.ingest()
    assert (topic.accepted(), topic.rejected()) == ([], [])
    server.status = 0
    topic.ingest()
    assert [row["record_id"] for row in topic.accepted()] == ["a", "b"]
    assert topic.rejected() == []


@pytest.mark.kill
def test_a_schema_that_is_registered_between_a_kill_and_the_next_run_rejects_nothing(
    kafka_server, tmp_path, server
):
    topic = declared(kafka_server, tmp_path, server)
    topic.send([avro(77, PERSON, {"id": "a"})])
    topic.ingest_and_die(f"{Failpoint.EXCEPTIONS_AFTER_COMMIT}@{SOURCE}")
    server.register("person", PERSON, schema_id=77)
    topic.ingest()
    assert [row["record_id"] for row in topic.accepted()] == ["a"]
    assert topic.rejected() == []


def test_a_format_that_needs_a_registry_names_the_missing_setting(kafka_server, tmp_path):
    topic = Topic.create(kafka_server.url, tmp_path, format="avro")
    with pytest.raises(SourceRefused) as caught:
        topic.ingest()
    assert "schema_registry" in caught.value.fix
