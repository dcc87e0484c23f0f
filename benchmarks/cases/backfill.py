"""backfill: 30 days of 33,000 events through the three stages in the runs that a Dagster backfill makes of them, beside one.

Both sides are Dagster runs in a fresh process, on an instance of their own. The runs of the backfill are as its policy cuts
them: ranges of `runs.max_days_per_run` days, one after another, everything of a day read.
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

CASE = "backfill"
TARGET = 1.2
BACKFILL, ONE_RUN = "backfill", "one run"


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    given = bulk_input(options.folder, options.events)
    work = options.folder / CASE
    sides = {
        BACKFILL: _side(options, given, work / "backfill", None),
        ONE_RUN: _side(options, given, work / "one-run", len(given.days)),
    }
    measured = interleaved(options.runs, sides)
    shutil.rmtree(work, ignore_errors=True)
    backfill, one_run = measured[BACKFILL], measured[ONE_RUN]
    load = median([*backfill, *one_run], lambda run: run.load)

    def compare(metric: str, value: Callable[[Measured], float], target: float | None = None) -> Figure:
        return figure(CASE, metric, median(backfill, value), median(one_run, value), load=load, target=target)

    return [
        compare("wall_seconds", lambda run: run.wall_seconds("done", "session"), TARGET),
        compare("cpu_seconds", lambda run: run.cpu_seconds("done", "session"), TARGET),
        compare("wall_seconds_from_start", lambda run: run.wall_seconds("done")),
        compare("runs", lambda run: run.marks["done"].figures["runs"]),
    ]


def _side(options: Options, given: BulkInput, folder: Path, days_a_run: int | None) -> Callable[[], Measured]:
    def run_side() -> Measured:
        empty_folder(folder)
        measured = run_script(
            "backfill_by_dagster",
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
