"""Schedules of pipelines in Dagster: what a tick asks for, and that it leaves alone what others do."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from etl_assets import tags
from etl_assets.build import build_definitions
from etl_assets.control.run_controls import RunControls
from etl_assets.control.store import ControlStore, open_store
from etl_assets.control.ticks import TickRecords, TickSeries, tick_name
from etl_assets.pipelines.schedule import Schedule
from etl_assets.sensors.schedules import after_sensors, pipeline_schedules, wake_up
from etl_assets.sensors.sources import source_sensors
from etl_assets.settings import Settings
from etl_assets.worker.lease import lease

SIX = dt.datetime(2026, 5, 4, 6, tzinfo=ZoneInfo("Europe/Berlin"))
DAY = dt.timedelta(days=1)
FILMS = TickSeries(pipeline="films")


def declare(home: Path, name: str, **fields: object) -> None:
    (home / "pipelines").mkdir(exist_ok=True)
    content = {
        "name": name,
        "source": {"type": "files", "path": f"in/{name}/*.csv"},
        "columns": {"id": "string"},
        "table": {"keys": ["id"]},
        **fields,
    }
    (home / "pipelines" / f"{name}.yaml").write_text(json.dumps(content), "utf-8")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    daily = {"cron": "0 6 * * *", "time_zone": "Europe/Berlin"}
    declare(tmp_path, "films", schedule=daily, priority=7)
    declare(tmp_path, "actors", schedule={"after": "free"})
    declare(tmp_path, "free")
    return Settings(home=tmp_path, start_date=dt.date(2026, 3, 1))


@pytest.fixture
def store(settings: Settings) -> Iterator[ControlStore]:
    made = open_store(settings)
    yield made
    made.close()


def evaluated(
    settings: Settings, planned: dt.datetime = SIX, *, late: dt.timedelta = dt.timedelta()
) -> dg.ScheduleExecutionData:
    """Evaluate the schedule of films as Dagster's daemon does."""
    catalog = settings.catalog()
    (made,) = pipeline_schedules(settings, catalog.pipelines, now=lambda: (planned + late).astimezone(dt.UTC))
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_schedule_context(
            instance=instance, scheduled_execution_time=planned, repository_def=loaded(settings)
        )
        return made.evaluate_tick(context)


_LOADED: dict[int, tuple[object, dg.RepositoryDefinition]] = {}


def loaded(settings: Settings) -> dg.RepositoryDefinition:
    """Return the definitions of the declarations as they are, built once for each of their states."""
    catalog = settings.catalog()
    if id(catalog) not in _LOADED:
        _LOADED.clear()
        _LOADED[id(catalog)] = catalog, build_definitions(settings).get_repository_def()
    return _LOADED[id(catalog)][1]


def keys(found: dg.ScheduleExecutionData) -> list[str | None]:
    return [each.run_key for each in found.run_requests or ()]


def key(planned: dt.datetime) -> str:
    return f"{FILMS.key(tick_name(planned))}#0"


def test_a_schedule_is_shown_under_its_name_and_is_on(settings):
    built = loaded(settings)
    made = built.get_schedule_def("films_schedule")
    assert made.cron_schedule == "0 6 * * *"
    assert made.execution_timezone == "Europe/Berlin"
    assert made.default_status is dg.DefaultScheduleStatus.RUNNING
    assert built.get_sensor_def("actors_after").default_status is dg.DefaultSensorStatus.RUNNING


def test_nothing_but_its_schedule_follows_a_scheduled_pipeline(settings):
    pipelines = settings.catalog().pipelines
    names = {each.name for each in source_sensors(settings, pipelines)}
    assert "free_files" in names
    assert not {"films_files", "actors_files"} & names
    nodes = loaded(settings).asset_graph
    conditions = {
        name: nodes.get(dg.AssetKey(name)).automation_condition for name in ("films", "actors", "free")
    }
    assert conditions["films"] is conditions["actors"] is None
    assert conditions["free"] is not None


def test_a_tick_asks_for_a_run_of_all_assets_of_the_pipeline_even_if_nothing_is_unread(settings):
    found = evaluated(settings)
    (request,) = [*(found.run_requests or ())]
    assert request.run_key == key(SIX) == "schedule/films/2026-05-04T04:00:00+00:00#0"
    assert request.tags[tags.PRIORITY] == "7"
    assert request.partition_key == "2026-05-04"


def test_a_tick_asks_for_the_days_with_unread_files(settings):
    folder = settings.home / "in" / "films"
    folder.mkdir(parents=True)
    for name, days in (("a.csv", 2), ("later.csv", -1)):  # the later one is the next tick's
        (folder / name).write_text("id\n1\n")
        changed = (SIX - days * DAY).timestamp()
        os.utime(folder / name, (changed, changed))
    (request,) = [*(evaluated(settings).run_requests or ())]
    assert request.partition_key == "2026-05-02"


def test_an_evaluation_that_dagster_repeats_asks_for_the_same_run_and_no_second_one(settings):
    assert keys(evaluated(settings)) == keys(evaluated(settings)) == [key(SIX)]


