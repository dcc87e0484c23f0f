"""From one failure domain to several: what the table had is there, whichever domain touches it first and
whatever happens.
"""

from __future__ import annotations

import errno
import itertools
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable

from etl_assets.delta.log.entries import checkpoint_path, entry_path, last_checkpoint_path, newest_checkpoint
from etl_assets.delta.replicated.replication import TABLE_PROPERTIES, Replication
from etl_assets.delta.snapshot import Snapshot
from etl_assets.errors import MembershipRefused, QuorumUnavailable, ReplicaCorrupt
from etl_assets.mirroring.protocol.checkpoints import EVERY
from etl_assets.mirroring.protocol.lead import Lead
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.mirroring.stores.guarded_store import GuardedStore
from etl_assets.mirroring.stores.local_store import LocalStore
from etl_assets_tests.mirroring.test_stores import unlistable
from etl_assets_tests.reference.mirrored_log import (
    all_that_it_says,
    commit_entries,
    replications,
    single_log,
)

DOMAINS = "abc"
NEWEST, OLDEST_KEPT = 11, 10
CLOSED = NEWEST + 1
"""The version of the entry that closes the table's log."""


@pytest.fixture
def before(tmp_path) -> Path:
    """The folder of a table with one domain, with a checkpoint of Delta's making."""
    return single_log(tmp_path / "a", NEWEST + 1, checkpoints=(OLDEST_KEPT,))


@pytest.fixture
def cleaned(before) -> Path:
    """The same, and entries that were old enough are gone."""
    for version in range(OLDEST_KEPT):
        entry_path(before, version).unlink()
    return before


def said(folder: Path, version: int | None = None) -> dict:
    return all_that_it_says(Snapshot(DeltaTable(str(folder), version=version)))


def led(process: Replication) -> Lead:
    """The lead as a step takes it up."""
    process.create()
    return process.lead()


def folders(home: Path) -> list[Path]:
    """Where each domain has the table now."""
    found = []
    for process in replications(home):
        bound = process.bind()
        assert bound is not None
        found.append(Path(bound.uri) / bound.folder)
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def expect_all_of_it(home: Path, before: dict, version: int) -> None:
    """Every domain has what the table had, in a folder without anything of Delta's own making, and all the
    same.
    """
    whole = folders(home)
    assert [folder.relative_to(home).parts[0] for folder in whole] == list(DOMAINS)
    for folder in whole:
        assert said(folder, CLOSED) | {"version": NEWEST} == before
        assert newest_checkpoint(folder) == -1
        assert DeltaTable(str(folder)).version() == version
    assert files(whole[0]) == files(whole[1]) == files(whole[2])
    assert replications(home)[1].broken() == {domain: [] for domain in DOMAINS}


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("log", ["before", "cleaned"])
def test_whichever_domain_leads_first_begins_with_what_the_table_had(tmp_path, request, log, first):
    was = said(request.getfixturevalue(log))
    process = replications(tmp_path)[first]
    assert led(process).version == CLOSED
    process.follow()
    expect_all_of_it(tmp_path, was, CLOSED)
    newest = commit_entries(process, EVERY)
    process.follow()
    assert sorted(process.checkpoint()) == list(DOMAINS)
    assert [newest_checkpoint(folder) for folder in folders(tmp_path)] == [EVERY] * 3
    assert replications(tmp_path)[2 - first].lead().version == newest
    assert replications(tmp_path)[0].broken() == {domain: [] for domain in DOMAINS}


def test_a_look_from_any_domain_finds_the_table(tmp_path, before):
    was = said(before)
    for process in replications(tmp_path)[1:]:
        bound = process.bind()
        assert bound is not None
        assert bound.version == CLOSED
    expect_all_of_it(tmp_path, was, CLOSED)


def test_older_versions_stay_where_the_log_is_whole(tmp_path, before):
    was = said(before, 7)
    replications(tmp_path)[1].create()
    assert [said(folder, 7) for folder in folders(tmp_path)] == [was] * 3


def test_it_gets_the_properties_of_a_mirrored_table_and_loses_none(tmp_path):
    before = single_log(tmp_path / "a", 3, properties={"delta.logRetentionDuration": "interval 7 days"})
    assert not Snapshot(DeltaTable(str(before))).has_commit_timestamps
    process = replications(tmp_path)[1]
    process.create()
    delta = DeltaTable(str(folders(tmp_path)[1]))
    told = delta.metadata().configuration
    assert told.items() >= {**TABLE_PROPERTIES, "delta.logRetentionDuration": "interval 7 days"}.items()
    assert told["delta.inCommitTimestampEnablementVersion"] == "3"
    protocol = delta.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 7)
    assert sorted(protocol.writer_features or ()) == ["appendOnly", "inCommitTimestamp", "invariants"]
    assert delta.metadata().id == DeltaTable(str(before), version=2).metadata().id


