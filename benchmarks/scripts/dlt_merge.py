"""Rows by dlt: a file of all rows, and then those that have changed, merged by id into a Delta table.

Rows come as Python objects, as dlt's source for SQL databases gives them by default. Those that changed are
read from a file before the clock starts, so that nothing of a database's own work is counted here. To be run
by the Python of dlt's environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments

LOADED, MERGED = "loaded", "merged"
_AT_ONCE = 10_000
_COLUMNS = {
    "sale_id": {"data_type": "bigint"},
    "amount": {"data_type": "decimal", "precision": 18, "scale": 2},
    "updated_at": {"data_type": "timestamp", "precision": 6},
}


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

    def merge(pages: Iterable[Any]) -> None:
        rows = dlt.resource(pages, name="sale")
        rows.apply_hints(
            write_disposition={"disposition": "merge", "strategy": "upsert"},
            primary_key="sale_id",
            table_format="delta",
            columns=_COLUMNS,
        )
        pipeline.run(rows).raise_on_failed_jobs()

    def pages(file: str) -> Iterator[list[dict[str, Any]]]:
        for batch in pq.ParquetFile(file).iter_batches(batch_size=_AT_ONCE):
            yield batch.to_pylist()

    merge(pages(told["all"]))
    changed = list(pages(told["changed"]))
    mark(LOADED)
    merge(changed)
    mark(MERGED)
    from deltalake import DeltaTable

    mark("verified", rows=DeltaTable(f"{told['home']}/tables/bench/sale").count())


if __name__ == "__main__":
    main()
