"""A commit that another program wrote over after it was acknowledged is noticed before the next one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from deltalake import DeltaTable

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.delta.log.entries import entry_path
from etl_assets.delta.log.new_entry import commit_info
from etl_assets.delta.log.own_commit import FOLDER
from etl_assets.delta.table import Table
from etl_assets.delta.write.content import content_of
from etl_assets.delta.write.offsets import next_offset
from etl_assets.delta.write.records import commit_rows
from etl_assets.delta.write.replacement import Replacement, replace_contents
from etl_assets.errors import CommitConflict, CommitOverwritten
from etl_assets_tests.reference.tables import local_domain
from etl_assets_tests.reference.three_domains import A, three_domains

EVENTS = TableContract(
    name="events",
    description="Events.",
    columns=(Column("event_id", "STRING", "Id."), Column("offset", "BIGINT", "Place.")),
    merge_key=("event_id",),
    append_only=True,
)


def append(table: Table, *offsets: int) -> int:
    rows = [{"event_id": f"e{offset}", "offset": offset} for offset in offsets]
    base = table.version()
    commit_rows(table, rows, base_version=base)
    return base + 1


@pytest.fixture
def events(tmp_path):
    table = Table(name="events", domain=local_domain(tmp_path), contract=EVENTS)
    append(table, 0, 1)
    append(table, 2, 3)
    return table


def overwrite(table: Table, version: int) -> bytes:
    """What a program does that looked for the version before it was there, and renames over it: OPTIMIZE of
    the rows before.
    """
    entry = entry_path(table.path, version)
    ours = entry.read_bytes()
    info = commit_info("OPTIMIZE", 1, {}, stamp=None)
    theirs = entry.with_name("theirs")
    theirs.write_text(json.dumps({"commitInfo": info}) + "\n")
    theirs.replace(entry)
    return ours


def offsets(table: Table) -> list[int]:
    return sorted(DeltaTable(str(table.path)).to_pyarrow_table().column("offset").to_pylist())


_NEXT = """
import sys
from pathlib import Path
from etl_assets_tests.unit.test_own_commit import EVENTS, Table, append, local_domain
append(Table(name="events", domain=local_domain(Path(sys.argv[1])), contract=EVENTS), 2)
"""


def test_the_next_commit_of_any_process_is_refused_and_deals_no_offset_again(events):
    overwrite(events, 2)
    snapshot = events.snapshot()
    assert snapshot is not None
    assert next_offset(snapshot) == 2, "offsets 2 and 3 would be dealt again"
    done = subprocess.run(
        [sys.executable, "-c", _NEXT, str(events.domain.root)], capture_output=True, text=True, check=False
    )
    assert "CommitOverwritten: version 2 of the table events was acknowledged" in done.stderr
    with pytest.raises(CommitOverwritten):
        append(events, 2)
    with pytest.raises(CommitOverwritten):
        replace_contents([Replacement(table=events, base_version=2)])
    assert (events.version(), offsets(events)) == (2, [0, 1])


def test_commits_of_others_behind_it_hide_nothing_and_are_built_on_where_it_stands(events):
    DeltaTable(str(events.path)).optimize.compact()
    assert append(events, 4) == 4
    overwrite(events, 4)
    DeltaTable(str(events.path)).optimize.compact()
    with pytest.raises(CommitOverwritten, match="version 4"):
        append(events, 5)


def test_what_the_error_says_to_do_puts_it_back(events):
    ours = overwrite(events, 2)
    with pytest.raises(CommitOverwritten) as raised:
        append(events, 4)
    command = raised.value.fix.split("`")[1]
    assert command.startswith("cp -n ")
    subprocess.run(command.split(), check=True)
    assert entry_path(events.path, 3).read_bytes() == ours
    assert append(events, 4) == 4
    assert offsets(events) == [0, 1, 2, 3, 4]


def test_a_commit_that_took_files_out_is_not_put_back(events):
    snapshot = events.snapshot()
    assert snapshot is not None
    files = tuple(content_of(snapshot).values())
    replace_contents([Replacement(table=events, base_version=2, removed=files[:1])])
    overwrite(events, 3)
    with pytest.raises(CommitOverwritten) as raised:
        append(events, 4)
    assert "backup" in raised.value.fix
    assert "cp -n" not in raised.value.fix


def test_an_undo_of_several_tables_writes_to_none_of_them(events):
    other = Table(name="others", domain=events.domain, contract=EVENTS)
    append(other, 0)
    overwrite(events, 2)
    with pytest.raises(CommitOverwritten):
        replace_contents(
            [Replacement(table=other, base_version=1), Replacement(table=events, base_version=2)]
        )
    assert other.version() == 1


def test_a_table_that_was_set_back_or_whose_log_begins_later_goes_on(events):
    kept = events.path / FOLDER
    assert [path.name for path in kept.iterdir()] == [f"{2:020d}.json"]
    entry_path(events.path, 2).unlink()
    assert append(events, 2) == 2
    append(events, 3)
    DeltaTable(str(events.path)).optimize.compact()
    DeltaTable(str(events.path)).create_checkpoint()
    for version in range(4):
        entry_path(events.path, version).unlink()
    assert append(events, 4) == 5
    assert offsets(events) == [0, 1, 2, 3, 4]


def test_a_commit_counts_though_its_entry_cannot_be_kept(events, caplog):
    kept = events.path / FOLDER
    kept.rename(events.path / "_before")
    kept.write_text("no folder")
    assert append(events, 4) == 3
    assert "was not kept" in caplog.text
    assert offsets(events) == [0, 1, 2, 3, 4]


def test_a_plan_made_on_a_mirrored_table_without_the_rows_is_refused_and_the_next_one_has_them(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    domain = three_domains(tmp_path).named(A)
    assert domain is not None
    table = Table(name="events", domain=domain, contract=EVENTS)
    append(table, 0, 1)
    append(table, 2, 3)
    assert not (table.path / FOLDER).exists(), "the registers tell"
    assert table.version() == 2
    overwrite(table, 2)
    planned_on = table.snapshot()
    assert planned_on is not None
    assert next_offset(planned_on) == 2, "this process has looked at that log before, and believes it"
    with pytest.raises(CommitConflict, match="was built again"):
        append(table, 2)
    snapshot = table.snapshot()
    assert snapshot is not None
    assert next_offset(snapshot) == 4
    append(table, 4)
    assert offsets(table) == [0, 1, 2, 3, 4]
