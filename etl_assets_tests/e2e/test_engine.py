"""Runs at the warm engine: they succeed, are cancelled and killed, and the engine itself is killed under
one. `dagster/test_engine_runs.py` has the short forms.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from etl_assets.engine.ipc import status
from etl_assets.processes import started_at
from etl_assets_tests.e2e.dagster_ui import DagsterApi, dagster_ui, wait
from etl_assets_tests.e2e.installation import FIRST, SECOND, land, rows_by_day
from etl_assets_tests.e2e.test_ended_runs import paused, retry_of

pytestmark = [pytest.mark.full, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1_200)]
LINES = 150_000
"""Enough for Spark to be at work for some seconds."""


def test_runs_at_the_engine_may_end_in_any_way_and_so_may_the_engine(home: Path):
    with dagster_ui(home, engine=True) as api:
        api.stop_sensors()
        land(home, FIRST, 50)
        land(home, SECOND, LINES)
        first_spark = spark_of(home)

        assert api.wait_for_run(launch(api, FIRST), seconds=120) == "SUCCESS"
        assert rows_by_day(home) == {FIRST.isoformat(): 50}
        assert spark_of(home) == first_spark, "a run that succeeds leaves Spark to the next one"

        run_id, child = launch_and_wait_for_work(api, home)
        with paused(first_spark):
            assert api.cancel(run_id)["__typename"] == "TerminateRunSuccess"
        assert api.wait_for_run(run_id, seconds=60) == "CANCELED"
        wait(lambda: started_at(child) is None, seconds=30, what="the end of the child", every=0.2)
        wait(
            lambda: started_at(first_spark) is None,
            seconds=30,
            what="the end of the cancelled run's Spark",
            every=0.2,
        )
        second_spark = spark_of(home)

        run_id, child = launch_and_wait_for_work(api, home)
        os.kill(child, signal.SIGKILL)
        wait(lambda: started_at(second_spark) is None, seconds=30, what="the end of its Spark", every=0.1)
        assert api.wait_for_run(run_id, seconds=120) == "FAILURE"
        again = wait(lambda: retry_of(api, run_id), seconds=120, what="the run that makes up for it")
        assert api.wait_for_run(again, seconds=400) == "SUCCESS"
        assert rows_by_day(home) == {FIRST.isoformat(): 50, SECOND.isoformat(): LINES}

        third_spark, engine = spark_of(home), engine_of(home)
        land_more(home)
        run_id, child = launch_and_wait_for_work(api, home)
        os.kill(engine, signal.SIGKILL)
        for pid in (child, third_spark):
            wait(lambda pid=pid: started_at(pid) is None, seconds=10, what="their end", every=0.1)
        assert api.wait_for_run(run_id, seconds=120) == "FAILURE"
        again = wait(lambda: retry_of(api, run_id), seconds=120, what="the run that makes up for it")
        assert api.wait_for_run(again, seconds=400) == "SUCCESS"
        assert rows_by_day(home) == {FIRST.isoformat(): 50, SECOND.isoformat(): 2 * LINES}


def spark_of(home: Path) -> int:
    """The process id of the engine's Spark, once it is warm."""

    def warm() -> int | None:
        found = status(home)
        return found["spark"] if found and found["ready"] else None

    return wait(warm, seconds=300, what="a warm engine", every=0.5)


def engine_of(home: Path) -> int:
    found = status(home)
    assert found is not None
    return found["pid"]


def launch(api: DagsterApi, day: object) -> str:
    return api.launch(["raw_events"], **{"dagster/partition": str(day)})


def launch_and_wait_for_work(api: DagsterApi, home: Path) -> tuple[str, int]:
    """A run of the large day whose lines are being judged, and the process id of the engine's child."""
    run_id = launch(api, SECOND)
    staging = home / "data" / "staging" / "raw_events"
    at_work = wait(
        lambda: next(staging.glob("*/lines/events-*"), None),
        seconds=120,
        what="lines being judged",
        every=0.1,
    )
    batch = at_work.relative_to(staging).parts[0]
    return run_id, int(batch.split("-")[-2])


def land_more(home: Path) -> None:
    file = home / "landing" / SECOND.isoformat() / "a.jsonl"
    more = file.read_text("utf-8").replace(f'"{SECOND}-', f'"{SECOND}-more-')
    (file.parent / "b.jsonl").write_text(more, "utf-8")
