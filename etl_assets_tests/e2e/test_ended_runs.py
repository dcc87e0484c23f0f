"""Runs that do not end by themselves: cancelled in the UI, and killed with nobody there to notice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etl_assets_tests.e2e.dagster_ui import DagsterApi, dagster_ui, wait
from etl_assets_tests.e2e.installation import FIRST, land, rows_by_day

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1_200)]
LINES = 800_000
"""Enough for Spark to be at work for some seconds."""

INTERRUPT_SECONDS = 1.0
"""What Dagster takes at most to have a run's process interrupted, once it has said that it will."""


def test_a_cancelled_run_stops_spark_and_a_killed_one_is_noticed_and_made_up_for(
    home: Path, record_property: Callable[[str, object], None]
):
    with dagster_ui(home) as api:
        # Nothing but what the test does starts runs.
        api.stop_sensors()
        land(home, FIRST, LINES)

        run_id, driver = launch_and_wait_for_work(api, home)
        with paused(driver):
            assert api.cancel(run_id)["__typename"] == "TerminateRunSuccess"
            time.sleep(INTERRUPT_SECONDS)
        assert api.wait_for_run(run_id, seconds=60) == "CANCELED"
        wait(lambda: not runs(driver), seconds=30, what="the end of the cancelled run's Spark", every=0.2)
        assert not committed(home)

        run_id, driver = launch_and_wait_for_work(api, home)
        killed = time.monotonic()
        os.kill(parent_of(driver), signal.SIGKILL)
        assert api.wait_for_run(run_id, seconds=120) == "FAILURE"
        record_property("seconds_until_noticed", round(time.monotonic() - killed, 1))
        again = wait(
            lambda: retry_of(api, run_id), seconds=120, what="the run that makes up for the lost one"
        )
        assert api.wait_for_run(again, seconds=400) == "SUCCESS"
        assert rows_by_day(home) == {FIRST.isoformat(): LINES}


def launch_and_wait_for_work(api: DagsterApi, home: Path) -> tuple[str, int]:
    """A run of a day whose lines are being judged, and the process id of its Spark driver."""
    before = drivers_of(home)
    run_id = api.launch(["raw_events"], **{"dagster/partition": FIRST.isoformat()})
    staging = home / "data" / "staging" / "raw_events"
    wait(
        lambda: any(staging.glob("*/lines/events-*")),
        seconds=240,
        what="lines being judged",
        every=0.1,
    )
    (driver,) = drivers_of(home) - before
    return run_id, driver


@contextmanager
def paused(spark: int) -> Generator[None]:
    """Spark does nothing meanwhile: however fast the machine, a run is not over before it is told to end."""
    os.kill(spark, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(spark, signal.SIGCONT)


def retry_of(api: DagsterApi, run_id: str) -> str | None:
    return next(
        (run["runId"] for run in api.runs() if run["tags"].get("dagster/parent_run_id") == run_id), None
    )


def committed(home: Path) -> bool:
    return any((home / "data" / "tables" / "raw_events").glob("g*/partition_date=*"))


def drivers_of(home: Path) -> set[int]:
    """Spark drivers that work for an installation."""
    mark = f"ETL_ASSETS_HOME={home}".encode()
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            if b"SparkSubmit" in command and mark in (process / "environ").read_bytes().split(b"\0"):
                found.add(int(process.name))
        except OSError:
            continue  # gone meanwhile
    return {pid for pid in found if runs(pid)}


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[1])
