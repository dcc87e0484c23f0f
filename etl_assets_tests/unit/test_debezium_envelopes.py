"""Debezium's events in each of their forms: what becomes of the change, and why others are none.

The forms are those of the documentation of Debezium's connectors.
"""

from __future__ import annotations

import base64
import itertools
import json
from decimal import Context, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.contracts.envelope import AnnotatedRecord, BadRecord, SkippedRecord
from etl_assets.pipelines.debezium_spec import (
    CHANGE_FIELD,
    ID_FIELD,
    POSITION_FIELD,
    TIME_FIELD,
    UNAVAILABLE_FIELD,
    UNAVAILABLE_VALUE,
    Connector,
)
from etl_assets.sources.debezium.envelopes import EventReader
from etl_assets.sources.debezium.not_an_event import NotAnEvent
from etl_assets.sources.debezium.positions import position_of
from etl_assets.sources.debezium.record_format import ChangeEvents
from etl_assets.sources.debezium.value_types import declared
from etl_assets.sources.formats import JSON_LINES

MYSQL = {
    "connector": "mysql", "db": "inventory", "table": "customers", "server_id": 223344, "gtid": None,
    "snapshot": "false", "file": "mysql-bin.000003", "pos": 484, "row": 0, "ts_ms": 1465581029100,
}  # fmt: skip
POSTGRESQL = {
    "connector": "postgresql", "db": "postgres", "schema": "public", "table": "customers", "snapshot": False,
    "sequence": '["24023119","24023128"]', "txId": 555, "lsn": 24023128, "ts_ms": 1559033904863,
}  # fmt: skip
SQLSERVER = {
    "connector": "sqlserver", "db": "testDB", "schema": "dbo", "table": "customers", "snapshot": False,
    "change_lsn": "00000027:00000758:0003", "commit_lsn": "00000027:00000758:0005", "event_serial_no": "1",
    "ts_ms": 1559729468470,
}  # fmt: skip
ORACLE = {
    "connector": "oracle", "db": "ORCLPDB1", "schema": "DEBEZIUM", "table": "CUSTOMERS", "snapshot": "false",
    "txId": "6.28.807", "scn": "2122185", "commit_scn": "2122195", "rs_id": "001234.00012345.0124", "ssn": 1,
    "ts_ms": 1520085154000,
}  # fmt: skip
MONGODB = {
    "connector": "mongodb", "db": "inventory", "collection": "customers", "rs": "rs0", "snapshot": False,
    "ts_ms": 1558965508000, "ord": 31,
}  # fmt: skip
BLOCKS = [MYSQL, POSTGRESQL, SQLSERVER, ORACLE]
ROW = {"id": 1, "email": "annek@noanswer.org"}


def reader(**more: Any) -> Any:
    settings: dict[str, Any] = {
        "connector": None, "table": None, "keys": ("id",), "fields": {"id": "BIGINT", "email": "STRING"},
        "types": {}, "unavailable_value": UNAVAILABLE_VALUE, "keeps_values": True,
    }  # fmt: skip
    return EventReader(**{**settings, **more})


def event(op: str, block: dict[str, Any] = MYSQL, **more: Any) -> dict[str, Any]:
    images = {"before": ROW if op in "ud" else None, "after": ROW if op in "cur" else None}
    return {**images, "source": block, "op": op, "ts_ms": 1465581029523, "transaction": None, **more}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block["connector"])
def test_changes_of_each_connector_have_the_row_and_their_place(block):
    found = reader()
    for op, change in (("c", "upsert"), ("u", "upsert"), ("d", "delete"), ("r", "upsert"), ("t", "truncate")):
        made = found.record(event(op, block))
        row = {"d": {"id": 1}, "t": {}}.get(op, ROW)
        assert {name: made[name] for name in made if not name.startswith("debezium.")} == row
        assert made[CHANGE_FIELD] == change
        assert made[POSITION_FIELD].endswith("0" if op == "r" else "1")
        assert made[TIME_FIELD] == block["ts_ms"]
        assert found.record({"schema": {"type": "struct", "fields": []}, "payload": event(op, block)}) == made


def test_a_repeated_event_is_the_same_record_whenever_it_was_sent():
    assert reader().record(event("u", ts_ms=1)) == reader().record(event("u", ts_ms=2))


