"""Changes that lack values, completed in batches, against a model of the source."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from etl_assets.delta.write.completed_changes import FORMER_KEY, LackingColumns, completed_changes

COLUMNS = LackingColumns(
    keys=("id",),
    sequence="lsn",
    arrival="_offset",
    lacks="lacks",
    fields={"body": "body", "note": "the note"},
    key_fields=("id",),
)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("body", pa.string()),
        ("note", pa.string()),
        ("lsn", pa.int64()),
        ("_offset", pa.int64()),
        ("lacks", pa.string()),
        ("_is_deleted", pa.bool_()),
        ("_is_truncate", pa.bool_()),
        ("_is_stored", pa.bool_()),
        ("_former_0", pa.int64()),
    ]
)
KEYS = st.integers(1, 4)
OPERATIONS = st.one_of(
    st.tuples(st.just("insert"), KEYS),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("update"), KEYS, st.booleans(), st.booleans()),
    st.tuples(st.just("move"), KEYS, KEYS, st.booleans(), st.booleans()),
    st.tuples(st.just("truncate")),
)
TRANSACTIONS = st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), max_size=8)


@dataclass
class Source:
    """A table of the source, its log, and the table that the log is applied to."""

    rows: dict[int, tuple[str, str]] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)
    stored: dict[int, dict[str, Any]] = field(default_factory=dict)
    gone: dict[int, dict[str, Any]] = field(default_factory=dict)
    number: int = 0
    lsn: int = 0

    def transaction(self, operations: list[tuple[Any, ...]]) -> None:
        self.lsn += 10
        for kind, *of in operations:
            getattr(self, f"_{kind}")(*of)

    def apply(self) -> None:
        """Apply the changes of the log that are not applied yet, in one batch."""
        keys = {each["id"] for each in self.log} | {each["_former_0"] for each in self.log}
        beside = [self.stored[key] for key in keys if key in self.stored]
        beside += [self.gone[key] for key in keys if key in self.gone]
        known = pa.Table.from_pylist([*self.log, *beside], schema=SCHEMA)
        for made in completed_changes(known, COLUMNS).to_pylist():
            row: dict[str, Any] = {**made, "_is_stored": True, "_former_0": None}
            order = row["lsn"], row["_offset"]
            key: Any = row["id"]
            if row["_is_truncate"]:
                self.stored = {k: r for k, r in self.stored.items() if (r["lsn"], r["_offset"]) > order}
            elif row["_is_deleted"]:
                self.gone[key] = row
                self.stored.pop(key, None)
            else:
                self.stored[key] = row
        self.log = []

    def held(self) -> dict[int, tuple[str, str]]:
        return {key: (row["body"], row["note"]) for key, row in self.stored.items()}

    def _insert(self, key: int) -> None:
        if key not in self.rows:
            self.rows[key] = self._value(), self._value()
            self._change(key, *self.rows[key])

    def _delete(self, key: int) -> None:
        if self.rows.pop(key, None) is not None:
            self._change(key, deletes=True)

    def _truncate(self) -> None:
        self.rows = {}
        self._change(None, truncates=True)

    def _update(self, key: int, body: bool, note: bool) -> None:
        if key in self.rows:
            self._changed(key, key, body, note)

    def _move(self, key: int, to: int, body: bool, note: bool) -> None:
        if key in self.rows and to not in self.rows:
            self._change(key, deletes=True)
            self.rows[to] = self.rows.pop(key)
            self._changed(key, to, body, note)

    def _changed(self, former: int, key: int, body: bool, note: bool) -> None:
        old = self.rows[key]
        new = self._value() if body else old[0], self._value() if note else old[1]
        self.rows[key] = new
        lacks = {name: "" for name, there in (("body", body), ("the note", note)) if not there}
        moved = former if lacks and former != key else None
        if moved is not None:
            lacks[FORMER_KEY] = json.dumps({"id": former})
        text = json.dumps(lacks) if lacks else None
        self._change(key, new[0] if body else None, new[1] if note else None, lacks=text, former=moved)

    def _value(self) -> str:
        self.number += 1
        return f"value {self.number}"

    def _change(
        self,
        key: int | None,
        body: str | None = None,
        note: str | None = None,
        *,
        lacks: str | None = None,
        former: int | None = None,
        deletes: bool = False,
        truncates: bool = False,
    ) -> None:
        self.number += 1
        values = (key, body, note, self.lsn, self.number, lacks, deletes, truncates, False, former)
        self.log.append(dict(zip(SCHEMA.names, values, strict=True)))


@settings(max_examples=100, deadline=None)
@given(transactions=TRANSACTIONS, cuts=st.sets(st.integers(0, 8)))
def test_every_change_gets_the_values_of_its_row_however_changes_are_cut_into_batches(transactions, cuts):
    source = Source()
    for number, operations in enumerate(transactions):
        source.transaction(operations)
        if number in cuts:
            source.apply()
            assert source.held() == source.rows
    source.apply()
    assert source.held() == source.rows


@settings(max_examples=60, deadline=None)
@given(transactions=TRANSACTIONS, dice=st.randoms(use_true_random=False))
def test_changes_of_fixed_keys_end_in_the_same_rows_in_whatever_order_they_arrive(transactions, dice):
    fixed = [[each for each in some if each[0] in ("insert", "update")] for some in transactions]
    source = Source()
    for operations in fixed:
        source.transaction(operations)
    log, rows = source.log, source.rows
    dice.shuffle(log)
    later = Source(rows=rows)
    for first in range(0, len(log), 3):
        later.log = log[first : first + 3]
        _apply_late(later)
    assert later.held() == rows


def _apply_late(source: Source) -> None:
    """Apply a batch whose changes may be older than what is stored."""
    keys = {each["id"] for each in source.log}
    known = pa.Table.from_pylist(
        [*source.log, *(source.stored[key] for key in keys if key in source.stored)], schema=SCHEMA
    )
    for row in completed_changes(known, COLUMNS).to_pylist():
        before = source.stored.get(row["id"])
        place = row["lsn"], row["_offset"]
        if before is None or place >= (before["lsn"], before["_offset"]):
            source.stored[row["id"]] = {**row, "_is_stored": True, "_former_0": None}
    source.log = []


def test_the_row_of_a_former_key_gives_its_values_when_the_batch_is_repeated_after_its_tombstones():
    source = Source()
    source.transaction([("insert", 1)])
    source.apply()
    source.transaction([("move", 1, 2, False, False), ("move", 2, 3, True, False)])
    # The tombstones were committed, and the process died before the rows.
    source.gone = {each["id"]: {**each, "_is_stored": True} for each in source.log if each["_is_deleted"]}
    source.apply()
    assert source.held() == source.rows


def test_a_value_that_nothing_has_is_named():
    lone = {"id": 1, "lsn": 5, "_offset": 1, "lacks": '{"body": ""}', "note": "n"}
    flags = dict.fromkeys(("_is_deleted", "_is_truncate", "_is_stored"), False)
    (row,) = completed_changes(pa.Table.from_pylist([lone | flags], schema=SCHEMA), COLUMNS).to_pylist()
    assert (row["body"], row["note"], row["lacks"]) == (None, "n", '{"body":""}')
