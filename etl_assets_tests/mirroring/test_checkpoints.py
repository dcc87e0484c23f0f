"""Checkpoints of mirrored tables: they say what the log says, of acknowledged versions only, whatever happens on the way."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import BytesIO
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from etl_assets.delta.checkpoint import live_files, make_checkpoint
from etl_assets.delta.log import checkpoint_path, entry_path, last_checkpoint_path
from etl_assets.delta.table import Snapshot
from etl_assets.errors import ReplicaCorrupt
from etl_assets.mirroring.chain import GENESIS, extend_all
from etl_assets.mirroring.checkpoints import EVERY, Checkpoint, Checkpoints, checkpoint_replicas, due
from etl_assets.mirroring.local_store import LocalStore
from etl_assets.mirroring.replica import Replica
from etl_assets.testing.memory_store import Fault, MemoryStore
from etl_assets_tests.mirroring.platform import Platform
from etl_assets_tests.reference.mirrored_log import (
    all_that_it_says,
    commit_entries,
    log_entries,
    three_replications,
    write_log,
)

DOMAINS = "abc"


def folder_of(home: Path, domain: str, number: int = 1) -> Path:
    return home / domain / "tables" / "events" / f"g{number:06d}"


def opened(folder: Path, version: int) -> dict:
    return all_that_it_says(Snapshot(DeltaTable(str(folder), version=version)))


def without_checkpoints(folder: Path, into: Path) -> Path:
    """A copy of a table's folder as it would be without any."""
    shutil.copytree(folder, into, ignore=shutil.ignore_patterns("*.checkpoint.parquet", "_last_checkpoint"))
    return into


def test_one_is_due_every_so_many_versions():
    assert [due(version) for version in (0, EVERY - 1, EVERY, EVERY + 1, 3 * EVERY - 1)] == [
        -1,
        -1,
        EVERY,
        EVERY,
        2 * EVERY,
    ]


def test_every_replica_gets_the_same_checkpoint_and_a_table_opened_by_it_says_the_same(tmp_path):
    mirrored, *_ = three_replications(tmp_path)
    commit_entries(mirrored, EVERY)
    assert mirrored.checkpoint() == ()
    newest = commit_entries(mirrored, 3)
    mirrored.follow()
    assert sorted(mirrored.checkpoint()) == list(DOMAINS)
    plain = without_checkpoints(folder_of(tmp_path, "a"), tmp_path / "plain")
    files = {domain: checkpoint_path(folder_of(tmp_path, domain), EVERY).read_bytes() for domain in DOMAINS}
    assert len(set(files.values())) == 1
    for domain in DOMAINS:
        folder = folder_of(tmp_path, domain)
        assert opened(folder, newest) == opened(plain, newest)
        assert opened(folder, EVERY) == opened(plain, EVERY)
        assert opened(folder, 3) == opened(plain, 3)
    assert mirrored.checkpoint() == (), "what is there is not made again"
    assert mirrored.broken() == {domain: [] for domain in DOMAINS}


def test_the_next_one_is_made_of_the_last_and_what_came_since(tmp_path, monkeypatch):
    mirrored, *_ = three_replications(tmp_path)
    commit_entries(mirrored, EVERY + 1)
    mirrored.checkpoint()
    newest = commit_entries(mirrored, EVERY)
    read = []
    entry = Replica.entry

    def counted(self, folder, version):
        read.append(version)
        return entry(self, folder, version)

    monkeypatch.setattr(Replica, "entry", counted)
    mirrored.follow()
    assert sorted(mirrored.checkpoint()) == list(DOMAINS)
    assert min(read) > EVERY
    plain = without_checkpoints(folder_of(tmp_path, "a"), tmp_path / "plain")
    # Only by the checkpoint: the entries that it sums up are gone.
    for version in range(2 * EVERY):
        entry_path(folder_of(tmp_path, "b"), version).unlink()
    assert opened(folder_of(tmp_path, "b"), newest) == opened(plain, newest)


def test_transaction_ids_domain_metadata_and_table_properties_are_in_it(tmp_path):
    made = make_checkpoint(None, list(log_entries(EVERY)))
    (tmp_path / "c.parquet").write_bytes(made.content)
    rows = pq.read_table(tmp_path / "c.parquet").to_pylist()
    kept = [row["domainMetadata"] for row in rows if row.get("domainMetadata")]
    assert [(each["domain"], each["configuration"]) for each in kept] == [("etl", '{"kept":true}')]
    assert sorted(row["txn"]["version"] for row in rows if row.get("txn")) == list(range(EVERY))
    (metadata,) = [row["metaData"] for row in rows if row.get("metaData")]
    assert dict(metadata["configuration"])["delta.enableInCommitTimestamps"] == "true"
    (protocol,) = [row["protocol"] for row in rows if row.get("protocol")]
    assert "inCommitTimestamp" in protocol["writerFeatures"]


