"""Shortening the log of a table in one failure domain. Without Spark."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from etl_assets.cli.tables import tables
from etl_assets.contracts.tables import EFFECTS
from etl_assets.delta.log import log_truncation as shorter_log
from etl_assets.delta.log.entries import (
    checkpoint_path,
    entry_path,
    last_checkpoint_path,
    log_names,
    oldest_entry,
)
from etl_assets.delta.log.log_truncation import OldLog, find_old_log, remove_old_log, truncate_log
from etl_assets.delta.maintenance.vacuum import find_unneeded
from etl_assets.delta.table import Table
from etl_assets.delta.write.lock import writer_lock
from etl_assets.delta.write.records import commit_rows
from etl_assets.settings import load_settings
from etl_assets_tests.reference.mirrored_log import all_that_it_says, single_log
from etl_assets_tests.reference.tables import local_domain

NEWEST = 64
EVERY_TENTH = range(10, NEWEST, 10)


@pytest.fixture
def events(tmp_path: Path) -> Table:
    single_log(tmp_path, NEWEST + 1, checkpoints=EVERY_TENTH)
    return Table(name="events", domain=local_domain(tmp_path))


def said(events: Table, version: int) -> dict[str, Any]:
    snapshot = events.snapshot(version)
    assert snapshot is not None
    return all_that_it_says(snapshot)


def test_as_many_versions_as_are_to_stay_can_be_read_and_the_rest_is_gone(events):
    before = {version: said(events, version) for version in range(NEWEST + 1)}
    old = find_old_log(events.path, keep=30)
    assert old.first == 30, "the newest checkpoint that leaves versions 35 to 64"
    assert len(old.names) == 30 + 2
    remove_old_log(events.path, old, table="events")
    assert {version: said(events, version) for version in range(30, NEWEST + 1)} == {
        version: before[version] for version in range(30, NEWEST + 1)
    }
    for version in range(30):
        with pytest.raises(DeltaError):
            said(events, version)
    assert find_old_log(events.path, keep=30) == OldLog(first=30, names=())
    assert DeltaTable(str(events.path)).version() == NEWEST


@pytest.mark.parametrize("killed_after", range(0, 33, 4))
def test_what_was_removed_in_part_is_never_read_with_a_gap_and_the_rest_goes_next(events, killed_after):
    before = {version: said(events, version) for version in range(NEWEST + 1)}
    old = find_old_log(events.path, keep=30)
    remove_old_log(events.path, OldLog(first=old.first, names=old.names[:killed_after]), table="events")
    for version, expected in before.items():
        try:
            found = said(events, version)
        except DeltaError:
            assert version < old.first, "it may not be readable any more, but must not be another one"
        else:
            assert found == expected
    rest = find_old_log(events.path, keep=30)
    assert rest.names == old.names[killed_after:]


def test_what_delta_and_hadoop_put_beside_an_entry_goes_with_it(events):
    beside = [
        f"{hidden}{version:020d}{end}"
        for version in (5, 40)
        for hidden, end in (("", ".crc"), (".", ".crc.crc"), (".", ".json.crc"))
    ]
    for name in beside:
        (entry_path(events.path, 0).parent / name).write_bytes(b"")
    remove_old_log(events.path, find_old_log(events.path, keep=30), table="events")
    left = set(log_names(events.path))
    assert {name for name in beside if name in left} == {name for name in beside if f"{40:020d}" in name}


def test_files_of_versions_that_are_left_over_are_not_needed_and_a_vacuum_works(events):
    """As whoever removed them was killed: entries that no checkpoint leads to are no version of the
    retention.
    """
    old = find_old_log(events.path, keep=30)
    remove_old_log(events.path, OldLog(first=old.first, names=old.names[:9]), table="events")
    (unneeded,) = find_unneeded(events, dt.timedelta(days=7), dt.datetime.now(dt.UTC))
    assert not unneeded.files
    for path in events.path.rglob("*"):
        os.utime(path, (1, 1))
    for version in range(8, NEWEST + 1):
        os.utime(entry_path(events.path, version))
    (unneeded,) = find_unneeded(events, dt.timedelta(days=7), dt.datetime.now(dt.UTC))
    assert unneeded.files
    kept = {file for version in range(old.first, NEWEST + 1) for file, *_ in said(events, version)["files"]}
    assert not kept & set(unneeded.files)


def test_nothing_goes_on_the_strength_of_a_checkpoint_that_cannot_be_read(events):
    checkpoint_path(events.path, 30).write_bytes(checkpoint_path(events.path, 30).read_bytes()[:-9])
    assert find_old_log(events.path, keep=30).first == 20
    checkpoint_path(events.path, 20).write_bytes(b"")
    checkpoint_path(events.path, 10).unlink()
    assert find_old_log(events.path, keep=30) == OldLog(first=0, names=())


@pytest.mark.parametrize("content", [b"", b'{"version": 20, "size": 1}', None])
def test_nothing_goes_while_the_newest_checkpoint_is_not_named(events, content):
    path = last_checkpoint_path(events.path)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert find_old_log(events.path, keep=30) == OldLog(first=0, names=())


def test_a_log_without_checkpoints_or_without_entries_is_left_alone(events, tmp_path):
    for version in EVERY_TENTH:
        checkpoint_path(events.path, version).unlink()
    assert find_old_log(events.path, keep=30) == OldLog(first=0, names=())
    assert find_old_log(tmp_path / "nothing", keep=30) == OldLog(first=-1, names=())


def test_it_is_done_now_and_then_where_it_pays_and_a_commit_counts_if_it_fails(events, caplog):
    everything = sorted(log_names(events.path))
    truncate_log(events.path, 99, 30, table="events")
    assert sorted(log_names(events.path)) == everything, "a look with every hundredth version"
    truncate_log(events.path, 100, 60, table="events")
    assert sorted(log_names(events.path)) == everything, "five versions do not pay"
    entry_path(events.path, 3).unlink()
    entry_path(events.path, 3).mkdir()
    truncate_log(events.path, 100, 30, table="events")
    assert "the log of events was not shortened" in caplog.text


def test_a_log_that_grew_for_months_is_shortened_from_checkpoint_to_checkpoint(events, monkeypatch, caplog):
    monkeypatch.setattr(shorter_log, "AT_ONCE", 12)
    caplog.set_level("INFO", "etl_assets")
    begins = []
    for look in range(1, 5):
        truncate_log(events.path, 100 * look, 30, table="events")
        begins.append(oldest_entry(log_names(events.path)))
    assert begins == [10, 20, 30, 30], "at any time the log begins with a checkpoint"
    assert caplog.messages[-1] == "events: the log begins at version 30 now, 11 files of it were removed"


def test_commits_of_a_platform_keep_its_logs_short(tmp_path):
    domain = local_domain(tmp_path, keep_log_versions=100)
    effects = Table(name="effects", domain=domain, contract=EFFECTS)
    with writer_lock(effects.lock_path, table="effects", wait_seconds=1, driver_pid=None):
        while (newest := effects.version()) < 250:
            commit_rows(effects, [], base_version=newest)
    assert oldest_entry(log_names(effects.path)) == 100, "shortened with version 200"
    assert effects.snapshot(100) is not None
    assert DeltaTable(str(effects.path)).version() == 250


def test_the_command_counts_and_then_removes(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    (tmp_path / "landing").mkdir()
    domain = load_settings().placement().domains[0]
    assert domain.keep_log_versions == load_settings().upkeep.keep_log_versions
    runner, command = CliRunner(), ["clean-log", "raw_events", "--keep-versions", "100"]
    assert runner.invoke(tables, command).output == "raw_events is not there yet\n"
    folder = single_log(domain.root, 141, name="raw_events", checkpoints=range(10, 141, 10))
    counted = runner.invoke(tables, command)
    assert counted.output.splitlines() == [
        "raw_events: the log would begin at version 40 (--delete)",
        "raw_events in local: 43 files of the log would be removed",
    ]
    assert entry_path(folder, 0).exists()
    removed = runner.invoke(tables, [*command, "--delete"])
    assert removed.output.splitlines() == [
        "raw_events: the log begins at version 40",
        "raw_events in local: 43 files of the log removed",
    ]
    assert not entry_path(folder, 39).exists()
    assert DeltaTable(str(folder)).version() == 140
