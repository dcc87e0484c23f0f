"""`open_table` and `tables path`, over one failure domain: every reader has exactly the version that was
opened.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import etl_assets
from etl_assets.cli.tables import tables
from etl_assets.delta.log.entries import entry_path
from etl_assets.errors import NoInstallation, NotFound, QueryRefused, RuntimeMissing
from etl_assets.query.sql import run_query
from etl_assets.settings import load_settings
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.written_tables import write_table


@pytest.fixture
def domain(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    found = load_settings().placement().domains[0]
    write_table(found, "customers", [{"customer_id": "a", "customer_region": "EU"}, {"customer_id": "b"}])
    return found


def test_every_reader_reads_the_version_that_was_opened(domain):
    opened = etl_assets.open_table("customers")
    write_table(domain, "customers", [{"customer_id": "later"}])

    assert (opened.version, opened.domain) == (0, domain.name)
    assert opened.uri == str(platform_table("customers", domain).path)
    assert sorted(opened.pandas()["customer_id"]) == ["a", "b"]
    assert list(opened.pandas(["customer_region"]).columns) == ["customer_region"]
    assert sorted(opened.polars().select("customer_id").collect()["customer_id"]) == ["a", "b"]
    assert opened.dataset().count_rows() == 2
    assert (opened.delta().version(), opened.delta().count()) == (0, 2)
    assert etl_assets.open_table("customers").version == 1


def test_times_that_spark_wrote_are_right_in_any_year_but_by_polars(domain):
    """In Spark's old form, INT96, of which readers make nanoseconds by default: those end in the year
    2262.
    """
    times = [
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    ]
    write_table(domain, "raw_events", [{"occurred_at": time} for time in times])
    opened = etl_assets.open_table("raw_events")
    (file,) = (Path(uri) for uri in opened.delta().file_uris())
    rows = pq.ParquetFile(file).read()
    pq.write_table(rows, file, use_deprecated_int96_timestamps=True, store_schema=False)
    entry = entry_path(Path(opened.uri), 0)
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for added in (action["add"] for action in actions if "add" in action):
        added |= {"size": file.stat().st_size, "stats": json.dumps({"numRecords": 2})}
    entry.write_text("".join(f"{json.dumps(action)}\n" for action in actions))

    opened = etl_assets.open_table("raw_events")
    assert opened.dataset().to_table().column("occurred_at").to_pylist() == times
    assert [time.to_pydatetime() for time in opened.pandas()["occurred_at"]] == times
    later = run_query("select occurred_at from raw_events where occurred_at > now()", domain)
    assert [row["occurred_at"] for batch in later.batches() for row in batch.to_pylist()] == times[1:]


def test_a_home_folder_may_be_named(domain, tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(NoInstallation):
        etl_assets.open_table("customers")
    assert etl_assets.open_table("customers", home=tmp_path).version == 0


def test_a_table_that_is_not_there_is_named(domain):
    with pytest.raises(NotFound, match="did you mean 'customers'"):
        etl_assets.open_table("custmers")
    with pytest.raises(NotFound, match="audit_log is not there yet"):
        etl_assets.open_table("audit_log")
    with pytest.raises(QueryRefused, match="did you mean 'customer_id'"):
        etl_assets.open_table("customers").pandas(["custmer_id"])


@pytest.mark.parametrize(("method", "module"), [("polars", "polars"), ("pandas", "pandas")])
def test_what_is_not_installed_is_named(domain, monkeypatch, method, module):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else found(name))
    with pytest.raises(RuntimeMissing, match=f"pip install {module}"):
        getattr(etl_assets.open_table("customers"), method)()


def test_the_path_of_a_table_is_printed_with_its_version(domain):
    uri = str(platform_table("customers", domain).path)
    assert CliRunner().invoke(tables, ["path", "customers"]).stdout == f"{uri}\n"
    told = json.loads(CliRunner().invoke(tables, ["path", "customers", "--json"]).stdout)
    assert told == {"name": "customers", "uri": uri, "version": 0, "domain": domain.name}


def test_to_import_and_to_open_loads_nothing_that_is_not_used(domain):
    code = (
        "import sys, etl_assets\n"
        "light = {'deltalake', 'pyarrow', 'pydantic', 'yaml', 'click'} & sys.modules.keys()\n"
        "etl_assets.open_table('customers').delta()\n"
        "print(light, {'dagster', 'pyspark', 'pandas', 'polars', 'pandera'} & sys.modules.keys())"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "set() set()\n"
