"""`etl-assets doctor`: it finds what is broken, and works while it is broken."""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import socket
import time

import pytest
from click.testing import CliRunner

from etl_assets.cli.doctor import doctor
from etl_assets.errors import RuntimeMissing
from etl_assets.observability import machine_checks
from etl_assets.observability.findings import answer
from etl_assets.observability.installation_checks import check_landing, check_locks, check_writing
from etl_assets.processes import started_at
from etl_assets.runtime.classes import archive_file, failed_mark
from etl_assets.settings import load_settings
from etl_assets_tests.reference.written_tables import write_table


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    monkeypatch.setattr(machine_checks, "find_java", lambda: java(tmp_path))
    monkeypatch.setattr(machine_checks, "delta_jars", lambda *, thorough: (tmp_path / "a.jar",))
    (tmp_path / "a.jar").write_bytes(b"")
    (tmp_path / "landing").mkdir()
    return tmp_path


def java(home):
    from etl_assets.runtime.java import Java

    return Java(home=home, version=17, release="17.0.1")


def diagnosis(code: int = 0):
    result = CliRunner().invoke(doctor, ["--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def found(findings, check: str):
    return [
        (finding["status"], finding["detail"], finding["fix"])
        for finding in findings
        if finding["check"] == check
    ]


def missing(*args, **kwargs):
    raise RuntimeMissing("it was not found", fix="install it")


def test_a_fresh_installation_is_well_and_stays_untouched(home):
    before = sorted(home.rglob("*"))
    findings = diagnosis()
    assert {finding["status"] for finding in findings} <= {"ok", "warn"}
    assert {finding["check"] for finding in findings} == {
        "settings",
        "installation",
        "packages",
        "java",
        "jars",
        "disk",
        "write access",
        "clock",
        "connection slots",
        "landing folder",
        "pipelines",
        "locks",
        "engine",
        "run control",
        "unfinished work",
        "sources",
        "dagster instance",
    }
    assert sorted(home.rglob("*")) == before


def test_people_read_a_line_a_check(home):
    result = CliRunner().invoke(doctor, [])
    assert "ok   java              Java 17.0.1 in " in result.stdout


def test_without_java_all_else_is_still_checked(home, monkeypatch):
    monkeypatch.setattr(machine_checks, "find_java", missing)
    findings = diagnosis(code=1)
    assert found(findings, "java") == [("fail", "it was not found", "install it")]
    assert [status for status, *_ in found(findings, "jars")] == ["ok"]
    assert found(findings, "dagster instance")


PIPELINE = """\
name: suppliers
source: {type: files, path: "in/*.csv"}
columns: {number: bigint}
table: {keys: [number]}
"""


def test_each_pipeline_file_that_cannot_be_used_is_a_failure_with_its_first_problem(home):
    folder = home / "pipelines"
    folder.mkdir()
    (folder / "suppliers.yaml").write_text(PIPELINE)
    assert found(diagnosis(), "pipelines") == [("ok", "1 file", None)]
    (folder / "goods.yaml").write_text("nme: goods\n")
    (folder / "goods 2.yaml").write_text(PIPELINE.replace("suppliers", "goods").replace("bigint", "bigimt"))
    ((_, second, fix), (status, detail, other)) = found(diagnosis(code=1), "pipelines")
    assert second.startswith("goods 2.yaml:3:columns.number.type: `type`: `bigimt` is wrong: ")
    assert fix.endswith(f"; `etl-assets pipelines validate '{folder}/goods 2.yaml'`")
    assert status == "fail"
    assert detail.startswith("goods.yaml:1:")
    assert ", and 4 more" in detail
    assert other.endswith("; `etl-assets pipelines validate goods`")


def test_a_folder_of_pipelines_that_cannot_be_listed_is_a_failure(home):
    (home / "pipelines").write_text("")
    ((status, detail, fix),) = found(diagnosis(code=1), "pipelines")
    assert status == "fail"
    assert detail == f"{home}/pipelines cannot be listed: Not a directory: no pipeline in there runs"
    assert fix.startswith("let this user read the folder")


def test_damaged_jars_fail(home, monkeypatch):
    monkeypatch.setattr(machine_checks, "delta_jars", missing)
    assert found(diagnosis(code=1), "jars")[0][0] == "fail"


def test_that_spark_starts_slower_than_it_could_is_said(home):
    ((_, _, none), (status, _, fix)) = found(diagnosis(), "jars")
    assert (none, status, fix) == (None, "warn", "run `etl-assets setup`, which records one")
    mark = failed_mark(java(home), (home / "a.jar",))
    mark.write_text("no space left on device\n")
    ((_, detail, fix),) = found(diagnosis(), "jars")[1:]
    assert detail.endswith(": no space left on device")
    assert fix == f"fix that, remove {mark}, run `etl-assets setup`"
    archive_file(java(home), (home / "a.jar",)).write_bytes(b"")
    assert [status for status, *_ in found(diagnosis(), "jars")] == ["ok"]


def test_spark_elsewhere_needs_no_java_here(home, monkeypatch):
    monkeypatch.setattr(machine_checks, "find_java", missing)
    monkeypatch.setenv("ETL_ASSETS_SPARK_MASTER", "sc://host:15002")
    assert found(diagnosis(), "java")[0][0] == "ok"


@pytest.mark.parametrize("text", ["start_date: never", "start_date: 2026-13-01", "nonsense: 1", "{", "- 1"])
def test_broken_settings_are_found_and_the_machine_is_checked_all_the_same(home, text):
    (home / "platform.yaml").write_text(text)
    findings = diagnosis(code=1)
    status, detail, fix = found(findings, "settings")[0]
    assert (status, bool(fix)) == ("fail", True)
    assert str(home / "platform.yaml") in detail
    assert found(findings, "write access")[0][0] == "ok"


def test_an_address_with_a_password_is_not_shown(home, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_POSTGRES_URL", "postgresql://user:secret@host/db")
    result = CliRunner().invoke(doctor, ["--json"])
    assert "ETL_ASSETS_POSTGRES_URL" in result.stdout
    assert "secret" not in result.stdout


def test_a_root_that_is_a_file_fails(home):
    (home / "data").write_text("")
    assert ("fail", True) in [
        (status, "domain local" in detail) for status, detail, _ in found(diagnosis(code=1), "write access")
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_fails(home):
    home.chmod(0o500)
    try:
        assert [finding.status for finding in check_writing([("home", home)])] == ["fail"]
    finally:
        home.chmod(0o700)


def test_no_space_is_told_before_it_stops_a_commit(home, monkeypatch):
    monkeypatch.setattr(machine_checks, "FAIL_BELOW_BYTES", 1 << 62)
    (finding,) = machine_checks.check_disk([("home", home)])
    assert (finding.status, finding.check) == ("fail", "disk")
    assert "make room" in (finding.fix or "")


def test_strangers_and_days_without_partition_are_named(home):
    for name in ("orders", "2026-3-1", "2999-01-01", "2001-01-01", "2026-03-01", "_aside", ".hidden"):
        (home / "landing" / name).mkdir()
    first, second = check_landing(load_settings(), dt.date(2026, 3, 2))
    assert first.detail.startswith("2026-3-1, orders in ")
    assert second.detail.startswith("2001-01-01, 2999-01-01 have no partition")
    assert {first.status, second.status} == {"warn"}


def test_a_clock_behind_the_newest_commit_fails(home):
    domain = load_settings().placement().domains[0]
    write_table(domain, "customers", [{}])
    tables = domain.root / "tables"
    (well,) = machine_checks.check_clock(tables)
    (behind,) = machine_checks.check_clock(tables, now=time.time() - 3600)
    (ancient,) = machine_checks.check_clock(home, now=0.0)
    assert (well.status, behind.status, ancient.status) == ("ok", "fail", "fail")
    assert "later" in behind.detail


def test_a_held_lock_names_its_holder_and_a_released_one_does_not(home):
    locks = home / "locks"
    locks.mkdir()
    (locks / "free.lock").write_text("")
    (locks / "left.lock").write_text(json.dumps({"host": "gone", "pid": 1, "driver_pid": 1}))
    with (locks / "raw_events.lock").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps({"host": "here", "pid": 4711}))
        file.flush()
        (finding,) = check_locks(locks)
    assert finding.detail == "being written now: raw_events by process 4711 on here"
    (finding,) = check_locks(locks)
    assert finding.detail == "no table is being written"


def test_the_driver_of_a_dead_writer_is_named_while_it_runs(home):
    record = {"host": socket.gethostname(), "pid": 4711, "driver_pid": os.getpid()}
    lock = home / "locks" / "raw_events.lock"
    lock.parent.mkdir()
    lock.write_text(json.dumps({**record, "driver_started_at": started_at(os.getpid())}))
    left, _ = check_locks(lock.parent)
    assert (left.status, str(os.getpid()) in left.detail) == ("warn", True)
    lock.write_text(json.dumps({**record, "driver_started_at": "another process had this number"}))
    (finding,) = check_locks(lock.parent)
    assert finding.status == "ok"


def test_a_check_that_breaks_is_a_finding():
    def breaks():
        raise ZeroDivisionError("boom\nmore")

    (finding,) = answer("odd", breaks)
    assert (finding.status, finding.detail) == ("fail", "ZeroDivisionError: boom")


def test_an_instance_that_cannot_be_opened_fails(home):
    (home / "dagster").mkdir()
    (home / "dagster" / "dagster.yaml").write_text("{")
    (home / "dagster" / "history").write_text("a file where a folder must be")
    assert found(diagnosis(code=1), "dagster instance")[0][0] == "fail"


def test_a_misspelt_variable_is_named_with_the_one_that_was_meant(home, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOM", "/secret/folder")
    ((_, _, _), (status, detail, fix)) = found(diagnosis(), "settings")
    assert (status, fix) == ("warn", "did you mean ETL_ASSETS_HOME?")
    assert "ETL_ASSETS_HOM is not known" in detail
    assert "/secret/folder" not in detail


def test_a_java_home_that_is_wrong_is_said_although_another_java_is_found(home, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    ((status, detail, fix),) = found(diagnosis(), "java")
    assert status == "warn"
    assert detail.startswith("JAVA_HOME = /nowhere holds no working Java; Java 17.0.1 in ")
    assert fix == f"set JAVA_HOME to {home}, or unset it"
    monkeypatch.setattr(machine_checks, "ask_version", lambda executable: java(home))
    assert found(diagnosis(), "java")[0][0] == "ok"


def test_a_landing_path_that_is_a_file_is_not_said_to_be_missing(home):
    (home / "landing").rmdir()
    (home / "landing").write_text("")
    ((status, detail, fix),) = found(diagnosis(code=1), "landing folder")
    assert (status, "a file" in detail) == ("fail", True)
    assert "make it" not in fix
