"""Events by dlt, as its documentation has it: JSONL files that are new since the last run, merged by id into
a Delta table.

dlt's upsert does not drop repeats inside a load (the next merge would fail on them), so its ids are unique.
To be run by the Python of dlt's environment.
"""

from __future__ import annotations

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments


def main() -> None:
    import dlt  # ty: ignore[import-not-found] - in the peer's environment
    from dlt.sources.filesystem import filesystem, read_jsonl  # ty: ignore[import-not-found] - likewise

    told = arguments()
    files = filesystem(
        bucket_url=f"file://{told['landing']}",
        file_glob="**/*.jsonl",
        incremental=dlt.sources.incremental("modification_date"),
    )
    events = (files | read_jsonl()).with_name("raw_events")
    # The payload stays one column, as it does in raw_events.
    events.max_table_nesting = 0
    events.apply_hints(
        write_disposition={"disposition": "merge", "strategy": "upsert"},
        primary_key="event_id",
        table_format="delta",
        columns={"payload": {"data_type": "json"}},
    )
    pipeline = dlt.pipeline(
        "events",
        pipelines_dir=f"{told['home']}/pipelines",
        destination=dlt.destinations.filesystem(bucket_url=f"file://{told['home']}/tables"),
        dataset_name="bench",
    )
    pipeline.run(events).raise_on_failed_jobs()
    mark("done")
    from deltalake import DeltaTable

    mark("verified", rows=DeltaTable(f"{told['home']}/tables/bench/raw_events").count())


if __name__ == "__main__":
    main()
