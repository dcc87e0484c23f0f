"""Ticks of schedules: each is taken once, no matter who asks; a worker asks for the runs that are due."""

from __future__ import annotations

import datetime as dt
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from etl_assets.control.run_controls import RunControls
from etl_assets.control.states import ControlState
from etl_assets.control.ticks import KEPT_TICKS, TickRecords, TickSeries, tick_name
from etl_assets.errors import ControlStoreUnavailable
from etl_assets.pipelines.pipeline import Pipeline
from etl_assets.pipelines.schedule import CatchUp, Schedule
from etl_assets.settings import Settings
from etl_assets.worker import scheduled_runs
from etl_assets.worker.scheduled_runs import ScheduledRuns

NOON = dt.datetime(2026, 5, 4, 12, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)


@pytest.fixture
def series():
    return TickSeries(pipeline=f"p{uuid.uuid4().hex[:8]}")


def test_a_tick_is_taken_once_by_many_who_ask_at_the_same_time(open_again, series):
    begin, got = threading.Barrier(6), []

    def ask(number: int) -> None:
        records = TickRecords(open_again())
        begin.wait()
        if number % 2:
            got.append(records.take_for_dagster(series, "2026", f"evaluation {number}"))
        else:
            got.append(records.request_run(series, "2026") is not None)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    last = TickRecords(open_again()).last(series)
    assert last is not None
    runs = RunControls(open_again()).runs(series.pipeline)
    # A worker that asks at the same time as another one may get the same run.
    assert len(runs) + last.is_dagsters == 1
    assert any(got)
    assert not last.is_dagsters or got.count(True) == 1


def test_ticks_are_taken_in_their_order_and_old_ones_are_forgotten(open_again, series):
    records = TickRecords(open_again())
    for number in range(KEPT_TICKS + 5):
        assert records.pass_over(series, f"{number:04}")
    assert not records.pass_over(series, "0001")  # its key is gone
    assert records.request_run(series, "0050") is None
    last = records.last(series)
    assert last is not None
    assert (last.tick, last.run_id, last.is_dagsters) == (f"{KEPT_TICKS + 4:04}", "", False)


def test_what_an_evaluation_of_dagster_has_taken_is_found_again(open_again, series):
    records = TickRecords(open_again())
    assert records.take_for_dagster(series, "01", "e")
    assert records.take_for_dagster(series, "02", "e")
    assert not records.take_for_dagster(series, "02", "other")
    assert records.of_dagster(series, "e") == ("01", "02")
    assert records.of_dagster(series, "other") == ()


class Installation:
    """Schedules of one pipeline on a clock of the test. Each worker is a new process for all it knows."""

    def __init__(self, open_again, monkeypatch, series: TickSeries) -> None:
        self.store, self.series, self.now = open_again(), series, NOON
        self.controls = RunControls(self.store)
        self.settings = Settings(home=Path("unused"))
        monkeypatch.setattr("etl_assets.control.store.open_store", lambda settings: open_again())

    def worker(self, schedule: Schedule) -> Callable[[], None]:
        pipeline = Pipeline(name=self.series.pipeline, schedule=schedule)
        return ScheduledRuns(self.settings, lambda: [pipeline], now=lambda: self.now).look

    def ticks(self) -> list[str]:
        runs = self.controls.runs(self.series.pipeline)
        return [each.reason.removeprefix("tick 2026-05-04T")[:5] for each in reversed(runs)]

    def carry(self) -> None:
        lease = self.controls.claim("runner", [self.series.pipeline])
        assert lease is not None
        self.controls.finish(lease)


@pytest.fixture
def installation(open_again, monkeypatch, series) -> Installation:
    return Installation(open_again, monkeypatch, series)


HOURLY = Schedule(every_seconds=3_600)


def test_a_worker_asks_once_for_each_tick_and_so_do_two_of_them(installation):
    looks = [installation.worker(HOURLY), installation.worker(HOURLY)]
    for _ in range(3 * 60):
        installation.now += MINUTE
        for look in looks:
            look()
        if installation.controls.state_of(installation.series.pipeline).state is ControlState.RUN_REQUESTED:
            installation.carry()
    assert installation.ticks() == ["13:00", "14:00", "15:00"]


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        (CatchUp.LATEST, ["16:00"]),
        (CatchUp.NONE, []),
        (CatchUp.ALL, ["14:00", "15:00", "16:00"]),
    ],
)
def test_ticks_missed_while_no_worker_ran_are_caught_up_as_declared(installation, catch_up, expected):
    schedule = Schedule(every_seconds=3_600, catch_up=catch_up, max_catch_up_runs=3)
    installation.worker(schedule)()  # the schedule begins, and the process ends
    installation.now += dt.timedelta(hours=4, minutes=30)
    look = installation.worker(schedule)
    for _ in range(6):
        look()
        if installation.controls.state_of(installation.series.pipeline).state is ControlState.RUN_REQUESTED:
            installation.carry()
    assert installation.ticks() == expected
    installation.now += dt.timedelta(minutes=30)
    look()
    assert installation.ticks() == [*expected, "17:00"]


def test_ticks_before_a_schedule_was_seen_first_were_not_missed(installation):
    look = installation.worker(HOURLY)
    look()
    look()
    assert installation.ticks() == []


def test_ticks_while_the_pipeline_is_paused_are_one_run_after_it(installation):
    look, name = installation.worker(HOURLY), installation.series.pipeline
    look()
    installation.controls.pause(name, "alice")
    for _ in range(3):
        installation.now += dt.timedelta(hours=1)
        look()
    assert installation.controls.claim("runner", [name]) is None
    installation.controls.resume(name, "alice")
    installation.carry()
    assert len(installation.ticks()) == 1
    assert installation.controls.state_of(name).state is ControlState.IDLE


def test_a_tick_waits_for_a_store_that_does_not_answer(installation, monkeypatch):
    look = installation.worker(HOURLY)
    look()
    installation.now += dt.timedelta(hours=1)

    def silent(*_: object, **__: object) -> None:
        raise ControlStoreUnavailable("it does not answer", fix="bring it back")

    with monkeypatch.context() as broken:
        broken.setattr(RunControls, "request_run", silent)
        look()
    assert installation.ticks() == []
    look()
    assert installation.ticks() == ["13:00"]


def test_a_pipeline_after_others_runs_once_each_of_them_has_brought_something(installation, monkeypatch):
    told: list[str | None] = ["1", None, "2", None]
    monkeypatch.setattr(scheduled_runs, "tick_after", lambda settings, names, last: told.pop(0))
    look = installation.worker(Schedule(after=("other",)))
    look()
    assert installation.ticks() == []  # the schedule begins
    look()
    look()
    assert len(installation.ticks()) == 1
    installation.controls.request_run("other", "alice")
    assert installation.controls.claim("runner", ["other"]) is not None
    look()
    assert told == [None]  # it is not asked while one of them runs


def test_names_of_ticks_sort_as_their_times():
    times = [NOON + dt.timedelta(hours=each) for each in range(-30, 30, 7)]
    assert sorted(map(tick_name, times)) == [*map(tick_name, times)]
