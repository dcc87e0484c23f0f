"""Checkpoints of mirrored tables: they say what the log says, of acknowledged versions only, whatever happens
on the way.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from etl_assets.delta.log.checkpoint import live_files, make_checkpoint, says_the_same
from etl_assets.delta.log.entries import checkpoint_path, entry_path, last_checkpoint_path
from etl_assets.delta.snapshot import Snapshot
from etl_assets.errors import ReplicaCorrupt
from etl_assets.mirroring.protocol.chain import GENESIS, extend_all
from etl_assets.mirroring.protocol.checkpoints import EVERY, Checkpoint, Checkpoints, checkpoint_replicas, due
from etl_assets.mirroring.protocol.replica import ReplicaStore
from etl_assets.mirroring.stores.local_store import LocalStore
from etl_assets.testing.memory_store import MemoryStore, StoreFault
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
    entry = ReplicaStore.entry

    def counted(self, folder, version):
        read.append(version)
        return entry(self, folder, version)

    monkeypatch.setattr(ReplicaStore, "entry", counted)
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

    def before(self, store, operation, key) -> StoreFault | None:
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

    @staticmethod
    def same(one: bytes, other: bytes) -> bool:
        return one.split(b",")[0] == other.split(b",")[0]


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
    assert sorted(checkpoint_replicas(leader.mirror.table, state, make, make.same)) == list(DOMAINS)
    operations = weather.seen
    kills = 0
    for at in range(operations):
        for after in (False, True):
            for domain in DOMAINS:
                stores[domain].files = dict(untouched[domain])
            weather.seen, weather.at = 0, (at, after)
            with pytest.raises(Killed):
                checkpoint_replicas(platform.process("a").mirror.table, state, make, make.same)
            kills += 1
            for domain in DOMAINS:
                there = Checkpoints(leader.mirror.table.replica(domain), 1)
                assert there.newest_version() in (-1, EVERY)
                assert there.problem() is None
                if there.newest_version() == EVERY:
                    assert there.newest() is not None
            checkpoint_replicas(platform.process("a").mirror.table, state, make, make.same)
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


Edit = Callable[[str, dict], dict | None]
"""What becomes of an action of a checkpoint, given its kind; None: it goes."""


def edited(checkpoint: bytes, edit: Edit, **extra: dict) -> bytes:
    """A checkpoint as somebody's edit of it, in other bytes in any case."""
    table = pq.ParquetFile(BytesIO(checkpoint)).read()
    rows = [
        {kind: edit(kind, action) for kind, action in row.items() if action is not None}
        for row in table.to_pylist()
    ] + [{kind: action} for kind, action in extra.items()]
    into = BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), into, compression="none")
    assert into.getvalue() != checkpoint
    return into.getvalue()


def as_it_is(kind: str, action: dict) -> dict:
    return action


def with_statistics(write: Callable[[dict], str | None]) -> Edit:
    return lambda kind, action: (
        action if kind != "add" else {**action, "stats": write(json.loads(action["stats"]))}
    )


def changed(kind: str, **fields: object) -> Edit:
    """Gives all actions of a kind other values."""
    return lambda found, action: {**action, **fields} if found == kind else action


def without(kind: str, field: str, value: object) -> Edit:
    return lambda found, action: None if found == kind and action[field] == value else action


LIVE, GONE = "partition_date=2026-01-04/part-3.parquet", "partition_date=2026-01-09/part-8.parquet"


@pytest.mark.parametrize(
    "edit",
    [
        as_it_is,
        without("remove", "path", GONE),
        with_statistics(lambda stats: json.dumps(dict(reversed(stats.items())), separators=(",", ":"))),
        lambda kind, action: (
            {**action, "writerFeatures": action["writerFeatures"][::-1]} if kind == "protocol" else action
        ),
        lambda kind, action: (
            {**action, "configuration": action["configuration"][::-1]} if kind == "metaData" else action
        ),
    ],
    ids=["compressed otherwise", "expired remove", "statistics", "features", "properties"],
)
def test_checkpoints_of_other_bytes_may_say_the_same(edit):
    made = make_checkpoint(None, list(log_entries(EVERY + 1))).content
    assert says_the_same(edited(made, edit), made)
    assert says_the_same(made, edited(made, edit))


