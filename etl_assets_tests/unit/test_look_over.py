"""Damage in replicas that nobody reads is found and mended within a bounded time, by looks that each have an end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etl_assets.contracts.tables import ALL_TABLES
from etl_assets.delta.replication import Replication
from etl_assets.mirroring import inspection
from etl_assets.mirroring.checkpoints import EVERY
from etl_assets.mirroring.inspection import Finding
from etl_assets.placement.domains import Placement
from etl_assets.steps.keep_replicas import Kept, keep_replicas
from etl_assets.steps.look_over import Survey, look_over
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.mirrored_log import commit_entries
from etl_assets_tests.reference.three_domains import TABLE, A, B, C, commit, root_of, three_domains

TABLES = [contract.name for contract in ALL_TABLES]


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
    placement: Placement, survey: Survey | None = None, *, seconds: float = 60.0
) -> tuple[Survey, list[Kept]]:
    """Look until every table had its turn; what was told on the way."""
    survey, told = survey or Survey(), []
    for _ in range(1_000):
        survey, found = look_over(placement, survey, seconds=seconds)
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
    assert lap(placement) == (Survey(table=TABLES[0]), [])


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
    assert told == [Kept(table=TABLE, repaired=(C,))]
    assert mirrored(placement).broken() == {domain: [] for domain in (A, B, C)}
    assert lap(placement, survey)[1] == []


def test_what_nobody_has_thought_of_is_told_until_the_table_is_looked_over_again(placement, monkeypatch):
    with monkeypatch.context() as context:
        context.setattr(Replication, "standing", lambda self: int(".nfs"))
        survey, (told,) = look_over(placement, Survey(table=TABLE), seconds=60.0)
    assert (told.table, survey.table != TABLE) == (TABLE, True)
    assert told.problem is not None
    assert told.problem.startswith("ValueError: ")
    survey, told_later = look_over(placement, survey, seconds=60.0)
    assert told in told_later
    assert lap(placement, survey)[0].damaged == {TABLE: {"": told.problem}}, "that lap ends before the table"
    assert look_over(placement, replace(survey, table=TABLE), seconds=60.0)[1] == []


def test_a_look_has_an_end_however_long_the_log_and_many_the_files(placement, monkeypatch):
    monkeypatch.setattr(inspection.look, "__defaults__", (2,))
    seen: list[str] = []
    entry = inspection.Replica.entry

    def counting(self, folder, version):
        seen.append(self.domain)
        return entry(self, folder, version)

    survey = Survey(table=TABLE)
    monkeypatch.setattr(inspection.Replica, "entry", counting)
    pieces = 0
    while survey.table == TABLE:
        seen.clear()
        survey, told = look_over(placement, survey, seconds=-1)
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
        return Finding(problem="just being published") if len(seen) == 1 else look(self, domain, since)

    monkeypatch.setattr(Replication, "look", mistaken)
    assert lap(placement)[1] == []
    assert newest(placement, C) == before


def test_damage_that_cannot_be_mended_is_told_until_it_is_gone(placement):
    spoil(placement, A, "part-*.parquet", "cut short")
    survey, told = lap(placement)
    assert {each.table for each in told} == {TABLE}
    assert f"{A} is damaged (" in str(told[0].problem)
    assert "leads" in str(told[0].problem)
    survey, again = look_over(placement, survey, seconds=60)
    assert [each.problem for each in again] == [told[0].problem], "whatever table has its turn"
    # Another domain leads from now on: that one can build it anew.
    domain = placement.named(B)
    assert domain is not None
    other = platform_table(TABLE, domain).replication
    assert other is not None
    other.lead()
    survey, told = lap(placement, survey)
    assert told[-1] == Kept(table=TABLE, repaired=(A,))
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
    keep_replicas(placement)
    survey, told = lap(placement, survey)
    assert (told[-1], survey.damaged) == (Kept(table=TABLE, repaired=(C,)), {})
    assert mirrored(placement).broken() == {domain: [] for domain in (A, B, C)}


def test_a_replica_that_is_behind_or_away_is_no_damage(placement):
    away = root_of(placement, C).rename(root_of(placement, C).with_name("away"))
    commit_entries(mirrored(placement), 2)
    assert lap(placement)[1] == []
    away.rename(root_of(placement, C))
    assert lap(placement)[1] == []
    keep_replicas(placement)
    assert lap(placement)[1] == []


def test_tables_that_were_taken_out_of_the_platform_do_not_stop_it(placement):
    survey, told = look_over(placement, Survey(table="no more", domain="no more"), seconds=60)
    assert (survey.table, told) == (TABLES[1], [])
    assert commit(placement, A) > 0
