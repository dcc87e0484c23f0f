"""history: a sensor's tick and a run over one day, on a platform with 10,000 files of 1,000 days and on a
fresh one.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from benchmarks.measure import Measured, empty_folder, interleaved, median, run_script
from benchmarks.options import Options, script_environment
from benchmarks.past import INCREMENT, Past
from benchmarks.report import Figure, figure
from benchmarks.scripts.platform_steps import DATA_PATH, DERIVED

CASE = "history"
RUN_TARGET = 1.1
TICK_CPU_SECONDS_TARGET = 0.1
LONG, FRESH = "long", "fresh"
LAST = DERIVED[-1]


class NothingDone(Exception):
    """A run did not insert the rows it should: its time says nothing."""


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    work = empty_folder(options.folder / CASE)
    past = Past(days=options.days, files=options.files)
    print(f"  building {past.files:,} files over {past.days:,} days ...", file=sys.stderr)
    run_script(
        "history_build",
        {
            "days": past.days,
            "files": past.files,
            LONG: str(work / LONG),
            FRESH: str(work / FRESH),
            "spark": options.spark_settings(work / "spark"),
        },
        script_environment(),
    )
    sides = {name: _side(options, past, work, name) for name in (LONG, FRESH)}
    measured = interleaved(options.runs, sides)
    shutil.rmtree(work, ignore_errors=True)
    return _figures(measured[LONG], measured[FRESH])


def _side(options: Options, past: Past, work: Path, name: str) -> Callable[[], Measured]:
    numbers = itertools.count(1)

    def run_side() -> Measured:
        scratch = empty_folder(work / "scratch")
        measured = run_script(
            "history_increment",
            {
                "home": str(work / name),
                "scratch": str(scratch),
                "day": past.day.isoformat(),
                "number": next(numbers),
                "spark": options.spark_settings(work / "spark"),
            },
            script_environment(),
        )
        for table in ("raw_events", "normalized_orders", "warehouse_rows"):
            if (inserted := measured.marks[table].figures["inserted"]) != INCREMENT:
                raise NothingDone(f"{name}: {inserted} rows went into {table}, not {INCREMENT}")
        return measured

    return run_side


def _figures(long: list[Measured], fresh: list[Measured]) -> list[Figure]:
    load = median([*long, *fresh], lambda run: run.load)

    def compare(metric: str, value: Callable[[Measured], float], target: float | None = None) -> Figure:
        return figure(CASE, metric, median(long, value), median(fresh, value), load=load, target=target)

    def tick(news: str, kind: str) -> Callable[[Measured], float]:
        return lambda run: run.marks[f"ticked_{news}"].figures[kind]

    rows = [
        figure(
            CASE,
            "tick_cpu_seconds_at_most",
            median(long, tick("without_news", "cpu_seconds")),
            load=load,
            target=TICK_CPU_SECONDS_TARGET,
        ),
        *(
            compare(f"tick_{news}_{kind}", tick(news, kind))
            for news in ("without_news", "with_news")
            for kind in ("cpu_seconds", "wall_seconds")
        ),
        compare("run_cpu_seconds", lambda run: run.cpu_seconds(LAST, "warm"), RUN_TARGET),
        compare("run_wall_seconds", lambda run: run.wall_seconds(LAST, "warm"), RUN_TARGET),
    ]
    for before, name in pairwise(("warm", *DATA_PATH, *DERIVED)):
        rows.append(compare(f"{name}_wall_seconds", lambda run, a=before, b=name: run.wall_seconds(b, a)))
        rows.append(compare(f"{name}_cpu_seconds", lambda run, a=before, b=name: run.cpu_seconds(b, a)))
    return rows
