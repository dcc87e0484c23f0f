"""Rows by dlt: a file of all rows, and then one of those that have changed, merged by id into a Delta table.

Both are Parquet files, so that nothing of a database's own work is counted here. To be run by the Python of
dlt's environment.
"""

from __future__ import annotations

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments

LOADED, MERGED = "loaded", "merged"


def main() -> None:
    import dlt  # ty: ignore[import-not-found] - in the peer's environment
    import pyarrow.parquet as pq

    told = arguments()
    pipeline = dlt.pipeline(
        "sale",
        pipelines_dir=f"{told['home']}/pipelines",
        destination=dlt.destinations.filesystem(bucket_url=f"file://{told['home']}/tables"),
        dataset_name="bench",
    )

    def merge(file: str) -> None:
        rows = dlt.resource([pq.read_table(file)], name="sale")
        rows.apply_hints(
            write_disposition={"disposition": "merge", "strategy": "upsert"},
            primary_key="sale_id",
            table_format="delta",
        )
        pipeline.run(rows).raise_on_failed_jobs()

    merge(told["all"])
    mark(LOADED)
    merge(told["changed"])
    mark(MERGED)
    from deltalake import DeltaTable

    mark("verified", rows=DeltaTable(f"{told['home']}/tables/bench/sale").count())


if __name__ == "__main__":
    main()
