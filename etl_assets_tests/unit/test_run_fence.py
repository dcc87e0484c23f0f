"""A superseded runner commits nothing, whether the new one has committed rows yet or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.delta.log.entries import read_entry
from etl_assets.delta.run_token import RunToken
from etl_assets.delta.table import Table
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.raise_fence import raise_fence
from etl_assets.delta.write.records import CHECKPOINT_EVERY, commit_rows
from etl_assets.delta.write.run_fence import expect_current_at_newest, is_raised
from etl_assets.errors import LeaseLost
from etl_assets.sinks.fencing import placed, raised, with_token
from etl_assets.sinks.position import SinkPosition
from etl_assets_tests.reference.tables import local_domain

FILMS = TableContract(
    name="films",
    description="Films.",
    columns=(Column("id", "BIGINT", "Key."),),
    merge_key=("id",),
)
OLD = RunToken(pipeline="films", token=3)
NEW = RunToken(pipeline="films", token=4, lost=3)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(name="films", domain=local_domain(tmp_path), contract=FILMS)


def by(table: Table, run: RunToken | None) -> Table:
    return replace(table, run=run)


def append(table: Table, number: int) -> None:
    commit_rows(table, [{"id": number}], base_version=table.version())


def ids(table: Table) -> list[int]:
    return sorted(DeltaTable(str(table.path)).to_pyarrow_table().column("id").to_pylist())


def test_a_runner_that_was_taken_over_from_commits_nothing_before_the_new_one_has_committed_a_row(table):
    append(by(table, OLD), 1)
    assert raise_fence(by(table, NEW))
    with pytest.raises(LeaseLost, match="token 3 was taken over by a runner with the token 4"):
        append(by(table, OLD), 2)
    append(by(table, NEW), 3)
    assert ids(table) == [1, 3]


def test_the_fence_alone_rejects_where_what_was_announced_is_lost(table, tmp_path):
    append(by(table, OLD), 1)
    raise_fence(by(table, NEW))
    for file in tmp_path.rglob("*.token"):
        file.unlink()
    with pytest.raises(LeaseLost):
        append(by(table, OLD), 2)
    for number in range(10, 12 + 2 * CHECKPOINT_EVERY):
        append(by(table, None), number)
    with pytest.raises(LeaseLost):
        append(by(table, OLD), 3)


def test_a_runner_that_holds_the_lock_is_rejected_by_what_the_next_one_announced(table):
    append(by(table, OLD), 1)
    assert not is_raised(by(table, NEW))  # announces, and cannot raise the fence while the lock is held
    with pytest.raises(LeaseLost):
        append(by(table, OLD), 2)
    with pytest.raises(LeaseLost):
        expect_current_at_newest(by(table, OLD))


def test_a_table_that_is_not_there_yet_is_not_created_by_a_superseded_runner(table):
    assert not raise_fence(by(table, NEW))
    with pytest.raises(LeaseLost):
        ensure_table(by(table, OLD))
    with pytest.raises(LeaseLost):
        append(by(table, OLD), 1)
    assert ensure_table(by(table, NEW)) == 0


def test_without_a_lost_runner_nothing_is_committed_and_with_one_it_is_committed_once(table):
    append(table, 1)
    version = table.version()
    assert not raise_fence(by(table, RunToken(pipeline="films", token=9)))
    assert table.version() == version
    assert raise_fence(by(table, NEW))
    assert not raise_fence(by(table, NEW))
    assert not raise_fence(by(table, RunToken(pipeline="films", token=5, lost=3)))
    assert table.version() == version + 1
    assert raise_fence(by(table, RunToken(pipeline="films", token=6, lost=5)))


def test_commits_carry_the_token_and_runs_of_other_pipelines_are_not_rejected(table):
    append(by(table, OLD), 1)
    metadata = read_entry(table.path, table.version()).user_metadata
    assert metadata["run"] == {"pipeline": "films", "token": 3}
    raise_fence(by(table, NEW))
    append(by(table, RunToken(pipeline="books", token=1)), 2)
    append(table, 3)
    assert "run" not in read_entry(table.path, table.version()).user_metadata
    assert ids(table) == [1, 2, 3]


def test_a_position_keeps_the_highest_token_and_says_where_the_target_is_without_it():
    stored = SinkPosition(table_id="t", version=7, tombstones=2, replays=5, token=3)
    assert SinkPosition.from_json(stored.as_json()) == stored
    assert placed(stored) == replace(stored, token=0)
    assert raised(stored, NEW, target="x") == replace(stored, token=4)
    assert raised(replace(stored, token=4), NEW, target="x") is None
    assert raised(stored, OLD, target="x") is None
    with pytest.raises(LeaseLost):
        raised(replace(stored, token=4), OLD, target="x")
    after = SinkPosition(table_id="t", version=8)
    assert with_token(after, stored, None).token == 3
    assert with_token(after, stored, NEW).token == 4
    empty = raised(None, NEW, target="x")
    assert empty is not None
    assert SinkPosition.from_json(empty.as_json()) == empty
    assert placed(empty) is None
