"""Tests that every sink passes. A sink's test module derives from `SinkContract` and provides three fixtures.

`opened`: opens a new `Sink` of one target at each call; `stored`: returns the target's `id` and `name`, as a
set of pairs; the target is empty at first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.errors import LeaseLost, SinkFenced
from etl_assets.sinks.sink import Delivery, Guarantee, Rejection, Sink, SinkPosition

CONTRACT = TableContract(
    name="films",
    description="Films.",
    columns=(
        Column("id", "BIGINT", "Key."),
        Column("name", "STRING", "Name.", nullable=True),
        Column("_batch_id", "BIGINT", "The version that wrote the row."),
    ),
    merge_key=("id",),
)
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("_batch_id", pa.int64())])
Opened = Callable[[], Sink]
Stored = Callable[[], set[tuple[int, Any]]]


def at(version: int, *, table_id: str = "a", tombstones: int = -1) -> SinkPosition:
    return SinkPosition(table_id=table_id, version=version, tombstones=tombstones)


def delivery(
    before: SinkPosition | None,
    after: SinkPosition,
    rows: Iterable[tuple[int, str | None]] = (),
    deleted: Iterable[int] = (),
    *,
    whole: bool = False,
    rejected: list[Rejection] | None = None,
) -> Delivery:
    """Build a delivery: two rows a batch."""
    given, gone = list(rows), list(deleted)
    table = pa.Table.from_pylist(
        [{"id": key, "name": name, "_batch_id": after.version} for key, name in given], schema=SCHEMA
    )
    keys = pa.table({"id": pa.array(gone, pa.int64())})
    return Delivery(
        before=before,
        after=after,
        whole=whole,
        rows=lambda: iter(table.to_batches(2)),
        deleted=lambda: iter(keys.to_batches(2)),
        reject=(lambda found: None) if rejected is None else rejected.extend,
    )


def many(before: SinkPosition | None, after: SinkPosition, number: int, *, whole: bool = False) -> Delivery:
    """Build a delivery whose rows exist 5,000 at a time."""

    def rows() -> Iterator[pa.RecordBatch]:
        for first in range(0, number, 5_000):
            ids = pa.array(range(first, min(first + 5_000, number)), pa.int64())
            names = pa.array([f"film {each} {'x' * 300}" for each in range(first, first + len(ids))])
            versions = pa.array([after.version] * len(ids), pa.int64())
            yield pa.RecordBatch.from_arrays([ids, names, versions], schema=SCHEMA)

    return replace(delivery(before, after, whole=whole), rows=rows)


def in_the_middle(given: Delivery, happens: Callable[[], object]) -> Delivery:
    """A delivery some of whose rows have been sent when something happens."""

    def rows() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(given.rows()):
            if number == 5:
                happens()
            yield batch

    return replace(given, rows=rows)


class SinkContract:
    """What holds for every sink."""

    def test_new_changed_and_deleted_rows_arrive(self, opened: Opened, stored: Stored):
        sink = opened()
        sink.prepare(CONTRACT)
        assert sink.position() is None
        sink.deliver(delivery(None, at(1), [(1, "a"), (2, "b"), (3, "c")], whole=True))
        sink.deliver(delivery(at(1), at(2), [(2, "B"), (4, None)], [3] if sink.applies_deletes else []))
        assert stored() == {(1, "a"), (2, "B"), (4, None)} | (set() if sink.applies_deletes else {(3, "c")})
        if sink.keeps_position:
            assert opened_position(opened) == at(2)
        sink.close()

    def test_a_whole_delivery_leaves_its_rows_and_no_other(self, opened: Opened, stored: Stored):
        sink = opened()
        sink.prepare(CONTRACT)
        sink.deliver(delivery(None, at(1), [(1, "a"), (2, "b")], whole=True))
        sink.deliver(delivery(at(1), at(4), [(1, "a"), (5, "e")], whole=True))
        kept = set() if sink.applies_deletes else {(2, "b")}
        assert stored() == {(1, "a"), (5, "e")} | kept
        sink.close()

    def test_a_writer_that_was_passed_changes_nothing(self, opened: Opened, stored: Stored):
        late, sink = opened(), opened()
        for each in (late, sink):
            each.prepare(CONTRACT)
        if late.guarantee is Guarantee.AT_LEAST_ONCE:
            pytest.skip("its target does not tell writers apart")
        sink.deliver(delivery(None, at(1), [(1, "a")], whole=True))
        sink.deliver(delivery(at(1), at(2), [(1, "b")]))
        old = delivery(at(1), at(2), [(1, "old")])
        if late.guarantee is Guarantee.EXACTLY_ONCE:
            with pytest.raises(SinkFenced):
                late.deliver(old)
            with pytest.raises(SinkFenced):
                late.deliver(delivery(None, at(1), [(1, "old")], whole=True))
        else:
            late.deliver(delivery(None, at(1), [(1, "old")]))
        assert stored() == {(1, "b")}
        late.close()
        sink.close()

    def test_a_runner_that_takes_over_rejects_what_the_one_before_has_planned(
        self, opened: Opened, stored: Stored
    ):
        def deliver(given: Delivery) -> None:
            sink = opened()
            sink.prepare(CONTRACT)
            try:
                sink.deliver(given)
            finally:
                sink.close()

        sink = opened()
        sink.close()
        if not sink.keeps_position:
            pytest.skip("the record of the delivery keeps the position")
        begun = replace(SinkPosition.of_no_table(), token=2)
        deliver(delivery(None, begun))
        assert opened_position(opened) == begun
        with pytest.raises(SinkFenced):
            deliver(delivery(None, at(1), [(1, "late")], whole=True))
        first, taken_over = replace(at(1), token=2), replace(at(1), token=5)
        deliver(delivery(begun, first, [(1, "a")], whole=True))
        deliver(delivery(first, taken_over))
        with pytest.raises(SinkFenced):
            deliver(delivery(first, replace(at(2), token=2), [(1, "late")]))
        assert stored() == {(1, "a")}
        assert opened_position(opened) == taken_over

    def test_a_superseded_runner_commits_nothing(self, opened: Opened, stored: Stored):
        def superseded() -> None:
            raise LeaseLost("another runner has begun", fix="nothing")

        sink = opened()
        sink.prepare(CONTRACT)
        sink.deliver(delivery(None, at(1), [(1, "a")], whole=True))
        late = replace(delivery(at(1), at(2), [(1, "late")]), expect_current=superseded)
        with pytest.raises(LeaseLost):
            sink.deliver(late)
        assert stored() == {(1, "a")}
        sink.close()

    def test_to_prepare_again_changes_nothing(self, opened: Opened, stored: Stored):
        sink = opened()
        sink.prepare(CONTRACT)
        sink.deliver(delivery(None, at(1), [(1, "a")], whole=True))
        sink.close()
        again = opened()
        again.prepare(CONTRACT)
        assert stored() == {(1, "a")}
        again.close()
        again.close()


def opened_position(opened: Opened) -> SinkPosition | None:
    sink = opened()
    sink.prepare(CONTRACT)
    try:
        return sink.position()
    finally:
        sink.close()
