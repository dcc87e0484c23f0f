"""backfill: 30 days of 33,000 events through the three stages as a Dagster backfill, beside the steps in one
bulk run.

The backfill is Dagster runs one after another in a fresh process, everything of a day read: cut as the
platform's own policy does it (`runs.max_days_per_run`, which takes 30 days in one run), and as one of seven
days a run does. The bulk run is the steps over all days without Dagster. Before the clock all sides start
Spark and make a Dagster instance, whose tables are made once for an installation (2 s in SQLite).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks.cases.bulk import WrongRows
from benchmarks.input import BulkInput, bulk_input
from benchmarks.measure import Measured, empty_folder, interleaved, median, run_script
from benchmarks.options import Options, script_environment
from benchmarks.report import Figure, figure
from etl_assets.settings import RunSettings

CASE = "backfill"
TARGET = 1.2
BACKFILL, WEEKS, BULK = "backfill", "backfill of weeks", "bulk"


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    given = bulk_input(options.folder, options.events)
    work = options.folder / CASE
    sides = {
        BACKFILL: _side(options, given, work / "backfill", days_a_run=RunSettings().max_days_per_run),
        WEEKS: _side(options, given, work / "weeks", days_a_run=7),
        BULK: _side(options, given, work / "bulk", days_a_run=None),
    }
    measured = interleaved(options.runs, sides)
    shutil.rmtree(work, ignore_errors=True)
    load = median([run for runs in measured.values() for run in runs], lambda run: run.load)

    def compare(
        metric: str, side: str, value: Callable[[Measured], float], target: float | None = None
    ) -> Figure:
        other = median(measured[BULK], value)
        return figure(CASE, metric, median(measured[side], value), other, load=load, target=target)

    return [
        compare("wall_seconds", BACKFILL, _wall_seconds, TARGET),
        compare("cpu_seconds", BACKFILL, _cpu_seconds, TARGET),
        compare("peak_resident_mib", BACKFILL, lambda run: run.peak_resident_mib("done")),
        compare("wall_seconds_in_runs_of_a_week", WEEKS, _wall_seconds),
        compare("cpu_seconds_in_runs_of_a_week", WEEKS, _cpu_seconds),
    ]


def _wall_seconds(run: Measured) -> float:
    return run.wall_seconds("done", "session")


def _cpu_seconds(run: Measured) -> float:
    return run.cpu_seconds("done", "session")


def _side(
    options: Options, given: BulkInput, folder: Path, *, days_a_run: int | None
) -> Callable[[], Measured]:
    def run_side() -> Measured:
        empty_folder(folder)
        measured = run_script(
            "backfill_by_platform",
            {
                "home": str(folder / "home"),
                "landing": str(given.landing),
                "days": [day.isoformat() for day in given.days],
                "days_a_run": days_a_run,
                "spark": {"spark.local.dir": str(folder / "spark"), **options.spark},
            },
            script_environment(),
        )
        found = measured.marks["done"].figures["rows"]
        if found != [given.raw_events, given.normalized_orders, given.normalized_orders]:
            raise WrongRows(f"the tables ended with {found} rows")
        return measured

    return run_side
