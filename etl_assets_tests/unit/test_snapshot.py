"""What a version's file statistics say, and what they leave open."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from etl_assets.delta.log.cursor import days_with_news
from etl_assets.delta.log.entries import entry_path
from etl_assets.delta.read.partition_filter import PartitionFilter
from etl_assets.delta.snapshot import Snapshot
from etl_assets.delta.table import Table
from etl_assets.delta.write.offsets import next_offset
from etl_assets.steps.step import platform_table
from etl_assets_tests.pipeline import DAY, NEXT_DAY
from etl_assets_tests.reference.tables import local_domain
from etl_assets_tests.reference.written_tables import write_table


def append(table: Table, *offsets: int) -> None:
    table.path.mkdir(parents=True, exist_ok=True)
    write_deltalake(str(table.path), pa.table({"offset": pa.array(offsets, pa.int64())}), mode="append")


def snapshot_of(table: Table) -> Snapshot:
    snapshot = table.snapshot()
    assert snapshot is not None
    return snapshot


def test_the_range_of_a_column_is_that_of_all_files_or_of_some(tmp_path: Path):
    table = Table(name="events", domain=local_domain(tmp_path))
    append(table, 5, 9)
    first = set(snapshot_of(table).files())
    append(table, 2, 3)
    assert snapshot_of(table).range_of("offset") == (2, 9)
    assert snapshot_of(table).range_of("offset", first) == (5, 9)
    assert snapshot_of(table).range_of("offset", set()) is None
    assert snapshot_of(table).range_of("unknown") is None


def test_a_file_without_statistics_leaves_the_range_open(tmp_path: Path):
    table = Table(name="events", domain=local_domain(tmp_path))
    append(table, 5, 9)
    append(table, 2, 3)
    forget_statistics(table, 1)
    assert snapshot_of(table).range_of("offset") is None


def test_a_file_without_statistics_may_have_the_highest_value(tmp_path: Path):
    """As an offset that is dealt twice is not seen before readers outside have taken one event for
    another.
    """
    table = Table(name="events", domain=local_domain(tmp_path / "a root"))
    append(table, 2, 3)
    append(table, 5, 9)
    forget_statistics(table, 1)
    assert snapshot_of(table).maximum("offset") == 9
    assert next_offset(snapshot_of(table)) == 10


def test_a_file_without_statistics_is_news_of_its_day(tmp_path: Path):
    domain = local_domain(tmp_path)
    for version, day in enumerate((DAY, DAY, NEXT_DAY)):
        write_table(domain, "raw_events", [{"partition_date": day, "batch_id": version}])
    table = platform_table("raw_events", domain)
    forget_statistics(table, 1)
    assert snapshot_of(table).newest_batch_by_day() == {DAY: 2, NEXT_DAY: 2}
    assert days_with_news(table, 2, {DAY: 0, NEXT_DAY: 2}) == (DAY,)


def test_a_file_that_does_not_tell_its_rows_may_have_some(tmp_path: Path):
    """Else an upsert would be an append, and have twice what is there."""
    domain = local_domain(tmp_path)
    table = platform_table("warehouse_rows", domain)
    write_table(domain, table.name, [{"partition_date": DAY}])
    forget_statistics(table, 0, but=())
    snapshot = snapshot_of(table)
    assert snapshot.may_have_rows()
    assert snapshot.may_have_rows("partition_date", [DAY.isoformat()])
    assert not snapshot.may_have_rows("partition_date", [NEXT_DAY.isoformat()])
    emptied = Table(name="events", domain=domain)
    append(emptied)
    assert not snapshot_of(emptied).may_have_rows()


def forget_statistics(table: Table, version: int, *, but: tuple[str, ...] = ("numRecords",)) -> None:
    """Leave nothing of what the log says of a commit's files but the number of rows, or not even that."""
    entry = entry_path(table.path, version)
    actions = [json.loads(line) for line in entry.read_text("utf-8").splitlines()]
    for action in actions:
        if "add" in action:
            told = json.loads(action["add"]["stats"])
            action["add"]["stats"] = json.dumps({name: told[name] for name in but})
    entry.write_text("".join(json.dumps(action) + "\n" for action in actions), "utf-8")


def test_rows_of_values_are_told_by_their_type_and_not_by_their_text(tmp_path: Path):
    table = Table(name="flags", domain=local_domain(tmp_path))
    table.path.mkdir(parents=True)
    rows = pa.table({"id": [1, 2, 3], "flag": [True, True, None], "day": [dt.date(2026, 1, 1)] * 3})
    write_deltalake(str(table.path), rows, partition_by=["flag", "day"])
    snapshot = snapshot_of(table)
    assert snapshot.rows_by_value("flag") == {True: 2, None: 1}
    assert snapshot.may_have_rows_in("flag", PartitionFilter.of(True))
    assert not snapshot.may_have_rows_in("flag", PartitionFilter.of(False))
    january = PartitionFilter.between(dt.date(2026, 1, 1), dt.date(2026, 2, 1))
    assert snapshot.may_have_rows_in("day", january)
    assert not snapshot.may_have_rows_in("day", PartitionFilter.of(dt.date(2026, 2, 1)))
    assert snapshot.may_have_rows_in("id", PartitionFilter.of(9)), (
        "a table may have any value of its other columns"
    )


def test_rows_of_a_value_are_counted_in_a_file_of_which_the_log_does_not_tell(tmp_path: Path):
    table = Table(name="flags", domain=local_domain(tmp_path))
    table.path.mkdir(parents=True)
    write_deltalake(str(table.path), pa.table({"id": [1], "flag": [True]}), partition_by=["flag"])
    forget_statistics(table, 0, but=())
    assert snapshot_of(table).rows_by_value("flag") == {True: 1}
    assert snapshot_of(table).may_have_rows_in("flag", PartitionFilter.of(True))
