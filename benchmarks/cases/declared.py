"""declared: the bulk case's events by a declared pipeline, beside the orders pipeline over the same files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks.cases.bulk import WARM, WrongRows, bulk_side
from benchmarks.input import BulkInput, bulk_input
from benchmarks.measure import Measured, empty_folder, interleaved, median, run_script
from benchmarks.options import Options, script_environment
from benchmarks.report import Figure, figure
from benchmarks.scripts.bulk_by_declared import SOURCE, TABLE
from benchmarks.scripts.platform_steps import DATA_PATH

CASE = "declared"
TARGET = 1.25
OURS, OTHER = "declared", "orders"
_SCRIPT = "bulk_by_declared"


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    given = bulk_input(options.folder, options.events)
    work = options.folder / CASE
    sides = {
        OURS: _declared_side(options, given, work / OURS),
        OTHER: bulk_side(options, given, work / OTHER, "bulk_by_platform"),
    }
    measured = interleaved(options.runs, sides)
    shutil.rmtree(work, ignore_errors=True)
    ours, other = measured[OURS], measured[OTHER]
    load = median([*ours, *other], lambda run: run.load)
    kinds = (("cpu", Measured.cpu_seconds), ("wall", Measured.wall_seconds))
    stages = (("source", SOURCE, "raw_events", None), ("path", TABLE, DATA_PATH[-1], TARGET))
    return [
        figure(
            CASE,
            f"{name}_{kind}_seconds",
            median(ours, lambda run, of=of, until=mine: of(run, until, WARM)),
            median(other, lambda run, of=of, until=theirs: of(run, until, WARM)),
            load=load,
            target=target,
        )
        for name, mine, theirs, target in stages
        for kind, of in kinds
    ]


def _declared_side(options: Options, given: BulkInput, folder: Path) -> Callable[[], Measured]:
    def run_side() -> Measured:
        from etl_assets.runtime.jars import delta_jars

        empty_folder(folder)
        spark = {
            **options.spark_settings(folder / "scratch"),
            "spark.driver.extraClassPath": os.pathsep.join(map(str, delta_jars())),
        }
        arguments = {
            "landing": str(given.landing),
            "days": [day.isoformat() for day in given.days],
            "tables": str(folder / "tables"),
            "spark": spark,
        }
        measured = run_script(_SCRIPT, arguments, script_environment())
        found = measured.marks["verified"].figures
        rejected = given.raw_events - given.normalized_orders
        expected = {SOURCE: given.raw_events, TABLE: given.normalized_orders, f"{TABLE}_rejects": rejected}
        if found != expected:
            raise WrongRows(f"{_SCRIPT} ended with the rows {found}, not {expected}")
        return measured

    return run_side
