"""Tables of users' own assets, and of pipelines that are not declared any more, as commands find and treat
them.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from deltalake import DeltaTable

import etl_assets
from etl_assets.cli.main import cli
from etl_assets.cli.upkeep import _where_written
from etl_assets.delta.asset_record import AssetRecord, expect_same_asset, put_record, record_in
from etl_assets.delta.log.checkpoint import checkpoint_in_place
from etl_assets.delta.maintenance.compaction import plan_compactions
from etl_assets.delta.write.create import ensure_table
from etl_assets.errors import CommitConflict, ContractError, EtlAssetsError, NotFound
from etl_assets.io_managers.append_ids import append_of, left_to_append
from etl_assets.jobs import compaction
from etl_assets.observability.domain_states import domain_states, replication_statuses
from etl_assets.placement.domains import FailureDomain, Placement
from etl_assets.placement.undeclared_tables import TablesUnderRoots
from etl_assets.replicas.reconcile import reconcile_replicas
from etl_assets.replicas.scrub import ScrubCursor, scrub
from etl_assets.settings import load_settings
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.own_tables import NAME, VISITS, append, own_table, rows_in, visits
from etl_assets_tests.reference.three_domains import A, B, C, root_of, three_domains

NOON = dt.datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)


@pytest.fixture
def domain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FailureDomain:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    (tmp_path / "landing").mkdir()
    return load_settings().placement().domains[0]


@pytest.fixture
def placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Placement:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return three_domains(tmp_path)


def call(*arguments: str):
    """Run a command that is to succeed."""
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def refused(*arguments: str) -> str:
    """Run a command that is to fail, and return what it says."""
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, EtlAssetsError | SystemExit), result.exception
    return result.output + (str(result.exception) if isinstance(result.exception, EtlAssetsError) else "")


def states() -> dict:
    return {each["name"]: each for each in json.loads(call("tables", "--json").stdout)}


# Finding


def test_a_table_of_an_own_asset_is_listed_after_the_others_and_read_by_its_name(domain):
    table = visits(domain, 1, 2)
    (*_, (name, state)) = states().items()
    assert (name, state["version"], state["rows"], state["asset"], state["cursor"]) == (
        NAME,
        3,
        3,
        "lab/visits",
        {},
    )
    assert call("tables", "path", NAME).stdout.strip() == str(table.path)
    assert json.loads(call("sql", f'SELECT sum(n) AS n FROM "{NAME}"', "--json").stdout) == [{"n": 3}]
    assert sorted(etl_assets.open_table(NAME).pandas()["n"]) == [0, 1, 2]


def test_one_from_before_tables_named_their_asset_is_found_as_well(domain):
    append(own_table(domain), [{"n": 1}])
    assert states()[NAME]["asset"] is None


def test_folders_without_a_log_and_files_are_no_tables(domain):
    folder = domain.root / "tables"
    for path in ("empty/g000001", "no log/g000001/part", "lab..x/other", "unfinished/g000001/_delta_log"):
        (folder / path).mkdir(parents=True)
    (folder / "a_file").write_text("x", "utf-8")
    ensure_table(platform_table("customers", domain))
    assert domain.catalog.every_name() == domain.catalog.names


@pytest.mark.parametrize("name", ["../tables/lab.visits", "..", "", "lab/visits", "lab.visits/g000001"])
def test_a_name_that_leads_elsewhere_is_no_table(domain, name):
    visits(domain)
    with pytest.raises(NotFound):
        platform_table(name, domain)


def test_an_unknown_name_is_refused_with_the_near_one(domain):
    visits(domain)
    assert f"did you mean '{NAME}'" in refused("tables", "path", "lab.visit")
    assert f"did you mean '{NAME}'" in refused("sql", 'SELECT * FROM "lab.visit"')


def test_a_name_with_a_dot_and_without_quotes_is_explained(domain):
    visits(domain)
    assert f'in double quotes: "{NAME}"' in refused("sql", f"SELECT * FROM {NAME}")


def test_a_command_for_a_declared_table_looks_for_no_others(domain, monkeypatch):
    ensure_table(platform_table("customers", domain))
    monkeypatch.setattr(TablesUnderRoots, "_answers", lambda *_: pytest.fail("looked for tables"))
    call("tables", "path", "customers")
    call("sql", "SELECT * FROM customers")


def test_a_root_that_is_away_is_reported_instead_of_hiding_tables(domain, tmp_path):
    load_settings().placement().place(domain.catalog.placement_of("raw_events"))  # takes the root into use
    visits(domain)
    domain.root.rename(tmp_path / "away")
    shown = call("tables")
    assert NAME not in shown.stdout
    assert "warning: the tables in local cannot be listed" in shown.stderr
    assert "cannot be listed" in refused("tables", "path", NAME)


def test_with_several_domains_one_that_is_away_hides_no_table_and_two_are_reported(placement, tmp_path):
    visits(placement.domains[0], 1)
    root_of(placement, A).rename(tmp_path / "away")
    shown = call("tables")
    assert "warning" not in shown.stderr
    assert NAME in shown.stdout
    root_of(placement, B).rename(tmp_path / "away too")
    found = load_settings().placement().catalog
    assert NAME in found.every_name()
    assert len(found.unlisted()) == 2


def test_a_table_is_found_where_only_its_registers_are_left(placement):
    visits(placement.domains[0], 1)
    for name in (A, B, C):
        shutil.rmtree(root_of(placement, name) / "tables")
    assert load_settings().placement().catalog.every_name()[-1] == NAME


# What a table says of its asset


def test_what_a_table_says_of_its_asset_is_committed_once_and_changes_nothing_else(domain):
    table = visits(domain, 1)
    (before, after) = (DeltaTable(str(table.path), version=version).metadata() for version in (0, 1))
    assert (after.id, after.created_time, after.partition_columns) == (
        before.id,
        before.created_time,
        before.partition_columns,
    )
    assert DeltaTable(str(table.path), version=1).schema() == DeltaTable(str(table.path), version=0).schema()
    assert put_record(table, VISITS, base_version=2) == 2
    checkpoint_in_place(table.path, 2)
    for version in (0, 1):
        (table.path / "_delta_log" / f"{version:020d}.json").unlink()
    changed = AssetRecord(asset="lab/visits", write_spec={"delta_upsert/write_mode": "replace"})
    assert put_record(table, changed, base_version=2) == 3
    snapshot = table.snapshot()
    assert snapshot is not None
    assert record_in(snapshot) == changed
    now = DeltaTable(str(table.path)).metadata()
    assert (now.id, now.created_time, now.partition_columns) == (
        before.id,
        before.created_time,
        before.partition_columns,
    )
    assert rows_in(table.path) == [0, 1]


def test_it_is_planned_again_if_another_run_has_committed(domain):
    table = visits(domain, 1)
    with pytest.raises(CommitConflict):
        put_record(table, AssetRecord(asset="lab/visits"), base_version=1)


def test_two_assets_with_one_table_are_refused(domain):
    table = visits(domain)
    expect_same_asset(table, "lab/visits")
    with pytest.raises(ContractError, match="is that of the asset lab/visits"):
        expect_same_asset(table, "lab.visits")
    ensure_table(platform_table("raw_events", domain))
    with pytest.raises(ContractError, match="a pipeline made it"):
        expect_same_asset(own_table(domain, "raw_events"), "raw_events")


# Restoring


def test_a_restored_table_has_the_rows_of_then_and_can_go_back_again(domain):
    table = visits(domain, 1, 2)
    shown = call("tables", "restore", NAME, "--to-version", "2")
    assert "nothing was changed" in shown.stderr
    assert rows_in(table.path) == [0, 1, 2]
    done = call("tables", "restore", NAME, "--to-version", "2", "--yes")
    assert "dagster asset materialize -m YOUR_MODULE --select lab/visits" in done.stderr
    assert rows_in(table.path) == [0, 1]
    call("tables", "restore", NAME, "--to-version", "3", "--yes")
    assert rows_in(table.path) == [0, 1, 2]
    call("tables", "restore", NAME, "--to-version", "4", "--yes")
    assert rows_in(table.path) == [0, 1]
    snapshot = table.snapshot()
    assert snapshot is not None
    assert record_in(snapshot) == VISITS


@pytest.mark.parametrize("more", [{}, {"share": 0.5}, {"raw": b"x"}, {"flag": True}, {"at": NOON}], ids=str)
def test_a_restored_file_is_found_whatever_the_types_of_its_columns(domain, more):
    table = own_table(domain)
    append(table, [{"n": 1, "inner": {"a": 5}, **more}, {"n": 2, "inner": {"a": 6}, **more}])
    append(table, [{"n": 3, "inner": {"a": 7}, **more}])
    call("tables", "restore", NAME, "--to-version", "0", "--yes")
    call("tables", "restore", NAME, "--to-version", "1", "--yes")
    for condition, wanted in (("inner['a'] = 7", [3]), ("n < 3", [1, 2]), ("n = 3", [3])):
        found = json.loads(
            call("sql", f'SELECT n FROM "{NAME}" WHERE {condition} ORDER BY n', "--json").stdout
        )
        assert [row["n"] for row in found] == wanted


def test_a_run_adds_its_rows_again_only_if_the_table_does_not_have_them(domain):
    table = visits(domain)
    run = append_of("run", ["eu"])
    append(table, [{"n": 1, "partition_date": "eu"}], run=run.app_id, partition_by=["partition_date"])

    def left() -> list:
        return left_to_append("run", ["eu"], table.snapshot())

    assert left() == []
    call("tables", "restore", NAME, "--to-version", "1", "--yes")
    assert (rows_in(table.path), left()) == ([0], [["eu"]])
    call("tables", "restore", NAME, "--to-version", "2", "--yes")
    assert (rows_in(table.path), left()) == ([0, 1], [])


def test_an_own_table_is_not_reprocessed_and_the_message_names_the_way(domain):
    visits(domain)
    shown = refused("reprocess", "--tables", NAME)
    assert "lab.visits is not reprocessed" in shown
    assert "dagster asset materialize -m YOUR_MODULE --select lab/visits --partition PARTITION" in shown


def test_the_table_of_a_pipeline_that_is_gone_is_read_but_not_restored(domain, tmp_path):
    folder = tmp_path / "pipelines"
    folder.mkdir()
    file = folder / "visits.yaml"
    pipeline = {
        "name": "visits",
        "source": {"type": "files", "path": "in/*.csv"},
        "columns": {"n": "bigint"},
        "table": {"keys": ["n"]},
    }
    file.write_text(yaml.safe_dump(pipeline), "utf-8")
    catalog = load_settings().catalog()
    assert "visits_source" in catalog.names
    declared = load_settings().placement().domains[0]
    names = [name for name in catalog.names if name.startswith("visits")]
    for name in names:
        ensure_table(platform_table(name, declared))
    file.unlink()
    assert sorted(set(states()) - set(load_settings().catalog().names)) == sorted(names)
    for name in names:
        shown = refused("tables", "restore", name, "--to-version", "0")
        assert "a pipeline made it that is not declared any more" in shown


def test_a_users_column_with_the_name_of_the_platforms_days_is_compacted_as_any_other(domain):
    table = visits(domain, 1, 2)
    snapshot = table.snapshot()
    assert snapshot is not None
    (plan,) = plan_compactions(snapshot, load_settings().start_date)
    assert plan.days == ()


def test_the_compaction_job_is_asked_for_when_an_own_table_has_many_small_files(domain, monkeypatch):
    monkeypatch.setattr(compaction, "CROWDED_FILES", 3)
    visits(domain, 1)
    assert list(compaction._due(load_settings())) == []
    append(own_table(domain), [{"n": 2, "partition_date": "eu"}], partition_by=["partition_date"])
    assert list(compaction._due(load_settings())) == [NAME]


# Several domains


def test_an_own_table_is_looked_after_like_the_others(placement):
    table = visits(placement.domains[0], 1)
    assert NAME in replication_statuses(placement)
    assert all(NAME in state.whole for state in domain_states(placement))
    # A data file of one replica is damaged: the scrub rebuilds it, and `verify` finds it whole.
    (file, *_) = (root_of(placement, C) / "tables" / NAME).rglob("*.parquet")
    file.write_bytes(b"damaged")
    assert NAME in refused("tables", "verify", NAME)
    cursor = ScrubCursor(table=NAME)
    _, found = scrub(load_settings().placement(), cursor, seconds=60)
    assert [(each.table, each.repaired) for each in found] == [(NAME, (C,))]
    call("tables", "verify", NAME)
    assert rows_in(table.path, table.version()) == [0, 1]


def test_a_round_brings_an_own_table_to_a_domain_that_lost_it(placement, tmp_path):
    visits(placement.domains[0], 1)
    shutil.rmtree(root_of(placement, B) / "tables" / NAME)
    (root_of(placement, B) / "register" / f"{NAME}.json").unlink()
    told = reconcile_replicas(load_settings().placement())
    assert [(each.table, each.rejoined) for each in told] == [(NAME, (B,))]
    assert call("tables", "verify").stdout.count(f"{NAME} in ") == 3


def test_an_own_table_of_one_domain_is_brought_to_all_when_there_are_three(domain, tmp_path):
    visits(domain, 1)
    roots = {"local": "data", "b": "b", "c": "c"}
    platform = {"domains": [{"name": name, "root": root} for name, root in roots.items()]}
    (tmp_path / "platform.yaml").write_text(yaml.safe_dump(platform), "utf-8")
    settings = load_settings()
    _where_written(settings, "raw_events")  # takes the roots into use
    reconcile_replicas(settings.placement())
    assert call("tables", "verify", NAME).stdout.count("whole") == 3
    assert json.loads(call("sql", f'SELECT sum(n) AS n FROM "{NAME}"', "--json").stdout) == [{"n": 1}]


def test_an_own_table_is_relocated_repaired_and_restored(placement):
    visits(placement.domains[0], 1, 2)
    call("tables", "relocate", NAME, "--to", B)
    (file, *_) = (root_of(placement, A) / "tables" / NAME).rglob("*.parquet")
    file.unlink()
    refused("tables", "verify", NAME)
    call("tables", "repair", NAME)
    call("tables", "verify", NAME)
    call("tables", "restore", NAME, "--to-version", "2", "--yes")
    found = json.loads(call("tables", "path", NAME, "--json").stdout)
    assert rows_in(found["uri"], found["version"]) == [0, 1]
    call("tables", "vacuum", NAME, "--delete")
    call("tables", "clean-log", NAME, "--delete")
    call("tables", "verify")
