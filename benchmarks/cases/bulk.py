"""bulk: 1,000,000 events from landing files to raw, normalized and warehouse tables with rejects, beside a
plain script.

Both sides get the same files, Spark settings, options of the JVM, heap and cores, a fresh process each, and
end with the same rows.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.input import BulkInput, bulk_input
from benchmarks.measure import STARTED, Measured, empty_folder, interleaved, median, run_script
from benchmarks.options import Options, jvm_settings_by_hand, script_environment
from benchmarks.report import Figure, figure
from benchmarks.scripts.platform_steps import DATA_PATH, DERIVED

CASE = "bulk"
TARGET = 1.15
WARM = "customers"
"""Both sides are compared from here: Spark runs, and has done a small merge."""
OURS, OTHER = "platform", "by hand"
_SCRIPT = "bulk_by_hand"
BY_HAND = {
    "customers": ("session", "customers"),
    "raw_events": ("customers", "raw_events_rejects"),
    "normalized_orders": ("raw_events_rejects", "normalized_orders"),
    "warehouse_rows": ("normalized_orders", "warehouse_rows"),
}
"""Between which marks the plain script does what a step does. It writes the rejects of raw_events in a pass
of their own.
"""


class WrongRows(Exception):
    """A side did not end with the rows it should: its time says nothing."""


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    given = bulk_input(options.folder, options.events)
    work = options.folder / CASE
    sides = {
        OURS: bulk_side(options, given, work / "platform", "bulk_by_platform"),
        OTHER: bulk_side(options, given, work / "by-hand", _SCRIPT, settings=jvm_settings_by_hand),
    }
    measured = interleaved(options.runs, sides)
    shutil.rmtree(work, ignore_errors=True)
    return _figures(measured[OURS], measured[OTHER])


def bulk_side(
    options: Options,
    given: BulkInput,
    folder: Path,
    script: str,
    *,
    cores: Collection[int] | None = None,
    servers: Collection[int] = (),
    settings: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda spark: {},
    **more: Any,
) -> Callable[[], Measured]:
    """One side: the script over the input, in a fresh process and an empty folder; it must end with the right
    rows.

    `settings` gives Spark settings that the script has on top of the others.
    """

    def run_side() -> Measured:
        from etl_assets.runtime.jars import delta_jars

        empty_folder(folder)
        spark = options.spark_settings(folder / "scratch")
        arguments: dict[str, Any] = {
            "landing": str(given.landing),
            "customers": str(given.customers),
            "days": [day.isoformat() for day in given.days],
            "tables": str(folder / "tables"),
            "spark": {
                **spark,
                **settings(spark),
                "spark.driver.extraClassPath": os.pathsep.join(map(str, delta_jars())),
            },
            **more,
        }
        measured = run_script(script, arguments, script_environment(), cores=cores, servers=servers)
        _check(script, measured, given)
        return measured

    return run_side


def _check(script: str, measured: Measured, given: BulkInput) -> None:
    found = measured.marks["verified"].figures
    expected = {
        "raw_events": given.raw_events,
        "normalized_orders": given.normalized_orders,
        "warehouse_rows": given.normalized_orders,
    }
    wrong = {name: found.get(name) for name, rows in expected.items() if found.get(name) != rows}
    if wrong:
        raise WrongRows(f"{script} ended with the rows {wrong}, not {expected}")


def _figures(ours: list[Measured], other: list[Measured]) -> list[Figure]:
    load = median([*ours, *other], lambda run: run.load)

    def compare(metric: str, value: Callable[[Measured], float], target: float | None = None) -> Figure:
        return figure(CASE, metric, median(ours, value), median(other, value), load=load, target=target)

    def alone(metric: str, value: Callable[[Measured], float]) -> Figure:
        return figure(CASE, metric, median(ours, value), load=load)

    rows = [
        *(
            compare(
                f"{name}_{kind}_seconds",
                lambda run, of=of, until=until: of(run, until, WARM),
                TARGET,
            )
            for name, until in (("raw", "raw_events"), ("raw_to_warehouse", DATA_PATH[-1]))
            for kind, of in (("cpu", Measured.cpu_seconds), ("wall", Measured.wall_seconds))
        ),
        compare("cpu_seconds", lambda run: run.cpu_seconds("tables")),
        compare("cpu_seconds_after_start", lambda run: run.cpu_seconds("tables", "session")),
        compare("wall_seconds", lambda run: run.wall_seconds("tables")),
        compare("wall_seconds_after_start", lambda run: run.wall_seconds("tables", "session")),
        compare("peak_resident_mib", lambda run: run.peak_resident_mib("tables")),
        compare("start_cpu_seconds", lambda run: run.cpu_seconds("session", STARTED)),
    ]
    kinds = (("cpu", Measured.cpu_seconds), ("wall", Measured.wall_seconds))
    for before, name in pairwise(("session", *DATA_PATH)):
        since, until = BY_HAND[name]
        for kind, of in kinds:
            step = median(ours, lambda run, of=of, a=before, b=name: of(run, b, a))
            by_hand = median(other, lambda run, of=of, a=since, b=until: of(run, b, a))
            rows.append(figure(CASE, f"{name}_{kind}_seconds", step, by_hand, load=load))
    for before, name in pairwise(("tables", *DERIVED)):
        for kind, of in kinds:
            rows.append(alone(f"{name}_{kind}_seconds", lambda run, of=of, a=before, b=name: of(run, b, a)))
    last = DERIVED[-1]
    rows.append(alone("peak_resident_mib_all", lambda run: run.peak_resident_mib(last)))
    return rows
