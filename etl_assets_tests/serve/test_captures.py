"""The tables of a capture over REST, while the source's server does not answer."""

from __future__ import annotations

import json

import pytest

from etl_assets.errors import ControlStoreUnavailable
from etl_assets.settings import load_settings
from etl_assets.sources.captures.connect import close_readers, table_states
from etl_assets.sources.captures.phases import TablePhase
from etl_assets.sources.captures.table_retries import TableRetry
from etl_assets.sources.captures.table_states import CapturedTableState
from etl_assets.sources.captures.table_view import TableView
from etl_assets_tests.serve.rest_calls import RestClient, new_service
from etl_assets_tests.serve.server_process import PIPELINE, write_installation

PATH = "/v1/captures/shop/tables"


@pytest.fixture
def service(tmp_path, monkeypatch):
    source = {"type": "postgres", "host": "127.0.0.1", "port": 1, "database": "shop", "password": "${HOME}"}
    write_installation(tmp_path, connections={"shop": source})
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    (tmp_path / "captures").mkdir()
    capture = {"connection": "shop", "publication": "shop", "slot": "shop", "tables": ["public.*"]}
    (tmp_path / "captures" / "shop.yaml").write_text(json.dumps(capture), "utf-8")
    states = table_states(load_settings())
    for number, name in enumerate(("actor", "film")):
        found = CapturedTableState(
            capture="shop",
            table=f"public.{name}",
            pipeline=f"shop_{name}",
            oid=number,
            version=1,
            keys=("id",),
        )
        assert states.put(found if name == "actor" else found.failed("it has no key", "add one"))
    yield new_service()
    close_readers(tmp_path)


def test_tables_have_phase_lag_and_error_with_its_solution(service):
    answer = RestClient(service, scopes=["read"]).get(PATH)
    assert answer.status_code == 200, answer.text
    actor, film = answer.json()["data"]
    assert (actor["table"], actor["phase"], actor["error"]) == ("public.actor", TablePhase.INIT, None)
    assert actor["lag_bytes"] is None
    assert (film["phase"], film["error"]["reason"], film["error"]["solution"]) == (
        TablePhase.ERRORED,
        "it has no key",
        "add one",
    )


def test_a_token_sees_the_tables_of_its_pipelines_and_other_tenants_none(service):
    bound = RestClient(service, scopes=["read"], pipelines=("shop_film",)).get(PATH)
    assert [each["table"] for each in bound.json()["data"]] == ["public.film"]
    assert RestClient(service, scopes=["read"], tenant="acme").get(PATH).status_code == 404
    assert RestClient(service, scopes=["ingest"]).get(PATH).status_code == 403
    assert RestClient(service, scopes=["read"]).get("/v1/captures/none/tables").status_code == 404


def test_metrics_name_tables_in_error_while_the_server_does_not_answer(service):
    lines = RestClient(service, scopes=["read"]).get("/metrics").text.splitlines()
    assert "etl_assets_captures_read 1" in lines
    assert 'etl_assets_capture_up{capture="shop"} 0' in lines
    assert 'etl_assets_capture_tables{capture="shop",phase="errored"} 1' in lines
    assert 'etl_assets_capture_tables{capture="shop",phase="init"} 1' in lines
    assert 'etl_assets_capture_table_errored{capture="shop",table="public.film"} 1' in lines
    assert 'etl_assets_capture_table_errored{capture="shop",table="public.actor"} 0' in lines
    assert not any(line.startswith("etl_assets_capture_slot_held_bytes{") for line in lines)
    others = RestClient(service, scopes=["read"], tenant="acme").get("/metrics").text
    assert "etl_assets_capture" not in others
    bound = RestClient(service, scopes=["read"], pipelines=("shop_film",)).get("/metrics").text
    assert 'table="public.film"' in bound
    assert "public.actor" not in bound


def test_figures_that_cannot_be_read_do_not_take_the_others_away(service, monkeypatch):
    def unreachable(settings):
        raise ControlStoreUnavailable("it does not answer", fix="start it", store="s")

    monkeypatch.setattr("etl_assets.control.routes.metrics.read_figures", unreachable)
    lines = RestClient(service, scopes=["read"]).get("/metrics").text.splitlines()
    assert "etl_assets_captures_read 0" in lines
    assert any(line.startswith("etl_assets_declared_pipelines{") for line in lines)


def test_an_error_says_what_ends_it_after_the_solution(service):
    (_, film) = RestClient(service, scopes=["read"]).get(PATH).json()["data"]
    assert film["error"]["ended_by"] == "etl-assets cdc rollback shop public.film"
    state = next(each for each in table_states(load_settings()).of_capture("shop") if each.error)
    copied = state.failed("gone", "see why", TableRetry.NONE)
    assert copied.error is not None
    assert copied.ended_by().startswith("etl-assets cdc rollback shop public.film --copy; or leave")
    timed = state.failed("no key", "add one", TableRetry.TIMED)
    line = TableView(state=timed, committed_lsn=0, lag_bytes=None, lag_seconds=0.0).line()
    assert "then (timed): by itself, at the next discovery; at once: etl-assets cdc discover shop" in line


def test_a_table_without_a_pipeline_is_not_shown_with_another_pipeline_of_its_name(service):
    refused = CapturedTableState(
        capture="shop", table="public.ratings", pipeline=PIPELINE, oid=3, version=1, keys=("id",)
    )
    assert table_states(load_settings()).put(refused.failed("the name is taken", "exclude it"))
    answer = RestClient(service, scopes=["read"]).get(f"/v1/pipelines/{PIPELINE}/tables")
    assert [each["captured"] for each in answer.json()["data"]] == [None] * 4


def test_other_tables_are_listed_while_the_states_of_captures_cannot_be_read(service, monkeypatch):
    def away(self, capture):
        raise ControlStoreUnavailable("it does not answer", fix="start it", store="s")

    monkeypatch.setattr("etl_assets.control.capture_tables.StoredTableStates.of_capture", away)
    answer = RestClient(service, scopes=["read"]).get(f"/v1/pipelines/{PIPELINE}/tables")
    assert answer.status_code == 200, answer.text