def test_a_tick_that_a_worker_has_taken_is_not_run_again(settings, store):
    asked = TickRecords(store).request_run(FILMS, tick_name(SIX))
    found = evaluated(settings)
    assert keys(found) == []
    assert "another process has taken it" in str(found.skip_message)
    assert asked is not None
    assert TickRecords(store).request_run(FILMS, tick_name(SIX)) is None


def test_a_worker_does_not_run_a_tick_that_dagster_has_taken(settings, store):
    assert keys(evaluated(settings)) == [key(SIX)]
    assert TickRecords(store).request_run(FILMS, tick_name(SIX)) is None
    assert RunControls(store).runs("films") == ()


def test_ticks_are_left_to_a_worker_that_is_alive(settings):
    with lease(settings.home):
        found = evaluated(settings)
    assert keys(found) == []
    assert "keeps the schedules" in str(found.skip_message)
    assert keys(evaluated(settings)) == [key(SIX)]


def test_a_tick_while_the_pipeline_is_paused_is_skipped_with_the_reason_and_caught_up(settings, store):
    controls = RunControls(store)
    assert keys(evaluated(settings)) == [key(SIX)]
    controls.pause("films", "alice", "upgrade")
    found = evaluated(settings, SIX + DAY)
    assert keys(found) == []
    assert "films is PAUSED" in str(found.skip_message)
    controls.resume("films", "alice")
    assert keys(evaluated(settings, SIX + 2 * DAY)) == [key(SIX + 2 * DAY)]


@pytest.mark.parametrize(("catch_up", "expected"), [("latest", [3]), ("none", []), ("all", [1, 2, 3])])
def test_missed_ticks_are_caught_up_as_declared(settings, catch_up, expected):
    assert keys(evaluated(settings)) == [key(SIX)]
    schedule = {"cron": "0 6 * * *", "time_zone": "Europe/Berlin", "catch_up": catch_up}
    declare(settings.home, "films", schedule=schedule)
    found = evaluated(settings, SIX + 3 * DAY, late=dt.timedelta(hours=5))
    assert keys(found) == [key(SIX + number * DAY) for number in expected]
    assert bool(found.skip_message) is (not expected)


def test_a_pipeline_runs_after_another_one_has_brought_something_once(settings, store, monkeypatch):
    versions = {"free": 3}
    monkeypatch.setattr(
        "etl_assets.observability.brought.brought", lambda pipeline, domain: versions[pipeline.name]
    )
    (sensor,) = after_sensors(settings, settings.catalog().pipelines)
    cursor: str | None = None

    def asked() -> list[str | None]:
        nonlocal cursor
        with dg.DagsterInstance.ephemeral() as instance:
            found = sensor(dg.build_sensor_context(instance=instance, cursor=cursor))
        assert isinstance(found, dg.SensorResult)
        cursor = found.cursor or cursor
        return [each.run_key for each in found.run_requests or ()]

    assert asked() == asked() == []  # the schedule begins
    versions["free"] = 5
    (first,) = asked()
    assert asked() == []
    cursor = None  # the daemon ended before it kept the cursor
    assert asked() == [first]
    versions["free"] = 6
    RunControls(store).pause("actors", "alice")
    assert asked() == []
    RunControls(store).resume("actors", "alice")
    assert len(asked()) == 1


@pytest.mark.parametrize(
    ("seconds", "cron"),
    [
        (60, "*/1 * * * *"),
        (900, "*/15 * * * *"),
        (3_600, "0 * * * *"),
        (4 * 3_600, "0 */4 * * *"),
        (86_400, "0 0 * * *"),
        (7 * 60, "* * * * *"),
        (5, "* * * * *"),
    ],
)
def test_dagster_looks_at_least_once_for_each_tick_of_an_interval(seconds, cron):
    assert wake_up(Schedule(every_seconds=seconds)) == cron


@pytest.mark.parametrize("cron", ["30 2 * * *", "*/30 2 * * *"])
@pytest.mark.parametrize("day", ["2026-03-28", "2026-10-24"])
def test_over_a_clock_change_every_tick_is_taken_once_by_dagsters_own_wake_ups(settings, store, cron, day):
    declare(settings.home, "films", schedule={"cron": cron, "time_zone": "Europe/Berlin", "catch_up": "all"})
    start = dt.datetime.fromisoformat(f"{day}T12:00+00:00")
    end = start + DAY
    TickRecords(store).pass_over(FILMS, tick_name(start))
    schedule = Schedule(cron=cron, time_zone="Europe/Berlin")
    asked: list[str | None] = []
    for planned in _ticks(cron, start, end):
        asked += keys(evaluated(settings, planned))
    assert asked == [key(each) for each in schedule.due(start, end)]


def _ticks(cron: str, start: dt.datetime, end: dt.datetime) -> Iterator[dt.datetime]:
    """Yield the times at which Dagster's daemon evaluates cron fields."""
    from dagster._utils.schedules import cron_string_iterator

    for planned in cron_string_iterator(start.timestamp() + 1, cron, "Europe/Berlin"):
        if planned > end:
            return
        yield planned
