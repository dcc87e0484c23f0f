"""The sensor of a declared pipeline: asks once for each set of new files, and for its own pipeline only."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from etl_assets.sensors import sources
from etl_assets.sensors.sources import source_sensors
from etl_assets.settings import LandingSettings, Settings

NOW = dt.datetime.now(dt.UTC)
TODAY = NOW.date()
YESTERDAY = TODAY - dt.timedelta(days=1)
AN_HOUR_AGO = time.time() - 3_600


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    for name, path in {"flat": "in/flat/*.csv", "daily": "in/daily/{day}/*.csv"}.items():
        content = {
            "name": name,
            "source": {"type": "files", "path": path},
            "columns": {"id": "string"},
            "table": {"keys": ["id"]},
        }
        (folder / f"{name}.yaml").write_text(json.dumps(content), "utf-8")
    return Settings(
        home=tmp_path, start_date=TODAY - dt.timedelta(days=9), landing=LandingSettings(settle_seconds=2)
    )


@pytest.fixture
def ticks(settings: Settings) -> Callable[[str], dg.SensorResult]:
    """Evaluations of a sensor by its name; the cursor goes on from tick to tick."""
    sensors = source_sensors(settings, settings.catalog().pipelines)
    definitions = dg.Definitions(sensors=sensors)
    by_name = {sensor.name: sensor for sensor in sensors}
    cursors: dict[str, str | None] = {}

    def evaluate(name: str) -> dg.SensorResult:
        with dg.DagsterInstance.ephemeral() as instance:
            context = dg.build_sensor_context(
                instance=instance, cursor=cursors.get(name), definitions=definitions
            )
            result = by_name[name](context)
        assert isinstance(result, dg.SensorResult)
        cursors[name] = result.cursor if result.cursor is not None else cursors.get(name)
        return result

    return evaluate


def put(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{name}"
    hidden.write_text("id\n1\n")
    os.utime(hidden, (AN_HOUR_AGO, AN_HOUR_AGO))
    hidden.rename(folder / name)


def keys(result: dg.SensorResult) -> list[str | None]:
    return [request.run_key for request in result.run_requests or ()]


def test_each_sensor_asks_for_the_files_of_its_own_source_with_the_same_key_until_they_are_read(
    settings, ticks
):
    assert keys(ticks("flat_files")) == keys(ticks("daily_files")) == []
    day = dt.datetime.fromtimestamp(AN_HOUR_AGO, dt.UTC).date()
    put(settings.home / "in" / "flat", "old.csv")  # an old file that was moved here
    assert keys(ticks("flat_files")) == [f"flat_source:{day}..{day}@-1#0"]
    assert keys(ticks("flat_files")) == [f"flat_source:{day}..{day}@-1#0"]
    assert keys(ticks("daily_files")) == keys(ticks("landing_files")) == []
    put(settings.home / "in" / "daily" / str(YESTERDAY), "a.csv")
    put(settings.home / "in" / "daily" / str(TODAY), "a.csv")
    found = ticks("daily_files")
    assert keys(found) == [f"daily_source:{YESTERDAY}..{TODAY}@-1#0"]


def test_what_one_pipeline_left_undone_starts_no_runs_of_others(settings, ticks, monkeypatch):
    monkeypatch.setattr(sources, "left_undone", lambda home: home)
    monkeypatch.setattr(sources, "days_behind", lambda domain, first: {"flat": (TODAY,)})
    assert keys(ticks("flat_files")) == [f"flat_source:{TODAY}..{TODAY}@-1#0"]
    assert keys(ticks("daily_files")) == keys(ticks("landing_files")) == []
