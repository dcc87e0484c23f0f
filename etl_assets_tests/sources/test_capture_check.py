"""What an operator sees of a capture: what its tables lack before it starts, and its figures later."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from etl_assets.cli.main import cli
from etl_assets.observability.capture_checks import MatchedTables, check_capture
from etl_assets.observability.capture_metrics import CaptureFigures, capture_gauges, read_figures
from etl_assets.pipelines.capture_files import find_capture
from etl_assets.sources.captures.connect import table_states
from etl_assets.sources.captures.table_retries import TableRetry
from etl_assets.sources.captures.table_states import change_state
from etl_assets.sources.postgres_cdc.server_state import read_server_state
from etl_assets_tests.sources.captured import CAPTURE, Captured

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shop(postgres_server, tmp_path, monkeypatch) -> Iterator[Captured]:
    found = Captured.create(postgres_server, tmp_path)
    monkeypatch.setenv("ETL_ASSETS_HOME", str(found.home.path))
    yield found
    found.close()


def problems(code: int) -> list[tuple[str, str, str]]:
    """Return check, detail and fix of what is wrong beside the settings of a server for tests."""
    result = CliRunner().invoke(cli, ["cdc", "check", CAPTURE, "--json"])
    assert result.exit_code == code, result.output
    return [
        (each["check"], each["detail"], each["fix"])
        for each in json.loads(result.stdout)
        if each["status"] != "ok" and each["check"] not in ("settings", "replication slots")
    ]


def test_every_matched_table_is_checked_before_the_capture_starts_and_nothing_is_changed(shop):
    shop.make_tables("film", "actor")
    assert problems(0) == []
    shop.execute(
        "CREATE TABLE nokey (id bigint)",
        "CREATE TABLE fullnokey (id bigint); ALTER TABLE fullnokey REPLICA IDENTITY FULL",
        "CREATE TABLE nothing (id bigint PRIMARY KEY); ALTER TABLE nothing REPLICA IDENTITY NOTHING",
        "CREATE TABLE etl_assets_positions (id bigint PRIMARY KEY)",
    )
    found = problems(1)
    text = "\n".join(f"{detail} -> {fix}" for _, detail, fix in found)
    assert "matches tables of the platform itself" in text
    assert "public.etl_assets_positions -> add them to `exclude`" in text
    for table in ("nokey", "fullnokey"):
        assert f"public.{table} has no primary key" in text
        assert f'ALTER TABLE "public"."{table}" ADD PRIMARY KEY (...)' in text
    assert "public.nothing has the replica identity NOTHING" in text
    assert not any("film" in detail or "actor" in detail for _, detail, _ in found)
    assert shop.session.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)
    shop.declare(
        exclude=["public.nokey", "public.fullnokey", "public.nothing", "public.etl_assets_positions"]
    )
    assert problems(0) == []


def test_a_publication_of_the_users_own_decides_and_one_that_the_capture_made_grows(shop):
    shop.make_tables("film", "actor")
    shop.execute("CREATE PUBLICATION shop FOR TABLE film")
    lacks = ("publication", "shop lacks public.actor, so it is not followed")
    assert [each[:2] for each in problems(0)] == [lacks]
    shop.execute("DROP PUBLICATION shop")
    shop.discover()
    shop.make_tables("store")
    assert problems(0) == []


def test_no_matched_table_and_an_unknown_name_are_said(shop):
    shop.make_tables("film")
    shop.declare(tables=["sales.*"])
    (found,) = problems(1)
    assert found[1].startswith(f"shop matches no table of {shop.name}: sales.*")
    unknown = CliRunner().invoke(cli, ["cdc", "check", "other"])
    assert "there is no valid pipeline file 'other'" in str(unknown.exception)


def test_copies_need_a_slot_and_a_walsender_each_and_a_small_limit_of_the_log_is_said(shop):
    shop.make_tables("film", "actor", "store")
    capture = find_capture(shop.settings.home, CAPTURE)
    tables = {f"public.{name}": 1 for name in ("film", "actor", "store")}
    found = MatchedTables(tables=tables, keyless=frozenset(), adds_tables=False)
    state = read_server_state(shop.session, publication=CAPTURE, tables=list(tables))
    few = {"max_replication_slots": "3", "max_wal_senders": "2", "max_slot_wal_keep_size": "512"}
    object.__setattr__(state, "settings", {**state.settings, **few})
    object.__setattr__(state, "slots", ())
    text = "\n".join(each.detail for each in check_capture(capture, state, found, frozenset()))
    assert "max_replication_slots is 3 and 3 are free; 4 are needed, 3 of them for copies" in text
    assert "max_wal_senders is 2, and 2 is free; the first copy needs 3" in text
    assert "max_slot_wal_keep_size is 512 MB, less than the max_held_bytes of shop (1024 MB)" in text


def test_figures_have_what_the_slot_holds_back_and_how_far_each_table_is(shop):
    shop.make_tables("film", "actor")
    shop.discover()
    shop.settle("film", "actor")
    shop.execute("INSERT INTO film SELECT i, 'x', i FROM generate_series(10, 400) i")
    shop.look()
    gauges = {each.name: each.values for each in capture_gauges(read_figures(shop.settings))}
    capture, film = ("capture", CAPTURE), ("table", "public.film")
    assert gauges["etl_assets_capture_up"][(capture,)] == 1
    assert gauges["etl_assets_capture_slot_lost"][(capture,)] == 0
    assert gauges["etl_assets_capture_slot_held_bytes"][(capture,)] > 0
    assert gauges["etl_assets_capture_tables"][(capture, ("phase", "ready"))] == 2
    assert gauges["etl_assets_capture_table_lag_bytes"][(capture, film)] > 10_000
    assert gauges["etl_assets_capture_table_lag_seconds"][(capture, film)] > 0
    assert gauges["etl_assets_capture_table_rows_copied"][(capture, film)] == 3


def test_alert_rules_name_figures_that_exist_and_headings_of_the_runbook():
    figures = CaptureFigures(name="shop", is_up=False, slot=None, tables=())
    known = {each.name for each in capture_gauges([figures])} | {"etl_assets_captures_read"}
    rules = yaml.safe_load((ROOT / "deploy/prometheus/captures.rules.yaml").read_text("utf-8"))
    runbook = (ROOT / "docs/operations.md").read_text("utf-8")
    headings = {
        "#" + re.sub(r"[^a-z0-9 ]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in runbook.splitlines()
        if line.startswith("#")
    }
    for rule in rules["groups"][0]["rules"]:
        assert set(re.findall(r"etl_assets_\w+", rule["expr"])) <= known, rule["alert"]
        assert "#" + rule["annotations"]["runbook"].partition("#")[2] in headings, rule["alert"]


def test_retry_lets_every_table_go_on_that_can_and_names_those_that_have_to_be_copied(shop):
    shop.make_tables("film", "actor", "store")
    shop.execute("CREATE TABLE nokey (id bigint, title varchar(9), n int)")
    shop.discover()
    shop.settle("film", "actor", "store")
    states = table_states(shop.settings)
    for name, retry in (("film", TableRetry.MANUAL), ("actor", TableRetry.NONE)):
        change_state(states, CAPTURE, f"public.{name}", lambda each, r=retry: each.failed("why", "do", r))
    shop.execute("ALTER TABLE nokey ADD PRIMARY KEY (id)")
    result = CliRunner().invoke(cli, ["cdc", "retry", CAPTURE])
    assert result.exit_code == 1, result.output
    assert shop.phases() == {"film": "ready", "actor": "errored", "store": "ready", "nokey": "init"}
    assert "public.film: ready" in result.output
    assert "public.nokey: init" in result.output
    assert "    then: etl-assets cdc rollback shop public.actor --copy" in result.output
    assert "store" not in result.output
    change_state(states, CAPTURE, "public.actor", lambda each: each.copied_again(each.since_lsn))
    again = CliRunner().invoke(cli, ["cdc", "retry", CAPTURE])
    assert (again.exit_code, again.output) == (0, "shop: no table is in error\n")
