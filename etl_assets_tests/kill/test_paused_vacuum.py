"""A vacuum that is stopped while it removes files, and goes on after an undo has brought them back. Without
Spark.
"""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from etl_assets.delta.maintenance.vacuum import find_unneeded
from etl_assets.delta.snapshot import Snapshot
from etl_assets.delta.table import Table
from etl_assets.delta.write.content import StoredFile, content_of
from etl_assets.delta.write.lock import writer_lock
from etl_assets.delta.write.replacement import Replacement, replace_contents
from etl_assets.errors import FilesGone, TableBusy
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.mirroring.stores.local_store import LocalStore
from etl_assets.placement.domains import FailureDomain
from etl_assets.placement.site import Site
from etl_assets_tests.reference.mirrored_log import commit_entries, single_log, three_replications
from etl_assets_tests.reference.tables import CATALOG

pytestmark = pytest.mark.kill

LONG_AGO = (dt.datetime.now(dt.UTC) - dt.timedelta(days=30)).timestamp()
TAKEN_OUT = "part-8.parquet"


def table_of(home: Path, domain: str, *, alone: bool = False) -> Table:
    sites = tuple(Site(name=each, root=str(home / each), role=Role.VOTER) for each in "abc")
    return Table(
        name="events",
        domain=FailureDomain(catalog=CATALOG, name=domain, root=home / domain, sites=() if alone else sites),
    )


def snapshot_of(table: Table, version: int | None = None) -> Snapshot:
    found = table.snapshot(version)
    assert found is not None
    return found


def vacuum_that_stops(home: Path, alone: bool) -> None:
    """As the command does it, in a; it stops itself before the first data file that it removes."""
    table, delete = table_of(home, "a", alone=alone), LocalStore.delete

    def stopping(self: LocalStore, key: str) -> None:
        if key.endswith(TAKEN_OUT):
            os.kill(os.getpid(), signal.SIGSTOP)
        delete(self, key)

    LocalStore.delete = stopping
    with writer_lock(table.lock_path, table=table.name, wait_seconds=1, driver_pid=None):
        for unneeded in find_unneeded(table, dt.timedelta(days=7), dt.datetime.now(dt.UTC)):
            unneeded.remove()


@contextmanager
def vacuum_stopped(home: Path, *, alone: bool = False) -> Generator[None]:
    """A vacuum stands before its first data file during the block, and goes on to its end after it."""
    vacuum: Any = multiprocessing.get_context("spawn").Process(target=vacuum_that_stops, args=(home, alone))
    vacuum.start()
    try:
        wait_until_stopped(vacuum.pid)
        yield
    finally:
        deadline = time.monotonic() + 30
        while vacuum.is_alive() and time.monotonic() < deadline:
            os.kill(vacuum.pid, signal.SIGCONT)  # it stops at each replica's file
            vacuum.join(0.1)
        vacuum.kill()
        vacuum.join()
    assert vacuum.exitcode == 0


def wait_until_stopped(pid: int) -> None:
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline, "the vacuum did not come to the file"
        time.sleep(0.05)


def aged(home: Path) -> None:
    for path in home.rglob("*.*"):
        os.utime(path, (LONG_AGO, LONG_AGO))


def undo(table: Table, file: StoredFile) -> int:
    """Bring a file back."""
    base = table.version()
    (version,) = replace_contents(
        [Replacement(table=table, base_version=base, restored=(file,), undo={"kind": "restore"})],
        wait_seconds=0.5,
    )
    return version


def test_files_that_an_undo_in_another_domain_brought_back_outlast_a_vacuum_of_the_former_leader(tmp_path):
    first, *_ = three_replications(tmp_path)
    commit_entries(first, 15)
    first.follow()
    aged(tmp_path)
    table = table_of(tmp_path, "b")
    before = snapshot_of(table)
    (taken_out,) = [file for file in content_of(snapshot_of(table, 8)).values() if TAKEN_OUT in file.name]
    with vacuum_stopped(tmp_path):
        version = undo(table, taken_out)
        assert snapshot_of(table).row_count() == before.row_count() + taken_out.rows
        mirrored = table.replication
        assert mirrored is not None
        mirrored.follow()
    assert mirrored.broken() == {domain: [] for domain in "abc"}
    assert list(tmp_path.rglob(TAKEN_OUT)) == [], "the vacuum went on to its end"
    # Nor does the next vacuum take it for what nobody needs, which looked before the undo had committed.
    assert [
        len(each.files) for each in find_unneeded(table, dt.timedelta(days=7), dt.datetime.now(dt.UTC))
    ] == [0] * 3
    assert table.version() == version


def test_with_one_domain_an_undo_waits_for_a_vacuum_and_finds_the_files_gone(tmp_path):
    single_log(tmp_path / "a", 15)
    aged(tmp_path)
    table = table_of(tmp_path, "a", alone=True)
    (taken_out,) = [file for file in content_of(snapshot_of(table, 8)).values() if TAKEN_OUT in file.name]
    with vacuum_stopped(tmp_path, alone=True), pytest.raises(TableBusy):
        undo(table, taken_out)
    with pytest.raises(FilesGone):
        undo(table, taken_out)
    assert table.version() == 14, "nothing was written"


def test_a_vacuum_that_looks_while_an_undo_is_about_to_commit_keeps_what_it_brings_back(tmp_path):
    """The lock of another domain does not hold it up, and the version that names the file is not acknowledged
    yet.
    """
    first, *_ = three_replications(tmp_path)
    commit_entries(first, 15)
    first.follow()
    aged(tmp_path)
    table = table_of(tmp_path, "b")
    (taken_out,) = [file for file in content_of(snapshot_of(table, 8)).values() if TAKEN_OUT in file.name]
    again = taken_out.bring_back(table.path)
    found = find_unneeded(table_of(tmp_path, "a"), dt.timedelta(days=7), dt.datetime.now(dt.UTC))
    assert again.path not in {path for each in found for path in each.files}
