"""Few rows of many partitions, sorted into data files without Spark."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl_assets.contracts.spark_types import struct_type
from etl_assets.delta.log.partition_values import values_in
from etl_assets.delta.write import partition_files
from etl_assets.delta.write.partition_files import few_rows_of_many_partitions, sort_into_partitions
from etl_assets.delta.write.write import DeferredRows, Write
from etl_assets.orders.tables.audit_log import AUDIT_LOG

KNOWN = "__known"
DAY = dt.date(2026, 1, 1)


def row(number: int, *, days: int = 5, stage: str | None = "ingest") -> dict:
    return {
        "source_position": f"p-{number}",
        "stage": stage,
        "partition_date": DAY + dt.timedelta(days=number % days),
        "batch_id": 1,
        KNOWN: number % 7 == 0,
    }


def sort(tmp_path: Path, *files: list[dict]) -> tuple[list[dict], Counter[str], int]:
    """The rows that were written, the number of files of each folder, and the rows left out."""
    schema = partition_files.data_file_schema(AUDIT_LOG).append(pa.field(KNOWN, pa.bool_()))
    paths = [tmp_path / f"{number}.parquet" for number in range(len(files))]
    for path, rows in zip(paths, files, strict=True):
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    folder = tmp_path / "rows"
    left_out = sort_into_partitions(paths, AUDIT_LOG, folder, known=KNOWN)
    written, per_folder = [], Counter()
    for file in folder.rglob("*.parquet"):
        parts = file.parent.relative_to(folder)
        per_folder[str(parts)] += 1
        partition = dict(values_in(parts.parts))
        assert [*partition] == [*AUDIT_LOG.delta_partition]
        found = pq.ParquetFile(file).read()
        assert KNOWN not in found.column_names
        assert not {*partition} & {*found.column_names}
        written += [{**each, **partition} for each in found.to_pylist()]
    return written, per_folder, left_out


def essence(rows: list[dict]) -> list[tuple]:
    return sorted((each["source_position"], str(each["partition_date"]), str(each["stage"])) for each in rows)


def test_each_row_is_in_the_folder_of_its_partition_once(tmp_path):
    one, other = [row(number) for number in range(40)], [row(number) for number in range(40, 90)]
    other += [row(number, stage=None) for number in range(90, 95)]
    written, per_folder, left_out = sort(tmp_path, one, other)
    new = [each for each in one + other if not each[KNOWN]]
    assert essence(written) == essence(new)
    assert left_out == len(one + other) - len(new)
    assert set(per_folder.values()) == {1}, "one file for each partition, however many files the rows were in"


def test_more_rows_than_are_held_at_a_time_become_more_files(tmp_path, monkeypatch):
    rows = [row(number, days=2) for number in range(1_000)]
    monkeypatch.setattr(partition_files, "ROWS_AT_ONCE", 300)
    monkeypatch.setattr(partition_files, "_ROWS_PER_PIECE", 100)
    written, per_folder, _ = sort(tmp_path, rows)
    assert essence(written) == essence([each for each in rows if not each[KNOWN]])
    assert set(per_folder.values()) == {3}


@pytest.mark.parametrize(
    ("rows", "days", "here"),
    [(40_000, 600, True), (2_000, 31, True), (10, 1, False), (300_000, 30, False), (None, 600, False)],
)
def test_full_days_and_rows_that_nobody_counted_are_left_to_spark(rows, days, here):
    write = Write(
        rows=DeferredRows(schema=struct_type(AUDIT_LOG), frame=lambda: pytest.fail("not needed")),
        base_version=0,
        partitions=[str(DAY + dt.timedelta(days=number)) for number in range(days)],
        rows_at_most=rows,
    )
    assert few_rows_of_many_partitions(write, AUDIT_LOG) is here
