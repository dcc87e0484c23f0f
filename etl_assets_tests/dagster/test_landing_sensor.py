"""The landing sensor: asks once for what is unread, again for what was lost, and says why when it does not
ask.
"""

from __future__ import annotations

import datetime as dt
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from etl_assets import tags
from etl_assets.placement.domain_registry import AdminState
from etl_assets.sensors.sources import MAX_ATTEMPTS_LOOKED_AT, source_sensors
from etl_assets.settings import LandingSettings, RunSettings, Settings
from etl_assets.worker.lease import lease

TODAY = dt.datetime.now(dt.UTC).date()
START = TODAY - dt.timedelta(days=1_200)
LONG_AGO = time.time() - 3_600


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        home=tmp_path,
        start_date=START,
        landing=LandingSettings(settle_seconds=2),
        runs=RunSettings(max_days_per_run=2, small_run_bytes=0),
    )


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def tick(settings, instance):
    """One evaluation: the answer, or the skip reason's text; the cursor goes on from tick to tick."""
    return ticks(settings, instance)


def ticks(settings: Settings, instance: dg.DagsterInstance) -> Callable[[], dg.SensorResult]:
    (sensor,) = source_sensors(settings, settings.catalog().pipelines)
    definitions = dg.Definitions(sensors=[sensor])
    cursor: list[str | None] = [None]

    def evaluate() -> dg.SensorResult:
        context = dg.build_sensor_context(instance=instance, cursor=cursor[0], definitions=definitions)
        result = sensor(context)
        assert isinstance(result, dg.SensorResult)
        cursor[0] = result.cursor if result.cursor is not None else cursor[0]
        return result

    return evaluate


def land(
    settings: Settings, day: dt.date | str, name: str = "a.jsonl", *, modified: float = LONG_AGO
) -> Path:
    file = settings.landing_path / str(day) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{}\n")
    os.utime(file, (modified, modified))
    return file


def keys(result: dg.SensorResult) -> list[str | None]:
    return [request.run_key for request in result.run_requests or ()]


def reason(result: dg.SensorResult) -> str:
    assert isinstance(result.skip_reason, dg.SkipReason | str), result
    return str(getattr(result.skip_reason, "skip_message", result.skip_reason))


def lose(instance: dg.DagsterInstance, result: dg.SensorResult, status: dg.DagsterRunStatus) -> None:
    """Enter a run for the request, as the daemon would, with that status."""
    (request,) = list(result.run_requests or ())
    create_run_for_test(instance, tags=request.tags, status=status)


def test_an_unread_file_is_asked_for_once_with_the_same_key_until_it_is_read(settings, tick):
    land(settings, TODAY)
    first, second = tick(), tick()
    assert keys(first) == [f"raw_events:{TODAY}..{TODAY}@-1#0"]
    assert keys(second) == keys(first)
    (request,) = first.run_requests
    assert request.partition_key == TODAY.isoformat()
    assert request.tags[tags.READ_MODE] == "incremental"


def test_days_in_a_row_become_runs_of_bounded_length(settings, tick):
    for back in range(5):
        land(settings, TODAY - dt.timedelta(days=back))
    requests = tick().run_requests
    spans = [
        (
            request.tags.get("dagster/asset_partition_range_start"),
            request.tags.get("dagster/asset_partition_range_end"),
        )
        for request in requests[:2]
    ]
    days = [(TODAY - dt.timedelta(days=back)).isoformat() for back in range(5)]
    assert spans == [(days[4], days[3]), (days[2], days[1])]
    assert requests[2].partition_key == days[0]


def test_days_in_a_row_with_small_files_become_one_run(settings, instance):
    for back in range(5):
        land(settings, TODAY - dt.timedelta(days=back))  # files of 3 bytes
    for small, runs in ((15, 1), (14, 2), (0, 3)):
        of_size = settings.model_copy(update={"runs": RunSettings(max_days_per_run=2, small_run_bytes=small)})
        assert len(ticks(of_size, instance)().run_requests or ()) == runs


def test_nothing_is_asked_for_while_a_run_for_it_is_under_way(settings, tick, instance):
    land(settings, TODAY)
    lose(instance, tick(), dg.DagsterRunStatus.STARTED)
    assert "a run for it is under way" in reason(tick())


def test_a_failed_run_is_asked_for_again_under_a_new_key_after_a_pause(settings, tick, instance, monkeypatch):
    land(settings, TODAY)
    lose(instance, tick(), dg.DagsterRunStatus.FAILURE)
    assert "1 runs for it failed lately, the next one starts in" in reason(tick())
    later = time.time() + 60
    monkeypatch.setattr("etl_assets.sensors.sources.time.time", lambda: later)
    assert keys(tick()) == [f"raw_events:{TODAY}..{TODAY}@-1#1"]
    assert keys(tick()) == [f"raw_events:{TODAY}..{TODAY}@-1#1"]


