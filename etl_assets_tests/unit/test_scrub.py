"""Damage in replicas that nobody reads is found and repaired within a bounded time, by looks that each have
an end.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from etl_assets.delta.log.checkpoint import make_checkpoint
from etl_assets.delta.log.entries import checkpoint_path, entry_path, last_checkpoint_path
from etl_assets.delta.replicated.replication import Replication
from etl_assets.errors import QuorumUnavailable
from etl_assets.mirroring.maintenance import inspection
from etl_assets.mirroring.maintenance.inspection import ScrubFinding
from etl_assets.mirroring.protocol.checkpoints import EVERY, Checkpoint
from etl_assets.mirroring.protocol.reading import Reading
from etl_assets.placement.domains import Placement
from etl_assets.replicas.reconcile import ReconcileResult, reconcile_replicas
from etl_assets.replicas.scrub import ScrubCursor, scrub
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.mirrored_log import commit_entries, log_entries
from etl_assets_tests.reference.tables import ALL_TABLES
from etl_assets_tests.reference.three_domains import TABLE, A, B, C, commit, root_of, three_domains

TABLES = [contract.name for contract in ALL_TABLES]
FIRST = EVERY - 4
"""Where the log of the table begins."""


@pytest.fixture
def placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Placement:
    """Three domains of this machine, and a table with a checkpoint and a log that begins later."""
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    found = three_domains(tmp_path)
    made = mirrored(found)
    made.create()
    commit_entries(made, EVERY + 3)
    made.follow()
    made.shorten(6)
    made.checkpoint()
    return found


def mirrored(placement: Placement) -> Replication:
    domain = placement.named(A)
    assert domain is not None
    found = platform_table(TABLE, domain).replication
    assert found is not None
    return found


def lap(
    placement: Placement, survey: ScrubCursor | None = None, *, seconds: float = 60.0
) -> tuple[ScrubCursor, list[ReconcileResult]]:
    """Look until every table had its turn; what was told on the way."""
    survey, told = survey or ScrubCursor(), []
    for _ in range(1_000):
        survey, found = scrub(placement, survey, seconds=seconds)
        told += found
        if (survey.table, survey.domain) == (TABLES[0], ""):
            return survey, told
    raise AssertionError("a lap without an end")


def newest(placement: Placement, domain: str) -> Path:
    return max((root_of(placement, domain) / "tables" / TABLE).glob("g*"))


def spoil(placement: Placement, domain: str, pattern: str, how: str) -> None:
    path = max(newest(placement, domain).rglob(pattern))
    if how == "gone":
        path.unlink()
    elif how == "cut short":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        content = path.read_bytes()
        path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])


def test_of_replicas_that_are_whole_nothing_is_told(placement):
    assert lap(placement) == (ScrubCursor(table=TABLES[0]), [])


@pytest.mark.parametrize(
    ("pattern", "how", "seconds"),
    [
        ("part-*.parquet", "gone", 60.0),
        ("part-*.parquet", "cut short", -1.0),
        (f"*{EVERY - 2:05d}.json", "changed", -1.0),
        ("*.json", "gone", -1.0),
        ("*.checkpoint.parquet", "changed", -1.0),
        (f"*{EVERY - 4:05d}.checkpoint.parquet", "gone", 60.0),
    ],
)
def test_damage_of_a_replica_that_nobody_reads_is_found_and_mended(
    placement, pattern, how, seconds, monkeypatch
):
    """At one go, or piece by piece."""
    monkeypatch.setattr(inspection.look, "__defaults__", (2,))
    spoil(placement, C, pattern, how)
    assert mirrored(placement).broken()[C] != []
    survey, told = lap(placement, seconds=seconds)
    assert told == [ReconcileResult(table=TABLE, repaired=(C,))]
    assert mirrored(placement).broken() == {domain: [] for domain in (A, B, C)}
    assert lap(placement, survey)[1] == []


def checkpoint_of(placement: Placement, version: int) -> bytes:
    """What the platform makes of the log, put beside no pointer by a process that was killed then."""
    log = newest(placement, B) / "_delta_log"
    base = Checkpoint(
        version=FIRST, chain="", content=checkpoint_path(log.parent, FIRST).read_bytes(), hint={}
    )
    entries = [entry_path(log.parent, each).read_bytes() for each in range(FIRST + 1, version + 1)]
    return make_checkpoint(base, entries).content


def of_another_history(version: int) -> bytes:
    """A checkpoint that Delta can read, of a log with other cursors and files."""
    return make_checkpoint(None, list(log_entries(version + 1))[:-3] + list(log_entries(3))).content


FOREIGN = [
    f"{EVERY + 1:020d}.checkpoint.parquet",
    f"{EVERY + 2:020d}.checkpoint.parquet",
    f"{10 * EVERY:020d}.checkpoint.parquet",
    f"{EVERY + 1:020d}.checkpoint.0000000001.0000000001.parquet",
    f"{EVERY + 1:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet",
    f"{EVERY + 1:020d}.{EVERY + 2:020d}.compacted.json",
]


def test_checkpoints_of_somebody_else_that_readers_would_find_are_named(placement):
    log = newest(placement, C) / "_delta_log"
    for name in FOREIGN:
        (log / name).write_bytes(of_another_history(EVERY + 2))
        (problem,) = mirrored(placement).broken()[C]
        assert name in problem
        (log / name).unlink()
    assert mirrored(placement).broken()[C] == []


@pytest.mark.parametrize("pointed_at", [True, False])
def test_a_checkpoint_of_somebody_else_that_readers_would_find_goes(placement, pointed_at):
    folder = newest(placement, C)
    checkpoint_path(folder, EVERY + 1).write_bytes(of_another_history(EVERY + 1))
    if not pointed_at:
        last_checkpoint_path(folder).unlink()
    survey, told = lap(placement)
    assert told == [ReconcileResult(table=TABLE, repaired=(C,))]
    assert mirrored(placement).broken() == {domain: [] for domain in (A, B, C)}
    assert newest(placement, C) != folder
    assert lap(placement, survey)[1] == []


def test_a_table_all_of_whose_pointers_were_edited_is_read_again_after_a_lap(placement):
    """Somebody ran a script over all roots, and nothing is committed meanwhile."""
    for domain in (A, B, C):
        pointer = last_checkpoint_path(newest(placement, domain))
        hint = json.loads(pointer.read_bytes())
        pointer.write_text(json.dumps({**hint, "tags": {}}))

    def reader() -> Reading:
        return Reading(mirrored(placement).mirror.table)

    with pytest.raises(QuorumUnavailable, match="cannot be read"):
        reader().bind()
    survey, told = lap(placement)
    assert [each.repaired for each in told if each.repaired] == [(B,), (C,)]
    assert list(survey.damaged[TABLE]) == [A], "this process leads from there, and has looked at it before"
    assert reader().bind().domain != A
    # Another process leads: its own replica is rebuilt before.
    domain = placement.named(A)
    assert domain is not None
    Replication(TABLE, domain).lead()
    assert reader().bind().domain == A
    assert mirrored(placement).broken() == {domain: [] for domain in (A, B, C)}
    assert lap(placement, survey)[0].damaged == {}


def test_a_checkpoint_that_is_marked_as_of_another_history_is_named(placement):
    """Nobody leads or reads by it: the chain does not come out."""
    pointer = last_checkpoint_path(newest(placement, C))
    hint = json.loads(pointer.read_bytes())
    hint["tags"] |= {"etlAssets.chain": "0" * 64}
    pointer.write_text(json.dumps(hint))
    (problem,) = mirrored(placement).broken()[C]
    assert "is not what was published, as it is read from its newest checkpoint on" in problem
    assert lap(placement)[1] == [ReconcileResult(table=TABLE, repaired=(C,))]


@pytest.mark.parametrize("pointed_at", [True, False])
def test_a_checkpoint_that_a_killed_process_has_not_named_is_left(placement, pointed_at):
    folder = newest(placement, C)
    if not pointed_at:
        last_checkpoint_path(folder).unlink()
    for version in (EVERY, EVERY + 1, EVERY + 2):
        made = checkpoint_of(placement, version)
        checkpoint_path(folder, version).write_bytes(made)
        assert mirrored(placement).broken()[C] == []
    assert lap(placement)[1] == []
    assert newest(placement, C) == folder


def test_a_checkpoint_before_the_named_one_is_left(placement):
    folder = newest(placement, C)
    checkpoint_path(folder, EVERY - 1).write_bytes(of_another_history(EVERY - 1))
    assert mirrored(placement).broken()[C] == []
    assert lap(placement)[1] == []
    assert checkpoint_path(folder, EVERY - 1).exists()


def test_a_checkpoint_of_a_base_that_a_replica_is_not_up_to_yet_is_left(placement):
    """It is there before the vote for it."""
    held = mirrored(placement).mirror.table.replica(C).register.read()
    away = root_of(placement, C).rename(root_of(placement, C).with_name("away"))
    newer = commit_entries(mirrored(placement), 4)
    made = checkpoint_of(placement, newer)
    away.rename(root_of(placement, C))
    assert held is not None
    assert held.record.published.version < newer
    checkpoint_path(newest(placement, C), newer).write_bytes(made)
    assert mirrored(placement).broken()[C] == []
    assert lap(placement)[1] == []
    assert checkpoint_path(newest(placement, C), newer).exists()


def test_what_nobody_has_thought_of_is_told_until_the_table_is_looked_over_again(placement, monkeypatch):
    with monkeypatch.context() as context:
        context.setattr(Replication, "standing", lambda self: int(".nfs"))
        survey, (told,) = scrub(placement, ScrubCursor(table=TABLE), seconds=60.0)
    assert (told.table, survey.table != TABLE) == (TABLE, True)
    assert told.problem is not None
    assert told.problem.startswith("ValueError: ")
    survey, told_later = scrub(placement, survey, seconds=60.0)
    assert told in told_later
    assert lap(placement, survey)[0].damaged == {TABLE: {"": told.problem}}, "that lap ends before the table"
    assert scrub(placement, replace(survey, table=TABLE), seconds=60.0)[1] == []


def test_a_look_has_an_end_however_long_the_log_and_many_the_files(placement, monkeypatch):
    monkeypatch.setattr(inspection.look, "__defaults__", (2,))
    seen: list[str] = []
    entry = inspection.ReplicaStore.entry

    def counting(self, folder, version):
        seen.append(self.domain)
        return entry(self, folder, version)

    survey = ScrubCursor(table=TABLE)
    monkeypatch.setattr(inspection.ReplicaStore, "entry", counting)
    pieces = 0
    while survey.table == TABLE:
        seen.clear()
        survey, told = scrub(placement, survey, seconds=-1)
        assert told == []
        assert len(set(seen)) <= 1
        # Two of the log, or what is read after the newest checkpoint to know the files.
        assert len(seen) <= 4
        pieces += 1
    assert pieces == 3 * (4 + 11), "seven entries and twenty-one files by two, of three domains"


def test_what_only_seems_damaged_at_first_sight_is_left_alone(placement, monkeypatch):
    before = newest(placement, C)
    look, seen = Replication.look, []

    def mistaken(self, domain, since):
        seen.append(domain)
        return ScrubFinding(problem="just being published") if len(seen) == 1 else look(self, domain, since)

    monkeypatch.setattr(Replication, "look", mistaken)
    assert lap(placement)[1] == []
    assert newest(placement, C) == before


def test_damage_that_cannot_be_mended_is_told_until_it_is_gone(placement):
    spoil(placement, A, "part-*.parquet", "cut short")
    survey, told = lap(placement)
    assert {each.table for each in told} == {TABLE}
    assert f"{A} is damaged (" in str(told[0].problem)
    assert "leads" in str(told[0].problem)
    survey, again = scrub(placement, survey, seconds=60)
    assert [each.problem for each in again] == [told[0].problem], "whatever table has its turn"
    # Another domain leads from now on: that one can build it anew.
    domain = placement.named(B)
    assert domain is not None
    other = platform_table(TABLE, domain).replication
    assert other is not None
    other.lead()
    survey, told = lap(placement, survey)
    assert told[-1] == ReconcileResult(table=TABLE, repaired=(A,))
    assert survey.damaged == {}
    assert other.broken() == {name: [] for name in (A, B, C)}


def test_a_damaged_replica_stays_while_the_table_could_not_go_on_without_it(placement):
    away = root_of(placement, B).rename(root_of(placement, B).with_name("away"))
    commit_entries(mirrored(placement), 1)
    spoil(placement, C, "part-*.parquet", "cut short")
    survey, told = lap(placement)
    assert f"cannot go on without {C} now: {B} does not answer" in str(told[-1].problem)
    commit_entries(mirrored(placement), 1)
    away.rename(root_of(placement, B))
    reconcile_replicas(placement)
    survey, told = lap(placement, survey)
    assert (told[-1], survey.damaged) == (ReconcileResult(table=TABLE, repaired=(C,)), {})
    assert mirrored(placement).broken() == {domain: [] for domain in (A, B, C)}


def test_a_replica_that_is_behind_or_away_is_no_damage(placement):
    away = root_of(placement, C).rename(root_of(placement, C).with_name("away"))
    commit_entries(mirrored(placement), 2)
    assert lap(placement)[1] == []
    away.rename(root_of(placement, C))
    assert lap(placement)[1] == []
    reconcile_replicas(placement)
    assert lap(placement)[1] == []


def test_tables_that_were_taken_out_of_the_platform_do_not_stop_it(placement):
    survey, told = scrub(placement, ScrubCursor(table="no more", domain="no more"), seconds=60)
    assert (survey.table, told) == (TABLES[1], [])
    assert commit(placement, A) > 0
