"""The failure domains in Dagster: an asset that is observed, and a sensor that looks after the replicas."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from etl_assets.build import build_definitions
from etl_assets.placement.domain_registry import AdminState
from etl_assets.placement.domains import Placement
from etl_assets.replicas.members import take_out
from etl_assets.replicas.scrub import ScrubCursor
from etl_assets.sensors import failure_domains
from etl_assets.sensors.alerts import AlertKind
from etl_assets.sensors.conditions import OVER, condition
from etl_assets.sensors.domains_cursor import DomainsCursor
from etl_assets.sensors.failure_domains import ASSET, CHECK, failure_domains_sensor
from etl_assets.settings import load_settings
from etl_assets_tests.reference.tables import ALL_TABLES, CATALOG
from etl_assets_tests.reference.three_domains import (
    TABLE,
    A,
    B,
    C,
    commit,
    named_domains,
    root_of,
    three_domains,
)


@pytest.fixture
def placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Placement:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return three_domains(tmp_path)


def tick(cursor: str | None = None) -> dg.SensorResult:
    result = failure_domains_sensor(load_settings())(dg.build_sensor_context(cursor=cursor))
    assert isinstance(result, dg.SensorResult)
    return result


def observed(result: dg.SensorResult) -> dict[str, object]:
    observation, _ = result.asset_events
    assert isinstance(observation, dg.AssetObservation)
    return {name: value.value for name, value in observation.metadata.items()}


def passed(result: dg.SensorResult) -> bool:
    _, evaluation = result.asset_events
    assert isinstance(evaluation, dg.AssetCheckEvaluation)
    assert evaluation.asset_check_key == dg.AssetCheckKey(dg.AssetKey(ASSET), CHECK)
    return evaluation.passed


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
    each = {f"{figure}_behind/{name}": 0 for figure in ("versions", "seconds") for name in (A, B, C)}
    assert observed(first) | {"domains": "", "tables": ""} == {
        "domains": "",
        "tables": "",
        "happened": "nothing",
        "one_loss": "losing any one domain now would lose nothing",
        "safe_from_one_loss": True,
        "usable_domains": 3,
        "versions_behind": 0,
        "seconds_behind": 0,
        "replicas_not_answering": 0,
        "relocations": 0,
        "rebinds": 0,
        "repairs": 0,
        **each,
    }
    assert f"| {TABLE} | {A} | 1 | 2 | 0 | {A} up to date, {B} up to date, {C} up to date |" in str(
        observed(first)["tables"]
    )
    assert passed(first)
    again = tick(first.cursor)
    assert not again.asset_events
    assert "up to date" in str(again.skip_reason)


def test_a_lost_leader_is_replaced_and_told_of(placement):
    commit(placement, A)
    first = tick()
    root_of(placement, A).rename(root_of(placement, A).with_name("away"))
    lost = observed(tick(first.cursor))
    assert (lost["usable_domains"], lost["replicas_not_answering"]) == (2, 1)
    assert (lost["relocations"], lost["rebinds"]) == (1, 1)
    assert f"{TABLE}: led by {B} under epoch 2, before by {A} under epoch 1" in str(lost["happened"])
    assert "generation 3, before 2: its readers bind again" in str(lost["happened"])
    assert "not mounted" in str(lost["domains"])
    assert lost["safe_from_one_loss"], "two whole copies are left"


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


def test_a_replica_that_stays_away_is_behind_by_versions_and_by_seconds_of_this_machine(
    placement, monkeypatch
):
    commit(placement, A)
    result = tick()
    root_of(placement, C).rename(root_of(placement, C).with_name("away"))
    clock = Clock(monkeypatch)
    result = tick(result.cursor)
    assert observed(result)[f"seconds_behind/{C}"] == 0
    assert not tick(result.cursor).asset_events, "the same is not told again at once"
    clock.seconds += 90
    later = observed(tick(result.cursor))
    assert (later[f"seconds_behind/{C}"], later[f"seconds_behind/{B}"], later["seconds_behind"]) == (
        90,
        0,
        90,
    )
    assert f"{C} does not answer, for 90 s" in str(later["tables"])


def test_rows_that_are_acknowledged_are_told_by_the_minute_and_so_is_their_absence(placement, monkeypatch):
    monkeypatch.setitem(vars(CATALOG), "counted", (TABLE,))
    clock = Clock(monkeypatch)
    commit(placement, A, rows=5)
    result = tick()
    assert f"rows_per_minute/{TABLE}" not in observed(result), "since when is not known"
    commit(placement, A, rows=40)
    clock.seconds += 15
    waits = tick(result.cursor)
    assert not waits.asset_events, "an observation for each commit would be too many"
    commit(placement, A, rows=20)
    clock.seconds += 45
    flows = tick(waits.cursor)
    assert observed(flows)[f"rows_per_minute/{TABLE}"] == 60
    clock.seconds += 60
    dip = tick(flows.cursor)
    assert observed(dip)[f"rows_per_minute/{TABLE}"] == 0
    clock.seconds += 600
    assert not tick(dip.cursor).asset_events, "and then nothing more, until something flows again"


def test_the_check_fails_while_one_more_loss_would_lose_data_and_somebody_is_told(placement, tmp_path):
    commit(placement, A)
    result = tick()
    # Neither a majority nor a second copy is left.
    away = [
        root_of(placement, name).rename(root_of(placement, name).with_name(f"away-{name[-1]}"))
        for name in (B, C)
    ]
    result = tick(result.cursor)
    assert not passed(result)
    assert kinds(tmp_path) == ["DomainLost", "DomainLost"]
    result = tick(result.cursor)
    assert kinds(tmp_path)[2:] == ["OneLossLoses"]
    for each, name in zip(away, (B, C), strict=True):
        each.rename(root_of(placement, name))
    for _ in range(4):
        for name in (B, C):
            placement.watch.probe(placement.site(name))
        result = tick(result.cursor)
    assert set(kinds(tmp_path)[3:]) == {"DomainBack", "OneLossSafe"}


def test_a_table_whose_replicas_are_not_those_of_the_platform_file_is_told_of(placement, tmp_path):
    commit(placement, A)
    domains = named_domains(tmp_path, dict.fromkeys((A, B), "voter"))
    result = tick()
    assert f"{C} | voter | not in the platform file" in str(observed(result)["domains"])
    again = tick(result.cursor)
    (told,) = alerts(tmp_path)
    assert (told["kind"], told["table"]) == ("TableTroubled", TABLE)
    assert f"`etl-assets domains remove {C}`" in told["error"]
    assert "docs/operations.md, TableTroubled" in told["error"]
    assert dict(take_out(domains, C)) == {TABLE: None}
    tick(again.cursor)
    assert kinds(tmp_path) == ["TableTroubled", "TableWell"]


def test_damage_that_nobody_would_meet_is_mended_and_shown(placement, tmp_path):
    for _ in range(2):
        commit(placement, A)
    first = tick(DomainsCursor(survey=ScrubCursor(table=TABLE)).dump())
    assert observed(first)["repairs"] == 0
    (data,) = (root_of(placement, C) / "tables" / TABLE).rglob("part-1.parquet")
    data.write_bytes(b"ro")
    found = tick(
        DomainsCursor.load(first.cursor).model_copy(update={"survey": ScrubCursor(table=TABLE)}).dump()
    )
    assert observed(found)["repairs"] == 1
    assert f"{TABLE}: {C} was damaged and rebuilt" in str(observed(found)["happened"])
    assert alerts(tmp_path) == []


def test_damage_that_cannot_be_mended_is_told_of_until_it_is(placement, tmp_path):
    for _ in range(2):
        commit(placement, A)
    (data,) = (root_of(placement, A) / "tables" / TABLE).rglob("part-1.parquet")
    whole = data.read_bytes()
    data.write_bytes(b"ro")
    result = tick(DomainsCursor(survey=ScrubCursor(table=TABLE)).dump())
    for _ in range(3):
        result = tick(result.cursor)
    (told,) = alerts(tmp_path)
    assert (told["kind"], told["table"]) == ("TableTroubled", TABLE)
    assert "part-1.parquet" in told["error"]
    data.write_bytes(whole)
    again = DomainsCursor.load(result.cursor)
    result = tick(again.model_copy(update={"survey": replace(again.survey, table=TABLE)}).dump())
    assert kinds(tmp_path) == ["TableTroubled", "TableWell"]


def test_a_stage_that_may_run_only_where_nothing_can_is_told_of_once(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    placement = three_domains(tmp_path)
    file = tmp_path / "platform.yaml"
    file.write_text(file.read_text("utf-8") + f"placement_policy: {{sink: [{B}]}}\n", "utf-8")
    placement.memory.set_standing(B, AdminState.DRAINED)
    result = tick()
    assert kinds(tmp_path) == [], "a stage that waits for one tick is nobody's business"
    for _ in range(3):
        result = tick(result.cursor)
    (stopped,) = alerts(tmp_path)
    assert (stopped["kind"], stopped["stage"]) == ("StageStopped", "sink")
    assert f"{B}: drained by an operator" in stopped["error"]
    placement.heal(B)
    tick(result.cursor)
    assert kinds(tmp_path) == ["StageStopped", "StageRuns"]


def test_a_tick_does_a_bounded_amount_of_work_and_the_next_one_goes_on(placement, monkeypatch):
    commit(placement, A)
    monkeypatch.setattr(failure_domains, "ROUND_SECONDS", -1.0)
    result, begun = tick(), []
    for _ in range(3):
        begun.append(DomainsCursor.load(result.cursor).begin)
        result = tick(result.cursor)
    names = [contract.name for contract in ALL_TABLES]
    assert begun == names[1:4]


def test_a_table_that_a_round_did_not_come_to_stays_as_it_was_told(placement, tmp_path, monkeypatch):
    commit(placement, A)
    monkeypatch.setattr(failure_domains, "ROUND_SECONDS", -1.0)
    told = {condition(AlertKind.TABLE_TROUBLED, ALL_TABLES[3].name): "why"}
    result = tick(DomainsCursor(told=told).dump())
    assert DomainsCursor.load(result.cursor).told == told
    assert not (tmp_path / "alerts.jsonl").exists()


@pytest.mark.parametrize(
    "cursor", ["", "no json", '{"seen": "x", "told": {"local/c": "away"}}', '{"told": {"Nonsense x": "y"}}']
)
def test_a_cursor_of_another_release_is_no_obstacle(placement, tmp_path, cursor):
    commit(placement, A)
    assert observed(tick(cursor))["usable_domains"] == 3
    assert alerts(tmp_path) == []


def test_a_lost_domain_that_is_taken_out_of_the_platform_file_is_not_told_to_be_back(placement, tmp_path):
    commit(placement, A)
    root_of(placement, C).rename(root_of(placement, C).with_name("away"))
    result = tick()
    named_domains(tmp_path, dict.fromkeys((A, B), "voter"))
    tick(result.cursor)
    assert kinds(tmp_path) == ["DomainLost"]


def test_every_condition_that_begins_can_be_over():
    of_commands_and_runs = {AlertKind.RUN_FAILED, AlertKind.UNDO_UNFINISHED}
    # The worker and the sensors of sources begin and end these themselves.
    of_sinks = {AlertKind.SINK_DOWN, AlertKind.SINK_SLOW, AlertKind.SINK_BACK}
    of_sources = {AlertKind.SOURCE_PAUSED, AlertKind.SOURCE_RESUMED}
    assert {*OVER, *OVER.values()} == set(AlertKind) - of_commands_and_runs - of_sinks - of_sources


def test_the_check_can_be_run_by_hand(placement):
    commit(placement, A)
    definitions = build_definitions(load_settings())
    (check,) = [each for each in definitions.asset_checks or () if each.check_key.name == CHECK]
    result = check()
    assert isinstance(result, dg.AssetCheckResult)
    assert result.passed


def kinds(tmp_path: Path) -> list[str]:
    return [each["kind"] for each in alerts(tmp_path)]


class Clock:
    """The sensor's monotonic clock, moved on by hand. What is observed of domains goes by the real one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1_000.0
        monkeypatch.setattr(failure_domains, "monotonic", lambda: self.seconds)
        # On a busy machine a round would end before it comes to the table.
        monkeypatch.setattr(failure_domains, "ROUND_SECONDS", 60.0)
