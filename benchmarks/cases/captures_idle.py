"""captures_idle: what a worker takes that follows 100 tables of one database in which nothing happens."""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from pathlib import Path

from benchmarks.captured_home import CapturedHome
from benchmarks.measure import empty_folder
from benchmarks.options import Options
from benchmarks.processes import machine_cpu_seconds, tree_cpu_seconds
from benchmarks.report import Figure, figure

CASE = "captures_idle"
TABLES, ROWS = 100, 10
CORES_TARGET = 0.02
_MINUTE = 60.0
_READY_SECONDS, _QUIET_SECONDS = 900.0, 90.0
"""The copies are reported to Dagster within a minute of their end: that is no part of being idle."""


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    found = []
    for number in range(options.runs):
        print(f"  run {number + 1} of {options.runs} ...", file=sys.stderr, flush=True)
        found.append(_run_once(options, options.folder / CASE))
    cores, load = (statistics.median(values) for values in zip(*found, strict=True))
    return [figure(CASE, "idle_cores_of_100_tables", cores, load=load, target=CORES_TARGET)]


def _run_once(options: Options, work: Path) -> tuple[float, float]:
    """Return the cores that the worker's processes keep busy over a minute, and what others do meanwhile."""
    import psycopg

    from etl_assets.stack.postgres import PostgresServer

    empty_folder(work)
    server: PostgresServer
    with PostgresServer() as server:
        with psycopg.connect(server.url, autocommit=True) as session:
            for number in range(TABLES):
                session.execute(f"CREATE TABLE t{number:03} (id bigint PRIMARY KEY, n int)".encode())
                session.execute(
                    f"INSERT INTO t{number:03} SELECT i, i FROM generate_series(1, {ROWS}) i".encode()
                )
        home = CapturedHome(folder=work / "home", address=server.url)
        home.declare(options)
        with home.worker() as worker:
            home.until_ready(TABLES, _READY_SECONDS)
            time.sleep(_QUIET_SECONDS)
            began, before, all_before = time.monotonic(), tree_cpu_seconds(worker.pid), machine_cpu_seconds()
            time.sleep(_MINUTE)
            seconds = time.monotonic() - began
            spent = tree_cpu_seconds(worker.pid) - before
            others = machine_cpu_seconds() - all_before - spent
    shutil.rmtree(work, ignore_errors=True)
    return spent / seconds, others / seconds
