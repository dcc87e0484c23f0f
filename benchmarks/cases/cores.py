"""cores: rows a second of the bulk path on two cores beside one, by the local engine and on a standalone cluster.

Local: everything of the process is pinned to one core with `local[1]`, or to two with `local[2]`. Cluster: a master and one or
two workers of one core each; driver, master and workers share the machine's two cores, so that the second worker gets what
they leave: this part tells the least that a second worker brings, not what it brings on a machine of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from benchmarks.cases.bulk import WARM, bulk_side
from benchmarks.input import BulkInput, bulk_input
from benchmarks.measure import Measured, empty_folder, interleaved, median
from benchmarks.options import Options
from benchmarks.report import Figure, figure
from benchmarks.scripts.platform_steps import DATA_PATH

CASE = "cores"
TARGET = round(1 / 1.7, 3)
"""The most that the time with two may be of the time with one: rows a second are 1.7 times as many."""
ONE, TWO = "one core", "two cores"
ONE_WORKER, TWO_WORKERS = "one worker", "two workers"


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    given = bulk_input(options.folder, options.events)
    work = options.folder / CASE
    sides = {
        ONE: _local(options, given, work / "one", {0}),
        TWO: _local(options, given, work / "two", {0, 1}),
        ONE_WORKER: _cluster(options, given, work / "one-worker", 1),
        TWO_WORKERS: _cluster(options, given, work / "two-workers", 2),
    }
    measured = interleaved(options.runs, sides)
    shutil.rmtree(work, ignore_errors=True)
    return [
        *_figures("local", measured[TWO], measured[ONE]),
        *_figures("cluster", measured[TWO_WORKERS], measured[ONE_WORKER]),
    ]


def _local(
    options: Options, given: BulkInput, folder: Path, cores: Collection[int]
) -> Callable[[], Measured]:
    return bulk_side(
        replace(options, master=f"local[{len(cores)}]"), given, folder, "bulk_by_platform", cores=cores
    )


def _cluster(options: Options, given: BulkInput, folder: Path, workers: int) -> Callable[[], Measured]:
    from etl_assets_tests.spark.engines import standalone_cluster

    def run_side() -> Measured:
        logs = empty_folder(folder.with_name(f"{folder.name}-engine"))
        with standalone_cluster(logs, workers=workers) as cluster:
            return bulk_side(replace(options, master=cluster.master), given, folder, "bulk_by_platform")()

    return run_side


def _figures(engine: str, two: list[Measured], one: list[Measured]) -> list[Figure]:
    load = median([*two, *one], lambda run: run.load)
    return [
        figure(
            CASE,
            f"{engine}_{name}_wall_seconds",
            median(two, lambda run, until=until: run.wall_seconds(until, WARM)),
            median(one, lambda run, until=until: run.wall_seconds(until, WARM)),
            load=load,
            target=TARGET,
        )
        for name, until in (("raw", "raw_events"), ("raw_to_warehouse", DATA_PATH[-1]))
    ]
