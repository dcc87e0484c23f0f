"""What the declarations of pipelines say together."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import etl_assets.pipelines
from etl_assets.contracts.columns import Column, TableContract
from etl_assets.errors import ContractError, NotFound
from etl_assets.pipelines.catalog import Catalog
from etl_assets.pipelines.pipeline import Pipeline
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.pipelines.stage import Stage
from etl_assets_tests.reference.tables import CATALOG

FOLDER = Path(etl_assets.pipelines.__file__).parent


def table(name: str) -> TableContract:
    return TableContract(
        name=name,
        description="Rows of a test.",
        columns=(Column("key", "STRING", "The key."),),
        merge_key=("key",),
    )


def no_step(arguments: Any) -> Any:
    raise AssertionError(arguments)


def stage(name: str, *inputs: str, rejects: str | None = None, **fields: Any) -> Stage:
    rejected = None if rejects is None else table(rejects)
    return Stage(
        table=table(name), build_step=no_step, group="test", inputs=inputs, rejects=rejected, **fields
    )


VISITS = Pipeline(
    name="visits",
    path=(
        stage("visits", rejects="visits_rejects", placement=PlacementClass.INGEST),
        stage("sessions", "visits", rejects="sessions_rejects"),
        stage("reports", "sessions", placement=PlacementClass.SINK),
    ),
    derived=(stage("totals", "reports"), stage("complaints", "visits_rejects", "sessions_rejects")),
)
BOTH = Catalog(pipelines=(*CATALOG.pipelines, VISITS), system_tables=CATALOG.system_tables)


def test_a_catalog_has_the_tables_of_all_pipelines_and_of_the_platform():
    assert set(BOTH.names) == set(CATALOG.names) | {
        "visits", "visits_rejects", "sessions", "sessions_rejects", "reports", "totals", "complaints",
    }  # fmt: skip
    assert BOTH.names[-2:] == ("replays", "effects")
    assert BOTH.names.index("visits") > BOTH.names.index("raw_events")


def test_what_is_made_of_a_table_comes_after_it_and_ends_with_its_pipeline():
    assert BOTH.downstream_of(["sessions"]) == (
        "sessions", "sessions_rejects", "reports", "totals", "complaints",
    )  # fmt: skip
    assert BOTH.downstream_of(["reports"]) == ("reports", "totals")
    assert BOTH.downstream_of(["visits"]) == ("visits", *BOTH.downstream_of(["sessions"]))
    assert BOTH.downstream_of(["effects"]) == ("effects",)
    assert BOTH.made_again_from(["visits"]) == ("sessions", "reports", "totals", "complaints")
    assert set(BOTH.downstream_of(["raw_events"])) < set(CATALOG.names)


def test_the_records_of_a_table_come_from_the_sources_before_it():
    def opened(*_: object) -> Any:
        raise AssertionError

    visits = replace(VISITS, path=(replace(VISITS.path[0], source=opened), *VISITS.path[1:]))
    both = Catalog(pipelines=(*CATALOG.pipelines, visits), system_tables=CATALOG.system_tables)
    assert both.sources_of(["totals"]) == both.sources_of(["sessions"]) == ("visits",)
    assert both.sources_of(["complaints"]) == ("visits",), "by the rejected rows of two stages"
    assert both.sources_of(["normalized_orders"]) == ("raw_events",)
    assert set(both.sources_of(["totals", "normalized_orders"])) == {"visits", "raw_events"}


def test_a_table_of_rejected_rows_belongs_to_the_stage_that_writes_it():
    sessions = BOTH.stage("sessions")
    assert BOTH.stage_of("sessions_rejects") is sessions
    assert BOTH.placement_of("visits_rejects") is PlacementClass.INGEST
    assert BOTH.inputs_of("sessions_rejects") == ()
    assert BOTH.rejects_of_source("visits_rejects") is BOTH.stage("visits")
    assert BOTH.rejects_of_source("sessions_rejects") is None, "its stage reads a table"
    with pytest.raises(NotFound, match="no stage writes 'sessions_rejects'"):
        BOTH.stage("sessions_rejects")


def test_an_unknown_name_is_answered_with_the_near_miss():
    with pytest.raises(NotFound, match="did you mean 'visits'"):
        BOTH.table("visit")
    with pytest.raises(NotFound, match="did you mean 'visits'"):
        BOTH.placement_of("visit")
    with pytest.raises(NotFound, match="none: there is none"):
        Catalog().table("visits")


def test_a_table_is_declared_once():
    with pytest.raises(ContractError, match="the table visits is declared more than once"):
        Catalog(pipelines=(VISITS, Pipeline(name="other", path=(stage("visits"),))))
    with pytest.raises(ContractError, match="the table effects is declared more than once"):
        replace(CATALOG, pipelines=(Pipeline(name="mine", path=(stage("effects"),)),))


def test_an_input_is_a_table_of_the_catalog():
    with pytest.raises(ContractError, match="sessions reads 'visit', which is no table") as error:
        Catalog(pipelines=(Pipeline(name="typo", path=(stage("visits"), stage("sessions", "visit"))),))
    assert error.value.fix == "did you mean 'visits'?"


def test_a_lookup_is_a_table_of_the_catalog():
    with pytest.raises(ContractError, match="sessions reads 'countries', which is no table"):
        Catalog(pipelines=(Pipeline(name="typo", path=(stage("sessions", lookups=("countries",)),)),))


def test_orders_are_made_in_the_order_of_the_data_path():
    assert [each.name for each in CATALOG.stages] == [
        "customers", "raw_events", "normalized_orders", "warehouse_rows",
        "order_status_view", "audit_log", "dead_letters",
    ]  # fmt: skip
    assert CATALOG.made_again == (
        "normalized_orders", "warehouse_rows", "order_status_view", "audit_log", "dead_letters",
    )  # fmt: skip
    assert CATALOG.reference == ("customers",)


@pytest.mark.parametrize("module", sorted(FOLDER.glob("*.py")), ids=lambda module: module.stem)
def test_pipelines_know_no_spark_no_dagster_and_no_table_of_a_pipeline(module):
    tree = ast.parse(module.read_text())
    deferred = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    names = [
        node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node not in deferred
    ]
    allowed = (
        "etl_assets.contracts",
        "etl_assets.errors",
        "etl_assets.pipelines",
        # The write modes of a table, the variables that a file names, and YAML.
        "etl_assets.delta.write.write_spec",
        "etl_assets.environment",
        "etl_assets.yaml_content",
    )
    for name in names:
        assert name.split(".")[0] not in ("dagster", "pyspark", "delta", "deltalake"), name
        assert not name.startswith("etl_assets") or name.startswith(allowed), name
    assert "orders" not in module.read_text().replace("etl_assets/orders/", "")
