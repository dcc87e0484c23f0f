"""What Dagster gets of declared pipelines, and of files and folders that cannot be used."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from etl_assets.build import build_definitions
from etl_assets.contracts.columns import TableContract
from etl_assets.pipelines.rest_declaration import snapshot_path
from etl_assets.settings import Settings, load_settings

SUPPLIERS = """\
name: suppliers
description: Suppliers, and what each sold last.
owners: [team:purchasing]
source: {type: files, path: "incoming/suppliers/*.csv", id: [Number]}
columns:
  supplier_id: {type: bigint, from: Number, required: true}
  country: {type: string, one_of: [DE, FR, PL]}
  amount: {type: "decimal(18,2)", at_least: 0}
  updated_at: timestamp
transforms:
  - {type: filter, where: "amount > 0"}
  - {type: map, columns: {gross: {expression: "amount * 1.19", type: "decimal(18,2)"}}}
  - {type: lookup, table: customers, on: {country: customer_id}, columns: {region: customer_region}}
table: {keys: [supplier_id], sequence_by: updated_at}
"""
TABLES = ("suppliers_source", "suppliers")
BUILT_IN = {
    "customers",
    "raw_events",
    "normalized_orders",
    "warehouse_rows",
    "order_status_view",
    "audit_log",
    "dead_letters",
}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """An installation with a pipeline that works, and files that do not."""
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "suppliers.yaml").write_text(SUPPLIERS)
    return load_settings()


def specs(settings: Settings) -> dict[str, dg.AssetSpec]:
    """The specs of all assets, as Dagster has loaded them, by their keys."""
    repository = build_definitions(settings).get_repository_def()
    repository.load_all_definitions()
    graph = repository.asset_graph
    return {key.to_user_string(): graph.get(key).to_asset_spec() for key in graph.get_all_asset_keys()}


def described(spec: dg.AssetSpec) -> str:
    assert spec.description
    return spec.description


def node(settings: Settings, name: str) -> dg.AssetsDefinition:
    found = [
        each for each in build_definitions(settings).assets or () if isinstance(each, dg.AssetsDefinition)
    ]
    return next(each for each in found if each.key == dg.AssetKey(name))


def contract(settings: Settings, name: str) -> TableContract:
    return settings.catalog().table(name)


def test_a_declared_pipeline_has_an_asset_for_its_records_and_one_for_its_table(settings):
    assert set(specs(settings)) == {*BUILT_IN, *TABLES}


@pytest.mark.parametrize("name", TABLES)
def test_every_asset_tells_what_it_is_and_whose(settings, name):
    spec = node(settings, name).specs_by_key[dg.AssetKey(name)]
    assert "suppliers" in described(spec).lower()
    assert spec.owners == ["team:purchasing"]
    assert {"pyspark", "deltalake"} <= spec.kinds
    assert spec.group_name == "suppliers"
    assert spec.freshness_policy is not None
    assert (spec.partitions_def is not None) == (name == "suppliers_source")


@pytest.mark.parametrize("name", TABLES)
def test_every_asset_is_repeated_with_jitter_and_written_by_one_run_at_a_time(settings, name):
    op = node(settings, name).op
    assert op.retry_policy is not None
    assert op.retry_policy.jitter is dg.Jitter.FULL
    assert op.pool == name


@pytest.mark.parametrize("name", TABLES)
def test_every_asset_shows_the_columns_of_its_contract_with_their_meaning(settings, name):
    schema = node(settings, name).metadata_by_key[dg.AssetKey(name)]["dagster/column_schema"]
    assert [column.name for column in schema.columns] == list(contract(settings, name).names)
    assert all(column.description and column.type for column in schema.columns)


def test_the_lineage_of_columns_leads_to_the_records_and_to_the_looked_up_table(settings):
    lineage = node(settings, "suppliers").metadata_by_key[dg.AssetKey("suppliers")]["dagster/column_lineage"]
    found = {
        column: {(dep.asset_key.to_user_string(), dep.column_name) for dep in deps}
        for column, deps in lineage.deps_by_column.items()
    }
    assert found["supplier_id"] == {("suppliers_source", "record")}
    assert found["_offset"] == {("suppliers_source", "offset")}
    assert found["region"] == {("customers", "customer_region")}
    assert all(column in contract(settings, table).names for deps in found.values() for table, column in deps)


def test_the_table_is_made_from_its_records_and_its_lookups(settings):
    deps = specs(settings)["suppliers"].deps
    assert {dep.asset_key.to_user_string() for dep in deps} == {"suppliers_source", "customers"}


def test_runs_of_its_sensor_make_its_tables_and_evaluate_their_checks(settings):
    repository = build_definitions(settings).get_repository_def()
    job = repository.get_sensor_def("suppliers_files").job
    assert isinstance(job, UnresolvedAssetJobDefinition)
    graph = repository.asset_graph
    assert {key.to_user_string() for key in job.selection.resolve(graph)} == {*TABLES, "dead_letters"}
    checks = {(key.asset_key.to_user_string(), key.name) for key in job.selection.resolve_checks(graph)}
    assert checks >= {(name, "contract") for name in TABLES}


def test_its_sensor_asks_for_a_run_of_the_day_on_which_a_file_came(settings):
    definitions = build_definitions(settings)
    sensor = definitions.get_repository_def().get_sensor_def("suppliers_files")
    file = settings.home / "incoming" / "suppliers" / "a.csv"
    file.parent.mkdir(parents=True)
    file.write_text("Number\n1\n")
    came = dt.datetime(2026, 3, 4, 23, 59, tzinfo=dt.UTC)
    os.utime(file, (came.timestamp(), came.timestamp()))
    with dg.DagsterInstance.ephemeral() as instance:
        result = sensor(dg.build_sensor_context(instance=instance, definitions=definitions))
    assert isinstance(result, dg.SensorResult)
    assert [request.partition_key for request in result.run_requests or ()] == ["2026-03-04"]


def test_a_broken_file_is_an_asset_that_says_what_is_wrong_and_the_others_are_as_before(settings):
    before = specs(settings)
    folder = settings.home / "pipelines"
    (folder / "broken.yaml").write_text(
        SUPPLIERS.replace("name: suppliers", "name: broken").replace("bigint", "bigimt")
    )
    (folder / "t.yaml").write_text(SUPPLIERS)
    (folder / "u.yaml").write_text(SUPPLIERS)
    (folder / "a b<i>.yml").write_text("{")
    (folder / "keyword.yaml").write_text(SUPPLIERS.replace("name: suppliers", "name: class"))
    after = specs(settings)
    assert {name: after[name] for name in before} == before
    broken = {name.removeprefix("broken_pipelines/"): after[name] for name in after.keys() - before.keys()}
    assert set(broken) == {"broken", "suppliers", "suppliers_2", "a_b_i_", "class"}
    for spec in broken.values():
        assert spec.group_name == "broken_pipelines"
        assert "yaml" in spec.kinds
        assert spec.owners == list(settings.owners)
    text = described(broken["broken"])
    assert "broken.yaml:6:columns.supplier\\_id.type: " in text
    assert "did you mean `bigint`?" in text
    assert "is taken by suppliers.yaml" in described(broken["suppliers"])
    assert "<i>" not in described(broken["a_b_i_"]).replace("`a b<i>.yml`", "")


def test_a_folder_that_cannot_be_listed_leaves_the_built_in_pipelines_and_is_shown(settings):
    folder = settings.home / "pipelines"
    (folder / "suppliers.yaml").unlink()
    folder.rmdir()
    folder.symlink_to("nowhere")
    after = specs(settings)
    assert set(after) == {*BUILT_IN, "broken_pipelines/pipelines_folder"}
    assert "cannot be listed: No such file" in described(after["broken_pipelines/pipelines_folder"])


@pytest.mark.parametrize(
    "name",
    [
        "dead_letter",
        "orders_2",
        "landing_2",
        "a",
        "x" * 64,
        "run_failures",
        "changed_pipelines",
        "missed_retries",
        "spark",
    ],
)
def test_whatever_name_is_valid_loads(settings, name):
    text = SUPPLIERS.replace("name: suppliers", f"name: {name}")
    (settings.home / "pipelines" / "other.yaml").write_text(text)
    assert {name, f"{name}_source"} <= set(specs(settings))


def test_a_pipeline_declared_over_rest_has_assets_and_broken_ones_unload_nothing(settings):
    films = {
        "source": {"type": "http", "id": ["id"]},
        "columns": {"id": "bigint"},
        "table": {"keys": ["id"]},
    }
    declarations = {
        "films": films,
        "suppliers": films,
        "no_source": {},
        "no_object": {"source": 7, "columns": [], "table": None, "transforms": {"": ""}},
        "not `a` *name*": films,
    }
    entries = [
        {"name": name, "tenant": "default", "revision": 1, "declaration": declaration}
        for name, declaration in declarations.items()
    ]
    snapshot_path(settings.home).write_text(json.dumps({"pipelines": entries}), "utf-8")
    found = specs(settings)
    broken = {name for name in found if name.startswith("broken_pipelines/")}
    assert set(found) - broken == {*BUILT_IN, *TABLES, "films_source", "films"}
    assert broken == {
        f"broken_pipelines/{name}"
        for name in ("suppliers", "no_source", "no_object", "not__a___name___REST_")
    }
    assert "over REST (`PUT /v1/pipelines/no_source`)" in described(found["broken_pipelines/no_source"])
