"""A worker that keeps schedules is killed around a tick, and started again by the command a user types.

The clock of the workers is set by the test, so that ticks need not be waited for.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from deltalake import DeltaTable

from etl_assets.control.run_controls import RunControls
from etl_assets.control.states import ControlState, RunStatus
from etl_assets.control.store import sqlite_store
from etl_assets.control.ticks import TickRecords, TickSeries
from etl_assets_tests.control import jumping_clock
from etl_assets_tests.control.warm_commands import WarmCommands, is_alive, kill
from etl_assets_tests.kill.dying_run import Gateway

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.timeout(600)]

INTERVAL = 3_600
CATCH_UP = {"every": "all", "newest": "latest", "none": "none"}
"""Pipelines, and which of their missed ticks get a run."""


@dataclass(kw_only=True)
class Site:
    """An installation whose workers share a clock that the test sets."""

    home: Path
    commands: WarmCommands
    controls: RunControls
    records: TickRecords
    start: int
    hour: float = 0.0
    worker: int = 0
    files: int = 0

    def pass_by(self, hours: float) -> None:
        """Set the clock of the workers to some hours after a tick, and a moment."""
        self.hour += hours
        wanted = self.start + self.hour * INTERVAL + 2
        jumping_clock.set_clock(self.home / "clock", round(wanted - time.time()))

    def begin(self, failpoint: str = "") -> None:
        environment = {
            **jumping_clock.environment(self.home / "clock"),
            "ETL_ASSETS_HOME": str(self.home),
            "ETL_ASSETS_FAILPOINT": failpoint,
        }
        self.worker = self.commands.start(("worker",), environment, self.home / "log")

    def land(self) -> None:
        hidden = self.home / "in" / ".next"
        hidden.write_text(f"id\n{self.files}\n", "utf-8")
        hidden.rename(self.home / "in" / f"{self.files}.csv")
        self.files += 1

    def until(self, what: Callable[[], bool], why: str) -> None:
        deadline = time.monotonic() + 120
        while not what():
            assert time.monotonic() < deadline, f"{why}\n{(self.home / 'log').read_text()[-4_000:]}"
            time.sleep(0.05)

    def ticks(self, pipeline: str) -> list[dt.datetime]:
        """Return the times of the runs of a pipeline, the oldest first."""
        names = [run.reason.removeprefix("tick ") for run in self.controls.runs(pipeline, limit=1_000)]
        return sorted(dt.datetime.fromisoformat(name) for name in names)

    def is_done(self, pipeline: str, number: int) -> bool:
        """Return whether a pipeline has had so many runs and has no open one."""
        runs = self.controls.runs(pipeline, limit=1_000)
        is_idle = self.controls.state_of(pipeline).state is ControlState.IDLE
        return is_idle and [run.status for run in runs] == [RunStatus.SUCCEEDED] * number


@contextmanager
def _site(home: Path, spark: object) -> Generator[Site]:
    library = jumping_clock.built_in(home)
    if library is None:
        pytest.skip("no C compiler: clocks do not jump here")
    content = {
        "start_date": (dt.datetime.now(dt.UTC).date() - dt.timedelta(days=2)).isoformat(),
        "pipelines": {"built_in": []},
        "control": {"lease_seconds": 1},
        "spark": {"master": "local[2]"},
        "worker": {"batch_interval_seconds": 0.05, "derived_interval_seconds": 0.1},
    }
    (home / "pipelines").mkdir()
    (home / "in").mkdir()
    (home / "platform.yaml").write_text(yaml.safe_dump(content), "utf-8")
    for name, catch_up in CATCH_UP.items():
        declaration = {
            "name": name,
            "source": {"type": "files", "path": str(home / "in" / "*.csv"), "settle_seconds": 0},
            "columns": {"id": "bigint"},
            "table": {"write_mode": "append"},
            "schedule": {"every_seconds": INTERVAL, "catch_up": catch_up},
        }
        (home / "pipelines" / f"{name}.yaml").write_text(yaml.safe_dump(declaration), "utf-8")
    store = sqlite_store(home / "control.db")
    with WarmCommands(library, Gateway.of(spark)) as commands:
        site = Site(
            start=int(time.time()) // INTERVAL * INTERVAL,
            home=home,
            commands=commands,
            controls=RunControls(store),
            records=TickRecords(store),
        )
        site.pass_by(0)
        site.begin()
        site.until(
            lambda: all(site.records.last(TickSeries(pipeline=each)) for each in CATCH_UP),
            "no schedule began",
        )
        yield site
        kill(site.worker)
    store.close()


def _killed_at(site: Site, failpoint: str, number: int) -> None:
    """Let the worker die at its next tick, start it again, and wait until that tick has had its run."""
    kill(site.worker)
    site.land()
    site.pass_by(1)
    site.begin(failpoint)
    site.until(lambda: not is_alive(site.worker), f"the worker passed {failpoint}")
    site.begin()
    site.until(lambda: all(site.is_done(each, number) for each in CATCH_UP), f"{failpoint}: not one run each")


def _prove(site: Site, failpoints: list[str]) -> None:
    # 1. Killed around a tick.
    for number, failpoint in enumerate(failpoints, start=1):
        _killed_at(site, failpoint, number)
    # 2. Away for several ticks: 3 are missed, and the worker is back more than a minute after the last one.
    kill(site.worker)
    site.land()
    site.pass_by(3.5)
    site.begin()
    expected = {"every": len(failpoints) + 3, "newest": len(failpoints) + 1, "none": len(failpoints)}
    site.until(lambda: all(site.is_done(name, number) for name, number in expected.items()), "not caught up")
    # 3. Each tick once, none between two that were to run, and nothing more comes.
    time.sleep(1.5)
    for name, number in expected.items():
        ticks = site.ticks(name)
        assert len(set(ticks)) == len(ticks) == number
    hours = [round((later - earlier).total_seconds()) for earlier, later in pairwise(site.ticks("every"))]
    assert set(hours) <= {INTERVAL}, "no tick was left out"
    for name in ("every", "newest"):
        (folder,) = (site.home / "data" / "tables" / name).glob("g*")
        ids = DeltaTable(str(folder)).to_pyarrow_table(columns=["id"])["id"].to_pylist()
        assert sorted(ids) == list(range(site.files))


def test_a_tick_of_a_killed_worker_runs_once_and_missed_ones_as_declared(spark, tmp_path):
    with _site(tmp_path, spark) as site:
        _prove(site, ["run.during_request@every"])


@pytest.mark.full
def test_so_it_does_wherever_the_worker_was_killed(spark, tmp_path):
    with _site(tmp_path, spark) as site:
        _prove(
            site,
            [
                "run.before_request@every",
                "run.during_request@newest",
                "run.after_request@none",
                "run.after_request@every",
                "table.before_commit@every_source",
                "table.after_commit@newest",
            ],
        )