def test_changes_of_one_place_have_ids_of_their_own():
    multi = [event("c", POSTGRESQL, after={**ROW, "id": number}) for number in (1, 2)]
    moved = [event("d", POSTGRESQL), event("c", POSTGRESQL)]
    assert len({reader().record(each)[ID_FIELD] for each in multi + moved}) == 3


@pytest.mark.parametrize(
    ("connector", "ascending"),
    [
        (
            Connector.MYSQL,
            [
                {"file": "mysql-bin.000009", "pos": 900, "row": 0},
                {"file": "mysql-bin.000010", "pos": 4, "row": 0},
                {"file": "mysql-bin.000010", "pos": 4, "row": 10},
                {"file": "mysql-bin.000010", "pos": 1_000, "row": 2},
                {"file": "mysql-bin.1000000", "pos": 4, "row": 0},
            ],
        ),
        (
            Connector.POSTGRESQL,
            [
                {"lsn": 100, "sequence": '[null,"100"]'},
                {"lsn": 90, "sequence": '["120","90"]'},
                {"lsn": 130, "sequence": '["120","130"]'},
                {"lsn": 1_000, "sequence": '["999","1000"]'},
            ],
        ),
        (
            Connector.SQLSERVER,
            [
                {**SQLSERVER, "commit_lsn": "00000026:ffffffff:0001", "event_serial_no": 2},
                {**SQLSERVER, "event_serial_no": 1},
                {**SQLSERVER, "event_serial_no": 2},
                {**SQLSERVER, "change_lsn": "00000027:00000758:000A", "event_serial_no": 1},
                {**SQLSERVER, "commit_lsn": "00000027:00000758:0006", "event_serial_no": 1},
            ],
        ),
        (
            Connector.ORACLE,
            [
                {"scn": "99", "commit_scn": "100"},
                {"scn": "98", "commit_scn": "101", "rs_id": " 0x0004d2.00003039.0010 ", "ssn": 0},
                {"scn": "98", "commit_scn": "101", "rs_id": " 0x0004d2.00003039.0010 ", "ssn": 1},
                {"scn": "98", "commit_scn": "101", "rs_id": " 0x0004d2.0000303a.0010 ", "ssn": 0},
                {"scn": "18446744073709551615", "commit_scn": "18446744073709551615"},
            ],
        ),
        (
            Connector.MONGODB,
            [{"ts_ms": 1_000, "ord": 2}, {"ts_ms": 1_000, "ord": 10}, {"ts_ms": 2_000, "ord": 1}],
        ),
    ],
)
def test_places_of_a_log_sort_as_texts(connector, ascending):
    places = [position_of(connector, each, is_snapshot=False) for each in ascending]
    assert places == sorted(places)
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    ("snapshot", "change"),
    [
        ({**MYSQL, "snapshot": "true"}, MYSQL),
        (
            {**POSTGRESQL, "snapshot": "first", "sequence": '[null,"24023128"]'},
            POSTGRESQL | {"sequence": '["24023200","7"]', "lsn": 7},
        ),
        ({**SQLSERVER, "snapshot": "last", "change_lsn": None, "event_serial_no": None}, SQLSERVER),
        (
            {**ORACLE, "snapshot": "true", "scn": "2122195", "commit_scn": None},
            ORACLE | {"commit_scn": "2122196"},
        ),
    ],
    ids=["mysql", "postgresql, open before the snapshot", "sqlserver", "oracle"],
)
def test_rows_of_a_snapshot_sort_before_changes_of_the_log(snapshot, change):
    found = reader()
    assert (
        found.record(event("r", snapshot))[POSITION_FIELD] < found.record(event("u", change))[POSITION_FIELD]
    )


@given(st.lists(st.tuples(*[st.integers(0, 2**63)] * 3), min_size=2, max_size=6))
def test_any_places_sort_as_their_numbers(numbers):
    for connector, names in (
        (Connector.MYSQL, ("file", "pos", "row")),
        (Connector.ORACLE, ("commit_scn", "scn", "ssn")),
    ):

        def place(each: tuple[int, ...], connector=connector, names=names) -> str:
            block = dict(zip(names, map(str, each), strict=True))
            if "file" in block:
                block["file"] = f"bin.{block['file']}"
            return position_of(connector, block, is_snapshot=False)

        assert sorted(numbers) == sorted(numbers, key=place)


