"""Appends without Delta's writer leave what Delta's would have left, and refuse what it would have
refused.
"""

from __future__ import annotations

import datetime as dt
import shutil
from dataclasses import replace
from decimal import Decimal

import polars
import pytest

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.delta.log.entries import checkpoint_path, read_entry
from etl_assets.delta.table import Table
from etl_assets.delta.write import commit as committing
from etl_assets.delta.write import staged
from etl_assets.delta.write.append import STAGING, rows_as_files
from etl_assets.delta.write.commit import commit
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.upsert import UpsertSpec
from etl_assets.delta.write.write import Write
from etl_assets.errors import NullRefused
from etl_assets.placement.domains import FailureDomain
from etl_assets_tests.pipeline import DAY, NEXT_DAY, event
from etl_assets_tests.reference.tables import CATALOG, local_domain

pytestmark = pytest.mark.spark

PARTS = TableContract(
    name="parts",
    description="A part of every type that a table may have.",
    columns=(
        Column("part_id", "STRING", "Its id."),
        Column("weight", "DECIMAL(10,2)", "In kilograms.", nullable=True),
        Column("made_at", "TIMESTAMP", "When it was made."),
        Column("note", "STRING", "Free text."),
        Column("sizes", "MAP<STRING, INT>", "By side.", nullable=True),
        Column("shelf", "STRING", "Where it lies.", nullable=True),
        Column("partition_date", "DATE", "Its day.", nullable=True),
        Column("batch_id", "BIGINT", "The commit that wrote it."),
    ),
    merge_key=("part_id",),
    delta_partition=("partition_date", "shelf"),
    append_only=True,
)
MADE = dt.datetime(2026, 1, 5, 10, 30, 0, 123456, tzinfo=dt.UTC)
MONDAY, TUESDAY = dt.date(2026, 1, 5), dt.date(2026, 1, 6)
UPSERT = UpsertSpec(
    merge_key=("part_id",), delta_partition="partition_date", partition_bound=True, insert_only=True
)


def part(
    name: str | None, *, day: dt.date | None = MONDAY, shelf: str | None = "a b/ü%", batch: int = 1, **more
):
    fields = {
        "part_id": name,
        "weight": Decimal("1.50"),
        "made_at": MADE,
        "note": "x",
        "sizes": {"left": 1},
        "shelf": shelf,
        "partition_date": day,
        "batch_id": batch,
    }
    return tuple({**fields, **more}.values())


@pytest.fixture
def table(tmp_path):
    return Table(name="parts", domain=local_domain(tmp_path / "data"), contract=PARTS)


@pytest.fixture(params=["by Spark", "by this process"])
def sorted_into_partitions(request, monkeypatch):
    """Who sorts rows into their partitions."""
    here = request.param == "by this process"
    monkeypatch.setattr(committing, "few_rows_of_many_partitions", lambda *_: here)


@pytest.fixture
def write(spark, table):
    """Commits rows after the table's newest version."""
    from etl_assets.contracts.spark_types import struct_type

    schema = struct_type(PARTS)
    for field in schema.fields:
        field.nullable = True

    def committed(*rows, into: Table = table, **more):
        base = ensure_table(into)
        # One task, so that each partition has one file whoever writes it.
        frame = spark.createDataFrame(rows, schema).coalesce(1)
        return commit(into, Write(rows=frame, base_version=base, **more))

    return committed


def told(table: Table) -> list[dict]:
    """What the log says of each data file, but for names, sizes and times."""
    snapshot = table.snapshot()
    assert snapshot is not None
    own = ("path", "size_bytes", "modification_time")
    files = (
        {name: value for name, value in each.items() if name not in own} for each in snapshot.add_actions()
    )
    return sorted(files, key=str)


def rows_of(table: Table) -> list[dict]:
    return polars.read_delta(str(table.path)).sort("part_id", "batch_id").to_dicts()


@pytest.mark.usefixtures("sorted_into_partitions")
def test_it_leaves_what_deltas_writer_leaves(spark, table, write, tmp_path, monkeypatch):
    rows = (
        part("p-1"),
        part("p-3", weight=None, sizes=None, batch=7),
        part("p-2", day=TUESDAY),
        part("p-4", day=None, shelf=None),
        part("long", note="y" * 5_000),
    )
    ours = write(*rows)
    files = {file.path for file in read_entry(table.path, 1).added}
    assert ours.inserted == 5
    assert ours.net_rows_by_partition == {"2026-01-05": 3, "2026-01-06": 1, None: 1}
    assert files == {path.relative_to(table.path).as_posix() for path in table.path.rglob("*.parquet")}

    deltas = Table(
        name="parts", domain=FailureDomain(catalog=CATALOG, name="l", root=tmp_path / "delta"), contract=PARTS
    )
    monkeypatch.setattr(committing, "can_append", lambda *_: False)
    theirs = write(*rows, into=deltas)
    assert read_entry(deltas.path, 1).metric("numSourceRows") == 0  # it was Delta's writer
    assert told(table) == told(deltas)
    assert rows_of(table) == rows_of(deltas)
    assert (ours.inserted, ours.source_rows) == (theirs.inserted, theirs.source_rows)
    assert ours.net_rows_by_partition == theirs.net_rows_by_partition
    read = spark.read.format("delta").load(str(table.path))
    assert sorted(map(str, read.collect())) == sorted(
        map(str, spark.read.format("delta").load(str(deltas.path)).collect())
    )
    # And Delta's writer goes on from there.
    assert write(part("p-9")).version == 2
    assert len(rows_of(table)) == 6


