"""What Dagster is told of the platform, and that it can be told without Spark, warnings or imports the wrong
way.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.asset_selection import CodeLocationAssetSelection
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.remote_representation.external_data import SensorSnap

import etl_assets
from etl_assets.build import build_definitions
from etl_assets.settings import load_settings
from etl_assets_tests.reference.tables import CATALOG

PACKAGE = Path(etl_assets.__file__).parent
DAILY = {"raw_events", "normalized_orders", "warehouse_rows", "dead_letters", "audit_log"}
WITHOUT_DAYS = {"customers", "order_status_view"}


@pytest.fixture
def nodes() -> dict[str, dg.AssetsDefinition]:
    definitions = build_definitions(load_settings())
    found = [asset for asset in definitions.assets or () if isinstance(asset, dg.AssetsDefinition)]
    return {asset.key.to_user_string(): asset for asset in found}


def test_the_platform_has_exactly_the_assets_of_its_data_path(nodes):
    assert set(nodes) == DAILY | WITHOUT_DAYS


@pytest.mark.parametrize("name", sorted(DAILY | WITHOUT_DAYS))
def test_every_asset_tells_what_it_is_and_whose(nodes, name):
    spec = nodes[name].specs_by_key[dg.AssetKey(name)]
    assert spec.description
    assert spec.owners
    assert {"pyspark", "deltalake"} <= spec.kinds
    assert spec.group_name in {"reference", "ingest", "transform", "sink", "observe"}
    assert spec.freshness_policy is not None
    assert (spec.partitions_def is not None) == (name in DAILY)


@pytest.mark.parametrize("name", sorted(DAILY | WITHOUT_DAYS))
def test_every_asset_is_repeated_with_jitter_and_written_by_one_run_at_a_time(nodes, name):
    op = nodes[name].op
    assert op.retry_policy is not None
    assert op.retry_policy.backoff is dg.Backoff.EXPONENTIAL
    assert op.retry_policy.jitter is dg.Jitter.FULL
    assert op.pool == name


@pytest.mark.parametrize("name", sorted(DAILY))
def test_a_backfill_holds_a_bounded_number_of_days_in_a_run(nodes, name):
    policy = nodes[name].backfill_policy
    assert policy is not None
    assert policy.max_partitions_per_run == load_settings().runs.max_days_per_run


@pytest.mark.parametrize("name", sorted(DAILY | WITHOUT_DAYS))
def test_every_asset_shows_the_columns_of_its_contract_with_their_meaning(nodes, name):
    schema = nodes[name].metadata_by_key[dg.AssetKey(name)]["dagster/column_schema"]
    contract = CATALOG.table(name)
    assert [column.name for column in schema.columns] == list(contract.names)
    assert all(column.description and column.type for column in schema.columns)


def test_column_lineage_names_columns_that_exist(nodes):
    seen = 0
    for name, asset in nodes.items():
        lineage = asset.metadata_by_key[dg.AssetKey(name)].get("dagster/column_lineage")
        for column, sources in lineage.deps_by_column.items() if lineage else ():
            assert column in CATALOG.table(name).names
            for source in sources:
                table = source.asset_key.to_user_string()
                assert table in nodes
                known = {*CATALOG.table(table).names}
                known |= {
                    column
                    for each in CATALOG.tables
                    if each.name == f"{table}_exceptions"
                    for column in each.names
                }
                assert source.column_name in known, (name, column, table, source.column_name)
                seen += 1
    assert seen > 50


def test_every_table_has_a_check_of_its_full_contract_and_the_path_has_blocking_ones():
    specs = [
        spec
        for checks in build_definitions(load_settings()).asset_checks or ()
        for spec in checks.check_specs
    ]
    assert {
        spec.asset_key.to_user_string() for spec in specs if spec.name == "contract"
    } == DAILY | WITHOUT_DAYS
    assert {(spec.asset_key.to_user_string(), spec.name) for spec in specs if spec.blocking} == {
        ("raw_events", "dense_offsets"),
        ("normalized_orders", "dense_offsets"),
        ("normalized_orders", "nothing_lost"),
        ("warehouse_rows", "all_committed"),
    }


def test_runs_of_the_landing_sensor_evaluate_every_check_of_their_assets():
    repository = build_definitions(load_settings()).get_repository_def()
    job = repository.get_sensor_def("landing_files").job
    assert isinstance(job, UnresolvedAssetJobDefinition)
    selection = job.selection
    graph = repository.asset_graph
    assert {key.to_user_string() for key in selection.resolve(graph)} == DAILY | WITHOUT_DAYS
    assert selection.resolve_checks(graph) == graph.asset_check_keys


def test_what_a_sensor_starts_is_shown_by_name():
    repository = build_definitions(load_settings()).get_repository_def()
    here = CodeLocationAssetSelection(selected_code_location="etl_assets")
    selections = [
        SensorSnap.from_def(sensor, repository).asset_selection for sensor in repository.sensor_defs
    ]
    shown = [str(each & here) for each in selections if each is not None]
    assert len(shown) == 2
    assert not any("Selection(" in text for text in shown), shown


def test_definitions_load_without_a_warning_a_spark_session_or_pandera(tmp_path):
    """In a process of its own, as Dagster loads them; also nothing is written by loading."""
    code = (
        "import sys, etl_assets.definitions as d;"
        "d.defs.get_repository_def().load_all_definitions();"
        "from py4j.java_gateway import JavaGateway;"
        "from pyspark import SparkContext;"
        "assert SparkContext._gateway is None;"
        "assert 'pandera.pyspark' not in sys.modules"
    )
    home = tmp_path / "home"
    done = subprocess.run(
        [sys.executable, "-W", "error", *_KNOWN_IN_DAGSTER, "-c", code],
        env={**os.environ, "ETL_ASSETS_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stderr == ""
    assert not home.exists()


# Python 3.12 and later deprecate what Dagster uses; see pyproject.toml.
_KNOWN_IN_DAGSTER = ("-W", "ignore::DeprecationWarning")

FORBIDDEN = {
    "contracts": {"dagster", "pyspark", "dagster_pyspark", "pandera"},
    "placement": {"dagster", "pyspark", "dagster_pyspark"},
    "errors.py": {"dagster", "pyspark", "dagster_pyspark"},
    "settings": {"dagster", "pyspark", "dagster_pyspark"},
    "error_policy.py": {"dagster", "pyspark", "dagster_pyspark"},
    "pipelines": {"dagster", "pyspark", "dagster_pyspark"},
    "orders/tables": {"dagster", "pyspark", "dagster_pyspark"},
    "orders/pipeline.py": {"dagster", "pyspark", "dagster_pyspark"},
    "orders/event_history.py": {"dagster", "pyspark", "dagster_pyspark"},
    "orders/history_entries.py": {"dagster", "pyspark", "dagster_pyspark"},
    "orders/invariants.py": {"dagster", "pyspark", "dagster_pyspark"},
    "orders/missing_rows.py": {"dagster", "pyspark", "dagster_pyspark"},
    "orders/transforms": {"dagster", "dagster_pyspark"},
    "orders/steps": {"dagster", "dagster_pyspark"},
    "orders/generator": {"dagster", "pyspark", "dagster_pyspark"},
    "transforms": {"dagster", "dagster_pyspark"},
    "delta": {"dagster", "dagster_pyspark"},
    "sources": {"dagster", "dagster_pyspark", "pyspark"},
    "sinks": {"dagster", "dagster_pyspark", "pyspark"},
    "serve": {"dagster", "dagster_pyspark", "pyspark"},
    "control/routes": {"dagster", "dagster_pyspark", "pyspark"},
    "control/page": {"dagster", "dagster_pyspark", "pyspark"},
    "stack": {"dagster", "dagster_pyspark", "pyspark"},
    "ingest": {"dagster", "dagster_pyspark"},
    "compute": {"dagster", "dagster_pyspark"},
    "undo": {"dagster", "dagster_pyspark", "pyspark"},
    "replicas": {"dagster", "dagster_pyspark", "pyspark"},
    "query": {"dagster", "dagster_pyspark", "pyspark"},
    "steps": {"dagster", "dagster_pyspark"},
    "observability": {"dagster", "dagster_pyspark", "pyspark"},
}
"""Part of the package to what it must not import when it is imported itself."""

DAGSTER_LAYER = {
    "assets",
    "io_managers",
    "resources",
    "checks",
    "sensors",
    "jobs",
    "build",
    "definitions",
    "automation",
}
BELOW_DAGSTER = (
    "contracts",
    "placement",
    "errors.py",
    "transforms",
    "delta",
    "sources",
    "sinks",
    "serve",
    "control/routes",
    "control/page",
    "stack",
    "pipelines",
    "orders/tables",
    "orders/pipeline.py",
    "orders/event_history.py",
    "orders/history_entries.py",
    "orders/invariants.py",
    "orders/missing_rows.py",
    "orders/transforms",
    "orders/steps",
    "ingest",
    "compute",
    "undo",
    "replicas",
    "query",
    "steps",
    "observability",
)


@pytest.mark.parametrize("part", sorted(FORBIDDEN))
def test_imports_point_one_way(part):
    offenders = [
        f"{file.relative_to(PACKAGE)}: {module}"
        for file in _files(part)
        for module in _imports(ast.parse(file.read_text("utf-8")).body)
        if module.partition(".")[0] in FORBIDDEN[part]
    ]
    assert offenders == []


@pytest.mark.parametrize("part", BELOW_DAGSTER)
def test_what_lies_below_never_imports_the_dagster_layer_not_even_inside_a_function(part):
    offenders = [
        f"{file.relative_to(PACKAGE)}: {module}"
        for file in _files(part)
        for module in _imports(list(ast.walk(ast.parse(file.read_text("utf-8")))))
        if module.partition(".")[0] == "dagster" or _part_of(module) in DAGSTER_LAYER
    ]
    assert offenders == []


def _files(part: str) -> list[Path]:
    path = PACKAGE / part
    found = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert found, f"{part} has no modules"
    return found


def _imports(nodes: list[ast.stmt] | list[ast.AST]) -> Iterator[str]:
    """Modules that are imported by statements, of which those for type checkers alone are left out."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def _part_of(module: str) -> str | None:
    names = module.split(".")
    return names[1] if names[0] == "etl_assets" and len(names) > 1 else None
