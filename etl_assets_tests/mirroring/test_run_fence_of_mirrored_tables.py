"""A superseded runner commits nothing to a mirrored table, wherever the next runner works, and whenever the
former one wakes up.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etl_assets.delta.log.entries import read_entry
from etl_assets.delta.log.new_entry import NewEntry
from etl_assets.delta.run_token import RunToken
from etl_assets.delta.table import Table
from etl_assets.delta.write import write_version as commits
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.raise_fence import raise_fence
from etl_assets.delta.write.run_fence import is_raised
from etl_assets.delta.write.write_version import Place, commit_metadata, write_version
from etl_assets.error_policy import Decision, decide
from etl_assets.errors import Fenced, LeaseLost
from etl_assets.failpoints import Failpoint
from etl_assets.placement.domains import Placement
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.three_domains import A, B, C, three_domains

NAME = "warehouse_rows"
OLD = RunToken(pipeline="orders", token=3)
NEW = RunToken(pipeline="orders", token=4, lost=3)


@pytest.fixture
def placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Placement:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return three_domains(tmp_path)


def table_in(placement: Placement, name: str, run: RunToken) -> Table:
    domain = placement.named(name)
    assert domain is not None
    return platform_table(NAME, domain, run=run)


def commit_nothing(table: Table, in_commit: Callable[[], object] = lambda: None) -> int:
    version = ensure_table(table) + 1

    def execute(place: Place, writer: str) -> None:
        in_commit()
        entry = NewEntry(
            operation="WRITE",
            base_version=version - 1,
            metrics={"numFiles": 0, "numOutputRows": 0},
            user_metadata=commit_metadata(place, writer, {}),
        )
        entry.put(place.path, stamped=True)

    return write_version(None, table, version, execute).version


def tokens(table: Table) -> list[int]:
    """Return the tokens of the acknowledged commits that have one, in order."""
    entries = [read_entry(table.path, version) for version in range(1, table.version() + 1)]
    return [each.user_metadata["run"]["token"] for each in entries if "run" in each.user_metadata]


@pytest.mark.parametrize("where", [A, B])
def test_a_runner_that_wakes_up_after_the_fence_is_rejected_before_the_next_one_has_committed_rows(
    placement, where
):
    old, new = table_in(placement, A, OLD), table_in(placement, where, NEW)
    commit_nothing(old)
    assert raise_fence(new)
    with pytest.raises(LeaseLost, match="token 3 was taken over by a runner with the token 4"):
        commit_nothing(old)
    commit_nothing(new)
    with pytest.raises(LeaseLost):
        commit_nothing(old)
    assert tokens(new) == [3, 4, 4]


def test_the_log_rejects_it_where_what_was_announced_is_lost(placement, tmp_path):
    old, new = table_in(placement, A, OLD), table_in(placement, B, NEW)
    commit_nothing(old)
    raise_fence(new)
    for file in tmp_path.rglob("*.token"):
        file.unlink()
    with pytest.raises(LeaseLost):
        commit_nothing(old)


@pytest.mark.parametrize("moment", ["before_commit", "in_commit"])
def test_one_that_sleeps_in_its_commit_while_another_domain_goes_on_is_fenced_and_then_rejected(
    placement, monkeypatch, moment
):
    old, new = table_in(placement, A, OLD), table_in(placement, B, NEW)
    commit_nothing(old)
    slept: list[bool] = []

    def sleep() -> None:
        if not slept:
            slept.append(True)
            raise_fence(new)
            commit_nothing(new)

    def at(name: Failpoint, *, table: str) -> None:
        if name is Failpoint.TABLE_BEFORE_COMMIT and moment == "before_commit":
            sleep()

    monkeypatch.setattr(commits, "failpoint", at)
    with pytest.raises(Fenced) as fenced:
        commit_nothing(old, sleep if moment == "in_commit" else lambda: None)
    assert decide(fenced.value) is Decision.RETRY
    with pytest.raises(LeaseLost):
        commit_nothing(old)
    assert tokens(new) == [3, 4, 4]
    assert old.replication is not None  # it led last, to be rejected
    old.replication.follow()
    assert old.replication.broken() == {name: [] for name in (A, B, C)}


def test_one_that_wakes_up_in_the_domain_of_the_next_runner_is_rejected_by_what_that_one_announced(
    placement, monkeypatch
):
    old, new = table_in(placement, A, OLD), table_in(placement, A, NEW)
    commit_nothing(old)
    seen: list[bool] = []

    def at(name: Failpoint, *, table: str) -> None:
        if name is Failpoint.TABLE_BEFORE_COMMIT and not seen:
            seen.append(True)
            # It announces its token, and cannot commit while the former one has the lock.
            assert not is_raised(new)

    monkeypatch.setattr(commits, "failpoint", at)
    with pytest.raises(LeaseLost):
        commit_nothing(old)
    assert seen
    assert tokens(new) == [3]