REMOVE = {"path": LIVE, "deletionTimestamp": 1, "dataChange": True}


@pytest.mark.parametrize(
    ("edit", "extra"),
    [
        (without("add", "path", LIVE), {}),
        (lambda kind, action: {**action, "size": 11} if action.get("path") == LIVE else action, {}),
        (changed("add", partitionValues=[("partition_date", "2026-01-01")]), {}),
        (with_statistics(lambda stats: json.dumps({**stats, "numRecords": 4})), {}),
        (with_statistics(lambda stats: None), {}),
        (changed("txn", version=7), {}),
        (without("txn", "version", 3), {}),
        (changed("metaData", configuration=[]), {}),
        (changed("protocol", minReaderVersion=2), {}),
        (changed("domainMetadata", configuration="{}"), {}),
        (as_it_is, {"txn": {"appId": "raw_events/2027-01-01", "version": 5}}),
        (as_it_is, {"remove": REMOVE}),
        (as_it_is, {"sidecar": {"path": "x.parquet", "sizeInBytes": 1, "modificationTime": 1}}),
    ],
)
def test_checkpoints_that_differ_in_anything_that_counts_do_not_say_the_same(edit, extra):
    made = make_checkpoint(None, list(log_entries(EVERY + 1))).content
    assert not says_the_same(edited(made, edit, **extra), made)
    assert not says_the_same(made, edited(made, edit, **extra))


def test_what_is_there_twice_is_not_the_same_as_once():
    made = make_checkpoint(None, list(log_entries(EVERY + 1))).content
    (twice,) = [
        row["add"]
        for row in pq.ParquetFile(BytesIO(made)).read().to_pylist()
        if row["add"] and row["add"]["path"] == LIVE
    ]
    assert not says_the_same(edited(made, as_it_is, add=twice), made)


def test_what_is_no_checkpoint_says_nothing():
    made = make_checkpoint(None, list(log_entries(1))).content
    assert not says_the_same(made[:-9], made)
    assert not says_the_same(b"", made)


def checkpoints_with(root: Path, content: bytes) -> Checkpoints:
    """Those of a folder in which somebody's file is in the place of the first one."""
    path = checkpoint_path(root / "tables" / "events" / "g000001", EVERY)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return Checkpoints(ReplicaStore(LocalStore(root), table="events", domain="a"), 1)


def test_a_file_of_somebody_else_that_says_something_else_is_never_named(tmp_path):
    made = make_checkpoint(None, list(log_entries(EVERY + 1)))
    foreign = edited(made.content, changed("txn", version=7))
    there = checkpoints_with(tmp_path, foreign)
    assert not there.put(made, says_the_same)
    assert checkpoint_path(tmp_path / "tables" / "events" / "g000001", EVERY).read_bytes() == foreign
    assert there.newest_version() == -1


def test_a_file_of_another_process_that_says_the_same_is_named_with_the_mark(tmp_path):
    made = make_checkpoint(None, list(log_entries(EVERY + 1)))
    there = checkpoints_with(tmp_path, edited(made.content, as_it_is))
    assert there.put(made, says_the_same)
    assert there.problem() is None
    newest = there.newest()
    assert newest is not None
    assert (newest.version, newest.chain) == (EVERY, made.chain)
    assert newest.content != made.content


def unmarked(pointer: bytes) -> dict:
    """What whoever does not know of the mark writes in its place."""
    return {key: value for key, value in json.loads(pointer).items() if key != "tags"}