def test_it_asks_on_under_new_keys_however_often_it_was_in_vain(settings, tick, instance):
    land(settings, TODAY)
    first = tick()
    for _ in range(2 * MAX_ATTEMPTS_LOOKED_AT):
        lose(instance, first, dg.DagsterRunStatus.SUCCESS)
    assert keys(tick()) == [f"raw_events:{TODAY}..{TODAY}@-1#{2 * MAX_ATTEMPTS_LOOKED_AT}"]


def test_without_files_the_reason_names_the_folder(settings, tick):
    settings.landing_path.mkdir(parents=True)
    assert reason(tick()) == f"no unread files in {settings.landing_path}"


def test_where_no_domain_may_and_can_ingest_the_reason_names_each(settings, tick):
    land(settings, TODAY)
    domain = settings.placement().domains[0].name
    settings.placement().memory.set_standing(domain, AdminState.DRAINED)
    assert (
        f"no failure domain can run stage ingest of raw_events: {domain}: drained by an operator"
        in reason(tick())
    )
    settings.placement().heal(domain)
    assert len(keys(tick())) == 1


def test_a_file_that_is_being_written_is_waited_for(settings, tick):
    file = land(settings, TODAY, modified=time.time() + 1)
    assert "1 files changed less than 2 s ago" in reason(tick())
    os.utime(file, (LONG_AGO, LONG_AGO))
    assert len(keys(tick())) == 1


def test_what_lies_outside_of_the_partitions_or_is_no_day_is_named(settings, tick):
    before = START - dt.timedelta(days=1)
    land(settings, before)
    land(settings, "yesterday")
    text = reason(tick())
    assert f"{before} lie outside of the partitions, which start on {START}" in text
    assert "yesterday in the landing folder are no days (YYYY-MM-DD) and are never read" in text


def test_a_day_that_was_in_the_future_is_read_once_it_has_come(settings, tick, monkeypatch):
    ahead = TODAY + dt.timedelta(days=2)  # TODAY is yesterday when midnight passes during the tests
    land(settings, ahead)
    os.utime(settings.landing_path / ahead.isoformat(), (LONG_AGO, LONG_AGO))
    assert "lie outside of the partitions" in reason(tick())

    class Ahead(dt.datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) + dt.timedelta(days=2)

    monkeypatch.setattr("etl_assets.sensors.sources.dt.datetime", Ahead)
    assert keys(tick()) == [f"raw_events:{ahead}..{ahead}@-1#0"]


def test_an_unreadable_landing_folder_is_a_reason_and_no_crash(settings, tick):
    settings.landing_path.write_text("not a folder")
    assert str(settings.landing_path) in reason(tick())


def test_a_long_history_costs_a_tick_one_look_a_day_and_its_cursor_stays_small(settings, tick, monkeypatch):
    """1,000 days and 10,000 files, all read: afterwards only folders that changed are listed."""
    days = [TODAY - dt.timedelta(days=back) for back in range(1_000)]
    for day in days:
        for number in range(10):
            land(settings, day, f"{number}.jsonl")
        folder = settings.landing_path / day.isoformat()
        os.utime(folder, (LONG_AGO, LONG_AGO))
    monkeypatch.setattr("etl_assets.sources.ledger.Ledger.unread", lambda *_, **__: ())
    read = tick()
    assert "no unread files" in reason(read)
    assert read.cursor is not None
    assert len(read.cursor) < 100
    tick()  # the newest folders, here all, are listed once more

    listed: list[str] = []
    scandir = os.scandir

    def counting(path):
        listed.append(str(path))
        return scandir(path)

    monkeypatch.setattr("etl_assets.sources.landing.os.scandir", counting)
    land(settings, days[500], "late.jsonl")
    tick()
    day_folders = [path for path in listed if Path(path).parent == settings.landing_path]
    assert day_folders == [str(settings.landing_path / days[500].isoformat())]
    assert len(listed) < 10


def test_it_stands_back_for_a_worker_and_takes_over_when_it_is_gone(settings, tick):
    land(settings, TODAY)
    with lease(settings.home):
        skipped = tick()
        assert keys(skipped) == []
        assert f"the worker on {socket.gethostname()} (process {os.getpid()}" in reason(skipped)
    assert keys(tick()) == [f"raw_events:{TODAY}..{TODAY}@-1#0"]


def test_a_worker_without_a_sign_of_life_is_not_waited_for(settings, tick):
    land(settings, TODAY)
    with lease(settings.home):
        os.utime(settings.home / "follower.lock", (LONG_AGO, LONG_AGO))
        assert keys(tick()) == [f"raw_events:{TODAY}..{TODAY}@-1#0"]
