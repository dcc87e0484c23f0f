"""A table of PostgreSQL by a declared pipeline: its first copy, and then the changes that the log has."""

from __future__ import annotations

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments
from benchmarks.scripts.changed_sales import change
from benchmarks.scripts.sql_by_platform import SOURCE, TABLE, prepared

WARM, COPIED, CHANGED, APPLIED = "session", "copied", "changed", "applied"


def main() -> None:
    # Libraries are loaded before the clock starts, as in the scripts beside this one.
    import deltalake  # noqa: F401
    import psycopg  # noqa: F401
    import pyarrow.compute
    import pyarrow.csv
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401

    from etl_assets.steps.step import platform_table, step_of

    told = arguments()
    spark, step_arguments = prepared(told)
    mark(WARM)
    keeps_records = told["pipeline"]["source"].get("keep_records", True)
    names = (SOURCE, TABLE) if keeps_records else (TABLE,)
    for name in names:
        step_of(name, step_arguments).run([])
    mark(COPIED)
    change(told["address"], told["rows"], told["every"])
    mark(CHANGED)
    for name in names:
        step_of(name, step_arguments).run([])
    mark(APPLIED)
    table = platform_table(TABLE, step_arguments.context.domain)
    snapshot = table.snapshot()
    amounts = spark.read.format("delta").load(str(table.path)).selectExpr("sum(amount)").first()
    assert amounts is not None  # an aggregate has one row
    mark(
        "verified",
        rows=0 if snapshot is None else snapshot.row_count(),
        cents=int(amounts[0] * 100),
    )
    spark.stop()


if __name__ == "__main__":
    main()
