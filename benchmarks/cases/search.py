"""search: 100,000 rows of a table into an index of OpenSearch, by the sink of a declared pipeline: what the
delivery takes of the processors beside what the engine takes meanwhile to index them.

The engine runs on this machine; a smaller delivery has warmed up both.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.cases.bulk import WrongRows
from benchmarks.measure import Measured, empty_folder, median, run_script
from benchmarks.options import Options, script_environment
from benchmarks.report import Figure, figure
from benchmarks.scripts.search_by_platform import DELIVERED, READY
from benchmarks.sql_database import spark_of

CASE = "search"
CPU_TARGET = 0.25
_SHARE = 10
"""What part of the events of other cases are documents here: 100,000 of 1,000,000."""


def run(options: Options) -> list[Figure]:
    """Measure the case, each run with an engine of its own."""
    work, documents = options.folder / CASE, max(1, options.events // _SHARE)
    runs = [_run_once(options, work, documents) for _ in range(options.runs)]
    shutil.rmtree(work, ignore_errors=True)
    load = median(runs, lambda run: run.load)
    seconds = median(runs, lambda run: run.wall_seconds(DELIVERED, READY))
    return [
        figure(
            CASE,
            "delivery_cpu_seconds_beside_the_engines",
            median(runs, lambda run: run.cpu_seconds(DELIVERED, READY)),
            median(runs, _engine_cpu_seconds),
            load=load,
            target=CPU_TARGET,
        ),
        figure(CASE, "delivery_wall_seconds", seconds, load=load),
        figure(CASE, "documents_per_second", documents / seconds, load=load),
    ]


def _run_once(options: Options, work: Path, documents: int) -> Measured:
    from etl_assets.stack.opensearch import OpenSearchServer

    empty_folder(work)
    (home := work / "home").mkdir()
    engine: OpenSearchServer
    with OpenSearchServer(work / "engine") as engine:
        given = {
            "home": str(home),
            "url": engine.url,
            "engine": engine.pid,
            "documents": documents,
            "spark": spark_of(options, work / "scratch"),
        }
        environment = script_environment()
        run_script("search_by_platform", {**given, "makes_tables": True}, environment)
        measured = run_script("search_by_platform", {**given, "makes_tables": False}, environment)
    if (found := measured.marks["verified"].figures["documents"]) != documents:
        raise WrongRows(f"the index has {found:,} documents, not {documents:,}")
    return measured


def _engine_cpu_seconds(run: Measured) -> float:
    used = [run.marks[name].figures["engine_cpu_seconds"] for name in (READY, DELIVERED)]
    return used[1] - used[0]
