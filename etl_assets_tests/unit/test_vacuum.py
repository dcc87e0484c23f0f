"""What nobody needs goes, from every replica; what a version of the retention or a slow replica needs
stays.
"""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from etl_assets.cli.tables import tables
from etl_assets.delta.log.entries import entry_path
from etl_assets.delta.maintenance.vacuum import MARK, find_unneeded
from etl_assets.delta.table import Table
from etl_assets.errors import DomainUnavailable, InputError, Unanswered
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.mirroring.stores.local_store import LocalStore
from etl_assets.placement.domains import FailureDomain
from etl_assets.placement.site import Site
from etl_assets.settings import load_settings
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.mirrored_log import all_that_it_says, commit_entries, three_replications
from etl_assets_tests.reference.tables import CATALOG
from etl_assets_tests.reference.written_tables import write_table

NOW = dt.datetime.now(dt.UTC)
WEEK = dt.timedelta(days=7)
LONG_AGO = (NOW - dt.timedelta(days=30)).timestamp()
YESTERDAY = (NOW - dt.timedelta(days=1)).timestamp()
DOMAINS = "abc"


def aged(folder: Path, at: float = LONG_AGO) -> None:
    """Let all that is there now have been written at a time."""
    for path in folder.rglob("*"):
        os.utime(path, (at, at))


def replica(home: Path, domain: str) -> Path:
    return home / domain / "tables" / "events" / "g000001"


@pytest.fixture
def mirrored(tmp_path: Path) -> Table:
    """A table in three domains, of 15 versions; version 9 took out what version 8 had added."""
    first, *_ = three_replications(tmp_path)
    commit_entries(first, 15)
    first.follow()
    sites = tuple(Site(name=each, root=str(tmp_path / each), role=Role.VOTER) for each in DOMAINS)
    return Table(
        name="events", domain=FailureDomain(catalog=CATALOG, name="a", root=tmp_path / "a", sites=sites)
    )


def unneeded(table: Table) -> dict[str, list[str]]:
    return {each.holding.domain: sorted(each.files) for each in find_unneeded(table, WEEK, NOW)}


TAKEN_OUT = "partition_date=2026-01-09/part-8.parquet"


def test_a_file_that_was_taken_out_long_ago_goes_from_every_replica(mirrored, tmp_path):
    for domain in DOMAINS:
        aged(replica(tmp_path, domain))
    assert unneeded(mirrored) == {domain: [TAKEN_OUT] for domain in DOMAINS}
    rows = mirrored.snapshot().row_count()
    for each in find_unneeded(mirrored, WEEK, NOW):
        each.remove()
        each.remove()
    assert unneeded(mirrored) == {domain: [] for domain in DOMAINS}
    assert mirrored.replication.broken() == {domain: [] for domain in DOMAINS}
    assert mirrored.snapshot().row_count() == rows
    for domain in DOMAINS:
        found = {f"{path.parent.name}/{path.name}" for path in replica(tmp_path, domain).rglob("*.parquet")}
        assert TAKEN_OUT not in found
        assert set(mirrored.snapshot().files()) == found


def test_what_was_the_newest_version_within_the_retention_can_still_be_read(mirrored, tmp_path):
    for domain in DOMAINS:
        aged(replica(tmp_path, domain))
    taken_out_by = entry_path(replica(tmp_path, "a"), 9)
    for version in range(9, 15):
        os.utime(entry_path(replica(tmp_path, "a"), version), (YESTERDAY, YESTERDAY))
    assert taken_out_by.stat().st_mtime == YESTERDAY
    assert unneeded(mirrored) == {domain: [] for domain in DOMAINS}


