"""Rows by dlt: a table of PostgreSQL, and then its changed rows, merged by id into a Delta table.

dlt's source for SQL databases finds the changed rows by an indexed time, in pages of 50,000, as it does by
default. To be run by the Python of dlt's environment.
"""

from __future__ import annotations

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments
from benchmarks.scripts.changed_sales import change

LOADED, CHANGED, MERGED = "loaded", "changed", "merged"


def main() -> None:
    import dlt  # ty: ignore[import-not-found] - in the peer's environment
    from dlt.sources.sql_database import sql_table  # ty: ignore[import-not-found]

    told = arguments()
    pipeline = dlt.pipeline(
        "sale",
        pipelines_dir=f"{told['home']}/pipelines",
        destination=dlt.destinations.filesystem(bucket_url=f"file://{told['home']}/tables"),
        dataset_name="bench",
    )

    def merge() -> None:
        rows = sql_table(
            credentials=told["address"].replace("postgresql://", "postgresql+psycopg://"),
            table="sale",
            incremental=dlt.sources.incremental("updated_at"),
        )
        rows.apply_hints(
            write_disposition={"disposition": "merge", "strategy": "upsert"},
            primary_key="sale_id",
            table_format="delta",
        )
        pipeline.run(rows).raise_on_failed_jobs()

    merge()
    mark(LOADED)
    change(told["address"], told["rows"], told["every"])
    mark(CHANGED)
    merge()
    mark(MERGED)
    from deltalake import DeltaTable

    mark("verified", rows=DeltaTable(f"{told['home']}/tables/bench/sale").count())


if __name__ == "__main__":
    main()