def test_a_checkpoint_tells_the_properties_where_no_entry_does(tmp_path, cleaned):
    replications(tmp_path)[2].create()
    told = DeltaTable(str(folders(tmp_path)[2])).metadata()
    assert told.configuration.items() >= TABLE_PROPERTIES.items()
    assert told.partition_columns == ["partition_date"]


@pytest.mark.parametrize("away", [0, 1])
def test_nothing_is_made_while_a_domain_is_away(tmp_path, before, away):
    was = said(before)
    gone, aside = tmp_path / DOMAINS[away], tmp_path / "aside"
    processes = replications(tmp_path)
    gone.rename(aside)
    for process in processes:
        if process is not processes[away]:
            with pytest.raises(QuorumUnavailable):
                process.create()
    assert not list(tmp_path.glob("*/register/*"))
    aside.rename(gone)
    assert led(replications(tmp_path)[1]).version == CLOSED
    expect_all_of_it(tmp_path, was, CLOSED)


def test_a_domain_that_goes_away_afterwards_is_not_missed(tmp_path, before):
    was = said(before)
    replications(tmp_path)[1].create()
    shutil.rmtree(tmp_path / "a")
    process = replications(tmp_path)[1]
    assert led(process).version == CLOSED
    assert said(process.folder(process.lead())) | {"version": NEWEST} == was


@pytest.mark.parametrize("process", [0, 1, 2])
def test_a_log_that_cannot_be_listed_is_waited_for_and_no_table_begins_without_it(
    tmp_path, before, monkeypatch, process
):
    """Another user's folder, a bad disk: the domain answers, and nobody knows what it has."""
    was = said(before)
    with monkeypatch.context() as patch:
        unlistable(patch, before / "_delta_log", errno.EACCES)
        with pytest.raises(QuorumUnavailable, match="Permission denied"):
            replications(tmp_path)[process].bind()
        with pytest.raises(QuorumUnavailable, match="Permission denied"):
            replications(tmp_path)[process].create()
        assert not list(tmp_path.glob("*/register/*"))
    assert led(replications(tmp_path)[process]).version == CLOSED
    expect_all_of_it(tmp_path, was, CLOSED)


def test_a_log_that_cannot_be_listed_is_not_passed_over_by_the_first_leader(tmp_path, monkeypatch):
    replications(tmp_path)[0].create()
    folder = single_log(tmp_path / "c", 3)
    with monkeypatch.context() as patch:
        unlistable(patch, folder / "_delta_log", errno.EIO)
        for process in replications(tmp_path):
            with pytest.raises(QuorumUnavailable, match=r"it cannot begin before .*c: .*Input/output error"):
                process.lead()
    for register in tmp_path.glob("*/register/events.json"):
        register.unlink()
    assert led(replications(tmp_path)[0]).version == 3


def test_whoever_asks_for_forks_does_not_make_it(tmp_path, before):
    assert [process.forked() for process in replications(tmp_path)] == [{}, {}, {}]
    assert not list(tmp_path.glob("*/register/*"))
    led(replications(tmp_path)[1])
    assert [process.forked() for process in replications(tmp_path)] == [{}, {}, {}]


def test_it_is_made_once(tmp_path, before):
    for process in (*replications(tmp_path), *replications(tmp_path)):
        process.create()
        assert led(process).version == CLOSED
    assert sorted(path.name for path in (tmp_path / "a/tables/events").glob("g*")) == ["g000001", "g000002"]


def test_several_that_make_it_at_once_make_one(tmp_path, before):
    was = said(before)
    with ThreadPoolExecutor() as pool:
        for made in [pool.submit(process.create) for process in replications(tmp_path) * 2]:
            made.result()
    assert led(replications(tmp_path)[1]).version == CLOSED
    expect_all_of_it(tmp_path, was, CLOSED)


class Killed(BaseException):
    """The process ends here."""


def killed_at(monkeypatch, operation: int) -> None:
    """End the process before an operation that writes, numbered from now on."""
    done = itertools.count(1)
    for name in ("create", "replace", "put", "link", "persist"):
        real = getattr(GuardedStore, name)

        def dying(self, *args, real=real):
            if next(done) == operation:
                raise Killed
            return real(self, *args)

        monkeypatch.setattr(GuardedStore, name, dying)


