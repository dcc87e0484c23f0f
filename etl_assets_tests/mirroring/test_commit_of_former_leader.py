"""A commit by a process that slept while the world changed: another domain leads, or the platform has several
domains now.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etl_assets.delta.log.entries import entry_path
from etl_assets.delta.log.new_entry import NewEntry
from etl_assets.delta.replicated.closing import closing_entry
from etl_assets.delta.replicated.replication import TABLE_PROPERTIES, Replication
from etl_assets.delta.table import Table
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.write_version import Place, commit_metadata, write_version
from etl_assets.error_policy import Decision, decide
from etl_assets.errors import CommitUnverified, DomainUnavailable, Fenced
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.placement.domains import Placement
from etl_assets.settings import load_settings
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.three_domains import A, B, C, three_domains

NAME = "warehouse_rows"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def placement(home: Path) -> Placement:
    return three_domains(home)


def table_in(placement: Placement, name: str, table: str = NAME) -> Table:
    domain = placement.named(name)
    assert domain is not None
    return platform_table(table, domain)


def mirrored(table: Table) -> Replication:
    found = table.replication
    assert found is not None
    return found


def put_entry(table: Table, version: int, place: Place, writer: str) -> None:
    """Commit nothing, as the version after one."""
    NewEntry(
        operation="WRITE",
        base_version=version - 1,
        metrics={"numFiles": 0, "numOutputRows": 0},
        user_metadata=commit_metadata(place, writer, {}),
    ).put(place.path, stamped=table.replication is not None)


def commit_nothing(table: Table, before_put: Callable[[], object] = lambda: None) -> int:
    version = ensure_table(table) + 1

    def execute(place: Place, writer: str) -> None:
        before_put()
        put_entry(table, version, place, writer)

    return write_version(None, table, version, execute).version


def test_a_step_that_another_leader_overtook_is_fenced_and_may_be_repeated(placement):
    """The new leader's ballot has put its entry into the log of the one that sleeps, under the version it
    wants.
    """
    slow, quick = table_in(placement, A), table_in(placement, B)
    commit_nothing(slow)

    def overtaken() -> None:
        commit_nothing(quick)
        mirrored(quick).follow()

    with pytest.raises(Fenced, match=f"{A} does not lead the table {NAME}") as fenced:
        commit_nothing(slow, overtaken)
    assert str(fenced.value.by).endswith(B)
    assert decide(fenced.value) is Decision.RETRY
    assert commit_nothing(slow) == 3, "repeated, it leads again"
    assert mirrored(slow).broken() == {name: [] for name in (A, B, C)}


def test_another_program_that_writes_past_the_lock_is_still_told_from_another_leader(placement):
    table = table_in(placement, A)
    commit_nothing(table)

    def program() -> None:
        lead = mirrored(table).lead()
        stranger = Place(mirrored(table).folder(lead), str(lead.epoch))
        put_entry(table, table.version() + 1, stranger, "another")

    with pytest.raises(CommitUnverified, match="is not the one this run wrote"):
        commit_nothing(table, program)


def test_a_process_from_the_time_of_one_domain_is_refused_once_the_table_has_several(home):
    (home / "platform.yaml").write_text("domains: [{name: local/a, root: a}]\n")
    late = table_in(load_settings().placement(), A)
    load_settings().placement().place(PlacementClass.SINK)
    assert commit_nothing(late) == 1
    elsewhere = table_in(three_domains(home), B)
    assert elsewhere.version() == 2, "its log is closed by an entry"
    with pytest.raises(DomainUnavailable, match="is mirrored over several failure domains") as refused:
        commit_nothing(late)
    assert "start it again" in refused.value.fix
    assert late.version() == elsewhere.version() == 2
    new = table_in(load_settings().placement(), A)
    assert commit_nothing(new) == 3


def test_a_process_of_one_domain_is_refused_where_the_log_is_closed_while_it_works(home):
    (home / "platform.yaml").write_text("domains: [{name: local/a, root: a}]\n")
    late = table_in(load_settings().placement(), A)
    load_settings().placement().place(PlacementClass.SINK)
    commit_nothing(late)

    def converted() -> None:
        assert table_in(three_domains(home), B).version() == 2

    with pytest.raises(DomainUnavailable, match="is mirrored over several failure domains"):
        commit_nothing(late, converted)


def test_a_process_of_one_domain_makes_no_table_that_is_mirrored_already(home):
    (home / "platform.yaml").write_text("domains: [{name: local/a, root: a}]\n")
    late = table_in(load_settings().placement(), A)
    load_settings().placement().place(PlacementClass.SINK)
    mirrored(table_in(three_domains(home), B)).create()
    with pytest.raises(DomainUnavailable, match="is mirrored over several failure domains"):
        commit_nothing(late)
    assert late.version() == -1


def test_a_log_that_was_closed_is_closed_also_before_there_is_a_register(home):
    """A process that closed it was killed before it made the registers; the next process begins with what is
    before the closing.
    """
    (home / "platform.yaml").write_text("domains: [{name: local/a, root: a}]\n")
    late = table_in(load_settings().placement(), A)
    load_settings().placement().place(PlacementClass.SINK)
    commit_nothing(late)
    entries = [entry_path(late.path, version).read_bytes() for version in range(2)]
    entry_path(late.path, 2).write_bytes(closing_entry(TABLE_PROPERTIES, 2, None, entries))
    with pytest.raises(DomainUnavailable, match="is mirrored over several failure domains"):
        commit_nothing(late)
    assert late.version() == 2