@pytest.mark.parametrize("gone", ["root", "entry"])
def test_when_the_log_at_home_goes_at_that_moment_nothing_is_found_to_be_unneeded(
    mirrored, tmp_path, monkeypatch, gone
):
    """The second look would take every version for one that nobody can read any more."""
    for domain in DOMAINS:
        aged(replica(tmp_path, domain))
    modified = LocalStore.modified

    def gone_first(self, key):
        if (tmp_path / "a").exists():
            what = tmp_path / "a" if gone == "root" else tmp_path / "a" / key
            if what.exists():
                what.rename(tmp_path / "away")
        return modified(self, key)

    monkeypatch.setattr(LocalStore, "modified", gone_first)
    with pytest.raises(
        (Unanswered, InputError), match="root is not there" if gone == "root" else "version 14"
    ):
        unneeded(mirrored)


def test_what_a_killed_writer_left_goes_once_it_is_old_and_hidden_files_stay(mirrored, tmp_path):
    folder = replica(tmp_path, "b") / "partition_date=2026-01-01"
    for name in ("part-old.parquet", ".part-hidden.parquet"):
        (folder / name).write_bytes(b"orphan")
    for domain in DOMAINS:
        aged(replica(tmp_path, domain))
    (folder / "part-young.parquet").write_bytes(b"orphan")
    assert unneeded(mirrored) == {
        "a": [TAKEN_OUT],
        "b": ["partition_date=2026-01-01/part-old.parquet", TAKEN_OUT],
        "c": [TAKEN_OUT],
    }


def test_what_a_replica_that_is_behind_is_still_to_get_stays(mirrored, tmp_path):
    away = (tmp_path / "c").rename(tmp_path / "away")
    commit_entries(mirrored.replication, 6)  # version 19 takes out what version 18 added
    away.rename(tmp_path / "c")
    for domain in "ab":
        aged(replica(tmp_path, domain))
    assert unneeded(mirrored)["b"] == [TAKEN_OUT]
    mirrored.replication.follow()
    assert len(unneeded(mirrored)["b"]) == 2


def test_a_domain_that_does_not_answer_stops_it(mirrored, tmp_path):
    for domain in DOMAINS:
        aged(replica(tmp_path, domain))
    (tmp_path / "c").rename(tmp_path / "away")
    with pytest.raises(DomainUnavailable, match="how far c has"):
        find_unneeded(mirrored, WEEK, NOW)


def test_a_new_replica_is_built_from_replicas_that_were_vacuumed(mirrored, tmp_path):
    for domain in DOMAINS:
        aged(replica(tmp_path, domain))
    for each in find_unneeded(mirrored, WEEK, NOW):
        each.remove()
    mirrored.replication.rebuild("c")
    assert mirrored.replication.broken() == {domain: [] for domain in DOMAINS}


def test_a_folder_that_was_given_up_goes_a_retention_after_it_was_first_seen(mirrored, tmp_path):
    mirrored.replication.rebuild("c")
    old, new = replica(tmp_path, "c"), max((tmp_path / "c" / "tables" / "events").glob("g*"))
    assert old != new
    for domain in DOMAINS:
        aged(replica(tmp_path, domain))
    aged(new)
    (found,) = [each for each in find_unneeded(mirrored, WEEK, NOW) if each.holding.domain == "c"]
    assert found.given_up == {}, "a reader may still be bound to it"
    found.remove()
    under_way = new.with_name("g000099")
    (under_way / "_delta_log").mkdir(parents=True)
    (under_way / "part-0.parquet").write_bytes(b"of a rebuild that is under way")
    aged(under_way)
    (old / MARK).touch()
    (found,) = [each for each in find_unneeded(mirrored, WEEK, NOW) if each.holding.domain == "c"]
    assert found.given_up == {}
    aged(old)
    (found,) = [each for each in find_unneeded(mirrored, WEEK, NOW) if each.holding.domain == "c"]
    assert len(found.given_up) > 15
    assert list(found.given_up)[-1].endswith(MARK)
    found.remove()
    assert not old.exists()
    assert (under_way / "part-0.parquet").exists()
    assert mirrored.replication.broken() == {domain: [] for domain in DOMAINS}
    assert mirrored.snapshot().row_count() > 0


