"""An installation that leaves the orders pipeline out has nothing of it, and everything of its own
pipelines.
"""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from etl_assets.build import build_definitions
from etl_assets.cli.main import cli
from etl_assets.errors import SettingsError
from etl_assets.io_managers import DeltaUpsertIOManager
from etl_assets.observability.diagnosis import diagnose
from etl_assets.orders.pipeline import ORDERS
from etl_assets.settings import Settings, load_settings
from etl_assets.worker.worker import Worker

RATINGS = """\
name: film_ratings
source: {type: files, path: "in/ratings/*.csv", id: [id]}
columns: {id: bigint, stars: int}
table: {keys: [id]}
"""
OWN = {"film_ratings_source", "film_ratings"}
OF_ORDERS = {contract.name for stage in ORDERS.stages for contract in stage.tables}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    (tmp_path / "platform.yaml").write_text("pipelines: {built_in: []}\n")
    (tmp_path / "pipelines").mkdir()
    return tmp_path


@pytest.fixture
def settings(home: Path) -> Settings:
    (home / "pipelines" / "film_ratings.yaml").write_text(RATINGS)
    return load_settings()


def called(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments])


def test_dagster_gets_nothing_of_orders(settings):
    repository = build_definitions(settings).get_repository_def()
    repository.load_all_definitions()
    graph = repository.asset_graph
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} == OWN | {"dead_letters"}
    checks = {(key.asset_key.to_user_string(), key.name) for key in graph.asset_check_keys}
    assert checks == {
        ("film_ratings_source", "contract"),
        ("film_ratings_source", "dense_offsets"),
        ("film_ratings", "contract"),
        ("dead_letters", "contract"),
    }
    sensors = {sensor.name for sensor in repository.sensor_defs}
    assert "film_ratings_files" in sensors
    assert "landing_files" not in sensors


def test_definitions_load_before_there_is_any_pipeline(home):
    repository = build_definitions(load_settings()).get_repository_def()
    repository.load_all_definitions()
    assert {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()} == {"dead_letters"}


def test_the_io_manager_knows_the_tables_of_the_installation_alone(settings):
    resources = build_definitions(settings).resources or {}
    (manager,) = (each for each in resources.values() if isinstance(each, DeltaUpsertIOManager))
    assert manager.table_of(dg.AssetKey("film_ratings")).contract is not None
    assert manager.table_of(dg.AssetKey("raw_events")).contract is None


def test_the_worker_feeds_the_declared_pipelines_alone(settings):
    worker = Worker(settings, lambda event: None)
    assert [feed.pipeline.name for feed in worker._feeds] == ["film_ratings"]


def test_the_doctor_looks_at_no_landing_folder(settings):
    checks = {finding.check: finding.detail for finding in diagnose()}
    assert "landing folder" not in checks
    assert checks["pipelines"] == "1 file"


def test_no_table_of_orders_is_listed_or_found(settings):
    listed = {each["name"] for each in json.loads(called("tables", "--json").stdout)}
    assert listed > OWN
    assert listed.isdisjoint(OF_ORDERS - {"dead_letters"})
    assert "there is no table 'raw_events'" in str(called("sql", "select * from raw_events").exception)


def test_a_pipeline_may_take_the_name_of_a_table_that_is_left_out(home):
    made = called("pipelines", "new", "customers")
    assert made.exit_code == 0, made.output
    assert called("pipelines", "validate", "--no-spark").exit_code == 0
    assert "customers_source" in load_settings().catalog().names
    (home / "platform.yaml").unlink()
    refused = called("pipelines", "validate", "--no-spark")
    assert refused.exit_code == 1
    assert "customers" in refused.stdout


def test_a_reprocess_begins_with_no_table_of_its_own_accord(settings):
    result = called("reprocess")
    assert result.exit_code == 2
    assert "--tables is needed: name one of film_ratings" in result.output


def test_the_demo_names_the_file_that_leaves_orders_out(home):
    error = called("demo").exception
    assert isinstance(error, SettingsError)
    assert str(home / "platform.yaml") in error.message
    assert "ETL_ASSETS_HOME" in str(error.fix)
    assert not (home / "landing").exists()


def test_a_built_in_pipeline_that_does_not_exist_is_named(home):
    (home / "platform.yaml").write_text("pipelines: {built_in: [order]}\n")
    with pytest.raises(SettingsError, match="no built-in pipeline 'order'; there are orders"):
        load_settings()


def test_without_the_setting_everything_is_there(home):
    (home / "platform.yaml").unlink()
    assert set(load_settings().catalog().names) >= OF_ORDERS
