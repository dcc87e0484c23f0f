"""The failure domains in Dagster: an asset that is observed, and a sensor that looks after the replicas."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest

from etl_assets.build import build_definitions
from etl_assets.placement.domains import Placement
from etl_assets.sensors.failure_domains import ASSET, failure_domains_sensor
from etl_assets.settings import load_settings
from etl_assets_tests.reference.three_domains import A, B, C, commit, root_of, three_domains


@pytest.fixture
def placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Placement:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return three_domains(tmp_path)


def tick(cursor: str | None = None) -> dg.SensorResult:
    with dg.instance_for_test() as instance:
        context = dg.build_sensor_context(instance=instance, cursor=cursor)
        result = failure_domains_sensor(load_settings())(context)
    assert isinstance(result, dg.SensorResult)
    return result


def observed(result: dg.SensorResult) -> dict[str, object]:
    (event,) = result.asset_events
    return {name: value.value for name, value in event.metadata.items()}


def test_they_are_there_with_several_domains_and_not_with_one(placement, tmp_path, monkeypatch):
    def names() -> set[str]:
        repository = build_definitions(load_settings()).get_repository_def()
        keys = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
        return {name for name in keys if name == ASSET} | {
            f"sensor {sensor.name}" for sensor in repository.sensor_defs if sensor.name == ASSET
        }

    assert names() == {ASSET, f"sensor {ASSET}"}
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path / "one"))
    assert names() == set()


def test_a_tick_tells_what_changed_and_only_that(placement):
    commit(placement, A)
    first = tick()
    assert observed(first) | {"domains": "", "done": ""} == {
        "domains": "",
        "done": "",
        "one_loss": "losing any one domain now would lose nothing",
        "safe_from_one_loss": True,
        "usable_domains": 3,
        "versions_behind": 0,
        "replicas_not_answering": 0,
    }
    again = tick(first.cursor)
    assert not again.asset_events
    assert "up to date" in str(again.skip_reason)


def test_a_lost_leader_is_replaced_and_told_of(placement):
    commit(placement, A)
    first = tick()
    root_of(placement, A).rename(root_of(placement, A).with_name("away"))
    lost = observed(tick(first.cursor))
    assert (lost["usable_domains"], lost["replicas_not_answering"]) == (2, 1)
    assert f"led by {B} from now on" in str(lost["done"])
    assert "not mounted" in str(lost["domains"])


def alerts(tmp_path: Path) -> list[dict[str, str]]:
    file = tmp_path / "alerts.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_domain_that_is_lost_and_comes_back_is_told_of_once_each(placement, tmp_path):
    commit(placement, A)
    result = tick()
    away = root_of(placement, C).rename(root_of(placement, C).with_name("away"))
    for _ in range(3):
        result = tick(result.cursor)
    (lost,) = alerts(tmp_path)
    assert (lost["kind"], lost["domain"]) == ("DomainLost", C)
    assert "not mounted" in lost["error"]
    away.rename(root_of(placement, C))
    states = []
    for _ in range(4):
        placement.watch.probe(placement.site(C))
        result = tick(result.cursor)
        states += [str(observed(result)["domains"])] if result.asset_events else []
    assert [each["kind"] for each in alerts(tmp_path)] == ["DomainLost", "DomainBack"]
    assert any("times in a row" in each for each in states)


def test_a_lost_domain_stays_told_when_a_tick_fails(placement, tmp_path):
    root_of(placement, C).rename(root_of(placement, C).with_name("away"))
    first = tick()
    (tmp_path / "domains.json").rename(tmp_path / "domains.json.away")
    (tmp_path / "domains.json").write_text("[]")
    failed = tick(first.cursor)
    assert "domains.json" in str(failed.skip_reason)
    (tmp_path / "domains.json.away").rename(tmp_path / "domains.json")
    tick(failed.cursor)
    assert [each["kind"] for each in alerts(tmp_path)] == ["DomainLost"]
