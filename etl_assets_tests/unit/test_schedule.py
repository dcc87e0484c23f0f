"""Schedules: which times are ticks, over both clock changes, and which missed ones get a run."""

from __future__ import annotations

import datetime as dt
import json
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from etl_assets.installed import built_in_catalog
from etl_assets.pipelines.cross_checks import checked
from etl_assets.pipelines.pipeline_file import PipelineFile, parse_pipeline
from etl_assets.pipelines.schedule import CatchUp, Schedule

BERLIN = ZoneInfo("Europe/Berlin")


def utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def times(schedule: Schedule, after: str, number: int) -> list[str]:
    return [f"{tick:%m-%d %H:%M}" for tick in islice(schedule.ticks(utc(after)), number)]


def test_cron_fields_are_local_times_of_their_zone_in_summer_and_in_winter():
    schedule = Schedule(cron="0 6 * * 1-5", time_zone="Europe/Berlin")
    assert times(schedule, "2026-03-26T12:00", 2) == ["03-27 05:00", "03-30 04:00"]
    assert times(schedule, "2026-10-23T01:00", 2) == ["10-23 04:00", "10-26 05:00"]


def test_a_time_that_the_clock_skips_is_a_tick_at_the_moment_of_the_change_once():
    schedule = Schedule(cron="15,45 2 * * *", time_zone="Europe/Berlin")
    assert times(schedule, "2026-03-28T02:00", 3) == ["03-29 01:00", "03-30 00:15", "03-30 00:45"]


def test_a_time_that_the_clock_repeats_is_one_tick_whenever_the_process_begins_to_count():
    schedule = Schedule(cron="30 2 * * *", time_zone="Europe/Berlin")
    assert times(schedule, "2026-10-24T12:00", 2) == ["10-25 00:30", "10-26 01:30"]
    for minute in range(31, 150):
        start = utc("2026-10-25T00:00") + dt.timedelta(minutes=minute)
        assert schedule.next_tick(start) == utc("2026-10-26T01:30")


def test_every_hour_is_a_tick_on_days_of_23_and_of_25_hours():
    schedule = Schedule(cron="0 * * * *", time_zone="Europe/Berlin")
    for day, hours in (("2026-03-29", 23), ("2026-10-25", 25)):
        start = dt.datetime.fromisoformat(day).replace(tzinfo=BERLIN)
        end = (start + dt.timedelta(days=1)).astimezone(dt.UTC)
        second = dt.timedelta(seconds=1)
        assert len(schedule.due(start.astimezone(dt.UTC) - second, end - second)) == hours


def test_an_interval_has_the_same_ticks_for_every_process():
    schedule = Schedule(every_seconds=900)
    assert times(schedule, "2026-05-01T10:01", 2) == ["05-01 10:15", "05-01 10:30"]
    assert schedule.next_tick(utc("2026-05-01T10:15")) == utc("2026-05-01T10:30")


def test_after_a_long_gap_only_the_newest_ticks_are_looked_at():
    now = utc("2026-05-01T10:00")
    due = Schedule(every_seconds=1).due(utc("2020-01-01T00:00"), now)
    assert (len(due), due[-1]) == (1_001, now)
    assert Schedule(cron="* * * * *").due(now - dt.timedelta(days=2), now)[-1] == now


@pytest.mark.parametrize(
    ("catch_up", "is_late", "expected"),
    [
        (CatchUp.LATEST, False, [4]),
        (CatchUp.LATEST, True, [4]),
        (CatchUp.NONE, False, [4]),
        (CatchUp.NONE, True, []),
        (CatchUp.ALL, False, [2, 3, 4]),
        (CatchUp.ALL, True, [3, 4]),
    ],
)
def test_missed_ticks_get_runs_as_catch_up_says(catch_up, is_late, expected):
    schedule = Schedule(every_seconds=60, catch_up=catch_up, max_catch_up_runs=2)
    due = tuple(utc("2026-05-01T10:00") + dt.timedelta(minutes=each) for each in range(5))
    assert [each.minute for each in schedule.to_run(due, is_late=is_late)] == expected


def declared(name: str, **fields: object) -> PipelineFile:
    content = {
        "name": name,
        "source": {"type": "files", "path": f"in/{name}/*.csv"},
        "columns": {"id": "string"},
        "table": {"keys": ["id"]},
        **fields,
    }
    return parse_pipeline(json.dumps(content, indent=1).encode(), Path(f"{name}.yaml"))


def problems(*files: PipelineFile) -> dict[str, list[str]]:
    found = checked(files, built_in_catalog())
    return {
        each.name: [f"{problem.field}: {problem.message}; {problem.fix}" for problem in each.problems]
        for each in found
        if each.problems
    }


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ({"cron": "61 6 * * *"}, ("minute", "out of range")),
        ({"cron": "0 6 * *"}, ("4 fields instead of five", "0 6 * * 1-5")),
        ({"cron": "0 0 6 * * *"}, ("6 fields instead of five",)),
        ({"cron": "@daily"}, ("1 fields instead of five",)),
        ({"cron": "0 6 L * *"}, ("day of month `L`",)),
        ({"cron": "0 6 31 2 *"}, ("never met",)),
        ({"cron": "0 6 * * *", "time_zone": "Europe/Berln"}, ("did you mean `Europe/Berlin`",)),
        ({}, ("`cron`, `every_seconds` and `after`",)),
        ({"cron": "0 6 * * *", "every_seconds": 9}, ("`cron` and `every_seconds`", "keep one")),
        ({"every_seconds": 0}, ("every_seconds",)),
        ({"every_seconds": 60, "time_zone": "Europe/Berlin"}, ("time_zone is for `cron`",)),
        ({"after": "b", "catch_up": "all"}, ("catch_up is for",)),
        ({"after": ["b", "b"]}, ("stands twice",)),
        ({"every_seconds": 60, "catch_up": "some"}, ("`latest`, `all`, `none`",)),
        ({"after": "supplier"}, ("there is no pipeline `supplier`", "b, orders")),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_a_problem_with_its_fix(schedule, words):
    (found,) = problems(declared("a", schedule=schedule), declared("b"))["a"]
    assert all(word in found for word in words), found
    assert found.startswith("schedule")


def test_schedules_may_not_go_in_a_circle_and_those_outside_it_are_kept():
    found = problems(
        declared("a", schedule={"after": "b"}),
        declared("b", schedule={"after": ["c", "orders"]}),
        declared("c", schedule={"after": "a"}),
        declared("d", schedule={"after": "a"}),
        declared("e", schedule={"after": "e"}),
    )
    assert set(found) == {"a", "b", "c", "e"}
    assert "a → b → c → a" in found["a"][0]
    assert "e → e" in found["e"][0]


def test_a_declaration_carries_its_schedule_and_its_priority():
    (found,) = checked([declared("a", schedule={"cron": "0  6 * * MON-FRI"}, priority=7)], built_in_catalog())
    assert found.spec is not None
    assert found.spec.schedule is not None
    assert found.spec.schedule.value == Schedule(cron="0 6 * * MON-FRI")
    assert found.spec.priority == 7
