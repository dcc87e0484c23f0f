"""What a version's file statistics say, and what they leave open."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from etl_assets.delta.log import entry_path
from etl_assets.delta.table import Snapshot, Table
from etl_assets.placement.domains import FailureDomain


def append(table: Table, *offsets: int) -> None:
    table.path.mkdir(parents=True, exist_ok=True)
    write_deltalake(str(table.path), pa.table({"offset": pa.array(offsets, pa.int64())}), mode="append")


def snapshot_of(table: Table) -> Snapshot:
    snapshot = table.snapshot()
    assert snapshot is not None
    return snapshot


def test_the_range_of_a_column_is_that_of_all_files_or_of_some(tmp_path: Path):
    table = Table(name="events", domain=FailureDomain(name="local", root=tmp_path))
    append(table, 5, 9)
    first = set(snapshot_of(table).files())
    append(table, 2, 3)
    assert snapshot_of(table).range_of("offset") == (2, 9)
    assert snapshot_of(table).range_of("offset", first) == (5, 9)
    assert snapshot_of(table).range_of("offset", set()) is None
    assert snapshot_of(table).range_of("unknown") is None


def test_a_file_without_statistics_leaves_the_range_open(tmp_path: Path):
    table = Table(name="events", domain=FailureDomain(name="local", root=tmp_path))
    append(table, 5, 9)
    append(table, 2, 3)
    entry = entry_path(table.path, 1)
    actions = [json.loads(line) for line in entry.read_text("utf-8").splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["stats"] = json.dumps({"numRecords": 2})
    entry.write_text("".join(json.dumps(action) + "\n" for action in actions), "utf-8")
    assert snapshot_of(table).range_of("offset") is None
