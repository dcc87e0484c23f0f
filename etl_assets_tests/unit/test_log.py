"""Entries of a table's log, as they lie in its folder."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from etl_assets.delta.log.entries import commit_notes, entry_path, latest_version, read_entry
from etl_assets_tests.reference.mirrored_log import write_log

# `str.splitlines` ends lines at these, JSON texts may hold them as they are.
ENDS_FOR_PYTHON_ONLY = "\x85\u2028\u2029"


@pytest.mark.parametrize("end", ENDS_FOR_PYTHON_ONLY, ids=ascii)
def test_a_line_of_an_entry_ends_only_where_json_lines_do(tmp_path: Path, end: str):
    stats = json.dumps({"numRecords": 1, "maxValues": {"order_id": f"{end}a"}}, ensure_ascii=False)
    info = {"commitInfo": {"operation": f"by {end}", "timestamp": 0}}
    add = {"add": {"path": f"{end}.parquet", "stats": stats}}
    entry = entry_path(tmp_path, 0)
    entry.parent.mkdir()
    # As Delta writes them: what is not ASCII is not escaped.
    text = "".join(f"{json.dumps(action, ensure_ascii=False)}\n" for action in (info, add))
    entry.write_text(text, "utf-8")
    read = read_entry(tmp_path, 0)
    assert [(file.path, file.rows) for file in read.added] == [(f"{end}.parquet", 1)]
    assert read.operation == f"by {end}"
    assert [note.version for note in commit_notes(tmp_path, 0)] == [0]


def test_a_log_is_listed_once_and_then_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table = tmp_path / "table"
    assert latest_version(table) == -1
    write_log(table, 3)
    listings: list[Path] = []
    monkeypatch.setattr(
        os, "listdir", lambda folder, real=os.listdir: listings.append(folder) or real(folder)
    )
    assert [latest_version(table) for _ in range(3)] == [2, 2, 2]
    add_entries(table, 3, 60)
    assert [latest_version(table) for _ in range(2)] == [62, 62]
    assert len(listings) == 2, "the second one as many versions came at once"
    for version in range(63, 70):
        add_entries(table, version, 1)
        assert latest_version(table) == version
    entry_path(table, 0).unlink()
    assert latest_version(table) == 69
    assert len(listings) == 2


def test_a_log_that_is_another_one_now_is_listed_again(tmp_path: Path):
    table, backup = tmp_path / "table", tmp_path / "backup"
    write_log(table, 5)
    shutil.copytree(table, backup)
    add_entries(table, 5, 5)
    assert latest_version(table) == 9
    shutil.rmtree(table)
    shutil.copytree(backup, table)
    assert latest_version(table) == 4, "set back to a backup"
    shutil.rmtree(table)
    write_log(table, 30)
    assert latest_version(table) == 29, "made anew, with an entry of that version"
    shutil.rmtree(table)
    assert latest_version(table) == -1
    write_log(table, 2)
    assert latest_version(table) == 1


def test_a_log_that_is_shortened_past_what_was_known_while_somebody_looks_is_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_log(tmp_path, 5)
    assert latest_version(tmp_path) == 4
    add_entries(tmp_path, 5, 26)

    def exists(path: Path, real=Path.exists) -> bool:
        there = real(path)
        for version in range(21):  # right after the first question
            entry_path(tmp_path, version).unlink(missing_ok=True)
        return there

    monkeypatch.setattr(Path, "exists", exists)
    assert latest_version(tmp_path) == 30


def test_what_is_no_entry_is_no_version(tmp_path: Path):
    write_log(tmp_path, 2)
    for name in (
        "_last_checkpoint",
        f"{9:020d}.checkpoint.parquet",
        f".{9:020d}.json.crc",
        f"{9:020d}.crc",
        f"{'a' * 20}.json",
        f"{9:021d}.json",
        f"{9:020d}.{12:020d}.compacted.json",
    ):
        (tmp_path / "_delta_log" / name).write_bytes(b"")
    assert latest_version(tmp_path) == 1


def add_entries(table: Path, first: int, count: int) -> None:
    for version in range(first, first + count):
        entry_path(table, version).write_text("{}\n")
