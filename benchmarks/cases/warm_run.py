"""warm_run: a run launched in the UI over a file of 10,000 events, with the warm engine and without.

Webserver, daemon and code server are those of `etl-assets dev`. The request is the UI's own (`launchRun`),
for three assets and one partition; a run is over for this case when the commit of the last table has been
acknowledged and reported. Each run gets a day of its own.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import statistics
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.measure import Load, empty_folder
from benchmarks.options import Options
from benchmarks.report import Figure, figure
from benchmarks.spending import Spending
from etl_assets.engine.ipc import status
from etl_assets.orders.generator.generate import EventsSpec, generate
from etl_assets_tests.e2e.dagster_ui import DagsterApi, dagster_ui, wait

CASE = "warm_run"
WALL_SECONDS_TARGET, CPU_SECONDS_TARGET = 6.0, 10.0
EVENTS = 10_000
TABLES = ("raw_events", "normalized_orders", "warehouse_rows")
WARM_UPS = 2
_FIRST = dt.date(2026, 1, 1)
_IDLE_SECONDS = 10.0
_RUN_SECONDS = 300.0
PHASES = ("queued", "dequeued", "begun", *TABLES)
"""Each from the one before, or from the request: the request is answered and written down; the daemon takes
it up; its process executes; the tables' commits are acknowledged."""


class RunWentWrong(Exception):
    """A run did not succeed, or not where it was to be executed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """One run: wall seconds from the request to each phase's end, and CPU seconds of all processes above
    idling.
    """

    reached: Mapping[str, float]
    cpu_seconds: float
    load: float

    @property
    def wall_seconds(self) -> float:
        return self.reached[TABLES[-1]]


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    work = empty_folder(options.folder / CASE)
    measured = {}
    for name in ("with", "without"):
        print(f"  {options.runs} runs {name} the engine ...", file=sys.stderr)
        measured[name] = _side(options, work / name, engine=name == "with")
    shutil.rmtree(work, ignore_errors=True)
    return _figures(measured["with"], measured["without"])


def _side(options: Options, home: Path, *, engine: bool) -> list[Launched]:
    home.mkdir()
    settings = {
        "start_date": _FIRST,
        "landing": {"settle_seconds": 0},
        "spark": {"master": "local[2]", "config": {"spark.local.dir": str(home), **options.spark}},
    }
    (home / "platform.yaml").write_text(yaml.safe_dump(settings), "utf-8")
    with _environment_of(home), dagster_ui(home, engine=engine) as api, Spending(os.getpid()) as spending:
        api.stop_sensors()
        if engine:
            wait(lambda: (status(home) or {}).get("ready"), seconds=300, what="a warm engine")
        before, idle_from = spending.cpu_seconds(), time.monotonic()
        time.sleep(_IDLE_SECONDS)
        idle = (spending.cpu_seconds() - before) / (time.monotonic() - idle_from)
        runs = []
        for number in range(WARM_UPS + options.runs):
            day = _FIRST + dt.timedelta(days=number)
            generate(EventsSpec(events=EVENTS, start=day, days=1, seed=1 + number), home / "landing")
            runs.append(_launch(api, home, day, spending, idle, engine=engine))
            if engine:
                wait(
                    lambda: (status(home) or {}).get("runs") == 0,
                    seconds=60,
                    what="the child's end",
                    every=0.2,
                )
        return runs[WARM_UPS:]


def _launch(
    api: DagsterApi, home: Path, day: dt.date, spending: Spending, idle: float, *, engine: bool
) -> Launched:
    load, before, began, asked = Load(), spending.cpu_seconds(), time.monotonic(), time.time()
    run_id = api.launch(list(TABLES), **{"dagster/partition": day.isoformat()})
    if (found := api.wait_for_run(run_id, seconds=_RUN_SECONDS)) != "SUCCESS":
        raise RunWentWrong(f"run {run_id} ended with {found}")
    time.sleep(1)  # its process ends after the run does
    seconds = time.monotonic() - began
    used = spending.cpu_seconds() - before
    reached, handed = _reached(home, run_id)
    if handed is not engine:
        raise RunWentWrong(f"run {run_id} was {'' if handed else 'not '}executed by the engine")
    return Launched(
        reached={name: when - asked for name, when in reached.items()},
        cpu_seconds=used - idle * seconds,
        load=max(0.0, load.cpu_seconds() - used) / seconds,
    )


def _reached(home: Path, run_id: str) -> tuple[dict[str, float], bool]:
    """When each phase ended, from the run's log, and whether the engine executed it."""
    from dagster import DagsterEventType, DagsterInstance

    names = {
        DagsterEventType.RUN_ENQUEUED: "queued",
        DagsterEventType.RUN_STARTING: "dequeued",
        DagsterEventType.RUN_START: "begun",
    }
    reached, handed = {}, False
    with DagsterInstance.from_config(str(home / "dagster")) as instance:
        for record in instance.all_logs(run_id):
            event: Any = record.dagster_event
            if event is None:
                continue
            if event.event_type in names:
                reached[names[event.event_type]] = record.timestamp
            elif event.event_type is DagsterEventType.ASSET_MATERIALIZATION:
                reached[event.asset_key.to_user_string()] = record.timestamp
            elif event.event_type is DagsterEventType.ENGINE_EVENT:
                handed = handed or "Handed to the engine" in (event.message or "")
    return reached, handed


@contextmanager
def _environment_of(home: Path) -> Generator[None]:
    """Without the variables of whoever measures."""
    before = {
        name: value for name, value in os.environ.items() if name.startswith(("ETL_ASSETS_", "DAGSTER_"))
    }
    kept = ("ETL_ASSETS_JARS",)
    try:
        for name in before:
            if name not in kept:
                del os.environ[name]
        os.environ["ETL_ASSETS_HOME"] = str(home)
        yield
    finally:
        os.environ.pop("ETL_ASSETS_HOME", None)
        os.environ.update(before)


def _figures(ours: Sequence[Launched], other: Sequence[Launched]) -> list[Figure]:
    load = statistics.median(run.load for run in (*ours, *other))

    def both(value: Any) -> tuple[float, float]:
        return statistics.median(map(value, ours)), statistics.median(map(value, other))

    wall, cpu = both(lambda run: run.wall_seconds), both(lambda run: run.cpu_seconds)
    rows = [
        figure(CASE, "wall_seconds", wall[0], load=load, target=WALL_SECONDS_TARGET),
        figure(CASE, "cpu_seconds", cpu[0], load=load, target=CPU_SECONDS_TARGET),
        figure(CASE, "wall_seconds_beside_cold", *wall, load=load),
        figure(CASE, "cpu_seconds_beside_cold", *cpu, load=load),
    ]
    for before, name in zip((None, *PHASES), PHASES, strict=False):

        def phase(run: Launched, before: str | None = before, name: str = name) -> float:
            return run.reached[name] - (0.0 if before is None else run.reached[before])

        rows.append(figure(CASE, f"{name}_wall_seconds", *both(phase), load=load))
    return rows