@pytest.mark.parametrize("log", ["before", "cleaned"])
def test_a_kill_at_any_moment_loses_nothing(tmp_path, request, log, monkeypatch):
    """Everything written is written once more by whoever comes next, from any domain, or is whole already."""
    made = request.getfixturevalue(log).parents[2]
    was = said(request.getfixturevalue(log))
    kills = 0
    for operation in itertools.count(1, 9):
        home = tmp_path / f"kill{operation}"
        shutil.copytree(made, home / "a")
        process = replications(home)[operation % 3]
        with monkeypatch.context() as patch:
            killed_at(patch, operation)
            try:
                process.create()
            except Killed:
                kills += 1
            else:
                break
        lacking = [domain for domain in DOMAINS if not (home / domain / "register" / "events.json").exists()]
        after = replications(home)[0 if len(lacking) == 1 else (operation + 1) % 3]
        assert led(after).version == CLOSED
        if len(lacking) == 1:
            after.rebuild(lacking[0])  # a majority goes on without it
        after.follow()
        expect_all_of_it(home, was, CLOSED)
        shutil.rmtree(home)
    assert kills >= 5


def test_what_a_process_with_one_domain_commits_before_the_log_is_closed_is_there(
    tmp_path, before, monkeypatch
):
    """It was still at work while the platform file changed."""
    late = single_log(tmp_path / "late", NEWEST + 2)
    create = LocalStore.create

    def quicker(self, key, content):
        entry = entry_path(before, CLOSED)
        if key.endswith(entry.name) and not entry.exists():
            shutil.copytree(late, before, dirs_exist_ok=True)
        return create(self, key, content)

    monkeypatch.setattr(LocalStore, "create", quicker)
    process = replications(tmp_path)[1]
    assert led(process).version == CLOSED + 1
    assert said(folders(tmp_path)[1]) | {"version": CLOSED} == said(late)


def test_two_domains_with_a_log_are_refused_and_named(tmp_path, before):
    single_log(tmp_path / "c", 2)
    for process in replications(tmp_path):
        with pytest.raises(MembershipRefused, match="events has no register, and a log in each of a, c"):
            process.bind()
        with pytest.raises(MembershipRefused, match="a log in each of a, c"):
            process.create()
    shutil.rmtree(tmp_path / "c" / "tables" / "events")
    assert led(replications(tmp_path)[2]).version == CLOSED


def test_a_log_without_its_beginning_and_without_a_checkpoint_is_refused(tmp_path, cleaned):
    checkpoint_path(cleaned, OLDEST_KEPT).unlink()
    last_checkpoint_path(cleaned).unlink()
    with pytest.raises(
        ReplicaCorrupt, match=r"events cannot be made of what a has of it: .* begins with version 10"
    ):
        replications(tmp_path)[1].bind()


def test_the_log_of_a_mirrored_table_whose_registers_are_gone_is_not_taken_over(tmp_path):
    """It may end in what was never acknowledged."""
    entry = {"commitInfo": {"userMetadata": json.dumps({"epoch": "3/a"})}}
    folder = single_log(tmp_path / "a", 2)
    with entry_path(folder, 1).open("a") as file:
        file.write(json.dumps(entry) + "\n")
    lines = entry_path(folder, 1).read_text().splitlines()
    entry_path(folder, 1).write_text("\n".join([lines[-1], *lines[1:-1]]) + "\n")
    with pytest.raises(ReplicaCorrupt, match="its register is gone in every domain"):
        replications(tmp_path)[1].bind()


def test_a_domain_with_the_table_that_is_to_be_no_voter_is_refused(tmp_path, before):
    with pytest.raises(MembershipRefused, match="a, which has its rows, is to be a learner"):
        replications(tmp_path, roles={"a": Role.LEARNER})[1].create()


def test_a_log_that_comes_in_after_the_registers_is_not_passed_over(tmp_path):
    replications(tmp_path)[0].create()
    single_log(tmp_path / "c", 3)
    for process in replications(tmp_path):
        with pytest.raises(MembershipRefused, match="events would begin empty, and c has a log of it"):
            process.lead()
    for register in tmp_path.glob("*/register/events.json"):
        register.unlink()
    assert led(replications(tmp_path)[0]).version == 3


def test_a_witness_gets_the_log_alone(tmp_path, before):
    was = said(before)
    processes = replications(tmp_path, roles={"c": Role.WITNESS})
    processes[1].create()
    processes = replications(tmp_path, roles={"c": Role.WITNESS})
    assert commit_entries(processes[1], 2) == CLOSED + 2
    assert said(processes[1].folder(processes[1].lead()), CLOSED) | {"version": NEWEST} == was
    assert not list((tmp_path / "c").rglob("*.parquet"))
    assert replications(tmp_path, roles={"c": Role.WITNESS})[0].broken() == {domain: [] for domain in DOMAINS}
