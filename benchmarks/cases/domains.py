"""domains: the whole path over 1,000,000 events with its tables in three failure domains, beside one.

Three folders of one disk: all three copies are written by the machine that does the work.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import pairwise

from benchmarks.cases.bulk import bulk_side
from benchmarks.input import bulk_input
from benchmarks.measure import Measured, interleaved, median
from benchmarks.options import Options
from benchmarks.report import Figure, figure
from benchmarks.scripts.platform_steps import DATA_PATH, DERIVED

CASE = "domains"
TARGET = 1.15
THREE, ONE = "three domains", "one domain"
LAST = DERIVED[-1]


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    given = bulk_input(options.folder, options.events)
    work = options.folder / CASE
    sides = {
        THREE: bulk_side(options, given, work / "three", "bulk_by_platform", domains=3),
        ONE: bulk_side(options, given, work / "one", "bulk_by_platform"),
    }
    measured = interleaved(options.runs, sides)
    shutil.rmtree(work, ignore_errors=True)
    return _figures(measured[THREE], measured[ONE])


def _figures(three: list[Measured], one: list[Measured]) -> list[Figure]:
    load = median([*three, *one], lambda run: run.load)

    def compare(metric: str, value: Callable[[Measured], float], target: float | None = None) -> Figure:
        return figure(CASE, metric, median(three, value), median(one, value), load=load, target=target)

    rows = [
        compare("wall_seconds", lambda run: run.wall_seconds(LAST, "session"), TARGET),
        compare("cpu_seconds", lambda run: run.cpu_seconds(LAST, "session"), TARGET),
        compare("peak_resident_mib", lambda run: run.peak_resident_mib(LAST)),
    ]
    for before, name in pairwise(("session", *DATA_PATH, *DERIVED)):
        start = "tables" if before == DATA_PATH[-1] else before
        rows.append(compare(f"{name}_wall_seconds", lambda run, a=start, b=name: run.wall_seconds(b, a)))
    return rows
