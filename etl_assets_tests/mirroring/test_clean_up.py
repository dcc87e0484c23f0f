"""Logs that begin later: agreed on, the same in every replica, and whoever was away or emptied begins there
too.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.exceptions import DeltaError

from etl_assets.delta.log.checkpoint import make_checkpoint as make_checkpoint_of_entries
from etl_assets.delta.log.checkpoint import says_the_same
from etl_assets.delta.log.entries import checkpoint_path, entry_path, last_checkpoint_path
from etl_assets.delta.replicated.replication import Replication
from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.maintenance.log_cleanup import clean, move_base
from etl_assets.mirroring.protocol.checkpoints import EVERY, Checkpoints
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.mirroring.protocol.record import WHOLE_LOG
from etl_assets.mirroring.protocol.record_codec import encode
from etl_assets.mirroring.protocol.replica import ReplicaStore
from etl_assets.mirroring.stores.local_store import LocalStore
from etl_assets.testing.memory_store import MemoryStore
from etl_assets_tests.mirroring.platform import Platform, Process
from etl_assets_tests.mirroring.simulation import live_files, make_checkpoint
from etl_assets_tests.mirroring.test_checkpoints import (
    DOMAINS,
    KillAt,
    Killed,
    folder_of,
    opened,
    without_checkpoints,
)
from etl_assets_tests.reference.mirrored_log import commit_entries, log_entries, three_replications

KEEP, FIRST, NEWEST = 10, 24, 34
"""The log of versions 0 to 34 that keeps ten before its head begins with version 24."""


def versions_of(folder: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in (folder / "_delta_log").glob("*.json"))


def checkpoints_of(folder: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in (folder / "_delta_log").glob("*.checkpoint.parquet"))


def newest_folder(home: Path, domain: str) -> Path:
    return max((home / domain / "tables" / "events").glob("g*"))


@pytest.fixture
def mirrored(tmp_path: Path) -> Replication:
    """A table in three domains, of 35 versions, with a checkpoint of version 20."""
    first, *_ = three_replications(tmp_path)
    commit_entries(first, 25)
    first.follow()
    first.checkpoint()
    commit_entries(first, 10)
    first.follow()
    return first


def test_every_replica_loses_what_is_older_than_the_retention_and_is_read_as_before(mirrored, tmp_path):
    plain = without_checkpoints(folder_of(tmp_path, "a"), tmp_path / "plain")
    begins, removed = mirrored.shorten(KEEP)
    assert begins == FIRST
    assert {each.domain: len(each.keys) for each in removed} == dict.fromkeys(DOMAINS, FIRST + 1)
    for domain in DOMAINS:
        folder = folder_of(tmp_path, domain)
        assert versions_of(folder) == list(range(FIRST, NEWEST + 1))
        assert checkpoints_of(folder) == [FIRST]
        for version in (FIRST, FIRST + 1, NEWEST):
            assert opened(folder, version) == opened(plain, version)
        with pytest.raises(DeltaError):
            opened(folder, FIRST - 1)
    assert mirrored.broken() == {domain: [] for domain in DOMAINS}
    assert mirrored.shorten(KEEP) == (
        FIRST,
        tuple(type(each)(domain=each.domain, keys=()) for each in removed),
    )


def test_the_table_goes_on_and_the_next_beginning_is_made_of_the_last(mirrored, tmp_path):
    mirrored.shorten(KEEP)
    newest = commit_entries(mirrored, 10)
    mirrored.follow()
    assert sorted(mirrored.checkpoint()) == list(DOMAINS)
    begins, _ = mirrored.shorten(KEEP)
    assert begins == FIRST + 10
    for domain in DOMAINS:
        assert versions_of(folder_of(tmp_path, domain)) == list(range(begins, newest + 1))
        assert checkpoints_of(folder_of(tmp_path, domain)) == [begins, 40]
    whole, *_ = three_replications(tmp_path / "whole")
    commit_entries(whole, newest + 1)
    assert opened(folder_of(tmp_path, "b"), newest) == opened(folder_of(tmp_path / "whole", "a"), newest)
    assert mirrored.broken() == {domain: [] for domain in DOMAINS}


def test_a_reader_that_last_looked_before_the_log_begins_still_reads_its_own_replica(mirrored, tmp_path):
    _, reader, _ = three_replications(tmp_path)
    assert (bound := reader.bind()) is not None
    assert (bound.domain, bound.version) == ("b", NEWEST)
    newest = commit_entries(mirrored, KEEP + 2)
    mirrored.follow()
    assert mirrored.shorten(KEEP)[0] > FIRST
    commit_entries(mirrored, 2 * KEEP)
    mirrored.follow()
    assert mirrored.shorten(KEEP)[0] > NEWEST + 1
    assert (bound := reader.bind()) is not None
    assert (bound.domain, bound.version) == ("b", newest + 2 * KEEP)


@pytest.mark.parametrize("how", ["changed", "gone"])
@pytest.mark.parametrize("pointed_at", [True, False])
def test_a_replica_whose_log_begins_with_a_wrong_checkpoint_is_not_read(mirrored, tmp_path, how, pointed_at):
    mirrored.shorten(KEEP)
    folder = folder_of(tmp_path, "b")
    checkpoint = checkpoint_path(folder, FIRST)
    if how == "gone":
        checkpoint.unlink()
    else:
        checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    if not pointed_at:
        last_checkpoint_path(folder).unlink(missing_ok=True)
    _, reader, _ = three_replications(tmp_path)
    assert (bound := reader.bind()) is not None
    assert bound.domain == "a"
    # Whoever leads from there builds it anew first.
    assert reader.lead().version == NEWEST
    assert reader.broken()["b"] == []


def test_a_store_that_did_not_answer_has_no_other_file_in_its_place():
    class Silent(MemoryStore):
        def create(self, key: str, content: bytes) -> bool:
            raise Unanswered("no answer", fix="try again", store=self.name, key=key)

    here = Checkpoints(ReplicaStore(Silent("s"), table="events", domain="s"), folder=1)
    with pytest.raises(Unanswered):
        here.keep(WHOLE_LOG, b"content")


def test_a_beginning_moves_only_if_that_gains_enough(mirrored):
    assert mirrored.shorten(KEEP, step=FIRST + 1)[0] == 0
    assert mirrored.shorten(NEWEST)[0] == 0
    assert mirrored.shorten(KEEP, step=FIRST)[0] == FIRST


def test_an_emptied_domain_begins_with_the_checkpoint_and_gets_no_file_from_before(mirrored, tmp_path):
    mirrored.shorten(KEEP)
    shutil.rmtree(tmp_path / "c" / "tables")
    shutil.rmtree(tmp_path / "c" / "register")
    mirrored.membership.add("c")
    mirrored.follow()
    folder = newest_folder(tmp_path, "c")
    assert versions_of(folder) == list(range(FIRST, NEWEST + 1))
    assert opened(folder, NEWEST) == opened(folder_of(tmp_path, "a"), NEWEST)
    data = {path.name for path in folder.rglob("part-*.parquet")}
    assert "part-18.parquet" not in data, "version 19 took it out"
    assert data == {f"part-{version}.parquet" for version in range(NEWEST + 1) if version not in (8, 18)}
    mirrored.membership.promote("c")
    assert mirrored.broken() == {domain: [] for domain in DOMAINS}
    assert mirrored.checkpoint() == (), "the log begins later than the one that was due"


def test_a_domain_that_was_away_too_long_gets_a_snapshot_and_keeps_the_files_it_has(mirrored, tmp_path):
    away = (tmp_path / "c").rename(tmp_path / "away")
    newest = commit_entries(mirrored, 15)
    begins, _ = mirrored.shorten(KEEP)
    assert begins > NEWEST + 1
    away.rename(tmp_path / "c")
    assert mirrored.broken()["c"] == [], "what it has does not count any more"
    mirrored.follow()
    old, new = folder_of(tmp_path, "c"), newest_folder(tmp_path, "c")
    assert old != new
    assert versions_of(new) == list(range(begins, newest + 1))
    assert opened(new, newest) == opened(folder_of(tmp_path, "a"), newest)
    file = "partition_date=2026-01-06/part-5.parquet"
    assert (new / file).samefile(old / file)
    commit_entries(mirrored, 1)
    mirrored.follow()
    assert mirrored.broken() == {domain: [] for domain in DOMAINS}


def test_a_domain_that_was_away_for_less_than_the_retention_gets_what_it_missed(mirrored, tmp_path):
    away = (tmp_path / "c").rename(tmp_path / "away")
    newest = commit_entries(mirrored, KEEP - 1)
    begins, removed = mirrored.shorten(KEEP)
    assert begins <= NEWEST
    assert {each.domain for each in removed if each.keys} == {"a", "b"}
    away.rename(tmp_path / "c")
    mirrored.follow()
    assert newest_folder(tmp_path, "c") == folder_of(tmp_path, "c")
    commit_entries(mirrored, 1)
    mirrored.follow()
    mirrored.shorten(KEEP + 1)
    assert versions_of(folder_of(tmp_path, "c")) == list(range(begins, newest + 2))
    assert mirrored.broken() == {domain: [] for domain in DOMAINS}


def test_a_checkpoint_that_rotted_is_named_and_never_copied(mirrored, tmp_path):
    mirrored.shorten(KEEP)
    rotten = checkpoint_path(folder_of(tmp_path, "a"), FIRST)
    content = rotten.read_bytes()
    rotten.write_bytes(content[:-1] + b"?")
    assert "not what was agreed on" in mirrored.broken()["a"][0]
    # B takes the lead; it asks A for nothing that is not as agreed.
    _, second, _ = three_replications(tmp_path)
    second.rebuild("a")
    assert checkpoint_path(newest_folder(tmp_path, "a"), FIRST).read_bytes() == content
    assert second.broken() == {domain: [] for domain in DOMAINS}


def test_without_any_whole_checkpoint_nothing_is_built(mirrored, tmp_path):
    mirrored.shorten(KEEP)
    for domain in "ab":
        checkpoint_path(folder_of(tmp_path, domain), FIRST).unlink()
    shutil.rmtree(tmp_path / "c" / "tables")
    shutil.rmtree(tmp_path / "c" / "register")
    mirrored.membership.add("c")
    mirrored.follow()
    assert not list((tmp_path / "c" / "tables").rglob("*.json"))
    assert ["is gone or not what was agreed on" in mirrored.broken()[domain][0] for domain in "ab"] == [
        True
    ] * 2


def test_of_a_log_that_was_edited_no_beginning_is_made(mirrored, tmp_path):
    edited = entry_path(folder_of(tmp_path, "a"), 3)
    edited.write_bytes(edited.read_bytes().replace(b'"size": 10', b'"size": 11'))
    with pytest.raises(ReplicaCorrupt, match="it was not shortened"):
        mirrored.shorten(KEEP)
    assert versions_of(folder_of(tmp_path, "b")) == list(range(NEWEST + 1))


def test_a_log_never_begins_where_a_replica_may_have_a_checkpoint_for_its_readers(mirrored, tmp_path):
    # Of the same version, not of the same bytes; the leader's replica, built anew since, has none.
    for domain in "ab":
        made = checkpoint_path(folder_of(tmp_path, domain), EVERY)
        content = pq.read_table(pa.BufferReader(made.read_bytes()))
        made.unlink()
        last_checkpoint_path(folder_of(tmp_path, domain)).unlink()
    with pa.BufferOutputStream() as other:
        pq.write_table(content, other, compression="gzip")
        theirs = other.getvalue().to_pybytes()
    made = make_checkpoint_of_entries(None, list(log_entries(EVERY + 1)))
    b = ReplicaStore(LocalStore(tmp_path / "b"), table="events", domain="b")
    assert Checkpoints(b, 1).put(replace(made, content=theirs), says_the_same)
    begins, _ = mirrored.shorten(NEWEST - EVERY)
    assert begins == EVERY - 1
    assert newest_folder(tmp_path, "b") == folder_of(tmp_path, "b")
    assert checkpoints_of(folder_of(tmp_path, "b")) == [EVERY - 1, EVERY]
    assert mirrored.broken() == {domain: [] for domain in DOMAINS}


def in_memory(roles: dict[str, Role], weather: KillAt | None = None) -> Platform:
    platform = Platform(
        {domain: MemoryStore(domain, weather) for domain in roles}, roles, live_files=live_files
    )
    platform.bootstrap()
    return platform


def filled(platform: Platform, versions: int = 8) -> Process:
    leader = platform.process("a")
    lead = leader.lead()
    for _ in range(versions):
        lead = leader.commit(lead)
    leader.mirror.follow()
    return leader


def memory(platform: Platform, domain: str) -> MemoryStore:
    store = platform.stores[domain]
    assert isinstance(store, MemoryStore)
    return store


def logs(platform: Platform) -> dict[str, list[str]]:
    return {
        domain: sorted(
            key.rpartition("/")[2] for key in memory(platform, domain).files if "/_delta_log/" in key
        )
        for domain in platform.stores
    }


def test_a_witness_keeps_the_log_from_there_on_without_a_checkpoint():
    platform = in_memory({"a": Role.VOTER, "b": Role.VOTER, "w": Role.WITNESS, "l": Role.LEARNER})
    leader = filled(platform)
    state = move_base(leader.mirror, keep=2, make=make_checkpoint)
    clean(leader.mirror.table, state)
    kept = [f"{version:020d}.json" for version in (5, 6, 7)]
    with_data = sorted([*kept, f"{5:020d}.checkpoint.parquet", "_last_checkpoint"])
    assert logs(platform) == {"a": with_data, "b": with_data, "w": kept, "l": with_data}
    memory(platform, "w").files.clear()
    leader.membership.add("w", witness=True)
    leader.commit()
    leader.mirror.follow()
    entries = [name for name in logs(platform)["w"] if name.endswith(".json")]
    assert entries == [*kept, f"{8:020d}.json"]


def test_a_beginning_that_too_few_agreed_on_removes_nothing():
    platform = in_memory(dict.fromkeys("abc", Role.VOTER))
    leader = filled(platform)
    before = logs(platform)["b"]
    state = leader.mirror.push()
    # As B would see it, which has not voted for it yet.
    unseen = move_base(leader.mirror, keep=2, make=make_checkpoint)
    assert unseen.base != state.base == WHOLE_LOG
    held = leader.mirror.table.replica("b").register.read()
    assert held is not None
    assert held.record.accepted == unseen
    memory(platform, "b").files["register/events.json"] = encode(replace(held.record, accepted=state))
    clean(leader.mirror.table, unseen)
    assert [name for name in logs(platform)["b"] if name.endswith(".json")] == before
    assert len([name for name in logs(platform)["c"] if name.endswith(".json")]) == 3


def test_a_kill_at_any_moment_leaves_logs_that_can_be_read_and_the_next_round_finishes():
    weather = KillAt()
    platform = in_memory({"a": Role.VOTER, "b": Role.VOTER, "w": Role.WITNESS, "l": Role.LEARNER}, weather)
    filled(platform)
    untouched = {domain: dict(memory(platform, domain).files) for domain in platform.stores}

    def shorten() -> None:
        mirror = platform.process("a").mirror
        clean(mirror.table, move_base(mirror, keep=2, make=make_checkpoint))

    weather.seen = 0
    shorten()
    finished, operations = logs(platform), weather.seen
    for at in range(operations):
        for after in (False, True):
            for domain, files in untouched.items():
                memory(platform, domain).files = dict(files)
            weather.seen, weather.at = 0, (at, after)
            with pytest.raises(Killed):
                shorten()
            for domain, names in logs(platform).items():
                entries = [int(name[:20]) for name in names if name.endswith(".json")]
                assert entries == list(range(entries[0], 8)), f"{domain} has a gap"
                summed_up = [int(name[:20]) for name in names if name.endswith(".parquet")]
                assert entries[0] == 0 or domain == "w" or entries[0] <= min(summed_up)
            assert platform.process("b").reading.bind().version == 7
            shorten()
            # A killed round may have left a checkpoint that nobody agreed on: then the log begins one version
            # earlier.
            begins = platform.process("a").mirror.push().base.first
            assert begins in (4, 5)
            assert logs(platform) == finished or begins == 4
    assert operations > 60
