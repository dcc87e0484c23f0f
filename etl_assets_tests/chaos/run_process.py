"""A run of the data path in a process of its own, placed as Dagster's runs are, and a note of each
acknowledged commit.

The Spark engine is that of the test, and processes begin with everything imported: both of their own would
cost more than everything else.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etl_assets.delta.log.entries import entry_path
from etl_assets.error_policy import Decision, decide
from etl_assets.settings import load_settings
from etl_assets.steps.placing import place
from etl_assets.steps.step import domain_watched
from etl_assets_tests.chaos import parts
from etl_assets_tests.kill.dying_run import Gateway, attached_session
from etl_assets_tests.pipeline import Pipeline

ORDERS = ("raw_events", "normalized_orders", "warehouse_rows")
"""The orders pipeline, each event of which is in all of these tables once."""
STEPS = (*ORDERS, "customers", *parts.STEPS)
ATTEMPTS = 6
PAUSE_SECONDS = 0.3
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    ["deltalake", "obstore.store", "pandas", "pyarrow.dataset", "pyspark.sql.functions", __name__]
)


class Run:
    """A run, from outside."""

    def __init__(self, log: Path, environment: Mapping[str, str], *arguments: Any) -> None:
        """Start `main` in a process, with this environment and what it says in a file."""
        self._process = _processes.Process(target=_run, args=(log, dict(environment), *arguments))
        self._process.start()

    def wait(self, seconds: float | None = None) -> int | None:
        """The exit code, None if it is still running by then."""
        self._process.join(seconds)
        return self._process.exitcode

    def kill(self) -> None:
        """End it as the kernel would for want of memory."""
        self._process.kill()
        self._process.join()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, signal_: signal.Signals) -> None:
        if self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, signal_)


def _run(log: Path, environment: dict[str, str], *arguments: Any) -> None:
    os.environ.clear()
    os.environ.update(environment)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    main(*arguments)


def main(home: Path, days: list[dt.date], gateway: Gateway, notes: Path) -> None:
    """Run the steps, each repeated as the retry policy has it."""
    session = attached_session(gateway)
    pipeline = Pipeline(root=home, landing=home / "landing", session=lambda: session)
    for table in STEPS:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                note = run_step(pipeline, table, days)
            except Exception as error:
                if attempt == ATTEMPTS or decide(error) is Decision.STOP:
                    raise
                sys.stderr.write(f"{table}: {type(error).__name__}: {error}\n")
                time.sleep(PAUSE_SECONDS * attempt)
            else:
                with notes.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(note) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                break


def run_step(pipeline: Pipeline, table: str, days: list[dt.date]) -> dict[str, Any]:
    """One attempt: place the step, run it, and say what was acknowledged."""
    placement = load_settings().placement()
    domain = place(placement, table)
    placed = dataclasses.replace(pipeline, works_in=domain)
    with domain_watched(
        dataclasses.replace(placed.context, domain_problem=lambda: placement.problem(domain))
    ):
        step = parts.step(table, placed.context) if table in parts.STEPS else placed.steps()[table]
        report = step.run(days)
        entry = entry_path(placed.context.table(table).path, report.version).read_bytes()
    return {
        "table": table,
        "version": report.version,
        "entry": hashlib.sha256(entry).hexdigest(),
        "domain": domain.name,
    }
