"""Pipelines that follow tables, as Dagster sees them: edges of the asset graph, and requests for runs."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from etl_assets.build import build_definitions
from etl_assets.sensors.sources import source_sensors
from etl_assets.settings import Settings, load_settings
from etl_assets_tests.sources.followed_tables import COPY, Installation
from etl_assets_tests.sources.topics import today

ON_ORDERS = {
    "name": "regions",
    "source": {"type": "table", "table": "warehouse_rows"},
    "columns": {"warehouse_key": "string", "customer_region": "string"},
    "table": {"keys": ["warehouse_key"]},
}


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    found = Installation.create(tmp_path, None)
    found.declare(ON_ORDERS)
    return found


def settings_of(installation: Installation) -> Settings:
    return load_settings({"ETL_ASSETS_HOME": str(installation.home.path)})


def test_the_records_of_a_pipeline_come_after_the_table_that_it_follows(installation):
    repository = build_definitions(settings_of(installation)).get_repository_def()
    repository.load_all_definitions()
    graph = repository.asset_graph
    parents = {
        key.to_user_string(): {each.to_user_string() for each in graph.get(key).parent_keys}
        for key in graph.get_all_asset_keys()
    }
    assert parents["copies_source"] == parents["categories_source"] == {"ratings"}
    assert parents["regions_source"] == {"warehouse_rows"}
    assert parents["copies"] == {"copies_source"}
    # It is asked for by the sensor of its source, and not for every day by a condition.
    assert graph.get(dg.AssetKey("copies_source")).automation_condition is None
    jobs = [sensor.name for sensor in build_definitions(settings_of(installation)).sensors or ()]
    assert {"copies_files", "categories_files", "regions_files"} <= set(jobs)


def keys_of_ticks(installation: Installation, instance: dg.DagsterInstance, name: str) -> list[str | None]:
    settings = settings_of(installation)
    pipelines = [each for each in settings.catalog().pipelines if each.name == name]
    (sensor,) = source_sensors(settings, pipelines)
    context = dg.build_sensor_context(instance=instance, definitions=dg.Definitions(sensors=[sensor]))
    result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    return [each.run_key for each in result.run_requests or ()]


def test_a_new_version_of_the_followed_table_asks_for_one_run_of_each_pipeline(installation):
    with dg.DagsterInstance.ephemeral() as instance:
        assert keys_of_ticks(installation, instance, "copies") == []
        seen = set()
        for films in range(1, 4):
            installation.store((films, "drama", 1))
            (key,) = keys_of_ticks(installation, instance, "copies")
            assert key is not None
            assert key.startswith(f"copies_source:{today()}..{today()}@")
            assert key not in seen
            seen.add(key)
            installation.step("copies_source")
            assert keys_of_ticks(installation, instance, "copies") == []
            # A compaction has no rows, and the next version has a request of its own.
            installation.compact()
            installation.step("copies_source")
        assert len(keys_of_ticks(installation, instance, "categories")) == 1


def test_a_table_that_is_read_by_a_broken_pipeline_is_followed_by_the_others(installation):
    installation.declare({**COPY, "columns": {"film": "bigint"}})
    installation.store((1, "drama", 1))
    settings = settings_of(installation)
    assert [each.name for each in settings.installed().broken] == ["copies"]
    assert installation.step("categories_source").commits == 1
