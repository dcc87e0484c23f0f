"""Compaction, by this process and by Delta: fewer files, the same rows, and nothing new for anybody."""

from __future__ import annotations

from typing import Any

import pytest

from etl_assets.delta.log.cursor import days_with_news, read_cursors
from etl_assets.delta.log.entries import entry_path, read_entry
from etl_assets.delta.maintenance import compaction
from etl_assets.steps.compact import Compact, extent
from etl_assets_tests.pipeline import DAY, NEXT_DAY, Pipeline, event
from etl_assets_tests.reference.tables import ALL_TABLES

pytestmark = pytest.mark.spark

COMPACTED = ("raw_events", "normalized_orders", "warehouse_rows", "order_status_view", "audit_log")


def odd(number: int) -> dict[str, Any]:
    """An event whose ids are the largest of their file, for the log's statistics, and hold what Python takes
    for line ends.
    """
    return event(number, event_id=f"\u2028event-{number}", aggregate_id=f"\u2028order-{number}")


def ids(pipeline: Pipeline, table: str) -> list[str]:
    return sorted(row["event_id"] for row in pipeline.rows(table))


@pytest.mark.parametrize("by_delta", [pytest.param(False, marks=pytest.mark.full), True])
def test_small_files_become_few_and_no_row_is_new_to_anybody(pipeline, monkeypatch, by_delta):
    if by_delta:
        monkeypatch.setattr(compaction, "MAX_BYTES_IN_PROCESS", 0)
    for number in range(3):
        lines = [odd(10 * number), *(event(10 * number + each) for each in range(1, 5))]
        pipeline.land([*lines, "bad"], name=f"{number}.jsonl")
        pipeline.land([event(100 + number, day=NEXT_DAY)], day=NEXT_DAY, name=f"{number}.jsonl")
        pipeline.run([DAY, NEXT_DAY])
    names = [contract.name for contract in ALL_TABLES]
    before = {name: sorted(map(str, pipeline.rows(name))) for name in names}
    for name in COMPACTED:
        table = pipeline.context.table(name)
        cursors = {source: read_cursors(table, source, [DAY]) for source in names}
        was, now = Compact(context=pipeline.context, table=name).run()
        partitions = 1 if name == "order_status_view" else 2
        assert (now.files, now.version) == (partitions, was.version + 1), name
        assert was.files > now.files
        assert now == extent(table)
        if by_delta:
            assert "\u2028" in entry_path(table.path, now.version).read_text("utf-8"), name
        entry = read_entry(table.path, now.version)
        assert entry.operation == "OPTIMIZE"
        assert not any(file.changes_rows for file in (*entry.added, *entry.removed))
        assert {source: read_cursors(table, source, [DAY]) for source in names} == cursors
        again = Compact(context=pipeline.context, table=name).run()
        assert again == (now, now)
    assert {name: sorted(map(str, pipeline.rows(name))) for name in names} == before

    raw, orders = pipeline.context.table("raw_events"), pipeline.context.table("normalized_orders")
    consumed = read_cursors(orders, "raw_events", [DAY, NEXT_DAY])
    assert days_with_news(raw, raw.version(), {day: consumed[day] for day in (DAY, NEXT_DAY)}) == ()
    assert {name: report.commits for name, report in pipeline.run([DAY, NEXT_DAY]).items()} == dict.fromkeys(
        pipeline.steps(), 0
    )

    # A repeat of each old file's events, and one new event: the index still knows every key.
    pipeline.land([odd(0), event(11), event(24), event(500)], name="later.jsonl")
    reports = pipeline.run([DAY, NEXT_DAY])
    assert ids(pipeline, "raw_events").count("event-500") == 1
    assert len(ids(pipeline, "raw_events")) == len(set(ids(pipeline, "raw_events"))) == 19
    assert ids(pipeline, "warehouse_rows") == ids(pipeline, "raw_events")
    assert reports["warehouse_rows"].total()["read"] == 1
    offsets = [row["offset"] for row in pipeline.rows("raw_events", order_by="offset")]
    assert offsets == list(range(19))


def test_an_open_day_stays_as_it_is(pipeline):
    import dataclasses
    import datetime as dt

    pipeline = dataclasses.replace(
        pipeline, clock=lambda: dt.datetime.combine(NEXT_DAY, dt.time(12), tzinfo=dt.UTC)
    )
    for number in range(2):
        pipeline.land([event(number)], name=f"{number}.jsonl")
        pipeline.land([event(100 + number, day=NEXT_DAY)], day=NEXT_DAY, name=f"{number}.jsonl")
        pipeline.run([DAY, NEXT_DAY], only=["raw_events"])
    was, now = Compact(context=pipeline.context, table="raw_events").run()
    assert (was.files, now.files) == (4, 3)
