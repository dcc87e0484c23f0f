"""Events by delta-rs, by hand: JSONL files read and merged by id into a Delta table, partitioned by day.

No figures of what was refused, no repeats inside a load (a key that comes twice is inserted twice), no memory
of which files were read: the caller names them. To be run by the Python of delta-rs' environment.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments


def main() -> None:
    import pyarrow as pa
    from deltalake import DeltaTable

    told = arguments()
    events = pa.concat_tables([_read(Path(file)) for file in told["files"]])
    table = DeltaTable.create(
        f"{told['home']}/raw_events", schema=events.schema, partition_by=["day"], mode="ignore"
    )
    merge = table.merge(events, "t.event_id = s.event_id", source_alias="s", target_alias="t")
    merge.when_not_matched_insert_all().execute()
    mark("done")
    mark("verified", rows=DeltaTable(f"{told['home']}/raw_events").count())


def _read(file: Path):  # noqa: ANN202 - pyarrow is imported by the script that runs
    """A file of events, with its day; the payload stays one text."""
    import pyarrow as pa

    fields = ("event_id", "tenant_id", "aggregate_id", "event_type", "schema_version", "timestamp")
    with file.open("rb") as lines:
        records = [json.loads(line) for line in lines]
    columns = {name: pa.array([str(record[name]) for record in records]) for name in fields}
    columns["payload"] = pa.array([json.dumps(record["payload"]) for record in records])
    columns["day"] = pa.array([file.parent.name] * len(records))
    return pa.table(columns)


if __name__ == "__main__":
    main()
