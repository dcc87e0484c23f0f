"""With one failure domain somebody is told when its disk is gone, and when it is back."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest

from etl_assets.build import build_definitions
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.sensors.domain_watch import domain_watch_sensor
from etl_assets.settings import load_settings


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of the only domain, in use, on another disk than the home folder."""
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    domains = [{"name": "rack/a", "root": str(tmp_path / "disk" / "etl")}]
    (tmp_path / "home" / "platform.yaml").write_text(json.dumps({"domains": domains}), "utf-8")
    return load_settings().placement().place(PlacementClass.INGEST).root


def tick(cursor: str | None = None) -> dg.SensorResult:
    result = domain_watch_sensor(load_settings())(dg.build_sensor_context(cursor=cursor))
    assert isinstance(result, dg.SensorResult)
    return result


def alerts() -> list[dict[str, str]]:
    file = load_settings().home / "alerts.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_disk_that_is_gone_and_comes_back_is_told_of_once_each(root):
    result = tick()
    assert alerts() == []
    away = root.rename(root.with_name("away"))
    for _ in range(3):
        result = tick(result.cursor)
    (lost,) = alerts()
    assert (lost["kind"], lost["domain"]) == ("DomainLost", "rack/a")
    assert "not mounted" in lost["error"]
    assert "not mounted" in str(result.skip_reason)
    away.rename(root)
    placement = load_settings().placement()
    for _ in range(4):
        placement.watch.probe(placement.sites[0])
        result = tick(result.cursor)
    assert [each["kind"] for each in alerts()] == ["DomainLost", "DomainBack"]


def test_before_it_was_ever_used_nothing_is_told_and_nothing_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    for cursor in (None, "no json", "[]", '{"Nonsense x": "y"}'):
        tick(cursor)
    assert not (tmp_path / "data").exists()
    assert alerts() == []


def test_when_the_home_folder_cannot_tell_what_was_told_stays(root):
    told = tick()
    (load_settings().home / "domains.json").write_text("[]")
    failed = tick(told.cursor)
    assert "domains.json" in str(failed.skip_reason)
    assert failed.cursor is None, "Dagster keeps the one before"
    assert alerts() == []


def test_it_is_there_with_one_domain_and_not_with_several(root, tmp_path):
    def sensors() -> set[str]:
        return {each.name for each in build_definitions(load_settings()).get_repository_def().sensor_defs}

    assert "domain_watch" in sensors()
    domains = [{"name": f"rack/{each}", "root": str(tmp_path / each)} for each in "abc"]
    (tmp_path / "home" / "platform.yaml").write_text(json.dumps({"domains": domains}), "utf-8")
    assert "domain_watch" not in sensors()
