"""A required sink that is over its lag limit pauses the source of its pipeline, with one alert."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from etl_assets.delta.log.cursor import cursor_name
from etl_assets.observability.lag_checks import check_deliveries
from etl_assets.observability.lag_limits import find_excesses
from etl_assets.pipelines.lag_limit import LagLimit
from etl_assets.pipelines.sink_specs.duckdb import DuckdbSinkSpec
from etl_assets.sensors.source_pauses import paused_sources
from etl_assets.settings import Settings, load_settings
from etl_assets_tests.reference.written_tables import NOON, write_table

DELIVERIES = "films_to_duckdb"
LIMIT = {"max_lag": {"rows": 4}}


@pytest.mark.parametrize(
    ("rows", "seconds", "lag", "is_exceeded"),
    [
        (4, None, (4, 9_999.0), False),
        (4, None, (5, 0.0), True),
        (None, 60.0, (9_999, 60.0), False),
        (None, 60.0, (0, 60.1), True),
        (None, 60.0, (9_999, None), False),
        (4, 60.0, (5, 0.0), True),
        (4, 60.0, (0, 61.0), True),
    ],
)
def test_a_limit_is_exceeded_by_more_rows_or_an_older_commit(rows, seconds, lag, is_exceeded):
    assert LagLimit(rows=rows, seconds=seconds).is_exceeded(*lag) is is_exceeded


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"max_lag": {}}, "it limits nothing"),
        ({"max_lag": {"rows": 0}}, "greater than or equal to 1"),
        ({"max_lag": {"rows": 5}, "required": False}, "waits for required sinks alone"),
    ],
)
def test_a_limit_that_has_no_effect_is_refused(declared, said):
    with pytest.raises(ValidationError, match=said):
        DuckdbSinkSpec(type="duckdb", connection="marts", table="films", **declared)


@pytest.fixture
def declared(tmp_path, monkeypatch) -> Callable[..., Settings]:
    """An installation with a pipeline of one sink, whose table has five rows that were not delivered."""
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    (tmp_path / "pipelines").mkdir()

    def declare(sink: Mapping[str, Any], **limits: float) -> Settings:
        settings = {
            "connections": {"marts": {"type": "duckdb", "path": "m.db", "write": ["*"]}},
            "pipelines": {"built_in": [], **limits},
        }
        pipeline = {
            "name": "films",
            "source": {"type": "files", "path": "in/*.jsonl", "id": ["id"]},
            "columns": {"id": "bigint"},
            "table": {"keys": ["id"]},
            "sinks": [{"type": "duckdb", "connection": "marts", "table": "films", **sink}],
        }
        (tmp_path / "platform.yaml").write_text(yaml.safe_dump(settings))
        (tmp_path / "pipelines" / "films.yaml").write_text(yaml.safe_dump(pipeline))
        loaded = load_settings()
        if not (tmp_path / "data").exists():
            rows = [{"id": each, "_batch_id": 0} for each in range(5)]
            write_table(loaded.placement().domains[0], "films", rows)
        return loaded

    return declare


def deliver(settings: Settings) -> None:
    domain = settings.placement().domains[0]
    row: dict[str, Any] = {"to_version": 0, "_batch_id": 0, "seconds": 1.0}
    write_table(domain, DELIVERIES, [row], {cursor_name("films", None): 0})


def alerts(home: Path) -> list[tuple[str, str, str]]:
    file = home / "alerts.jsonl"
    lines = map(json.loads, file.read_text("utf-8").splitlines()) if file.exists() else ()
    return [(each["kind"], each["pipeline"], each["error"]) for each in lines]


def test_a_sink_has_its_own_limit_or_the_platform_s_and_none_if_it_is_not_required(declared):
    def paused(*arguments: Any, **limits: float) -> list[str]:
        settings = declared(*arguments, **limits)
        return list(find_excesses(settings.placement().reader(), settings, NOON))

    assert paused({}) == []
    assert paused(LIMIT) == ["films"]
    assert paused({}, max_lag_rows=4) == ["films"]
    assert paused({"required": False}, max_lag_rows=4) == []
    assert paused({"max_lag": {"rows": 5}}, max_lag_rows=4) == []


def test_a_pause_is_told_of_once_and_its_end_once(declared):
    settings = declared(LIMIT)

    def look(seconds: float) -> list[str]:
        return [
            str(pause) for pause in paused_sources(settings, NOON + dt.timedelta(seconds=seconds)).values()
        ]

    (first,) = look(0)
    assert first.startswith(f"the source of films is not read further since {NOON:%Y-%m-%d %H:%M:%S} UTC: ")
    assert f"{DELIVERIES} is 1 commits and 5 rows behind films" in first
    assert first.endswith(", over its limit of 4 rows")
    assert alerts(settings.home) == [], "what is over at once is how a slow sink is waited for"
    for seconds in (11, 12):
        assert [each.split(":")[0] for each in look(seconds)] == [first.split(":")[0]]
    ((kind, pipeline, text),) = alerts(settings.home)
    assert (kind, pipeline) == ("SourcePaused", "films")
    assert "\n  fix: bring the sink back" in text
    (_, said) = check_deliveries(settings, NOON + dt.timedelta(seconds=13))
    assert said.detail.startswith(first.split(":")[0])
    deliver(settings)
    assert look(62) == look(63) == []
    assert [kind for kind, *_ in alerts(settings.home)] == ["SourcePaused", "SourceResumed"]
    assert "is read again after 0:01:02" in alerts(settings.home)[1][2]


def test_a_pause_that_is_over_soon_is_not_told_of(declared):
    settings = declared(LIMIT)
    assert paused_sources(settings, NOON)
    deliver(settings)
    assert not paused_sources(settings, NOON + dt.timedelta(seconds=30))
    assert alerts(settings.home) == []
