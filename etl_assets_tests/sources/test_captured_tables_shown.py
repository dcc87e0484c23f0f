"""What people see of captured tables in the Dagster UI, and in the list of all tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from etl_assets.captures import roll_back
from etl_assets.errors import ControlStoreUnavailable
from etl_assets.instance import open_instance
from etl_assets.metadata import run_metadata
from etl_assets.steps.placing import place
from etl_assets.steps.step import platform_table
from etl_assets.worker.captured_phases import CapturedPhases
from etl_assets.worker.reports import Dagster, Reports
from etl_assets_tests.sources.captured import CAPTURE, Captured


@pytest.fixture
def shop(postgres_server, tmp_path) -> Iterator[Captured]:
    found = Captured.create(postgres_server, tmp_path)
    found.make_tables("film", "actor")
    found.discover()
    yield found
    found.close()


def observed(instance: dg.DagsterInstance, asset: str) -> list[dict[str, Any]]:
    """The metadata of an asset's observations, newest first, as the UI has them."""
    found = instance.fetch_observations(dg.AssetKey(asset), limit=10).records
    observations = [each.asset_observation for each in found]
    return [{name: value.value for name, value in each.metadata.items()} for each in observations if each]


def test_the_ui_shows_the_error_of_a_captured_table_and_what_ends_it(shop):
    shop.settle("film", "actor")
    instance = open_instance(shop.settings)
    reports = Reports(shop.settings, Dagster(shop.settings).take, worker="host:1")
    assert reports.tell()
    assert observed(instance, "shop_film") == []  # it is ready, and stays so
    shop.execute("ALTER TABLE film ALTER n TYPE text", "UPDATE film SET n = 'many'")
    shop.look()
    with pytest.raises(Exception, match="n is text"):
        shop.ingest("film")
    for _ in range(2):
        assert reports.tell()
    (shown,) = observed(instance, "shop_film")
    assert (shown["capture/phase"], shown["capture/table"]) == ("errored", "shop: public.film")
    assert "n is text instead of int4" in shown["capture/reason"]
    assert "--copy` copies the table again" in shown["capture/solution"]
    assert shown["capture/retry_policy"] == "manual"
    assert shown["capture/ended_by"] == "etl-assets cdc rollback shop public.film"
    assert shown["capture/rows_copied"] == 3
    assert shown["capture/lag_bytes"] > 0
    roll_back(shop.settings, CAPTURE, "public.film", copies=True)
    assert reports.tell()
    assert observed(instance, "shop_film")[0]["capture/phase"] == "init"
    assert observed(instance, "shop_actor") == []


def test_a_worker_that_starts_tells_of_tables_that_are_not_ready(shop):
    shop.settle("actor")
    phases = CapturedPhases(shop.settings)
    assert [each.asset_key.to_user_string() for each in phases.news()] == ["shop_film"]
    assert list(phases.news()) == []


def test_a_materialization_has_the_phase_and_the_copy_of_its_table(shop):
    report = shop.ingest("film")
    for name in ("shop_film", "shop_film_source"):
        table = platform_table(name, place(shop.settings.placement(), name))
        shown = run_metadata(table, report, settings=shop.settings)
        assert shown["capture/phase"] == shop.phases()["film"]
        assert shown["capture/rows_copied"] == 3


def test_the_list_of_tables_has_their_phases(shop):
    shop.settle("film")
    shop.load("film")
    done = shop.home.call("tables")
    assert done.code == 0, str(done)
    assert "│ ready" in done.out
    assert "capture shop: " in done.out
    assert "etl-assets cdc tables shop" in done.out
    done = shop.home.call("tables", "--json")
    captured = {each["name"]: each["captured"] for each in json.loads(done.out)}
    assert captured["shop_film"]["phase"] == "ready"
    assert captured["shop_actor"]["phase"] == "init"
    assert captured["shop_film_source"] is None


def test_names_that_end_like_tables_of_records_are_told_apart(postgres_server, tmp_path):
    shop = Captured.create(postgres_server, tmp_path, keep_records=False)
    shop.make_tables("data", "data_source")
    shop.discover()
    report = shop.ingest("data_source")
    table = platform_table("shop_data_source", place(shop.settings.placement(), "shop_data_source"))
    shown = run_metadata(table, report, settings=shop.settings)
    shop.close()
    assert shown["capture/table"] == "shop: public.data_source"


def test_what_cannot_be_read_once_is_told_later(shop, monkeypatch):
    phases = CapturedPhases(shop.settings)

    def away(*_, **__):
        raise ControlStoreUnavailable("it does not answer", fix="start it", store="s")

    with monkeypatch.context() as patched:
        patched.setattr("etl_assets.captures.table_views", away)
        assert list(phases.news()) == []
    assert {each.asset_key.to_user_string() for each in phases.news()} == {"shop_film", "shop_actor"}
    assert list(phases.news()) == []


def test_a_table_without_a_pipeline_makes_no_asset(shop):
    shop.execute("CREATE TABLE nokey (a int)")
    shop.discover()
    assert shop.phases()["nokey"] == "errored"
    told = {each.asset_key.to_user_string() for each in CapturedPhases(shop.settings).news()}
    assert told == {"shop_film", "shop_actor"}


def test_a_capture_that_cannot_be_read_does_not_take_the_list_of_tables_away(shop):
    shop.look()
    (shop.home.path / "captured" / CAPTURE / "spool.json").write_text("{", "utf-8")
    done = shop.home.call("tables", "--json")
    assert done.code == 0, str(done)
    assert "the tables of the capture shop cannot be shown now" in done.err
    assert {each["captured"] for each in json.loads(done.out)} == {None}
