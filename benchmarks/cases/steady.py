"""steady: a worker under a steady 1,000 events a second, everything on: how late warehouse rows are, and
whether it stays so.

A process of its own lands a file of new orders each second; the worker begins on a fresh home folder. What
comes in the first `WARM_SECONDS` is carried like the rest and told by itself: a process that starts, compiles
its code and makes its tables is not in a steady state. Latency is an event's: from the moment its file had
got its name to the moment the step that committed its warehouse row returned, that is, after fsync.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from deltalake import DeltaTable

from benchmarks.measure import Measured, ScriptFailed, empty_folder, run_script
from benchmarks.options import Options, script_environment
from benchmarks.report import Figure, figure
from benchmarks.scripts.steady_land import LANDED, file_of
from benchmarks.scripts.steady_worker import ACKNOWLEDGED
from etl_assets.orders.tables.normalized_orders import NORMALIZED_ORDERS
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS
from etl_assets.settings import Settings
from etl_assets.steps.step import platform_table

CASE = "steady"
RATE = 1_000
WARM_SECONDS = 90
P50_SECONDS_TARGET, P99_SECONDS_TARGET = 5.0, 15.0
GROWTH_TARGET = 1.2
SEED = 20_260_101


class NotOnce(Exception):
    """An event is missing, or there more than once: the times say nothing."""


def run(options: Options) -> list[Figure]:
    """Measure the case; each run takes `--seconds`, the warm-up and half a minute."""
    runs = []
    for number in range(options.runs):
        print(f"  run {number + 1} of {options.runs} ...", file=sys.stderr, flush=True)
        runs.append(_run_once(options))
    return [_median(of_metric) for of_metric in zip(*runs, strict=True)]


def _median(runs: Sequence[Figure]) -> Figure:
    """A figure of several runs: the median of both sides, whose ratio is judged."""
    one = runs[0]
    return figure(
        CASE,
        one.metric,
        statistics.median(each.ours for each in runs),
        None if one.other is None else statistics.median(each.other or 0.0 for each in runs),
        load=statistics.median(each.load for each in runs),
        target=one.target,
    )


def _run_once(options: Options) -> list[Figure]:
    home = empty_folder(options.folder / CASE)
    files = WARM_SECONDS + options.seconds
    settings: dict[str, Any] = {
        # Files get their names when they are complete, so that there is nothing to wait for.
        "landing": {"settle_seconds": 0},
        "spark": {"master": "local[2]", "config": dict(options.spark)},
    }
    writer = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "benchmarks.scripts.steady_land",
            json.dumps({"home": str(home), "files": files, "rate": RATE, "seed": SEED}),
        ],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        measured = run_script(
            "steady_worker",
            {
                "home": str(home),
                "settings": settings,
                "warm_events": WARM_SECONDS * RATE,
                "events": files * RATE,
            },
            script_environment(),
        )
        if writer.wait(60) != 0:
            raise ScriptFailed("steady_land did not end well")
    finally:
        writer.kill()
        writer.wait()
    landed, latencies = _latencies(home, Settings.model_validate({**settings, "home": home}), files)
    figures = _figures(measured, landed, latencies, options.seconds)
    shutil.rmtree(home, ignore_errors=True)
    return figures


def _latencies(home: Path, settings: Settings, files: int) -> tuple[np.ndarray, np.ndarray]:
    """For each event the second it was landed in, and its latency in seconds; every event is there once."""
    landed = {int(file): at for file, at in json.loads((home / LANDED).read_text()).items()}
    acknowledged = {int(version): at for version, at in json.loads((home / ACKNOWLEDGED).read_text()).items()}
    domain = settings.placement().reader()
    for name in (RAW_EVENTS.name, NORMALIZED_ORDERS.name, WAREHOUSE_ROWS.name):
        table = platform_table(name, domain)
        rows = DeltaTable(str(table.path), version=table.version()).to_pyarrow_dataset()
        columns = rows.to_table(columns=["event_id", "batch_id"])
        ids = columns.column("event_id").to_pylist()
        if len(ids) != files * RATE or len(set(ids)) != files * RATE:
            raise NotOnce(f"{name} has {len(ids):,} rows of {len(set(ids)):,} events, not {files * RATE:,}")
    batches = columns.column("batch_id").to_pylist()
    seconds = np.array([file_of(each) for each in ids])
    late = [acknowledged[batch] - landed[file_of(each)] for each, batch in zip(ids, batches, strict=True)]
    return seconds, np.array(late)


def _figures(measured: Measured, landed: np.ndarray, late: np.ndarray, seconds: int) -> list[Figure]:
    load = measured.load
    steady = late[landed >= WARM_SECONDS]
    window = max(1, min(120, seconds // 4))
    first = late[(landed >= WARM_SECONDS) & (landed < WARM_SECONDS + window)]
    last = late[landed >= WARM_SECONDS + seconds - window]
    slope = float(np.polyfit(landed[landed >= WARM_SECONDS] / 60, steady, 1)[0])
    begin, end = measured.marks["warm"].clock, measured.marks["done"].clock
    resident = [_resident(measured, begin + (end - begin) * part) for part in (0.05, 0.5, 0.95)]
    events = len(steady)
    return [
        figure(CASE, "latency_p50_seconds", _quantile(steady, 0.5), load=load, target=P50_SECONDS_TARGET),
        figure(CASE, "latency_p99_seconds", _quantile(steady, 0.99), load=load, target=P99_SECONDS_TARGET),
        figure(CASE, "latency_most_seconds", _quantile(steady, 1.0), load=load),
        figure(
            CASE,
            "latency_p50_seconds_of_the_last_minutes_by_the_first",
            _quantile(last, 0.5),
            _quantile(first, 0.5),
            load=load,
            target=GROWTH_TARGET,
        ),
        figure(CASE, "latency_slope_seconds_per_minute", slope, load=load),
        figure(CASE, "latency_p99_seconds_warm_up_included", _quantile(late, 0.99), load=load),
        figure(
            CASE,
            "resident_megabytes_at_the_end_by_the_start",
            resident[2],
            resident[0],
            load=load,
            target=GROWTH_TARGET,
        ),
        figure(CASE, "resident_megabytes_in_the_middle", resident[1], load=load),
        figure(
            CASE,
            "cpu_seconds_per_1000_events",
            measured.cpu_seconds("done", "warm") / events * 1_000,
            load=load,
        ),
        figure(CASE, "events_per_second", events / (end - begin), load=load),
        figure(CASE, "seconds_to_leave", measured.wall_seconds("left", "done"), load=load),
    ]


def _quantile(late: np.ndarray, share: float) -> float:
    return float(np.quantile(late, share))


def _resident(measured: Measured, at: float, around: float = 15.0) -> float:
    """The median of some seconds, in 10^6 bytes."""
    sizes: Sequence[int] = [size for clock, size in measured.resident if abs(clock - at) <= around]
    return statistics.median(sizes) / 1e6
