"""`etl-assets sql`, over one failure domain."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from etl_assets.cli.sql import sql
from etl_assets.errors import EtlAssetsError, FilesGone, NotFound, QueryRefused, StorageFailed
from etl_assets.settings import load_settings
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.tables import CATALOG
from etl_assets_tests.reference.written_tables import DAY, NOON, write_table

HARMFUL = 'a "b", [red]c[/red]\n\x1b[2J'


@pytest.fixture(autouse=True)
def domain(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    found = load_settings().placement().domains[0]
    write_table(
        found, "customers", [{"customer_id": f"c{n:03}", "customer_region": None} for n in range(120)]
    )
    write_table(found, "raw_events", [{"event_id": HARMFUL, "offset": 7}])
    return found


def printed(statement: str, *options: str, stdin: str | None = None) -> str:
    result = CliRunner().invoke(sql, [statement, *options], input=stdin)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def refused(statement: str, kind: type[EtlAssetsError] = QueryRefused) -> EtlAssetsError:
    result = CliRunner().invoke(sql, ["--", statement])
    assert type(result.exception) is kind, (result.output, result.exception)
    assert result.stdout == ""
    assert isinstance(result.exception, EtlAssetsError)
    assert "\n" not in result.exception.message
    return result.exception


def test_tables_are_joined_by_their_names_whatever_the_case_of_letters():
    statement = "SELECT COUNT(*) AS pairs FROM customers CROSS JOIN Raw_Events"
    assert json.loads(printed(statement, "--json")) == [{"pairs": 120}]


def test_a_table_that_is_not_named_is_not_opened(domain):
    (platform_table("raw_events", domain).path / "_delta_log" / f"{0:020d}.json").write_text("no log")
    assert json.loads(printed("select count(*) n from customers", "--json")) == [{"n": 120}]


def test_a_name_of_a_query_is_not_taken_for_the_table_of_that_name():
    statement = "with effects as (select 1 as one) select * from effects"
    assert json.loads(printed(statement, "--json")) == [{"one": 1}]


def test_the_statement_comes_from_stdin_with_its_comments_and_semicolon():
    statement = "-- all\nselect count(*) as n\nfrom customers; -- done;\n"
    assert json.loads(printed("-", "--json", stdin=statement)) == [{"n": 120}]


def test_rows_are_in_the_order_asked_for_and_cut_with_a_notice():
    ordered = "select customer_id from customers order by customer_id desc"
    result = CliRunner().invoke(sql, [ordered, "--limit", "2", "--json"])
    assert json.loads(result.stdout) == [{"customer_id": "c119"}, {"customer_id": "c118"}]
    assert result.stderr == "only the first 2 rows are shown; --limit 0 shows all\n"
    whole = CliRunner().invoke(sql, [f"{ordered} limit 2", "--limit", "2", "--json"])
    assert whole.stdout == result.stdout
    assert whole.stderr == ""


def test_a_table_for_people_ends_after_a_hundred_rows_and_what_machines_read_has_all():
    every = "select * from customers"
    result = CliRunner().invoke(sql, [every])
    assert result.stdout.count("c0") + result.stdout.count("c1") == 100
    assert "only the first 100 rows" in result.stderr
    assert printed(every, "--limit", "0").count("null") == 120
    assert len(printed(every, "--format", "jsonl").splitlines()) == 120
    assert len(printed(every, "--format", "csv").splitlines()) == 121
    assert len(json.loads(printed(every, "--format", "json"))) == 120


def test_texts_are_whole_for_machines_and_harmless_to_a_terminal():
    statement = (
        "select event_id, offset, occurred_at, partition_date, trace_id, '' as nothing from raw_events"
    )
    row = {
        "event_id": HARMFUL,
        "offset": 7,
        "occurred_at": NOON.isoformat(),
        "partition_date": DAY.isoformat(),
        "trace_id": None,
        "nothing": "",
    }
    assert json.loads(printed(statement, "--json")) == [row]
    (line,) = printed(statement, "--format", "jsonl").splitlines()
    assert json.loads(line) == row
    text = printed(statement, "--format", "csv")
    assert list(csv.DictReader(io.StringIO(text, newline=""))) == [
        {**row, "offset": "7", "trace_id": "", "nothing": ""}
    ]
    assert text.endswith(',,""\n'), "null is not an empty text"
    assert r'a "b", [red]c[/red]\n\x1b[2J' in printed(statement)


def test_values_of_every_type_are_json():
    statement = (
        "select map(make_array('a'), make_array(1)) as m, struct(1, null) as s, [1.5::double, 'NaN'::double,"
        " 'inf'::double] as l, x'00ff' as b,"
        " 12.50::decimal(38, 8) as d, true as t, null as n, now() as at, interval '1 day' as i"
    )
    (row,) = json.loads(printed(statement, "--json"))
    assert (row["m"], row["s"], row["l"]) == ({"a": 1}, {"c0": 1, "c1": None}, [1.5, "NaN", "Infinity"])
    assert (row["b"], row["d"], row["t"], row["n"]) == ("AP8=", "12.50000000", True, None)
    assert row["at"].startswith("20")


def test_two_columns_of_one_name_are_shown_side_by_side_and_are_no_json():
    statement = "select * from customers a join customers b on a.customer_id = b.customer_id limit 1"
    assert printed(statement, "--format", "csv").splitlines()[0].count("customer_id") == 2
    result = CliRunner().invoke(sql, [statement, "--json"])
    assert isinstance(result.exception, QueryRefused)
    assert "customer_id, customer_region" in result.exception.message
    assert result.stdout == ""


def test_a_terminal_that_is_too_narrow_shows_each_row_as_a_list(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    shown = printed("select event_id, offset, event_type, tenant_id, source from raw_events")
    assert shown.startswith("-- row 1\nevent_id    a")
    assert "\noffset      7\n" in shown


def test_a_statement_that_is_no_query_changes_nothing_and_reads_no_file(domain, tmp_path):
    secret, target = tmp_path / "secret.csv", tmp_path / "out.csv"
    secret.write_text("a,b\n1,2\n", "utf-8")
    before = {path: path.stat().st_mtime_ns for path in domain.root.rglob("*")}
    copy = f"copy (select 1 as a) to '{target}'"
    for statement in (
        "insert into customers values ('x', 'y')",
        "with one as (select 'x', 'y') insert into customers select * from one",
        "with one as (delete from customers returning *) select * from one",
        "update customers set customer_id = 'x'",
        "delete from customers",
        "merge into customers using raw_events on true when matched then delete",
        "truncate table customers",
        "drop table customers",
        "create table mine as select * from customers",
        "select * into mine from customers",
        "create view mine as select 1",
        f"create external table mine stored as csv location '{secret}'",
        "set datafusion.catalog.information_schema = true",
        "explain analyze select 1",
        "show tables",
        copy,
        f"select 1; {copy}",
        f"select 1); {copy}; (select 1",
        f"select 1); {copy}; --",
        f"select 1); {copy} /*",
        f"select $$a) $$; {copy}",
        f"/* */ {copy}",
        f"(select 1) {copy}",
        f"select 1 as a union all {copy}",
        f"select * from ({copy})",
        f"with a as ({copy}) select * from a",
        f"select * from read_csv('{secret}')",
        f"select * from read_parquet('{secret}')",
        f"select * from parquet_metadata('{secret}')",
        f"select * from delta_scan('{domain.root}')",
        f"select * from glob('{tmp_path}/*')",
        f"select read_text('{secret}')",
        f"load data inpath '{secret}' into table customers",
        "attach 'other.db'",
    ):
        refused(statement)
    for statement in (
        f"select * from '{secret}'",
        f'select * from "{secret}"',
        f'select * from "file://{secret}"',
        "select * from information_schema.tables",
    ):
        refused(statement, NotFound)
    assert not target.exists()
    assert {path: path.stat().st_mtime_ns for path in domain.root.rglob("*")} == before


@pytest.mark.parametrize(
    ("statement", "message", "fix"),
    [
        ("selec 1", "only queries can be run, not 'selec'", "did you mean SELECT?"),
        ("-- all\n drop table customers", "only queries can be run, not 'drop'", "SELECT, WITH or VALUES"),
        ("", "the statement is empty", "SELECT count(*) FROM orders"),
        (" -- nothing\n;", "the statement is empty", "SELECT count(*) FROM orders"),
        ("select 1; select 2", "there is a second statement in line 1, column 9", "one at a time"),
        (
            "select *\n  form customers",
            "syntax error in line 2, column 8: expected the end of the statement, found 'customers'",
            "correct it there",
        ),
        (
            "select * from customers where",
            "syntax error: expected an expression, found the end of the statement",
            "",
        ),
        ("select 'a", "syntax error in line 1, column 8: Unterminated string literal", "single quotes"),
        ("select custmer_id from customers", "there is no column custmer_id", "did you mean 'customer_id'?"),
        (
            "select 1 from customers c join raw_events r on c.customer_id = r.nothing",
            "there is no column r.nothing",
            "c.customer_region, r.offset",
        ),
        (
            'select * from customers where customer_id = "c1"',
            "there is no column c1",
            "a text stands in single quotes: 'c1'",
        ),
        ("select a", "there is no column a", "name a table after FROM"),
        ("select coun(*) from customers", "Invalid function 'coun'. Did you mean 'count'?", "DataFusion"),
        ("select sum(customer_id) from customers", "No function matches the given name", "DataFusion"),
        ("select 1 / 0", "Divide by zero error", "leave out rows"),
        (
            "select * from customers where customer_id = date '2026-01-01'",
            "Cannot cast string 'c000' to value of Date32 type",
            "correct the expression",
        ),
        ("from customers", "only queries can be run, not 'from'", "SELECT, WITH or VALUES"),
        ("select from customers", "the query gives no columns", "SELECT *"),
        (
            "select customer_id, from customers",
            "syntax error in line 1, column 26: expected an expression, found 'from'",
            "",
        ),
    ],
)
def test_an_error_in_a_statement_is_one_plain_line_with_the_fix(statement, message, fix):
    error = refused(statement)
    assert error.message.startswith(message)
    assert fix in error.fix


def test_an_unknown_table_names_the_near_one_and_all_and_one_not_made_yet_says_so():
    error = refused("select * from custmers", NotFound)
    assert error.message == "there is no table 'custmers'"
    assert error.fix.startswith("did you mean 'customers'? ")
    assert all(name in error.fix for name in CATALOG.names)
    assert "did you mean 'customers'" in refused("select * from raw.customers", NotFound).fix
    assert "not there yet" in refused("select * from audit_log", NotFound).message


def test_a_data_file_that_is_gone_or_damaged_is_named(domain):
    folder = platform_table("customers", domain).path
    (file,) = DeltaTable(str(folder)).file_uris()
    Path(file).write_bytes(b"x" * 1000)
    assert "customers" in refused("select * from customers", StorageFailed).message
    Path(file).unlink()
    assert Path(file).name in refused("select * from customers", FilesGone).message


def test_a_log_that_is_damaged_is_named(domain):
    entry = platform_table("customers", domain).path / "_delta_log" / f"{0:020d}.json"
    entry.write_text("{", "utf-8")
    assert "the log of customers" in refused("select * from customers", StorageFailed).message


def test_a_statement_that_is_not_utf_8_is_refused():
    result = CliRunner().invoke(sql, ["-"], input=b"select 'M\xfcnchen'")
    assert isinstance(result.exception, QueryRefused)
    assert "not UTF-8" in refused("select 'M\udcfcnchen'").message
    assert json.loads(printed("-", "--json", stdin="select 'München' as city")) == [{"city": "München"}]


def test_exit_codes_are_those_of_every_command():
    assert called("select 1").returncode == 0
    wrong = called("select * from nowhere")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.startswith("error: NotFound: there is no table 'nowhere'\n  fix: ")
    assert called("select 1", "--json", "--format", "csv").returncode == 2
    assert called("select 1", "--format", "xml").returncode == 2
    assert called("select 1", "--limit", "-1").returncode == 2


def test_ctrl_c_ends_a_query_at_once():
    endless = (
        "select count(*) from generate_series(1, 9000000) a, generate_series(1, 9000000) b where a.value % 7"
        " + b.value > 5"
    )
    command = [sys.executable, "-m", "etl_assets.cli.main", "sql", endless]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as query:
        try:
            deadline = time.monotonic() + 30
            while cpu_seconds(query.pid) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            query.send_signal(signal.SIGINT)
            assert query.wait(5) == -signal.SIGINT
        finally:
            query.kill()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def called(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "etl_assets.cli.main", "sql", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


PAGES = Path(__file__).parents[2] / "docs"
STATEMENTS = sorted(
    {
        found
        for name in ("read-the-tables.md", "cli.md", "../README.md")
        for found in re.findall(r'etl-assets sql "(.+?)"', (PAGES / name).read_text("utf-8"))
        if "…" not in found
    }
)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_statements_of_the_documentation_run(domain, statement):
    for name in CATALOG.names:
        if platform_table(name, domain).version() < 0:
            write_table(domain, name, [{}])
    printed(statement, "--format", "csv")


def test_the_python_of_the_documentation_runs(domain):
    """Without its last line, which needs Spark: `spark/test_open_table.py`."""
    block = re.search(
        r"```python\nimport etl_assets\n.*?```", (PAGES / "read-the-tables.md").read_text("utf-8"), re.DOTALL
    )
    assert block is not None
    *lines, spark = block[0].splitlines()[1:-1]
    assert spark.startswith("events.spark(")
    exec("\n".join(lines), {})
