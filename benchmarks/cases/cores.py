"""cores: rows a second of the bulk path on two cores beside one, by the local engine and on a standalone
cluster.

Local: everything of the process is pinned to one core with `local[1]`, or to two with `local[2]`. Cluster: a
    master and one or
two workers of one core each; driver, master and workers share the machine's two cores, so that the second
worker gets what they leave: this part tells the least that a second worker brings, not what it brings on a
machine of its own. So one worker is also measured with all of its cluster, driver and master too, on one of
the cores: what the engine makes of twice the machine. What the workers use counts as the case's own work.

In turns with them plain Python work that shares nothing, by one process and by two pinned to a core each: the
machine's own ceiling, which on a virtual machine is less than twice as much. It has no target.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.cases.bulk import WARM, bulk_side
from benchmarks.input import BulkInput, bulk_input
from benchmarks.measure import Measured, empty_folder, interleaved, median, run_script
from benchmarks.options import Options, script_environment
from benchmarks.report import Figure, figure
from benchmarks.scripts.platform_steps import DATA_PATH

CASE = "cores"
TARGET = round(1 / 1.7, 3)
"""The most that the time with two may be of the time with one: rows a second are 1.7 times as many."""
ONE, TWO = "one core", "two cores"
ONE_WORKER, TWO_WORKERS = "one worker", "two workers"
ON_ONE_CORE = "one worker, all on one core"
PLAIN_ONE, PLAIN_TWO = "plain Python on one core", "plain Python on two cores"


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    given = bulk_input(options.folder, options.events)
    work = options.folder / CASE
    sides = {
        ONE: _local(options, given, work / "one", {0}),
        TWO: _local(options, given, work / "two", {0, 1}),
        ONE_WORKER: _cluster(options, given, work / "one-worker", 1, {0, 1}),
        TWO_WORKERS: _cluster(options, given, work / "two-workers", 2, {0, 1}),
        ON_ONE_CORE: _cluster(options, given, work / "on-one-core", 1, {0}),
        PLAIN_ONE: lambda: _plain_python({0}),
        PLAIN_TWO: lambda: _plain_python({0, 1}),
    }
    measured = interleaved(options.runs, sides)
    shutil.rmtree(work, ignore_errors=True)
    return [
        *_figures("local", measured[TWO], measured[ONE]),
        *_figures("cluster", measured[TWO_WORKERS], measured[ONE_WORKER]),
        *_figures("doubled_cluster", measured[TWO_WORKERS], measured[ON_ONE_CORE]),
        *_ceiling(measured[PLAIN_TWO], measured[PLAIN_ONE]),
    ]


def _local(
    options: Options, given: BulkInput, folder: Path, cores: Collection[int]
) -> Callable[[], Measured]:
    return bulk_side(
        replace(options, master=f"local[{len(cores)}]"), given, folder, "bulk_by_platform", cores=cores
    )


def _cluster(
    options: Options, given: BulkInput, folder: Path, workers: int, cores: Collection[int]
) -> Callable[[], Measured]:
    from etl_assets_tests.spark.engines import standalone_cluster

    def run_side() -> Measured:
        logs = empty_folder(folder.with_name(f"{folder.name}-engine"))
        with _on(cores), standalone_cluster(logs, workers=workers) as cluster:
            return bulk_side(
                replace(options, master=cluster.master),
                given,
                folder,
                "bulk_by_platform",
                servers=[worker.pid for worker in cluster.workers],
            )()

    return run_side


@contextmanager
def _on(cores: Collection[int]) -> Generator[None]:
    """Have what this thread starts meanwhile, and all that starts, run on some cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _plain_python(cores: Collection[int]) -> Measured:
    return run_script("plain_python", {"cores": sorted(cores)}, script_environment())


def _figures(engine: str, two: list[Measured], one: list[Measured]) -> list[Figure]:
    """Wall seconds judge; CPU seconds beside them tell how much of a miss is the same work costing more."""
    stages = (("raw", "raw_events"), ("raw_to_warehouse", DATA_PATH[-1]))
    rows = [row for name, until in stages for row in _both(f"{engine}_{name}", two, one, WARM, until, TARGET)]
    load = median([*two, *one], lambda run: run.load)
    peaks = (median(runs, lambda run: run.peak_resident_mib(DATA_PATH[-1])) for runs in (two, one))
    return [*rows, figure(CASE, f"{engine}_peak_resident_mib", *peaks, load=load)]


def _ceiling(two: list[Measured], one: list[Measured]) -> list[Figure]:
    return _both("machine_plain_python", two, one, "began", "done", None)


def _both(
    name: str, two: list[Measured], one: list[Measured], since: str, until: str, target: float | None
) -> list[Figure]:
    load = median([*two, *one], lambda run: run.load)

    def compare(metric: str, value: Callable[[Measured], float], target: float | None = None) -> Figure:
        return figure(CASE, metric, median(two, value), median(one, value), load=load, target=target)

    return [
        compare(f"{name}_wall_seconds", lambda run: run.wall_seconds(until, since), target),
        compare(f"{name}_cpu_seconds", lambda run: run.cpu_seconds(until, since)),
    ]
