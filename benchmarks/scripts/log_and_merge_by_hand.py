"""The updates of `cdc_table` in two parts that cannot be left out: the server decodes its log, and Delta
merges the changed rows by key.

It does without: reading what the server decoded, the order of changes, deletes, positions, locks, fsync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments
from benchmarks.scripts.changed_sales import change
from benchmarks.scripts.sql_to_delta_by_hand import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANGED, DECODED, TAKEN, MERGED = "changed", "decoded", "taken", "merged"
_SLOT = "parts"
_WARM_MERGES, _WARM_ROWS = 5, 10_000
"""Merges before, of few rows: the session is warm, as that of a worker is."""
_UPDATES = (
    "SELECT count(*) FILTER (WHERE get_byte(data, 0) = ascii('U')) FROM pg_logical_slot_peek_binary_changes("
    "%s, NULL, NULL, 'proto_version', '1', 'publication_names', %s)"
)


def main() -> None:
    from deltalake import write_deltalake

    from etl_assets.resources.spark import SparkResource

    told = arguments()
    spark = SparkResource(spark_config=told["spark"]).spark_session
    table, changes, warm = (f"{told['folder']}/{name}" for name in ("sale", "changes.parquet", "warm"))
    changed = f"{told['query']} WHERE sale_id % {told['every']} = 0"
    for path, query in ((table, told["query"]), (warm, f"{told['query']} WHERE sale_id <= {_WARM_ROWS}")):
        with rows_of(told["address"], query) as rows:
            write_deltalake(path, rows)
    _write(changes, told["address"], f"{changed} AND sale_id <= {_WARM_ROWS}")
    for _ in range(_WARM_MERGES):
        _merge(spark, warm, changes)
    updates = _decoded(told)
    _write(changes, told["address"], changed)
    mark(TAKEN)
    _merge(spark, table, changes)
    mark(MERGED)
    found = spark.read.format("delta").load(table).selectExpr("count(*)", "sum(amount)").first()
    assert found is not None  # an aggregate has one row
    mark("verified", updates=updates, rows=found[0], cents=int(found[1] * 100))
    spark.stop()


def _decoded(told: dict[str, Any]) -> int:
    """Make the changes, and return how many the server has decoded of them, in a session that drops them."""
    import psycopg

    with psycopg.connect(told["address"], autocommit=True) as session:
        session.execute(f"CREATE PUBLICATION {_SLOT} FOR TABLE sale".encode())
        session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [_SLOT])
        try:
            change(told["address"], told["rows"], told["every"])
            mark(CHANGED)
            found = session.execute(_UPDATES, [_SLOT, _SLOT]).fetchone()
            mark(DECODED)
        finally:
            session.execute("SELECT pg_drop_replication_slot(%s)", [_SLOT])
            session.execute(f"DROP PUBLICATION {_SLOT}".encode())
    assert found is not None  # an aggregate has one row
    return found[0]


def _write(path: str, address: str, query: str) -> None:
    import pyarrow.parquet as pq

    with rows_of(address, query) as rows:
        pq.write_table(rows.read_all(), path)


def _merge(spark: SparkSession, table: str, changes: str) -> None:
    from delta.tables import DeltaTable

    (
        DeltaTable.forPath(spark, table)
        .alias("stored")
        .merge(spark.read.parquet(changes).alias("new"), "stored.sale_id = new.sale_id")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .execute()
    )


if __name__ == "__main__":
    main()
