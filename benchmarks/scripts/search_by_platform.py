"""A table of documents into a search index by the sink of a declared pipeline, after a smaller one before it.

The tables are made by a process of its own, whose Spark has workers that end at any time: what they have used
would be missing. Marks carry what the engine has used so far: its process is none of this script's.
"""

from __future__ import annotations

import datetime as dt
import json
import urllib.request
from pathlib import Path

from benchmarks.marks import mark
from benchmarks.processes import tree_cpu_seconds
from benchmarks.scripts.arguments import arguments

READY, DELIVERED = "ready", "delivered"
COLUMNS = {
    "sale_id": "bigint",
    "customer": "string",
    "note": "string",
    "amount": "decimal(12,2)",
    "is_paid": "boolean",
    "sold_at": "timestamp",
}
_DAY = "2026-01-05"


def main() -> None:
    from etl_assets.pipelines.placement_class import PlacementClass
    from etl_assets.resources.spark import SparkResource
    from etl_assets.settings import load_settings
    from etl_assets.steps.step import ReadMode, StepArguments, StepContext, step_of

    told = arguments()
    home, url, engine = Path(told["home"]), told["url"], told["engine"]
    sizes = {"warm": max(1, told["documents"] // 5), "sale": told["documents"]}
    if told["makes_tables"]:
        connection = {"type": "search", "urls": [url], "write": ["bench_*"]}
        platform = {
            "start_date": _DAY,
            "connections": {"search": connection},
            "pipelines": {"built_in": []},
        }
        (home / "platform.yaml").write_text(json.dumps(platform), "utf-8")
        for name, rows in sizes.items():
            _declare(home, name, rows)
    settings = load_settings({"ETL_ASSETS_HOME": str(home)})
    step_arguments = StepArguments(
        settings=settings,
        context=StepContext(
            session=lambda: SparkResource(spark_config=told["spark"]).spark_session,
            domain=settings.placement().place(PlacementClass.INGEST),
        ),
        mode=ReadMode.INCREMENTAL,
    )
    if told["makes_tables"]:
        for name in sizes:
            for step in (f"{name}_source", name):
                step_of(step, step_arguments).run([dt.date.fromisoformat(_DAY)])
        mark(READY)
        return
    step_of("warm_to_search", step_arguments).run([])
    mark(READY, engine_cpu_seconds=tree_cpu_seconds(engine))
    step_of("sale_to_search", step_arguments).run([])
    mark(DELIVERED, engine_cpu_seconds=tree_cpu_seconds(engine))
    mark("verified", documents=_documents(f"{url}/bench_sale"))


def _declare(home: Path, name: str, rows: int) -> None:
    folder = home / "landing" / name / _DAY
    folder.mkdir(parents=True)
    with (folder / "rows.jsonl").open("w", encoding="utf-8") as file:
        for number in range(rows):
            record = {
                "sale_id": number,
                "customer": f"customer {number % 5_000}",
                "note": f"sold by clerk {number % 97} at counter {number % 31}, order {number * 7 % rows}",
                "amount": f"{number % 100_000 / 100:.2f}",
                "is_paid": number % 3 == 0,
                "sold_at": f"{_DAY}T{number % 24:02}:{number % 60:02}:00Z",
            }
            file.write(json.dumps(record) + "\n")
    pipeline = {
        "name": name,
        "source": {
            "type": "files",
            "path": f"landing/{name}/{{day}}/*",
            "format": "json_lines",
            "id": ["sale_id"],
            "settle_seconds": 0,
        },
        "columns": COLUMNS,
        "table": {"keys": ["sale_id"]},
        "sinks": [
            {
                "type": "search",
                "connection": "search",
                "index": f"bench_{name}",
                "mappings": {"note": {"type": "text"}},
            }
        ],
    }
    (home / "pipelines").mkdir(exist_ok=True)
    (home / "pipelines" / f"{name}.yaml").write_text(json.dumps(pipeline), "utf-8")


def _documents(index: str) -> int:
    with urllib.request.urlopen(urllib.request.Request(f"{index}/_refresh", method="POST"), timeout=60):
        pass
    with urllib.request.urlopen(f"{index}/_count", timeout=60) as answer:
        return json.load(answer)["count"]


if __name__ == "__main__":
    main()
