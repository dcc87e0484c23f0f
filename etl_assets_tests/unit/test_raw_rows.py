"""What workers make of source files, without Spark: staged lines, and rows with dense offsets and their
places.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row

from etl_assets.compute import worker_tasks
from etl_assets.delta.write import staged as staged_rows
from etl_assets.delta.write.append import _data_files, _Footer
from etl_assets.ingest import raw_rows, stage_lines
from etl_assets.ingest.raw_rows import RawRows, RowsTask, _RowMaker, rows_tasks
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets.sources import lines
from etl_assets_tests.pipeline import DAY, NEXT_DAY, RECORDS, event
from etl_assets_tests.reference.staged_lines import (
    KINDS,
    cut_and_place,
    place,
    placed_block,
    stage,
    write_lines,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = dt.datetime(2026, 1, 7, tzinfo=dt.UTC)
OF_TABLE: dict[str, Any] = {"contract": RAW_EVENTS, "repeating": RECORDS.repeating}
STAMPS: dict[str, Any] = {"ingest_domain": "local", "ingested_at": NOW, "batch_id": 7}
LINE = st.sampled_from(("event", *KINDS))
FILES = st.lists(st.tuples(st.sampled_from([DAY, NEXT_DAY]), st.lists(LINE, max_size=12)), max_size=5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    FILES,
    st.sampled_from([300, 1_000, 1 << 20]),
    st.sampled_from([1, 700, 1 << 20]),
    st.sampled_from([1, 4, 99]),
)
def test_rows_are_dense_and_in_source_order_however_files_are_cut(
    tmp_path_factory, files, task_bytes, piece_bytes, rows_a_file
):
    folder = tmp_path_factory.mktemp("rows")
    files = sorted(files, key=lambda file: file[0])
    with pytest.MonkeyPatch.context() as patch:
        placed, repeats = cut_and_place(patch, files, folder, task=task_bytes, piece=piece_bytes)
        patch.setattr(raw_rows, "_ROWS_AT_ONCE", 3)
        maker = _RowMaker(
            **OF_TABLE,
            staging=folder,
            repeats=repeats,
            stamps=STAMPS,
        )
        tasks = list(rows_tasks(placed, 100, rows_a_file))
        tables = [(task.day, table) for task in tasks for table in maker.rows_of(task)]
        written = [(task, maker.write(task, folder)) for task in tasks]
    assert all(table.num_rows for _, table in tables)
    rows = [(day, row) for day, table in tables for row in table.to_pylist()]
    for task, name in written:
        offsets = range(task.first_offset, task.first_offset + task.rows)
        assert _bounds(folder / name) == (offsets[0], offsets[-1])
    expected = [
        (day, f"event-{index}-{number}", f"{day}/{index}:{number + 1}")
        for index, (day, kinds) in enumerate(files)
        for number, kind in enumerate(kinds)
        if kind == "event"
    ]
    assert [(day, row["event_id"], row["source_position"]) for day, row in rows] == expected
    assert [row["offset"] for _, row in rows] == list(range(100, 100 + len(expected)))
    assert {(row["source"], row["ingested_at"], row["batch_id"]) for _, row in rows} <= {("landing", NOW, 7)}
    assert sum(block.staged.rejected for block in placed) == sum(kinds.count("bad") for _, kinds in files)
    assert sum(block.staged.blank for block in placed) == sum(kinds.count("blank") for _, kinds in files)


def test_a_file_that_ends_in_repeats_only_has_bounds(tmp_path, monkeypatch):
    """A row group of repeats, after the rows before it have been written, adds none."""
    for module in (lines, stage_lines):
        monkeypatch.setattr(module, "_PIECE_BYTES", 1)
    monkeypatch.setattr(raw_rows, "_ROWS_AT_ONCE", 1)
    kinds = ["event", "event", "duplicate"]
    path = write_lines(tmp_path / "0.jsonl", 0, DAY, kinds)
    placed, repeats = place(
        stage([(str(path), path.stat().st_size, DAY)], tmp_path), [(DAY, kinds)], tmp_path
    )
    (task,) = rows_tasks(placed, 100)
    maker = _RowMaker(**OF_TABLE, staging=tmp_path, repeats=repeats, stamps=STAMPS)
    assert _bounds(tmp_path / maker.write(task, tmp_path)) == (100, 101)


def test_a_row_group_without_rows_costs_a_file_no_statistics(tmp_path):
    rows = pa.table({"offset": pa.array([5, 9], pa.int64())})
    with pq.ParquetWriter(tmp_path / "a.parquet", rows.schema) as writer:
        writer.write_table(rows)
        writer.write_table(rows.slice(0, 0))
    assert _bounds(tmp_path / "a.parquet") == (5, 9)


def test_a_worker_holds_no_more_long_records_than_so_many_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "_PIECE_BYTES", 1)
    monkeypatch.setattr(stage_lines, "_PIECE_BYTES", 1)
    path = tmp_path / "0.jsonl"
    long = [event(number, payload={"note": "x" * 2_000}) for number in range(12)]
    path.write_text("".join(json.dumps(each) + "\n" for each in long), "utf-8")
    (block,) = stage([(str(path), path.stat().st_size, DAY)], tmp_path)
    (task,) = rows_tasks([placed_block(block, new=12)], 0)
    maker = _RowMaker(**OF_TABLE, staging=tmp_path, repeats=(), stamps=STAMPS)
    assert [table.num_rows for table in maker.rows_of(task)] == [12]
    monkeypatch.setattr(raw_rows, "_BYTES_AT_ONCE", 8_000)
    tables = list(maker.rows_of(task))
    assert max(table.nbytes for table in tables) < 12_000
    assert sum(table.num_rows for table in tables) == 12


def test_a_worker_holds_no_more_short_lines_than_so_many(tmp_path, monkeypatch):
    for module in (lines, stage_lines):
        monkeypatch.setattr(module, "_PIECE_LINES", 3)
    path = write_lines(tmp_path / "0.jsonl", 0, DAY, ["bad"] * 10)
    (block,) = stage([(str(path), path.stat().st_size, DAY)], tmp_path)
    assert (block.lines, block.rejected) == (10, 10)
    rejected = pq.read_metadata(tmp_path / f"rejected-{block.part}.parquet")
    assert [rejected.row_group(number).num_rows for number in range(rejected.num_row_groups)] == [3, 3, 3, 1]
    assert pq.read_metadata(tmp_path / f"events-{block.part}.parquet").num_row_groups == 1


def test_rows_that_are_not_as_many_as_were_counted_stop_the_task(tmp_path):
    path = write_lines(tmp_path / "0.jsonl", 0, DAY, ["event", "event"])
    (block,) = stage([(str(path), path.stat().st_size, DAY)], tmp_path)
    (task,) = rows_tasks([placed_block(block, new=1)], 0)
    with pytest.raises(RuntimeError, match="came to 2 rows, not the 1 counted"):
        list(_RowMaker(**OF_TABLE, staging=tmp_path, repeats=(), stamps=STAMPS).rows_of(task))


def test_what_an_attempt_that_failed_has_written_is_not_among_the_files_of_another(tmp_path):
    path = write_lines(tmp_path / "0.jsonl", 0, DAY, ["event"])
    files = [(str(path), path.stat().st_size, DAY)]
    first, second = stage(files, tmp_path), stage(files, tmp_path)
    assert {block.part for block in first}.isdisjoint(block.part for block in second)


def test_files_of_attempts_under_way_are_not_where_data_files_are_looked_for(tmp_path, monkeypatch):
    """Spark may go on with an attempt that it no longer waits for; half a file must not be taken for data."""

    def work_here(_: object, tasks: Iterable[RowsTask], work: Callable, __: str) -> SimpleNamespace:
        def collect() -> list[Row]:
            _abandoned, rows = (
                [Row(**row) for task in tasks for batch in work(task) for row in batch.to_pylist()]
                for _attempt in range(2)
            )
            under_way.append(list(_data_files(folder)))
            return rows

        return SimpleNamespace(collect=collect)

    under_way: list[list[str]] = []
    folder = tmp_path / "append" / "rows"
    monkeypatch.setattr(worker_tasks, "in_workers", work_here)
    monkeypatch.setattr(staged_rows, "LITTLE_BYTES", 0)
    files = [(day, ["event"]) for day in (DAY, NEXT_DAY)]
    paths = [write_lines(tmp_path / f"{index}.jsonl", index, *file) for index, file in enumerate(files)]
    staged = stage(
        [(str(path), path.stat().st_size, day) for path, (day, _) in zip(paths, files, strict=True)], tmp_path
    )
    placed, _ = place(staged, files, tmp_path)
    rows = RawRows(
        session=lambda: cast("SparkSession", None),
        **OF_TABLE,
        tasks=tuple(rows_tasks(placed, 0)),
        staging=tmp_path,
        repeats=(),
        **STAMPS,
    )
    assert rows.write(folder, {}) == 0
    assert under_way == [[]], "looked once, while attempts were under way"
    written = sorted(_data_files(folder))
    assert [name.partition("/part-")[0] for name in written] == [
        f"partition_date={day}" for day in (DAY, NEXT_DAY)
    ]


def _bounds(file: Path) -> tuple[int, int]:
    """Lowest and highest offset, as the log entry of an append is to name them."""
    with pq.ParquetFile(file) as opened:
        statistics = _Footer(opened).statistics(["offset"])
    return statistics["minValues"].get("offset"), statistics["maxValues"].get("offset")