def test_a_tail_that_nobody_acknowledged_is_in_none(tmp_path):
    leader, other, _ = three_replications(tmp_path)
    commit_entries(leader, EVERY)
    lead = leader.lead()
    (tail,) = log_entries(1, first=EVERY)
    tail = tail.replace(b"/part-", b"/lost-")
    entry_path(leader.folder(lead), EVERY).write_bytes(tail)  # its process died before its file was there
    commit_entries(other, EVERY)
    other.follow()
    assert sorted(other.checkpoint()) == list(DOMAINS)
    assert not last_checkpoint_path(folder_of(tmp_path, "a", 1)).exists(), (
        "the folder with the tail is left alone"
    )
    folder = max((tmp_path / "a" / "tables" / "events").glob("g*"))
    newest = 2 * EVERY - 1
    assert opened(folder, newest) == opened(folder_of(tmp_path, "b"), newest)


def test_a_domain_that_is_away_gets_it_once_it_is_back_and_has_caught_up(tmp_path):
    mirrored, *_ = three_replications(tmp_path)
    commit_entries(mirrored, 3)
    away = (tmp_path / "c").rename(tmp_path / "away")
    commit_entries(mirrored, EVERY)
    assert sorted(mirrored.checkpoint()) == ["a", "b"]
    away.rename(tmp_path / "c")
    assert mirrored.checkpoint() == (), "it has not published that version yet"
    mirrored.follow()
    assert mirrored.checkpoint() == ("c",)
    files = {checkpoint_path(folder_of(tmp_path, domain), EVERY).read_bytes() for domain in DOMAINS}
    assert len(files) == 1


def test_of_a_log_that_was_edited_none_is_made(tmp_path):
    mirrored, *_ = three_replications(tmp_path)
    newest = commit_entries(mirrored, EVERY + 1)
    mirrored.follow()
    edited = entry_path(folder_of(tmp_path, "a"), 3)
    edited.write_bytes(edited.read_bytes().replace(b'"size": 10', b'"size": 11'))
    with pytest.raises(ReplicaCorrupt, match="not the acknowledged one"):
        mirrored.checkpoint()
    assert not last_checkpoint_path(folder_of(tmp_path, "b")).exists()
    opened(folder_of(tmp_path, "b"), newest)


def test_one_that_rotted_is_named_and_not_built_upon(tmp_path):
    mirrored, *_ = three_replications(tmp_path)
    commit_entries(mirrored, EVERY + 1)
    mirrored.checkpoint()
    rotten = checkpoint_path(folder_of(tmp_path, "a"), EVERY)
    rotten.write_bytes(rotten.read_bytes()[:-10])
    assert "checkpoint of version 20" in mirrored.broken()["a"][0]
    newest = commit_entries(mirrored, EVERY)
    mirrored.follow()
    assert sorted(mirrored.checkpoint()) == list(DOMAINS)
    plain = without_checkpoints(folder_of(tmp_path, "b"), tmp_path / "plain")
    assert opened(folder_of(tmp_path, "a"), newest) == opened(plain, newest)


def test_processes_that_make_one_at_once_leave_one_that_the_pointer_fits(tmp_path):
    first, *_ = three_replications(tmp_path)
    newest = commit_entries(first, EVERY + 1)
    for version in range(2 * EVERY, 5 * EVERY, EVERY):
        processes = [three_replications(tmp_path)[0] for _ in range(4)]
        with ThreadPoolExecutor(len(processes)) as threads:
            list(threads.map(lambda each: each.checkpoint(), processes))
        plain = without_checkpoints(folder_of(tmp_path, "a"), tmp_path / f"plain{version}")
        for domain in DOMAINS:
            folder = folder_of(tmp_path, domain)
            assert json.loads(last_checkpoint_path(folder).read_bytes())["version"] == newest // EVERY * EVERY
            assert opened(folder, newest) == opened(plain, newest)
        assert first.broken() == {domain: [] for domain in DOMAINS}
        newest = commit_entries(first, EVERY)
        first.follow()


class Killed(BaseException):
    """The process is gone."""


class KillAt:
    """Kills the process before or after its n-th store operation."""

    def __init__(self) -> None:
        self.at: tuple[int, bool] | None = None
        self.seen = 0

    def before(self, store, operation, key) -> Fault | None:
        self._pass(after=False)
        return None

    def after(self, store, operation, key) -> None:
        self._pass(after=True)
        self.seen += 1

    def later(self, store, effect) -> None:
        pass

    def _pass(self, *, after: bool) -> None:
        if self.at == (self.seen, after):
            self.at = None
            raise Killed


class Maker:
    """Makes a checkpoint whose content is unlike any other, as two processes may."""

    def __init__(self) -> None:
        self._made = count(1)

    def __call__(self, base: Checkpoint | None, entries: Sequence[bytes]) -> Checkpoint:
        before, chain = (-1, GENESIS) if base is None else (base.version, base.chain)
        version = before + len(entries)
        return Checkpoint(
            version=version,
            chain=extend_all(chain, entries),
            content=f"checkpoint of {version}, number {next(self._made)}".encode(),
            hint={"version": version},
        )


