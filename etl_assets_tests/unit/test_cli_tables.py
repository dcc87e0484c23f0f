"""`etl-assets tables`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from etl_assets.cli.tables import tables
from etl_assets.settings import load_settings
from etl_assets_tests.reference.tables import ALL_TABLES
from etl_assets_tests.reference.written_tables import DAY, write_table


@pytest.fixture
def domain(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return load_settings().placement().domains[0]


def printed(*options: str):
    result = CliRunner().invoke(tables, options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in options else result.stdout


def test_before_the_first_run_every_table_is_listed_as_absent(domain, tmp_path):
    (tmp_path / "landing").mkdir()
    states = printed("--json")
    assert [state["name"] for state in states] == [contract.name for contract in ALL_TABLES]
    assert {(state["version"], state["rows"], state["last_commit_at"]) for state in states} == {
        (None, 0, None)
    }
    assert not domain.root.exists()


def test_a_table_tells_where_it_is_and_what_it_has_consumed(domain):
    write_table(domain, "raw_events", [{"offset": 0}, {"offset": 1}], {"files": 0})
    write_table(domain, "normalized_orders", [{"offset": 0}], {"raw_events/2026-03-01": 7})
    states = {state["name"]: state for state in printed("--json")}
    raw, orders = states["raw_events"], states["normalized_orders"]
    assert (raw["version"], raw["rows"], raw["cursor"]) == (0, 2, {"files": 0})
    assert (orders["version"], orders["rows"], orders["cursor"]) == (0, 1, {"raw_events/2026-03-01": 7})
    assert DeltaTable(raw["uri"], version=raw["version"]).count() == raw["rows"]
    assert raw["last_commit_at"].endswith("+00:00")


def test_the_view_has_one_cursor_on_all_days(domain):
    write_table(domain, "warehouse_rows", [{}])
    write_table(domain, "order_status_view", [{}], {"warehouse_rows/*": 4})
    states = {state["name"]: state for state in printed("--json")}
    assert states["order_status_view"]["cursor"] == {"warehouse_rows/*": 4}


def test_people_see_whole_names_and_versions_over_days_on_a_narrow_screen(domain, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    write_table(domain, "raw_events", [{"partition_date": day(1)}, {"partition_date": day(2)}])
    write_table(domain, "normalized_orders", [{}], {"raw_events/2026-03-01": 3})
    write_table(domain, "normalized_orders", [{}], {"raw_events/2026-03-02": 5})
    shown = printed()
    assert "normalized_orders has read raw_events 3 to 5 (2 days)" in shown
    assert "normalized_orders_exceptions" in shown


def test_the_quick_commands_import_neither_dagster_nor_spark_nor_pandas():
    code = (
        "import sys, etl_assets.cli.tables, etl_assets.cli.trace, etl_assets.cli.dead_letters,"
        " etl_assets.cli.doctor\n"
        "import etl_assets.orders.event_history, etl_assets.observability.table_states\n"
        "import etl_assets.cli.sql, etl_assets.cli.result_formats, etl_assets.query.sql\n"
        "import etl_assets.observability.submit_replays, etl_assets.observability.diagnosis\n"
        "print({'dagster', 'pyspark', 'pandas', 'pandera'} & sys.modules.keys())"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "set()\n"


def day(number: int):
    return DAY.replace(day=number)
