"""Events by an asset under Dagster's own Delta IO manager: JSONL files read with Polars, written as a whole
table.

It overwrites what an asset (or a partition of it) has, or appends: it has no upsert, so that an increment is
for the asset to work out. To be run by the Python of its environment.
"""

from __future__ import annotations

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments


def main() -> None:
    import dagster as dg
    import polars as pl
    from dagster_deltalake import LocalConfig  # ty: ignore[import-not-found] - in the peer's environment
    from dagster_deltalake_polars import DeltaLakePolarsIOManager  # ty: ignore[import-not-found] - likewise

    told = arguments()

    @dg.asset(key_prefix="bench")
    def raw_events():  # noqa: ANN202 - Dagster would want to resolve the name of a local import
        lines = pl.scan_ndjson(told["files"]).with_columns(pl.col("payload").struct.json_encode())
        return lines.unique(subset="event_id", maintain_order=True).collect()

    manager = DeltaLakePolarsIOManager(root_uri=told["home"], storage_options=LocalConfig())
    dg.materialize([raw_events], resources={"io_manager": manager})
    mark("done")
    from deltalake import DeltaTable

    mark("verified", rows=DeltaTable(f"{told['home']}/bench/raw_events").count())


if __name__ == "__main__":
    main()
