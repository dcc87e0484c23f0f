"""What each of the platform's writers leaves is read as the same rows by Spark, delta-rs, Polars and SQL,
with filters and without.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterable
from decimal import Decimal

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from etl_assets.contracts.arrow_types import arrow_schema, data_file_schema
from etl_assets.contracts.columns import Column, TableContract
from etl_assets.delta.log.entries import read_entry
from etl_assets.delta.log.partition_values import folder_of
from etl_assets.delta.maintenance.compaction import Compaction, commit_compaction
from etl_assets.delta.read.data_files import new_data_file, pieces_of
from etl_assets.delta.snapshot import Snapshot
from etl_assets.delta.table import Table
from etl_assets.delta.write import commit as committing
from etl_assets.delta.write.commit import commit
from etl_assets.delta.write.content import content_of, one_of, rows_kept
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.records import commit_rows
from etl_assets.delta.write.replacement import Replacement, replace_contents
from etl_assets.delta.write.rewrite import Rewrite, Rewritten, commit_rewrite
from etl_assets.delta.write.write import Write
from etl_assets.query.sql import ENGINE_SETTINGS
from etl_assets_tests.reference.tables import local_domain

pytestmark = pytest.mark.spark

AT = dt.datetime(2026, 1, 5, 10, 30, 0, 123456, tzinfo=dt.UTC)
OFFERS = TableContract(
    name="offers",
    description="An offer with a value of each simple type, as a key and as a partition.",
    columns=(
        Column("offer_id", "STRING", "Its id."),
        Column("amount", "DECIMAL(38,8)", "In euros."),
        Column("set_at", "TIMESTAMP", "When it was set."),
        Column("from_day", "DATE", "Its first day."),
        Column("pieces", "INT", "How many."),
        Column("is_net", "BOOLEAN", "Without tax.", nullable=True),
        Column("batch_id", "BIGINT", "The commit that wrote it."),
        Column("city", "STRING", "Where.", nullable=True),
        Column("is_new", "BOOLEAN", "New.", nullable=True),
        Column("made_at", "TIMESTAMP", "When it was made.", nullable=True),
        Column("day", "DATE", "Its day.", nullable=True),
        Column("number", "BIGINT", "Of its kind.", nullable=True),
    ),
    merge_key=("offer_id", "amount", "set_at", "from_day", "pieces"),
    delta_partition=("city", "is_new", "made_at", "day", "number"),
    append_only=True,
)
FIRST, NOWHERE = ("Köln", True, AT, AT.date(), -7), (None,) * 5
PARTITIONS = [FIRST, ("a/b=c %ü#", False, AT.replace(microsecond=0), AT.date(), 8), NOWHERE]


def offer(number: int, partition: tuple) -> dict:
    values = (
        f"offer-{number}" * (1 if number % 2 else 800),
        Decimal(f"12345678901234567890123456789{number % 10}.12345678"),
        AT + dt.timedelta(days=number),
        AT.date() + dt.timedelta(days=number),
        number,
        (True, False, None)[number % 3],
        1,
    )
    return dict(zip(OFFERS.names, (*values, *partition), strict=True))


SOME = [offer(number, PARTITIONS[number % 3]) for number in range(6)]
MORE = [offer(number, PARTITIONS[number % 3]) for number in range(6, 9)]


@pytest.fixture
def offers(tmp_path):
    table = Table(name="offers", domain=local_domain(tmp_path), contract=OFFERS)
    ensure_table(table)
    return table


def newest(table: Table) -> Snapshot:
    snapshot = table.snapshot()
    assert snapshot is not None
    return snapshot


def append(spark, table: Table, rows: list[dict]) -> None:
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, schema=arrow_schema(OFFERS)))
    commit(table, Write(rows=frame, base_version=table.version()))


def appended(spark, table: Table) -> None:
    append(spark, table, [*SOME, *MORE])
    assert read_entry(table.path, 1).metric("numSourceRows") == 9, "it was no writer of Delta's"


def by_deltas_writer(spark, table: Table) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(committing, "can_append", lambda *_: False)
        append(spark, table, [*SOME, *MORE])


def without_spark(spark, table: Table) -> None:
    commit_rows(table, SOME, base_version=0)
    commit_rows(table, MORE, base_version=1)


def compacted(spark, table: Table) -> None:
    without_spark(spark, table)
    assert commit_compaction(lambda: pytest.fail("it was done by Spark"), table, Compaction()) is not None
    assert len(list(newest(table).files())) == 3


def rewritten(spark, table: Table) -> None:
    without_spark(spark, table)
    schema = data_file_schema(OFFERS, without=OFFERS.delta_partition)
    files = tuple(content_of(newest(table)).values())

    def write(folder) -> Rewritten:
        for file in files:
            target = folder / folder_of(file.partition, OFFERS.delta_partition)
            target.mkdir(parents=True, exist_ok=True)
            with new_data_file(target / f"part-{uuid.uuid4()}.parquet", schema) as new:
                for piece in pieces_of(table.path / file.path, schema):
                    new.write_table(piece)
        return Rewritten(removed=files, source_rows=0, inserted=0, updated=0)

    commit_rewrite(table, Rewrite(base_version=2, write=write))


def restored(spark, table: Table) -> None:
    appended(spark, table)
    files = tuple(content_of(newest(table)).values())
    replace_contents([Replacement(table=table, base_version=1, removed=files)])
    replace_contents([Replacement(table=table, base_version=2, restored=files)])


def kept(spark, table: Table) -> None:
    appended(spark, table)
    files = tuple(content_of(newest(table)).values())
    ids = frozenset(row["offer_id"] for row in (*SOME, *MORE))
    rows = tuple(rows_kept(table.path, file, one_of("offer_id", ids)) for file in files)
    replace_contents([Replacement(table=table, base_version=1, removed=files, kept=rows)])


SQL_TYPES = {
    "Decimal": "Decimal128(38, 8)",
    "date": "Date32",
    "datetime": 'Timestamp(Microsecond, Some("UTC"))',
}
WRITERS = (appended, by_deltas_writer, without_spark, compacted, rewritten, restored, kept)


def ids(rows: Iterable[dict]) -> list[str]:
    return sorted(row["offer_id"] for row in rows)


def literal(value: object) -> str:
    """A value in SQL."""
    if isinstance(value, bool | int):
        return str(value).lower()
    if isinstance(value, str):
        return f"'{value}'"
    return f"arrow_cast('{value}', '{SQL_TYPES[type(value).__name__]}')"


def by_sql(table: Table, where: str) -> list[dict]:
    builder = QueryBuilder(ENGINE_SETTINGS).register("offers", DeltaTable(str(table.path)))
    return pa.table(builder.execute(f"select * from offers where {where}").read_all()).to_pylist()


@pytest.mark.parametrize("write", WRITERS)
def test_readers_agree_on_what_each_writer_left(spark, offers, write: Callable):
    from pyspark.sql import functions as F

    write(spark, offers)
    rows, path = [*SOME, *MORE], str(offers.path)
    expected = sorted(rows, key=lambda row: row["offer_id"])
    lazy, delta_rs = polars.scan_delta(path), DeltaTable(path)
    by_delta = spark.read.format("delta").load(path)
    by_platform = offers.read(spark, offers.version())
    assert sorted(delta_rs.to_pyarrow_table().select(list(OFFERS.names)).to_pylist(), key=str) == sorted(
        rows, key=str
    )
    assert sorted(by_sql(offers, "true"), key=lambda row: row["offer_id"]) == expected
    assert lazy.collect().sort("offer_id").select(OFFERS.names).to_dicts() == expected
    for frame in (by_delta, by_platform):
        found = frame.select(*OFFERS.names).toArrow().to_pylist()
        assert sorted(found, key=lambda row: row["offer_id"]) == expected

    for name in OFFERS.names:
        for value in (rows[0][name], rows[1][name]):
            wanted = ids(row for row in rows if row[name] == value)
            assert ids(delta_rs.to_pyarrow_table(filters=[(name, "=", value)]).to_pylist()) == wanted, name
            assert ids(lazy.filter(polars.col(name) == polars.lit(value)).collect().to_dicts()) == wanted, (
                name
            )
            assert ids(by_sql(offers, f"{name} = {literal(value)}")) == wanted, name
    # Each a job: those for which Spark leaves files out by their bounds or partitions.
    for name in ("amount", "set_at", "city", "made_at"):
        wanted = ids(row for row in rows if row[name] == rows[1][name])
        found = by_delta.where(F.col(name) == F.lit(rows[1][name])).select("offer_id").collect()
        assert sorted(row.offer_id for row in found) == wanted, name