def test_a_pointer_that_is_not_the_platforms_is_damage(tmp_path):
    made = make_checkpoint(None, list(log_entries(EVERY + 1)))
    there = Checkpoints(ReplicaStore(LocalStore(tmp_path), table="events", domain="a"), 1)
    assert there.problem() is None
    assert there.put(made, says_the_same)
    assert there.problem() is None
    pointer = last_checkpoint_path(tmp_path / "tables" / "events" / "g000001")
    hint = json.loads(pointer.read_bytes())
    edits = [
        unmarked(pointer.read_bytes()),
        {**hint, "tags": {}},
        {**hint, "tags": 5},
        {**hint, "tags": {**hint["tags"], "etlAssets.chain": 5}},
        {**hint, "tags": {**hint["tags"], "etlAssets.sha256": "0" * 64}},
        {**hint, "version": EVERY + 1},
        {**hint, "version": "20"},
        {},
        [hint],
    ]
    for content in [*(json.dumps(edit) for edit in edits), "{", ""]:
        pointer.write_text(content)
        assert there.problem() is not None, content
        assert there.newest() is None


def edit_pointer(folder: Path) -> None:
    pointer = last_checkpoint_path(folder)
    pointer.write_text(json.dumps(unmarked(pointer.read_bytes())))


def make_one_by_delta(folder: Path) -> None:
    DeltaTable(str(folder)).create_checkpoint()


@pytest.mark.parametrize("spoil", [edit_pointer, make_one_by_delta])
def test_a_replica_whose_pointer_is_not_the_platforms_is_neither_led_from_nor_read_and_is_named(
    tmp_path, spoil
):
    leader, *_ = three_replications(tmp_path)
    newest = commit_entries(leader, EVERY + 3)
    leader.follow()
    assert sorted(leader.checkpoint()) == list(DOMAINS)
    for domain in "ac":
        spoil(folder_of(tmp_path, domain))
    broken = three_replications(tmp_path)[1].broken()
    assert [domain for domain, problems in broken.items() if problems] == ["a", "c"]
    for process in three_replications(tmp_path):
        bound = process.bind()
        assert bound is not None
        assert (bound.domain, bound.version) == ("b", newest)
    process = three_replications(tmp_path)[0]
    whole = opened(folder_of(tmp_path, "b"), newest)
    assert process.folder(process.lead()) != folder_of(tmp_path, "a")
    assert opened(process.folder(process.lead()), newest) == whole
    process.rebuild("c")
    assert process.broken() == {domain: [] for domain in DOMAINS}


@pytest.mark.parametrize("first", [0, EVERY + 4], ids=["whole log", "log that begins later"])
def test_a_table_all_of_whose_pointers_were_edited_goes_on_from_its_log(tmp_path, first):
    leader, *_ = three_replications(tmp_path)
    commit_entries(leader, EVERY + 14)
    leader.follow()
    leader.checkpoint()
    if first:
        assert leader.shorten(9)[0] == first
    newest = commit_entries(leader, EVERY)
    leader.follow()
    leader.checkpoint()
    whole = opened(folder_of(tmp_path, "b"), newest)
    other = edited(
        checkpoint_path(folder_of(tmp_path, "b"), 2 * EVERY).read_bytes(), changed("txn", version=7)
    )
    for domain in DOMAINS:
        checkpoint_path(folder_of(tmp_path, domain), 2 * EVERY).write_bytes(other)
        edit_pointer(folder_of(tmp_path, domain))
    for domain, process in zip(DOMAINS[:2], three_replications(tmp_path), strict=False):
        # Each leads in turn, by its own log; a reader goes where a whole one is.
        lead = process.lead()
        assert lead.version == newest
        assert opened(process.folder(lead), newest) == whole
        bound = three_replications(tmp_path)[2].bind()
        assert bound is not None
        assert (bound.domain, bound.version) == (domain, newest)
    process = three_replications(tmp_path)[1]
    process.rebuild("c")
    assert process.broken() == {domain: [] for domain in DOMAINS}
    assert commit_entries(process, EVERY) == newest + EVERY
    process.follow()
    assert sorted(process.checkpoint()) == list(DOMAINS)


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
    there = Checkpoints(ReplicaStore(LocalStore(tmp_path), table="events", domain="a"), 1)
    entries = list(log_entries(2 * EVERY + 1))
    older = make_checkpoint(None, entries[: EVERY + 1])
    newer = make_checkpoint(older, entries[EVERY + 1 :])
    assert there.put(newer, says_the_same)
    assert not there.put(older, says_the_same)
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