def test_a_row_of_a_later_snapshot_is_newer_than_earlier_changes():
    later = reader().record(event("r", {**MYSQL, "snapshot": "incremental", "pos": 485}))
    assert later[POSITION_FIELD] > reader().record(event("u"))[POSITION_FIELD]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "tombstone"),
        ({"schema": None, "payload": None}, "tombstone"),
        ({"ts_ms": 1, "ts_us": 2, "ts_ns": 3}, "heartbeat"),
        ({"status": "BEGIN", "id": "571:5", "event_count": None, "data_collections": None}, "transaction"),
        ({"source": MYSQL, "databaseName": "inventory", "ddl": "ALTER", "tableChanges": []}, "schema_change"),
        (event("m", POSTGRESQL), "message"),
        (event("c", MYSQL | {"table": "orders"}), "other_table"),
    ],
)  # fmt: skip
def test_what_is_no_change_of_a_row_is_skipped(value, kind):
    assert reader(table="inventory.customers").record(value) == SkippedRecord(kind)


@pytest.mark.parametrize(
    "table", ["customers", "public.customers", "postgres.public.customers", "postgres.customers"]
)
def test_a_table_is_known_by_any_part_of_its_name(table):
    assert reader(table=table).record(event("c", POSTGRESQL))[CHANGE_FIELD] == "upsert"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([1], "no object"),
        ({"id": 1}, "neither an envelope"),
        (event("c", source=None), "no `source`"),
        (event("c", MYSQL | {"connector": "db2"}), "known are mysql"),
        (event("c", MYSQL | {"file": None}), "source.file"),
        (event("c", MYSQL | {"pos": -4}), "source.pos"),
        (event("c", MYSQL | {"pos": True}), "source.pos"),
        (event("c", SQLSERVER | {"commit_lsn": "7"}), "source.commit_lsn"),
        (event("c", POSTGRESQL | {"sequence": "nonsense"}), "source.sequence"),
        (event("c", after=None), "no `after`"),
        (event("c", after=[1]), "`after` is no object"),
        (event("d", before=None), "key id"),
        (event("d", before={"id": None}), "key id"),
        (event("x"), "'x'"),
        (event("u", before={"id": 7}), "changes the key id"),
        (event("u", MONGODB, after="{"), "no text in JSON"),
    ],
)
def test_malformed_events_say_what_is_wrong(value, why):
    with pytest.raises(NotAnEvent, match=why):
        reader().record(value)


@pytest.mark.parametrize(
    "value",
    [
        UNAVAILABLE_VALUE,
        base64.b64encode(UNAVAILABLE_VALUE.encode()).decode(),
        [UNAVAILABLE_VALUE],
        list(UNAVAILABLE_VALUE.encode()),
        {UNAVAILABLE_VALUE: UNAVAILABLE_VALUE},
    ],
)
def test_values_that_the_connector_does_not_have_are_named_and_not_taken(value):
    update = event("u", POSTGRESQL, before=None, after={"id": 1, "email": value})
    made = reader().record(update)
    assert (made["email"], json.loads(made[UNAVAILABLE_FIELD])) == (None, {"email": ""})
    with pytest.raises(NotAnEvent, match="transforms may need"):
        reader(keeps_values=False).record(update)
    with pytest.raises(NotAnEvent, match="`required`"):
        reader(required=frozenset({"email"})).record(update)


