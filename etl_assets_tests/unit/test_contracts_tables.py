"""The platform's tables fit together, and what is written about them is what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from etl_assets import tables_documentation as documentation
from etl_assets.contracts.reasons import OUTCOME_MEANINGS, REASON_MEANINGS, DeadLetterReason, Outcome
from etl_assets.contracts.rules import first_violation
from etl_assets.errors import NotFound
from etl_assets.markdown_table import markdown_table
from etl_assets.orders.order_status import OrderStatus
from etl_assets.orders.tables.normalized_orders import NORMALIZED_ORDERS
from etl_assets.orders.tables.order_status_view import ORDER_STATUS_VIEW
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS
from etl_assets_tests.reference.tables import ALL_TABLES, CATALOG

ROOT = Path(__file__).parents[2]

MERGE_KEYS = {
    "raw_events": ("event_id",),
    "normalized_orders": ("event_id",),
    "warehouse_rows": ("warehouse_key",),
    "order_status_view": ("tenant_id", "order_id"),
    "customers": ("customer_id",),
    "raw_events_exceptions": ("exception_id",),
    "normalized_orders_exceptions": ("exception_id",),
    "dead_letters": ("dead_letter_id",),
    "audit_log": ("stage", "event_id", "source", "source_position", "attempt"),
    "replays": ("dead_letter_id", "attempt", "batch_id"),
    "capture_states": ("capture", "source_table"),
    "effects": ("sink", "key"),
}

each_table = pytest.mark.parametrize("contract", ALL_TABLES, ids=lambda contract: contract.name)


def test_there_are_these_tables_with_these_keys():
    assert {contract.name: contract.merge_key for contract in ALL_TABLES} == MERGE_KEYS


@each_table
def test_every_column_comes_from_columns_that_exist(contract):
    for sources in contract.lineage().values():
        for source in sources:
            assert CATALOG.table(source.table).column(source.column)


@each_table
def test_a_copied_column_has_the_type_it_has_where_it_comes_from(contract):
    for column in contract.columns:
        copied_from = [source for source in column.sources if source.column == column.name]
        for source in copied_from:
            assert column.type == CATALOG.table(source.table).column(source.column).type


@each_table
def test_every_table_of_days_is_partitioned_by_day_and_stamped_with_its_batch(contract):
    stamped = contract.name not in ("order_status_view", "customers", "capture_states", "effects")
    assert (contract.names[-2:] == ("batch_id", "partition_date")) is stamped
    assert ("partition_date" in contract.delta_partition) is stamped


def test_a_warehouse_row_has_all_that_is_known_of_an_order_event():
    own_to_the_stage = {"offset", "raw_offset", "transformer", "transform_domain"}
    assert set(NORMALIZED_ORDERS.names) - own_to_the_stage <= set(WAREHOUSE_ROWS.names)


def test_the_exceptions_of_all_stages_have_one_shape():
    shapes = {
        tuple((c.name, c.type, c.nullable, c.rules, c.description) for c in CATALOG.table(name).columns)
        for name in ("raw_events_exceptions", "normalized_orders_exceptions")
    }
    assert len(shapes) == 1


def test_no_tenant_can_make_two_events_share_a_warehouse_key():
    # "a/b" with "c" and "a" with "b/c" would both be warehouse://orders/a/b/c.
    assert "tenant_id must not contain \\u0027/\\u0027" in first_violation(RAW_EVENTS.columns)


def test_a_sum_of_many_of_the_greatest_amounts_fits_its_column():
    view = ORDER_STATUS_VIEW
    assert view.column("order_total").type == view.column("paid_total").type == "DECIMAL(28,2)"


def test_an_unknown_table_is_answered_with_the_near_miss():
    assert CATALOG.table("raw_events") is RAW_EVENTS
    with pytest.raises(NotFound, match="did you mean 'raw_events'"):
        CATALOG.table("raw_event")
    with pytest.raises(NotFound, match="use one of raw_events"):
        CATALOG.table("zzz")


def test_a_status_ranks_by_its_place_in_the_life_of_an_order():
    assert sorted(OrderStatus, key=lambda status: status.rank) == [
        "created",
        "paid",
        "shipped",
        "delivered",
        "canceled",
    ]


def test_every_word_has_its_meaning():
    assert set(REASON_MEANINGS) == set(DeadLetterReason)
    assert set(OUTCOME_MEANINGS) == set(Outcome)


def test_the_page_about_the_tables_is_up_to_date():
    page = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    assert page == documentation.render(), (
        "write it again: python -m etl_assets.tables_documentation > docs/tables.md"
    )


@each_table
def test_the_page_has_every_column_of_every_table(contract):
    section = documentation.render_table(contract)
    assert all(f"| `{name}` |" in section for name in contract.names)


def test_a_bar_in_a_text_does_not_break_the_page():
    assert next(markdown_table(["a|b", "c"], [])) == "| a\\|b | c |"


def test_importing_the_contracts_imports_neither_spark_nor_pandera_nor_dagster():
    program = (
        "import sys, pkgutil, importlib, etl_assets.contracts as contracts\n"
        "for module in pkgutil.walk_packages(contracts.__path__, contracts.__name__ + '.'):\n"
        "    importlib.import_module(module.name)\n"
        "heavy = {'pyspark', 'pandera', 'dagster', 'pandas', 'pydantic', 'deltalake'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"
