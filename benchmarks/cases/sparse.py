"""sparse: 40,000 events over 600 days, beside the same events over 6 days, through all steps and with Dagster
around them.

Each day is a file of each table, so that this measures what a day costs apart from its rows. The 6 days are
each the last of 100, and have the files of all of them, so that their events are the same and none is later
than it may be. The steps are cut as runs are. Dagster's share is what its runs take more than the steps
alone; of that, what its event storage takes is measured.
"""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cases.bulk import WrongRows
from benchmarks.input import DUPLICATES, INVALID, SEED
from benchmarks.measure import Measured, empty_folder, interleaved, median, run_script
from benchmarks.options import Options, script_environment
from benchmarks.report import Figure, figure
from etl_assets.orders.generator.faults import FaultRates
from etl_assets.orders.generator.generate import EventsSpec, generate
from etl_assets.orders.generator.reference import CUSTOMERS_FILE

CASE = "sparse"
TARGET = 2.0
EVENTS, DAYS, DAYS_IN_ONE = 40_000, 600, 100
FIRST_DAY = dt.date(2024, 1, 1)
"""All days are past: a day to come has no partition."""
SPARSE, DENSE = "600 days", "6 days"


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A landing folder and its days."""

    landing: Path
    days: tuple[dt.date, ...]


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    given = {SPARSE: _sparse_input(options.folder), DENSE: _dense_input(options.folder)}
    work = options.folder / CASE
    sides = {
        f"{kind} over {name}": _side(options, each, work / name, with_dagster=kind == "runs")
        for kind in ("steps", "runs")
        for name, each in given.items()
    }
    measured = interleaved(options.runs, sides)
    shutil.rmtree(work, ignore_errors=True)
    load = median([run for runs in measured.values() for run in runs], lambda run: run.load)

    def value(kind: str, name: str, of: Callable[[Measured], float]) -> float:
        return median(measured[f"{kind} over {name}"], of)

    def compared(metric: str, of: Callable[[str], float], target: float | None = None) -> Figure:
        return figure(CASE, metric, of(SPARSE), of(DENSE), load=load, target=target)

    return [
        compared("steps_wall_seconds", lambda name: value("steps", name, _wall_seconds), TARGET),
        compared("steps_cpu_seconds", lambda name: value("steps", name, _cpu_seconds), TARGET),
        compared(
            "dagster_wall_seconds",
            lambda name: value("runs", name, _wall_seconds) - value("steps", name, _wall_seconds),
        ),
        compared("of_that_event_storage_seconds", lambda name: value("runs", name, _seconds_storing)),
        compared("events_stored", lambda name: value("runs", name, _events_stored)),
    ]


def _wall_seconds(run: Measured) -> float:
    return run.wall_seconds("carried", "session")


def _cpu_seconds(run: Measured) -> float:
    return run.cpu_seconds("carried", "session")


def _seconds_storing(run: Measured) -> float:
    return run.marks["done"].figures["seconds_storing"]


def _events_stored(run: Measured) -> float:
    return run.marks["done"].figures["events_stored"]


def _sparse_input(folder: Path) -> Input:
    landing = folder / "input" / f"sparse-{EVENTS}-from-{FIRST_DAY}"
    if not (landing / "_complete").exists():
        rates = FaultRates(duplicates=DUPLICATES, invalid_payloads=INVALID)
        generate(EventsSpec(events=EVENTS, start=FIRST_DAY, days=DAYS, seed=SEED, rates=rates), landing)
        (landing / "_complete").touch()
    return _input(landing)


def _dense_input(folder: Path) -> Input:
    sparse, landing = _sparse_input(folder), folder / "input" / f"dense-{EVENTS}-from-{FIRST_DAY}"
    if not (landing / "_complete").exists():
        empty_folder(landing)
        shutil.copytree((sparse.landing / CUSTOMERS_FILE).parent, (landing / CUSTOMERS_FILE).parent)
        for first in range(0, len(sparse.days), DAYS_IN_ONE):
            days = sparse.days[first : first + DAYS_IN_ONE]
            target = landing / days[-1].isoformat()
            target.mkdir()
            with (target / "events.jsonl").open("wb") as file:
                for day in days:
                    for path in sorted((sparse.landing / day.isoformat()).iterdir()):
                        file.write(path.read_bytes())
        (landing / "_complete").touch()
    return _input(landing)


def _input(landing: Path) -> Input:
    days = sorted(dt.date.fromisoformat(path.name) for path in landing.glob("[0-9]*-*-*"))
    return Input(landing=landing, days=tuple(days))


def _side(options: Options, given: Input, folder: Path, *, with_dagster: bool) -> Callable[[], Measured]:
    def run_side() -> Measured:
        empty_folder(folder)
        measured = run_script(
            "sparse_by_platform",
            {
                "home": str(folder / "home"),
                "landing": str(given.landing),
                "days": [day.isoformat() for day in given.days],
                "with_dagster": with_dagster,
                "spark": {"spark.local.dir": str(folder / "spark"), **options.spark},
            },
            script_environment(),
        )
        found = measured.marks["done"].figures["rows"]
        if found["raw_events"] != round(EVENTS * (1 + INVALID)) or found["warehouse_rows"] != EVENTS:
            raise WrongRows(f"the tables ended with {found} rows")
        return measured

    return run_side