def test_a_kill_at_any_moment_leaves_a_pointer_to_a_whole_checkpoint_or_none_and_the_next_round_goes_on():
    weather, make = KillAt(), Maker()
    stores = {domain: MemoryStore(domain, weather) for domain in DOMAINS}
    platform = Platform(stores)
    platform.bootstrap()
    leader = platform.process("a")
    for _ in range(EVERY + 2):
        lead = leader.commit()
    assert lead.version > EVERY
    state = leader.mirror.push()
    untouched = {domain: dict(stores[domain].files) for domain in DOMAINS}
    weather.seen = 0
    assert sorted(checkpoint_replicas(leader.mirror.table, state, make)) == list(DOMAINS)
    operations = weather.seen
    kills = 0
    for at in range(operations):
        for after in (False, True):
            for domain in DOMAINS:
                stores[domain].files = dict(untouched[domain])
            weather.seen, weather.at = 0, (at, after)
            with pytest.raises(Killed):
                checkpoint_replicas(platform.process("a").mirror.table, state, make)
            kills += 1
            for domain in DOMAINS:
                there = Checkpoints(leader.mirror.table.replica(domain), 1)
                assert there.newest_version() in (-1, EVERY)
                assert there.problem() is None
                if there.newest_version() == EVERY:
                    assert there.newest() is not None
            checkpoint_replicas(platform.process("a").mirror.table, state, make)
            for domain in DOMAINS:
                there = Checkpoints(leader.mirror.table.replica(domain), 1)
                assert there.newest_version() == EVERY
                assert there.problem() is None
    assert kills == 2 * operations > 40


@pytest.mark.parametrize("columns", [{"x": [1]}, {"add": [1]}])
def test_a_parquet_file_that_is_no_checkpoint_is_told_to_be_none(columns):
    stray = BytesIO()
    pq.write_table(pa.table(columns), stray)
    with pytest.raises(ReplicaCorrupt, match="a checkpoint cannot be read"):
        live_files(stray.getvalue())


def test_a_file_of_somebody_else_is_named_and_not_built_upon(tmp_path):
    there = Checkpoints(Replica(LocalStore(tmp_path), table="events", domain="a"), 1)
    first = make_checkpoint(None, list(log_entries(EVERY + 1)))
    other = replace(first, content=first.content + b"other")
    path = checkpoint_path(tmp_path / "tables" / "events" / "g000001", EVERY)
    path.parent.mkdir(parents=True)
    path.write_bytes(other.content)
    assert there.put(first)
    assert path.read_bytes() == other.content
    assert there.newest_version() == EVERY
    assert there.newest() is None


def test_what_a_killed_process_left_in_the_making_goes_with_a_later_one(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    long_ago = time.time() - 7200
    for name in ("etl-assets-checkpoint-old", "etl-assets-checkpoint-young", "other-old"):
        (tmp_path / name / "_delta_log").mkdir(parents=True)
        if name.endswith("old"):
            os.utime(tmp_path / name, (long_ago, long_ago))
    make_checkpoint(None, list(log_entries(1)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["etl-assets-checkpoint-young", "other-old"]


def test_the_pointer_only_moves_on(tmp_path):
    there = Checkpoints(Replica(LocalStore(tmp_path), table="events", domain="a"), 1)
    entries = list(log_entries(2 * EVERY + 1))
    older = make_checkpoint(None, entries[: EVERY + 1])
    newer = make_checkpoint(older, entries[EVERY + 1 :])
    assert there.put(newer)
    assert not there.put(older)
    assert there.newest_version() == 2 * EVERY
    newest = there.newest()
    assert newest is not None
    assert newest.chain == newer.chain == make_checkpoint(None, entries).chain


def test_a_table_of_a_thousand_versions_is_opened_several_times_faster(tmp_path):
    versions = 1_000
    plain, quick = tmp_path / "plain", tmp_path / "quick"
    write_log(plain, versions)
    entries = list(log_entries(versions))
    write_log(quick, versions)
    newest = due(versions - 1)
    made = make_checkpoint(None, entries[: newest + 1])
    checkpoint_path(quick, newest).write_bytes(made.content)
    last_checkpoint_path(quick).write_bytes(made.pointer(made.content))
    assert opened(quick, versions - 1) == opened(plain, versions - 1)
    assert 3 * _cpu_seconds(quick, versions - 1) < _cpu_seconds(plain, versions - 1)


def _cpu_seconds(folder: Path, version: int) -> float:
    """CPU time of opening a table as the platform does; the least of some, as other work only adds to it."""
    found = []
    for _ in range(5):
        began = time.process_time()
        Snapshot(DeltaTable(str(folder), version=version)).row_count()
        found.append(time.process_time() - began)
    return min(found)
