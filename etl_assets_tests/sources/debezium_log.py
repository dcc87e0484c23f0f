"""A table of a database whose connector writes events, for tests: what the table holds, and the events.

Events have the forms of Debezium's documentation: per connector its source block, plain JSON, JSON with its
schema, or Avro with the names that Connect's converter gives.

Belongs here: making changes and their events. Does not belong here: sending them, and what must come of them.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import fastavro

UNAVAILABLE = "__debezium_unavailable_value"
COLUMNS = {
    "id": "bigint", "name": "string", "note": "string", "price": "decimal(9,2)", "at": "timestamp",
}  # fmt: skip
TYPES = {"price": "decimal(2)", "at": "timestamp_micros"}
"""What plain JSON does not say."""
Row = tuple[str, str, Decimal, dt.datetime]
Event = tuple[bytes | None, bytes | None]
"""Key and value of a message."""

_IMAGE = {
    "type": "struct",
    "optional": True,
    "fields": [
        {"field": "id", "type": "int64"},
        {"field": "name", "type": "string"},
        {"field": "note", "type": "string"},
        {
            "field": "price",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
        },
        {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    ],
}
SCHEMA = {
    "type": "struct",
    "name": "server1.dbo.people.Envelope",
    "fields": [
        {**_IMAGE, "field": "before"},
        {**_IMAGE, "field": "after"},
        {"field": "op", "type": "string"},
    ],
}
_AVRO_ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "note", "type": ["null", "string"]},
        {
            "name": "price",
            "type": [
                "null",
                {
                    "type": "bytes",
                    "logicalType": "decimal",
                    "precision": 9,
                    "scale": 2,
                    "connect.name": "org.apache.kafka.connect.data.Decimal",
                },
            ],
        },
        {
            "name": "at",
            "type": [
                "null",
                {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"},
            ],
        },
    ],
}
AVRO = {
    "type": "record",
    "name": "Envelope",
    "namespace": "server1.dbo.people",
    "connect.name": "server1.dbo.people.Envelope",
    "fields": [
        {"name": "before", "type": ["null", _AVRO_ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [
                    {"name": "connector", "type": "string"},
                    {"name": "snapshot", "type": "string"},
                    {"name": "ts_ms", "type": "long"},
                    {"name": "change_lsn", "type": ["null", "string"]},
                    {"name": "commit_lsn", "type": ["null", "string"]},
                    {"name": "event_serial_no", "type": ["null", "long"]},
                ],
            },
        },
        {"name": "op", "type": "string"},
    ],
}
AVRO_KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}


def _lsn(number: int) -> str:
    return f"{number >> 16:08x}:{number & 0xFFFF:08x}:0003"


# fmt: off
_BLOCKS: Mapping[str, Callable[[int], dict[str, Any]]] = {
    "mysql": lambda n: {"file": f"mysql-bin.{n // 7 + 998:06d}", "pos": 4 + n % 7 * 100, "row": 0},
    "postgresql": lambda n: {"lsn": 95 + n * 10, "sequence": f'["{94 + n * 10}","{95 + n * 10}"]'},
    "sqlserver": lambda n: {"commit_lsn": _lsn(n * 9 + 250), "change_lsn": _lsn(n * 9), "event_serial_no": 1},
    "oracle": lambda n: {"scn": str(95 + n * 2), "commit_scn": str(96 + n * 2), "rs_id": None, "ssn": 0},
    "mongodb": lambda n: {"ts_ms": 1_558_965_508_000 + n // 3 * 1_000, "ord": n % 3 + 9},
}
# fmt: on


@dataclass(slots=True)
class Log:
    """The table, and its events in the order of the log.

    Attributes:
        connector: The connector.
        write: Makes bytes of an event: `plain`, `wrapped` or `Avro.write`.
    """

    connector: str
    write: Callable[[Any], bytes]
    seed: int = 0
    write_key: Callable[[Any], bytes] = field(default=lambda key: json.dumps(key).encode())
    rows: dict[int, Row] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    _number: int = 0

    def work(self, changes: int) -> None:
        """Make changes: inserts, updates, of which some lack a value, deletes, key changes and a truncate."""
        dice = random.Random(f"{self.connector} {self.seed} {self._number}")
        for _ in range(changes):
            known = sorted(self.rows)
            what = (
                dice.choice(["insert", "update", "update", "update", "delete", "move"]) if known else "insert"
            )
            key = dice.choice(known) if known else 0
            row = self._row(dice)
            match what:
                case "insert":
                    free = next(each for each in range(dice.randrange(20), 99) if each not in self.rows)
                    self._put(free, row, op="c")
                case "update":
                    self._update(key, row, lacks_note=self.connector == "postgresql" and dice.random() < 0.6)
                case "delete":
                    self._remove(key)
                case "move":
                    row = self.rows[key]
                    self._remove(key)
                    self._number -= 1  # both have the same place
                    self._put(next(each for each in range(40, 199) if each not in self.rows), row, op="c")

    def snapshot(self, number: int) -> None:
        """Make rows that were there before the log."""
        dice = random.Random(self.seed)
        for key in range(number):
            self._put(key, self._row(dice), op="r", place=0)
        self._number = 1

    def truncate(self) -> None:
        """Empty the table."""
        self.rows.clear()
        self._send(None, self._event("t", None, None))

    def others(self) -> list[Event]:
        """Events that are no changes of rows."""
        schema_change = {"source": {}, "databaseName": "d", "ddl": "ALTER TABLE", "tableChanges": []}
        marker = {"status": "BEGIN", "id": "571", "event_count": None, "data_collections": None}
        return [(None, json.dumps(each).encode()) for each in ({"ts_ms": 1}, marker, schema_change)]

    def _row(self, dice: random.Random) -> Row:
        at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=dice.randrange(10**12))
        return (
            f"name {dice.randrange(99)}",
            f"note {dice.randrange(99)}",
            Decimal(dice.randrange(-999, 9_999)) / 100,
            at,
        )

    def _put(self, key: int, row: Row, *, op: str, place: int | None = None) -> None:
        self.rows[key] = row
        self._send(key, self._event(op, None, self._image(key, row), place))

    def _update(self, key: int, row: Row, *, lacks_note: bool) -> None:
        if lacks_note:
            row = (row[0], self.rows[key][1], *row[2:])
        after = self._image(key, row)
        if lacks_note:
            after["note"] = UNAVAILABLE
        before = self._image(key, self.rows[key]) if self.connector != "postgresql" else None
        self.rows[key] = row
        self._send(key, self._event("u", before, after))

    def _remove(self, key: int) -> None:
        before = self._image(key, self.rows.pop(key))
        if self.connector == "postgresql":
            before = {"id": key, **dict.fromkeys(list(before)[1:])}
        self._send(key, self._event("d", None if self.connector == "mongodb" else before, None))
        self.events.append((self._key(key), None))

    def _image(self, key: int, row: Row) -> dict[str, Any]:
        name, note, price, at = row
        return {"id": key, "name": name, "note": note, "price": price, "at": at}

    def _event(self, op: str, before: Any, after: Any, place: int | None = None) -> dict[str, Any]:
        number = self._number if place is None else place
        self._number += place is None
        block = {"connector": self.connector, "snapshot": "true" if op == "r" else "false", "ts_ms": 5}
        return {"before": before, "after": after, "source": block | _BLOCKS[self.connector](number), "op": op}

    def _send(self, key: int | None, event: dict[str, Any]) -> None:
        self.events.append((self._key(key), self.write(event)))

    def _key(self, key: int | None) -> bytes | None:
        if key is None:
            return None
        name = {"id": json.dumps({"$numberLong": str(key)})} if self.connector == "mongodb" else {"id": key}
        return self.write_key(name)


def _micros(at: dt.datetime) -> int:
    return (at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _json_value(value: Any) -> Any:
    if isinstance(value, Decimal):
        unscaled = int(value * 100)
        return base64.b64encode(
            unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
        ).decode()
    return _micros(value) if isinstance(value, dt.datetime) else value


def _json_event(event: dict[str, Any]) -> dict[str, Any]:
    images = {
        name: None if event[name] is None else {key: _json_value(each) for key, each in event[name].items()}
        for name in ("before", "after")
    }
    return {**event, **images, "ts_ms": random.randrange(10**12)}


def plain(event: dict[str, Any]) -> bytes:
    """JSON without schema."""
    return json.dumps(_json_event(event)).encode()


def wrapped(event: dict[str, Any]) -> bytes:
    """JSON with its schema."""
    return json.dumps({"schema": SCHEMA, "payload": _json_event(event)}).encode()


def document(event: dict[str, Any]) -> bytes:
    """MongoDB's form: documents are texts in Extended JSON."""

    def text(image: dict[str, Any] | None) -> str | None:
        if image is None:
            return None
        price, at = {"$numberDecimal": str(image["price"])}, {"$date": image["at"].isoformat()}
        key = {"$numberLong": str(image["id"])}
        return json.dumps({**image, "_id": key, "id": None, "price": price, "at": at})

    return json.dumps({**event, "before": None, "after": text(event["after"])}).encode()


def avro(schema_id: int, schema: Any) -> Callable[[Any], bytes]:
    """What writes values as Connect's Avro converter does."""
    parsed = fastavro.parse_schema(schema, {})

    def write(value: Any) -> bytes:
        stream = io.BytesIO()
        if "op" in value:
            images = {
                name: None if value[name] is None else {**value[name], "at": _micros(value[name]["at"])}
                for name in ("before", "after")
            }
            value = {**value, **images}
        fastavro.schemaless_writer(stream, parsed, value)
        return b"\0" + schema_id.to_bytes(4, "big") + stream.getvalue()

    return write