@pytest.mark.usefixtures("sorted_into_partitions")
@pytest.mark.parametrize("value", [{"part_id": None}, {"made_at": None}, {"note": None}])
def test_a_row_without_a_value_that_must_be_there_is_refused_and_nothing_is_written(table, write, value):
    (column,) = value
    with pytest.raises(NullRefused, match=column):
        write(part("p-1"), part("p-2", note="y" * 5_000), part("p-3", **value))
    assert table.version() == 0
    assert write(part("p-1")).version == 1
    assert len(list(table.path.rglob("*.parquet"))) == 1
    assert not (table.path / STAGING).exists()


@pytest.mark.usefixtures("sorted_into_partitions")
def test_an_upsert_that_only_inserts_leaves_out_what_its_days_have(table, write):
    write(part("p-1"), part("p-2", day=TUESDAY))
    done = write(
        part("p-1", note="other"),
        part("p-1", day=TUESDAY),
        part("p-3"),
        upsert=UPSERT,
        partitions=["2026-01-05", "2026-01-06"],
    )
    assert (done.source_rows, done.inserted, done.ignored, done.updated) == (3, 2, 1, 0)
    assert done.net_rows_by_partition == {"2026-01-05": 1, "2026-01-06": 1}
    assert read_entry(table.path, 2).operation == "WRITE"
    assert [(row["part_id"], row["note"]) for row in rows_of(table)] == [
        ("p-1", "x"),
        ("p-1", "x"),
        ("p-2", "x"),
        ("p-3", "x"),
    ]
    again = write(part("p-3"), upsert=UPSERT, partitions=["2026-01-05"])
    assert (again.version, again.inserted, again.ignored) == (3, 0, 1)
    assert read_entry(table.path, 3).added == ()


def test_what_a_killed_append_left_is_not_read_and_goes(spark, table, write):
    write(part("p-1"))
    torn = table.path / STAGING / "partition_date=2026-01-05" / "torn.parquet"
    torn.parent.mkdir(parents=True)
    torn.write_bytes(b"PAR1")
    assert len(rows_of(table)) == spark.read.format("delta").load(str(table.path)).count() == 1
    write(part("p-2"))
    assert not torn.exists()
    assert len(rows_of(table)) == 2


@pytest.mark.usefixtures("sorted_into_partitions")
def test_what_the_job_of_a_killed_append_still_writes_is_not_taken_for_this_ones(table, write, monkeypatch):
    def write_beside_another(rows, snapshot, contract, folder, **more):
        left_out = rows_as_files(rows, snapshot, contract, folder, **more)
        for another in (table.path / STAGING, table.path / STAGING / "another", folder.with_name("another")):
            shutil.copytree(folder, another / folder.name, dirs_exist_ok=True)
        return left_out

    monkeypatch.setattr(committing, "rows_as_files", write_beside_another)
    assert write(part("p-1")).inserted == 1
    assert [row["part_id"] for row in rows_of(table)] == ["p-1"]
    assert not (table.path / STAGING).exists()


def test_rows_of_other_types_go_through_delta_which_casts_them(spark, table):
    ensure_table(table)
    rows = spark.createDataFrame([part("p-1")], spark.read.format("delta").load(str(table.path)).schema)
    done = commit(
        table,
        Write(rows=rows.withColumn("batch_id", rows.batch_id.cast("int")), base_version=0, upsert=UPSERT),
    )
    assert done.inserted == 1
    assert rows_of(table)[0]["batch_id"] == 1


def test_checkpoints_come_as_often_as_deltas_and_everybody_reads_them(spark, table, write):
    write(part("p-1"))
    often = "SET TBLPROPERTIES ('delta.checkpointInterval' = '3')"
    spark.sql(f"ALTER TABLE delta.`{table.path}` {often}")
    write(part("p-2"))
    assert checkpoint_path(table.path, 3).exists()
    write(part("p-3"))
    assert not checkpoint_path(table.path, 4).exists()
    assert [row["part_id"] for row in rows_of(table)] == ["p-1", "p-2", "p-3"]
    assert spark.read.format("delta").load(str(table.path)).count() == 3


@pytest.mark.parametrize("little_bytes", [0, staged.LITTLE_BYTES], ids=["by workers", "by this process"])
def test_raw_events_through_deltas_writer_are_those_that_tasks_write(pipeline, monkeypatch, little_bytes):
    monkeypatch.setattr(staged, "LITTLE_BYTES", little_bytes)
    pipeline.land([event(1), "bad", event(2), event(1)])
    pipeline.land([event(3, day=NEXT_DAY)], day=NEXT_DAY)
    elsewhere = replace(pipeline, root=pipeline.root.with_name("elsewhere"))
    pipeline.run([DAY, NEXT_DAY], only=["raw_events"])
    with monkeypatch.context() as patch:
        patch.setattr(committing, "can_append", lambda *_: False)
        elsewhere.run([DAY, NEXT_DAY], only=["raw_events"])
    rows = pipeline.rows("raw_events", order_by="offset")
    assert [row["event_id"] for row in rows] == ["event-1", "event-2", "event-3"]
    assert elsewhere.rows("raw_events", order_by="offset") == rows
