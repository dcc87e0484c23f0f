"""From an event of Debezium to the record of a change, or to the reason why it is none.

Belongs here: the forms of events: Debezium's envelope, with and without its schema, the flat form of
`ExtractNewRecordState`, and the events that are no changes of rows. Does not belong here: values of logical
types (`value_types.py`), places in the log (`positions.py`), and reading (`record_format.py`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from etl_assets.contracts import canonical_json
from etl_assets.contracts.envelope import SkippedRecord
from etl_assets.pipelines.debezium_spec import (
    CHANGE_FIELD,
    ID_FIELD,
    POSITION_FIELD,
    TIME_FIELD,
    UNAVAILABLE_FIELD,
    Connector,
)
from etl_assets.sources.debezium import extended_json, value_types
from etl_assets.sources.debezium.not_an_event import NotAnEvent
from etl_assets.sources.debezium.positions import FIELDS, is_of_snapshot, position_of
from etl_assets.sources.debezium.value_types import Convert

Row = dict[str, Any]
UPSERT, DELETE, TRUNCATE = "upsert", "delete", "truncate"
_UPSERTS = ("c", "u", "r")
_FLAT_DELETED, _FLAT_OP = "__deleted", "__op"
_HEARTBEAT = {"ts_ms"}
_TRANSACTION = {"status", "id", "event_count"}
_SCHEMA_CHANGE = {"ddl", "tableChanges"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReader:
    """What the events of a source are.

    Attributes:
        connector: The connector that wrote them; None: each event says it.
        table: The table, with as much of its schema and database as is needed; None: all events are its.
        keys: Fields that identify a row.
        fields: Types of the declared columns, by field.
        types: Conversions that a declaration names, by field.
        unavailable_value: What stands for a value that the connector does not have.
        keeps_values: Whether the table keeps the stored values of such fields; otherwise the event cannot be
            used.
        required: Fields whose columns must have a value.
    """

    connector: Connector | None
    table: str | None
    keys: tuple[str, ...]
    fields: Mapping[str, str]
    types: Mapping[str, Convert]
    unavailable_value: str
    keeps_values: bool
    required: frozenset[str] = frozenset()
    _unavailable: tuple[Any, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_unavailable", _forms(self.unavailable_value))

    def record(self, event: Any, key: Any = None) -> Row | SkippedRecord:
        """Return the record of a change: the fields of its row, and those that the source adds.

        Args:
            event: The event, as JSON.
            key: The key of its message, as JSON; None: it has none, or it is not known.

        Raises:
            NotAnEvent: it is no event, or one that cannot be used.
        """
        schema, event = _unwrapped(event)
        if event is None:
            return SkippedRecord("tombstone")
        if not isinstance(event, dict):
            raise NotAnEvent("it is JSON, but no object")
        if CHANGE_FIELD in event and POSITION_FIELD in event:
            return event  # the record of a change that is replayed
        if kind := _kind_without_row(event):
            return SkippedRecord(kind)
        envelope = event if "op" in event else _envelope(event)
        block = envelope.get("source")
        if not isinstance(block, dict):
            raise NotAnEvent("it has no `source`, which says where the change is in the database's log")
        if envelope["op"] == "m":
            return SkippedRecord("message")
        if self.table is not None and not _is_of(self.table, block):
            return SkippedRecord("other_table")
        return self._change(envelope, block, schema, _unwrapped(key)[1], is_flat=envelope is not event)

    def _change(self, event: Row, block: Row, schema: Any, key: Any, *, is_flat: bool) -> Row:
        connector = self._connector(block)
        op = event["op"]
        is_snapshot = op == "r" or (op != "t" and is_of_snapshot(block))
        try:
            position = position_of(connector, block, is_snapshot=is_snapshot)
        except NotAnEvent as error:
            if not is_flat:
                raise
            wanted = ", ".join(f"source.{name}" for name in FIELDS[connector])
            raise NotAnEvent(f"{error}; add to `add.fields` of the transform: op, {wanted}") from None
        match op:
            case "t":
                change, row, lacking = TRUNCATE, {}, frozenset[str]()
            case "d":
                change, row, lacking = DELETE, self._gone(event, schema, key, connector), frozenset[str]()
            case _ if op in _UPSERTS:
                change = UPSERT
                row, lacking = self._row(event, schema, key, connector)
            case _:
                raise NotAnEvent(f"its `op` is {op!r}; known are c, u, d, r, t and m")
        return self._stamped(row, change, position, lacking, block)

    def _stamped(self, row: Row, change: str, position: str, lacking: frozenset[str], block: Row) -> Row:
        """Return a row with the fields that the source adds."""
        if needed := sorted(lacking & self.required):
            raise NotAnEvent(
                f"the connector does not have the value of {needed[0]}, and its column is `required`; remove"
                " that, or let the connector have it; for PostgreSQL: ALTER TABLE ... REPLICA IDENTITY FULL"
            )
        if lacking and not self.keeps_values:
            raise NotAnEvent(
                f"the connector does not have the value of {min(lacking)}, which the transforms may need; for"
                " PostgreSQL: ALTER TABLE ... REPLICA IDENTITY FULL, or remove the transforms"
            )
        identity = canonical_json.write([position, change, *(row.get(name) for name in self.keys)])
        at = block.get("ts_ms")
        added = {
            CHANGE_FIELD: change,
            POSITION_FIELD: position,
            ID_FIELD: hashlib.sha256(identity).hexdigest(),
            TIME_FIELD: at if isinstance(at, int) else None,
        }
        if lacking:
            added[UNAVAILABLE_FIELD] = json.dumps(dict.fromkeys(sorted(lacking), ""))
        return {**row, **added}

    def _connector(self, block: Row) -> Connector:
        if self.connector is not None:
            return self.connector
        try:
            return Connector(block.get("connector") or "")
        except ValueError:
            raise NotAnEvent(
                f"source.connector is {block.get('connector')!r}; known are {', '.join(Connector)}, or say"
                " which it is by `connector` of the pipeline's source"
            ) from None

    def _row(self, event: Row, schema: Any, key: Any, connector: Connector) -> tuple[Row, frozenset[str]]:
        """Return the row that an upsert leaves, and the fields whose values are not known."""
        after = self._image(event, "after", schema, connector)
        if after is None:
            if connector is Connector.MONGODB:
                return self._updated(event, key)
            raise NotAnEvent("it has no `after`, which an insert and an update have")
        lacking = frozenset(name for name, value in after.items() if self._is_unavailable(value))
        row = {name: None if name in lacking else value for name, value in after.items()}
        self._expect_same_key(self._image(event, "before", schema, connector), row)
        return self._typed(row, schema, "after", connector), lacking

    def _updated(self, event: Row, key: Any) -> tuple[Row, frozenset[str]]:
        """Return what an update of MongoDB without a full document says: some top-level fields."""
        update = event.get("updateDescription")
        if not isinstance(update, dict):
            raise NotAnEvent(
                "it has neither `after` nor `updateDescription`; set the connector's `capture.mode` to"
                " change_streams_update_full"
            )
        values = extended_json.parsed(update.get("updatedFields") or "{}", "updatedFields")
        removed = update.get("removedFields") or []
        nested = [name for name in (*values, *removed) if "." in str(name)]
        if nested or update.get("truncatedArrays"):
            raise NotAnEvent(
                f"it changes a part of {nested[0] if nested else 'an array'}, and the document is not in it;"
                " set the connector's `capture.mode` to change_streams_update_full"
            )
        row = {**self._keys_of(None, key, Connector.MONGODB), **values, **dict.fromkeys(removed)}
        return row, frozenset(name for name in self.fields if name not in row)

    def _gone(self, event: Row, schema: Any, key: Any, connector: Connector) -> Row:
        """Return the key of a row that is gone."""
        before = self._image(event, "before", schema, connector)
        typed = None if before is None else self._typed(before, schema, "before", connector)
        return self._keys_of(typed, key, connector)

    def _keys_of(self, before: Row | None, key: Any, connector: Connector) -> Row:
        known = dict(before or {})
        if connector is Connector.MONGODB and isinstance(key, dict) and "id" in key:
            known.setdefault("_id", extended_json.parsed(key["id"], "the key's id"))
        elif isinstance(key, dict):
            known = {**self._typed(key, None, "key", connector), **known}
        if missing := [name for name in self.keys if known.get(name) is None]:
            raise NotAnEvent(
                f"it has no value of the key {missing[0]}, neither in `before` nor in the key of its message"
            )
        return {name: known[name] for name in self.keys}

    def _image(self, event: Row, name: str, schema: Any, connector: Connector) -> Row | None:
        value = event.get(name)
        if connector is Connector.MONGODB and value is not None and not isinstance(value, dict):
            value = extended_json.parsed(value, f"`{name}`")
        if value is not None and not isinstance(value, dict):
            raise NotAnEvent(f"`{name}` is no object")
        return value

    def _typed(self, row: Row, schema: Any, image: str, connector: Connector) -> Row:
        """Return a row with the values of logical types as columns take them."""
        if connector is Connector.MONGODB:
            return row
        conversions = {**_conversions(schema, image), **self.types}
        if schema is None:
            for name, type_ in self.fields.items():
                if name not in conversions and type(row.get(name)) is int:
                    if type_ == "DATE":
                        conversions[name] = value_types.day
                    elif type_ == "TIMESTAMP":
                        raise NotAnEvent(
                            f"{name} is a number, and nothing says of what; add `types: {{{name}:"
                            " timestamp_micros}` to the source, or timestamp_millis or timestamp_nanos"
                        )
        return value_types.converted(row, conversions=conversions)

    def _expect_same_key(self, before: Row | None, row: Row) -> None:
        changed = [
            name
            for name in self.keys
            if before and before.get(name) is not None and before[name] != row.get(name)
        ]
        if changed:
            raise NotAnEvent(
                f"it changes the key {changed[0]} in place; the table's keys have to be those by which the"
                " connector keys its messages, because it then sends a delete and an insert"
            )

    def _is_unavailable(self, value: Any) -> bool:
        return isinstance(value, (str, list, dict)) and value in self._unavailable


def _forms(placeholder: str) -> tuple[Any, ...]:
    """Return how the connectors write the placeholder: as text, bytes, lists, a map and a list of a UUID."""
    content = placeholder.encode()
    encoded = base64.b64encode(content).decode()
    # Java's nameUUIDFromBytes
    digest = bytearray(hashlib.md5(content, usedforsecurity=False).digest())
    named = str(uuid.UUID(bytes=bytes(digest), version=3))
    return (
        placeholder,
        encoded,
        [placeholder],
        [encoded],
        list(content),
        {placeholder: placeholder},
        json.dumps({placeholder: placeholder}, separators=(",", ":")),
        [named],
    )


def _unwrapped(event: Any) -> tuple[Any, Any]:
    """Return the schema and the content of JSON that may have a schema around it."""
    if isinstance(event, dict) and event.keys() == {"schema", "payload"}:
        return event["schema"], event["payload"]
    return None, event


def _kind_without_row(event: Row) -> str | None:
    """Return what an event is that is no change of a row; None if it may be one."""
    names = event.keys()
    if "op" in names or _FLAT_OP in names:
        return None
    if "ts_ms" in names and names <= {*_HEARTBEAT, "ts_us", "ts_ns"}:
        return "heartbeat"
    if names >= _TRANSACTION:
        return "transaction"
    if names >= _SCHEMA_CHANGE:
        return "schema_change"
    return None


def _is_of(table: str, block: Row) -> bool:
    parts = (block.get("db"), block.get("schema"), block.get("table") or block.get("collection"))
    known = [str(each) for each in parts if each]
    return any(table == ".".join(known[first:]) for first in range(len(known))) or table == ".".join(
        each for each in (known[:1] + known[-1:] if len(known) > 2 else ())
    )


def _envelope(event: Row) -> Row:
    """Return the envelope of a flat event.

    Raises:
        NotAnEvent: it has none of the fields that the transform adds.
    """
    added = {name[2:]: value for name, value in event.items() if name.startswith("__")}
    if not added:
        raise NotAnEvent(
            "it is neither an envelope with `op`, nor flat with fields such as `__op` and `__deleted`"
        )
    row = {name: value for name, value in event.items() if not name.startswith("__")}
    block = {name.removeprefix("source_"): value for name, value in added.items()}
    is_deleted = str(added.get("deleted", "false")).lower() == "true" or added.get("op") == "d"
    op = "d" if is_deleted else added.get("op", "u")
    image = "before" if is_deleted else "after"
    return {"op": op, image: row, "source": block}


def _conversions(schema: Any, image: str) -> dict[str, Convert]:
    """Return the conversions of a row's fields, by the schema of its event."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    if not isinstance(fields, list):
        return {}
    of_image = next((each for each in fields if isinstance(each, dict) and each.get("field") == image), None)
    found = fields if of_image is None else of_image.get("fields")
    known = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    conversions = {str(each.get("field")): value_types.of_schema(each) for each in known}
    return {name: each for name, each in conversions.items() if each is not None}