SCHEMA = {
    "type": "struct",
    "fields": [
        {
            "field": image,
            "type": "struct",
            "fields": [
                {"field": "id", "type": "int64"},
                {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
                {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
                {"field": "seen", "type": "int64", "name": "io.debezium.time.Timestamp"},
                {"field": "nano", "type": "int64", "name": "io.debezium.time.NanoTimestamp"},
                {"field": "clock", "type": "int64", "name": "io.debezium.time.MicroTime"},
                {
                    "field": "price",
                    "type": "bytes",
                    "name": "org.apache.kafka.connect.data.Decimal",
                    "parameters": {"scale": "2", "connect.decimal.precision": "9"},
                },
                {"field": "any", "type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
                {
                    "field": "days",
                    "type": "array",
                    "items": {"type": "int32", "name": "io.debezium.time.Date"},
                },
                {"field": "zoned", "type": "string", "name": "io.debezium.time.ZonedTimestamp"},
            ],
        }
        for image in ("before", "after")
    ],
}
TYPED = {
    "id": 1, "day": 19_754, "at": 1_706_745_600_000_001, "seen": -1, "nano": 1_706_745_600_000_000_001,
    "clock": 45_296_789_000, "price": base64.b64encode((-123_456).to_bytes(3, "big", signed=True)).decode(),
    "any": {"scale": 3, "value": "AeI="}, "days": [0, None], "zoned": "2024-02-01T00:00:00Z",
}  # fmt: skip
PLAIN = {
    "id": 1, "day": "2024-02-01", "at": "2024-02-01T00:00:00.000001Z", "seen": "1969-12-31T23:59:59.999Z",
    "nano": "2024-02-01T00:00:00.000000001Z", "clock": "12:34:56.789", "price": "-1234.56", "any": "0.482",
    "days": ["1970-01-01", None], "zoned": "2024-02-01T00:00:00Z",
}  # fmt: skip


def test_logical_types_of_the_schema_become_what_columns_take():
    made = reader().record({"schema": SCHEMA, "payload": event("c", after=TYPED)})
    assert {name: made[name] for name in PLAIN} == PLAIN


def test_logical_types_without_schema_are_declared():
    types = {
        "at": "timestamp_micros",
        "seen": "timestamp_millis",
        "price": "decimal(2)",
        "clock": "time_micros",
    }
    fields = {"day": "DATE", "at": "TIMESTAMP", "seen": "TIMESTAMP"}
    known = reader(types={name: declared(each) for name, each in types.items()}, fields=fields)
    made = known.record(event("c", after={name: TYPED[name] for name in ("id", "day", *types)}))
    assert {name: made[name] for name in ("day", *types)} == {name: PLAIN[name] for name in ("day", *types)}
    with pytest.raises(NotAnEvent, match=r"types: \{at: timestamp_micros\}"):
        reader(fields=fields).record(event("c", after={"id": 1, "at": 5}))
    with pytest.raises(NotAnEvent, match="price cannot be read: it is not the base64"):
        known.record(event("c", after={"id": 1, "price": "12.50"}))


@given(st.integers(-(10**30), 10**30), st.integers(0, 12))
def test_decimals_keep_all_their_digits(unscaled, scale):
    content = unscaled.to_bytes(16, "big", signed=True)
    text = declared(f"decimal({scale})")(base64.b64encode(content).decode())
    assert Decimal(text) == Decimal(unscaled).scaleb(-scale, context=Context(prec=60))


MONGO = {"keys": ("_id",), "fields": {"_id": "STRING", "first_name": "STRING", "age": "INT"}}


def test_documents_of_mongodb_are_their_plain_values():
    after = {
        "_id": {"$oid": "596e2758"}, "age": {"$numberLong": "44"}, "share": {"$numberDouble": "0.5"},
        "price": {"$numberDecimal": "12.50"}, "at": {"$date": 1783101585729},
        "old": {"$date": {"$numberLong": "-1"}},
        "iso": {"$date": "2026-07-03T17:59:45.729Z"}, "raw": {"$binary": {"base64": "AA==", "subType": "00"}},
        "in": {"list": [{"$numberInt": "1"}, None]}, "pattern": {"$regex": "a", "$options": ""},
    }  # fmt: skip
    made = reader(**MONGO).record(event("c", MONGODB, before=None, after=json.dumps(after)))
    assert {name: made[name] for name in after} == {
        "_id": "596e2758", "age": 44, "share": 0.5, "price": "12.50",
        "at": "2026-07-03T17:59:45.729Z",
        "old": "1969-12-31T23:59:59.999Z", "iso": "2026-07-03T17:59:45.729Z", "raw": "AA==",
        "in": {"list": [1, None]}, "pattern": {"$regex": "a", "$options": ""},
    }  # fmt: skip


def test_an_update_of_mongodb_without_the_document_changes_the_fields_that_it_names():
    key = {"schema": {}, "payload": {"id": '{"$oid": "ab"}'}}
    update = {"updatedFields": '{"first_name": "Ann"}', "removedFields": ["nick"], "truncatedArrays": None}
    made = reader(**MONGO).record(event("u", MONGODB, before=None, after=None, updateDescription=update), key)
    assert (made["_id"], made["first_name"], made["nick"]) == ("ab", "Ann", None)
    assert json.loads(made[UNAVAILABLE_FIELD]) == {"age": ""}
    nested = {"updatedFields": '{"address.city": "Bonn"}', "removedFields": None}
    with pytest.raises(NotAnEvent, match="change_streams_update_full"):
        reader(**MONGO).record(event("u", MONGODB, before=None, after=None, updateDescription=nested), key)


@pytest.mark.parametrize(
    ("key", "_id"), [({"id": "1004"}, 1004), ({"id": '"ab"'}, "ab"), ({"id": '{"$oid":"ff"}'}, "ff")]
)
def test_a_delete_of_mongodb_has_the_key_of_its_message(key, _id):
    gone = event("d", MONGODB, before=None)
    assert reader(**MONGO).record(gone, key)["_id"] == _id
    with pytest.raises(NotAnEvent, match="key _id"):
        reader(**MONGO).record(gone)


def test_flat_events_have_their_place_in_added_fields():
    flat = {**ROW, "__op": "u", "__source_lsn": 7, "__source_sequence": '["5","7"]', "__deleted": "false"}
    known = reader(connector=Connector.POSTGRESQL)
    made = known.record(flat)
    assert (made["email"], made[CHANGE_FIELD]) == (ROW["email"], "upsert")
    assert not [name for name in made if name.startswith("__")]
    assert known.record({**flat, "__op": "d", "__deleted": "true"})[CHANGE_FIELD] == "delete"
    assert known.record({**flat, "__op": "r"})[POSITION_FIELD].endswith("/0")
    with pytest.raises(NotAnEvent, match=r"add\.fields.*source\.lsn"):
        known.record({**ROW, "__deleted": "false"})
    with pytest.raises(NotAnEvent, match="`connector`"):
        reader().record(flat)


def test_records_are_read_from_another_format_one_for_each_of_its_own():
    lines = ChangeEvents(inner=JSON_LINES, events=reader())
    dead = AnnotatedRecord(b"{}")
    dead.added = {"kafka.tombstone": True, "kafka.key": "{}"}
    keyed = AnnotatedRecord(json.dumps(event("d", before=None)).encode())
    keyed.added = {"kafka.key": '{"id": 4}'}
    broken, once = b'{"op": "c"', json.dumps(event("c")).encode()
    found: list[Any] = [
        lines._record(each) for each in (dead, keyed, b"  ", broken, once + b"\r", b'{"op": "c"}')
    ]
    assert found[0] == SkippedRecord("tombstone")
    assert found[1]["id"] == 4
    assert found[2] == b"  "
    assert isinstance(found[3], BadRecord)
    assert (found[3].reason, found[3].start) == ("MalformedJson", broken)
    assert found[4]["id"] == 1
    assert isinstance(found[5], BadRecord)
    assert found[5].reason == "MalformedEvent"
    assert list(lines.positions(5, found[:2])) == [5, 6]
    again = json.dumps(found[4]).encode()
    assert lines._record(again) == found[4], "a replayed change is taken as it is"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda each: (
        st.lists(each, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "op",
                    "source",
                    "after",
                    "before",
                    "schema",
                    "payload",
                    "id",
                    "lsn",
                    "connector",
                    "fields",
                    "name",
                    "updateDescription",
                ]
            ),
            each,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(_JSON, _JSON, st.sampled_from([None, *Connector]))
def test_whatever_is_sent_is_a_change_a_skipped_record_or_a_dead_letter(value, key, connector):
    try:
        made = reader(connector=connector).record(value, key)
    except NotAnEvent:
        return
    assert isinstance(made, (dict, SkippedRecord))


@given(_JSON, st.sampled_from([MYSQL, POSTGRESQL, MONGODB, SQLSERVER]), st.sampled_from("curdtm"), _JSON)
def test_whatever_an_envelope_has_is_a_change_or_a_dead_letter(value, block, op, schema):
    for image in ("after", "before", "updateDescription"):
        try:
            reader().record({"schema": schema, "payload": {"op": op, "source": block, image: value}}, value)
        except NotAnEvent:
            continue


def test_all_orders_of_arrival_have_the_same_ids():
    events = [event("c"), event("u", MYSQL | {"pos": 500}), event("d", MYSQL | {"pos": 600})]
    ids = {
        frozenset(reader().record(each)[ID_FIELD] for each in order)
        for order in itertools.permutations(events)
    }
    assert len(ids) == 1