def test_folders_that_an_earlier_vacuum_left_empty_go(mirrored, tmp_path):
    mirrored.replication.rebuild("c")
    old = replica(tmp_path, "c")
    for path in old.rglob("*"):
        if path.is_file():
            path.unlink()
    under_way = old.with_name("g000099") / "_delta_log"
    under_way.mkdir(parents=True)
    for each in find_unneeded(mirrored, WEEK, NOW):
        each.remove()
    assert not old.exists()
    assert under_way.exists()
    assert mirrored.replication.broken() == {domain: [] for domain in DOMAINS}


def test_what_killed_processes_left_half_written_goes_once_it_is_old(mirrored, tmp_path):
    of_the_table = [f"tables/events/{name}" for name in ("staged", "g000001/partition_date=2026-01-01")]
    left = [tmp_path / "b" / folder / ".mirror-0a1b" for folder in (*of_the_table, "register", "health")]
    another = tmp_path / "b" / "tables" / "others" / ".mirror-0a1b"
    young = tmp_path / "b" / "register" / ".mirror-2c3d"
    for path in (*left, another, young):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half of it")
        if path != young:
            os.utime(path, (LONG_AGO, LONG_AGO))
    lock = tmp_path / "b" / "register" / ".mirror-lock-events.json"
    os.utime(lock, (LONG_AGO, LONG_AGO))
    found = {each.holding.domain: each for each in find_unneeded(mirrored, WEEK, NOW)}
    assert {domain: len(each) for domain, each in found.items()} == {"a": 0, "b": 4, "c": 0}
    assert found["b"].bytes == 4 * len(b"half of it")
    for each in (*found.values(), *found.values()):
        each.remove()
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in (another, young, lock))
    assert mirrored.replication.broken() == {domain: [] for domain in DOMAINS}


def test_a_replica_that_will_begin_anew_keeps_no_file_from_before(mirrored, tmp_path):
    away = (tmp_path / "c").rename(tmp_path / "away")
    commit_entries(mirrored.replication, 6)  # version 19 takes out what version 18 added
    mirrored.replication.shorten(1)
    away.rename(tmp_path / "c")
    for domain in "ab":
        aged(replica(tmp_path, domain))
    assert len(unneeded(mirrored)["b"]) == 2
    for each in find_unneeded(mirrored, WEEK, NOW):
        each.remove()
    mirrored.replication.follow()
    assert mirrored.replication.broken() == {domain: [] for domain in DOMAINS}


def test_a_version_read_before_the_log_was_shortened_can_be_asked_afterwards(mirrored):
    snapshot = mirrored.snapshot()
    assert snapshot is not None
    before = all_that_it_says(snapshot)
    mirrored.replication.shorten(3)
    again = mirrored.snapshot()
    assert again is not None
    assert all_that_it_says(again) == before


def test_the_command_counts_first_and_removes_when_it_is_told_to(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    domain = load_settings().placement().domains[0]
    for number in range(3):
        write_table(domain, "raw_events", [{"offset": number}])
    table = platform_table("raw_events", domain)
    DeltaTable(str(table.path)).optimize.compact()
    (table.path / "partition_date=2026-03-01" / "part-orphan.parquet").write_bytes(b"orphan")
    aged(table.path)
    runner = CliRunner()
    before = set(table.path.rglob("*.parquet"))
    counted = runner.invoke(tables, ["vacuum", "raw_events"])
    assert counted.exit_code == 0, counted.output
    assert "4 files of" in counted.output
    assert "--delete" in counted.output
    assert set(table.path.rglob("*.parquet")) == before
    assert "0 files of" in runner.invoke(tables, ["vacuum", "raw_events", "--retention-days", "60"]).output
    removed = runner.invoke(tables, ["vacuum", "raw_events", "--delete"])
    assert removed.exit_code == 0, removed.output
    assert "4 files of" in removed.output
    rows = DeltaTable(str(table.path)).to_pyarrow_table().to_pylist()
    assert sorted(row["offset"] for row in rows) == [0, 1, 2]
    assert table.version() == 3, "it writes nothing to the log"
