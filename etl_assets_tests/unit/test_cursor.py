"""How far a table has read another: a cursor may lag and never leads, and outlives neither more nor less than
it says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from etl_assets.delta.log.cursor import (
    advance,
    cursor_name,
    days_with_news,
    read_cursors,
    taken_back,
)
from etl_assets.delta.log.entries import entry_path, read_entry, read_transactions
from etl_assets.delta.log.lasting_cursors import LASTING, REMEMBERED_COMMITS, lasting_cursors
from etl_assets.delta.maintenance.compaction import Compaction, commit_compaction
from etl_assets.delta.table import Table
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.write import Transaction
from etl_assets.steps.step import platform_table
from etl_assets_tests.pipeline import DAY, NEXT_DAY
from etl_assets_tests.reference.tables import local_domain
from etl_assets_tests.reference.written_tables import write_table

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "batch_id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "partition_date", "type": "date", "nullable": True, "metadata": {}},
        ],
    }
)


class Log:
    """A table of log entries alone, as Delta writes them."""

    def __init__(self, root: Path, name: str) -> None:
        self.table = Table(name=name, domain=local_domain(root))
        self._folder = self.table.path / "_delta_log"
        self._folder.mkdir(parents=True)
        self._next = 0
        self.commit(
            protocol={"minReaderVersion": 1, "minWriterVersion": 2},
            metaData={
                "id": "00000000-0000-0000-0000-000000000000",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": SCHEMA,
                "partitionColumns": ["partition_date"],
                "configuration": {},
            },
        )

    def commit(
        self, *, metadata: str | None = None, txns: Mapping[str, int] | None = None, **actions: dict[str, Any]
    ) -> None:
        info = {"commitInfo": {"timestamp": 0, "operation": "WRITE", "userMetadata": metadata}}
        ids = ({"txn": {"appId": name, "version": version}} for name, version in (txns or {}).items())
        lines = [info, *ids, *({name: action} for name, action in actions.items())]
        path = self._folder / f"{self._next:020d}.json"
        path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
        self._next += 1

    def transact(self, app_id: str, version: int) -> None:
        self.commit(txn={"appId": app_id, "version": version})

    def add(self, day: str, batch_id: int) -> None:
        stats = {
            "numRecords": 1,
            "minValues": {"batch_id": batch_id},
            "maxValues": {"batch_id": batch_id},
            "nullCount": {"batch_id": 0},
        }
        self.commit(
            add={
                "path": f"partition_date={day}/{batch_id}.parquet",
                "partitionValues": {"partition_date": day},
                "size": 1,
                "modificationTime": 0,
                "dataChange": True,
                "stats": json.dumps(stats),
            }
        )


@pytest.fixture
def reader(tmp_path: Path) -> Log:
    return Log(tmp_path, "reader")


def source_of(log: Log) -> Table:
    return Table(name="source", domain=log.table.domain)


def read(log: Log) -> dict[Any, int]:
    return read_cursors(log.table, "source", [DAY, NEXT_DAY])


def test_a_table_that_does_not_exist_has_read_nothing(tmp_path):
    table = Table(name="absent", domain=local_domain(tmp_path))
    assert read_cursors(table, "source", [DAY, None]) == {DAY: -1, None: -1}


def test_a_transaction_id_is_the_cursor_of_its_day(reader):
    reader.transact(cursor_name("source", DAY), 7)
    assert read(reader) == {DAY: 7, NEXT_DAY: -1}


def test_a_map_of_cursors_holds_for_each_of_its_days(reader):
    reader.commit(
        metadata=json.dumps(
            {"cursors": {"source/2026-01-05": 3, "source/2026-01-06": 4, "other/2026-01-05": 9}}
        )
    )
    assert read(reader) == {DAY: 3, NEXT_DAY: 4}


def test_the_highest_that_any_commit_says_counts(reader):
    reader.transact(cursor_name("source", DAY), 7)
    reader.commit(metadata=json.dumps({"cursors": {"source/2026-01-05": 5, "source/2026-01-06": 5}}))
    reader.commit(metadata=json.dumps({"cursors": {"source/2026-01-06": 2}}))
    assert read(reader) == {DAY: 7, NEXT_DAY: 5}


def test_a_cursor_on_the_whole_source_holds_for_every_day(reader):
    reader.transact(cursor_name("source", None), 4)
    reader.transact(cursor_name("source", DAY), 2)
    assert read(reader) == {DAY: 4, NEXT_DAY: 4}


def test_a_map_that_is_too_long_ago_lags(reader):
    reader.commit(metadata=json.dumps({"cursors": {"source/2026-01-05": 3}}))
    for _ in range(REMEMBERED_COMMITS):
        reader.commit()
    assert read(reader)[DAY] == -1


def test_a_map_lasts_once_a_commit_has_made_ids_of_what_it_says(reader):
    reader.transact(cursor_name("source", NEXT_DAY), 6)
    reader.commit(metadata=json.dumps({"cursors": {"source/2026-01-05": 3, "source/2026-01-06": 5}}))
    lasting = lasting_cursors(reader.table, reader.table.version(), {"source/2026-01-07": 1})
    assert lasting == {"source/2026-01-05": 3, "source/2026-01-07": 1}, "6 is past what the map says"
    reader.commit(metadata=json.dumps({LASTING: True}), txns=lasting)
    for _ in range(REMEMBERED_COMMITS):
        reader.commit()
    assert read(reader) == {DAY: 3, NEXT_DAY: 6}
    assert lasting_cursors(reader.table, reader.table.version(), {}) == {}


def test_a_compaction_makes_cursors_last(tmp_path):
    domain = local_domain(tmp_path)
    table = platform_table("warehouse_rows", domain)
    ensure_table(table)
    for batch in range(2):
        write_table(domain, table.name, [{"partition_date": DAY, "batch_id": batch}])
    entry = entry_path(table.path, 2)
    entry.write_text(
        _with_metadata(entry.read_text("utf-8"), {"cursors": {"normalized_orders/2026-01-05": 2}})
    )
    commit_compaction(lambda: pytest.fail("Spark is not needed"), table, Compaction(days=(DAY,)))
    assert read_entry(table.path, 3).transactions == {"normalized_orders/2026-01-05": 2}
    assert read_cursors(table, "normalized_orders", [DAY]) == {DAY: 2}


def _with_metadata(entry: str, metadata: dict[str, Any]) -> str:
    actions = [json.loads(line) for line in entry.splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["userMetadata"] = json.dumps(metadata)
    actions.sort(key=lambda action: "commitInfo" not in action)
    return "".join(json.dumps(action) + "\n" for action in actions)


def test_transaction_ids_are_read_at_once_as_one_by_one(reader):
    for version in range(30):
        reader.transact(f"source/{version % 7}", version)
        reader.commit(metadata='{"txn"', txn={"appId": "other", "version": version})
        if version == 20:
            DeltaTable(str(reader.table.path)).create_checkpoint()
    one_by_one: Any = DeltaTable(str(reader.table.path))
    for at in (12, 45, 60):
        found = read_transactions(reader.table.path, at)
        one_by_one.load_as_version(at)
        assert found == {name: one_by_one.transaction_version(name) for name in found or ()}
        snapshot = reader.table.snapshot(at)
        assert snapshot is not None
        assert snapshot.transaction_versions([*(found or ()), "never"]) == found


def test_what_an_undo_took_out_waits_however_many_commits_ago_it_was(reader):
    undone = {"cursors": {"source/2026-01-05": -1}, "undo": {"kind": "restore"}, LASTING: True}
    reader.commit(metadata=json.dumps(undone), txn={"appId": cursor_name("source", DAY), "version": -1})
    for _ in range(REMEMBERED_COMMITS + 10):
        reader.commit()
    source = Log(reader.table.domain.root, "source")
    source.add("2026-01-05", 1)
    source.add("2026-01-06", 1)
    assert taken_back(reader.table, source.table) == {DAY.isoformat()}


def test_an_undo_sets_back_what_was_read_and_what_comes_after_counts_from_there(reader):
    reader.transact(cursor_name("source", DAY), 7)
    reader.commit(metadata=json.dumps({"cursors": {"source/2026-01-05": 8, "source/2026-01-06": 9}}))
    undone = {"cursors": {"source/2026-01-05": -1, "source/2026-01-06": 9}, "undo": {"kind": "restore"}}
    reader.commit(metadata=json.dumps(undone), txn={"appId": cursor_name("source", DAY), "version": -1})
    assert read(reader) == {DAY: -1, NEXT_DAY: 9}
    assert taken_back(reader.table, source_of(reader)) == {DAY.isoformat()}
    assert read_cursors(reader.table, "source", [DAY], version=2) == {DAY: 8}
    reader.commit(metadata=json.dumps({"cursors": {"source/2026-01-05": 5}}))
    assert read(reader) == {DAY: 5, NEXT_DAY: 9}
    assert taken_back(reader.table, source_of(reader)) == frozenset()


def test_what_other_writers_put_there_is_theirs(reader):
    for text in ("free text", "[1]", '{"cursors": null}', "7"):
        reader.commit(metadata=text)
    assert read(reader) == {DAY: -1, NEXT_DAY: -1}


def test_a_day_has_news_when_its_newest_row_is_past_the_cursor(tmp_path):
    source = Log(tmp_path, "source")
    source.add("2026-01-05", 1)
    source.add("2026-01-06", 2)
    version = source.table.version()
    assert days_with_news(source.table, version, {DAY: 1, NEXT_DAY: 1}) == (NEXT_DAY,)
    assert days_with_news(source.table, version, {NEXT_DAY: -1, DAY: -1}) == (DAY, NEXT_DAY)
    assert days_with_news(source.table, version, {DAY: 2, NEXT_DAY: 2}) == ()


def test_rows_that_came_after_the_version_read_are_no_news_of_it(tmp_path):
    source = Log(tmp_path, "source")
    source.add("2026-01-05", 1)
    source.add("2026-01-05", 2)
    assert days_with_news(source.table, 1, {DAY: 1}) == ()


def test_one_day_advances_by_its_transaction_and_several_by_the_map():
    assert advance("source", [DAY], 5) == (
        Transaction(app_id="source/2026-01-05", version=5),
        {"source/2026-01-05": 5},
    )
    assert advance("source", [DAY, NEXT_DAY], 5) == (None, {"source/2026-01-05": 5, "source/2026-01-06": 5})
    assert advance("source", [], 5) == (None, {})
    assert advance("source", [None], 5)[0] == Transaction(app_id="source/*", version=5)
