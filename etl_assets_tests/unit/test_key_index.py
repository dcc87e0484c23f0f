"""The index of keys: it names every day a key is in, whatever became of its files."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.delta.read import key_index, sorted_runs
from etl_assets.delta.read.key_index import KeyIndex, hashes_of
from etl_assets.delta.read.sorted_runs import SortedRuns
from etl_assets.delta.table import Table
from etl_assets_tests.reference.peak_memory import growth
from etl_assets_tests.reference.tables import local_domain

FIRST, SECOND = dt.date(2026, 1, 1), dt.date(2026, 1, 2)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(name="events", domain=local_domain(tmp_path))


def append(table: Table, rows: dict[str, dt.date]) -> int:
    columns = {
        "event_id": pa.array(list(rows), pa.string()),
        "partition_date": pa.array(list(rows.values()), pa.date32()),
    }
    table.path.mkdir(parents=True, exist_ok=True)
    write_deltalake(str(table.path), pa.table(columns), partition_by=["partition_date"], mode="append")
    return table.version()


def days_of(table: Table, *keys: str | None, version: int | None = None) -> list[dt.date]:
    asked = pa.chunked_array([pa.array(keys, pa.string())])
    found = KeyIndex(table, "event_id").find(
        hashes_of(asked), table.version() if version is None else version
    )
    assert set(found.hashes.tolist()) <= set(hashes_of(asked).tolist())
    assert bool(len(found.hashes)) == bool(found.days)
    return found.days


def test_a_key_is_found_in_every_day_it_is_in_and_an_unknown_one_in_none(table):
    append(table, {"a": FIRST, "b": SECOND})
    append(table, {"a": SECOND, "c": FIRST})
    assert days_of(table, "a") == [FIRST, SECOND]
    assert days_of(table, "b") == [SECOND]
    assert days_of(table, "c", "b") == [FIRST, SECOND]
    assert days_of(table, "x", None, "") == []
    assert days_of(table) == []


def test_a_table_that_does_not_exist_has_no_days(table):
    assert days_of(table, "a") == []


def test_what_a_commit_adds_is_found_without_reading_the_rest_again(table, monkeypatch):
    append(table, {f"old-{number}": FIRST for number in range(50)})
    assert days_of(table, "old-7") == [FIRST]
    monkeypatch.setattr(key_index.KeyIndex, "_keys_of", _once(key_index.KeyIndex._keys_of))
    append(table, {"new": SECOND})
    assert days_of(table, "new") == [SECOND]
    assert days_of(table, "old-7") == [FIRST]


def test_files_that_a_compaction_wrote_anew_are_not_read_again(table, monkeypatch):
    append(table, {"a": FIRST, "b": SECOND})
    append(table, {"c": FIRST})
    assert days_of(table, "c") == [FIRST]
    monkeypatch.setattr(key_index.KeyIndex, "_keys_of", _once(key_index.KeyIndex._keys_of))
    DeltaTable(str(table.path)).optimize.compact()
    append(table, {"d": SECOND})
    assert days_of(table, "a", "c") == [FIRST]
    assert days_of(table, "b", "d") == [SECOND]


def _once(read):
    calls = []

    def keys_of(self, path):
        calls.append(path)
        assert len(calls) == 1, f"read again: {calls}"
        return read(self, path)

    return keys_of


def broken(folder: Path, how: str) -> None:
    hashes, manifest = next(folder.glob("*.hashes.npy")), folder / "runs.json"
    match how:
        case "cut":
            hashes.write_bytes(hashes.read_bytes()[:-4])
        case "emptied":
            hashes.write_bytes(b"")
        case "gone":
            hashes.unlink()
        case "garbled manifest":
            manifest.write_text('{"runs": [[1]]}')
        case "no manifest":
            manifest.unlink()
        case "all gone":
            shutil.rmtree(folder)


@pytest.mark.parametrize("how", ["cut", "emptied", "gone", "garbled manifest", "no manifest", "all gone"])
def test_an_index_that_is_broken_is_made_anew(table, how):
    append(table, {"a": FIRST, "b": SECOND})
    assert days_of(table, "a") == [FIRST]
    broken(table.domain.index_path("events") / "event_id", how)
    assert days_of(table, "a", "b") == [FIRST, SECOND]


def test_an_index_that_was_cut_short_while_it_was_made_is_made_anew(table, monkeypatch):
    append(table, {"a": FIRST, "b": SECOND})
    monkeypatch.setattr(key_index, "_PIECE", 1)
    add, pieces = SortedRuns.add, []

    def dies_at_the_second(self, *arguments):
        pieces.append(arguments)
        if len(pieces) == 2:
            raise KeyboardInterrupt
        return add(self, *arguments)

    monkeypatch.setattr(SortedRuns, "add", dies_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        days_of(table, "a")
    assert days_of(table, "a") == [FIRST]
    assert days_of(table, "b") == [SECOND]


def test_the_index_of_an_earlier_table_of_that_name_is_not_believed(table):
    append(table, {"a": FIRST})
    append(table, {"b": FIRST})
    assert days_of(table, "a") == [FIRST]
    shutil.rmtree(table.path)
    append(table, {"c": SECOND})
    append(table, {"d": SECOND})
    assert days_of(table, "a") == []
    assert days_of(table, "d") == [SECOND]


def test_the_index_of_a_table_that_was_set_back_to_a_backup_is_not_believed(table, tmp_path):
    append(table, {"a": FIRST})
    append(table, {"b": FIRST})
    shutil.copytree(table.path, tmp_path / "backup")
    append(table, {"c": FIRST})
    append(table, {"d": FIRST})
    assert days_of(table, "c", "d") == [FIRST]
    shutil.rmtree(table.path)
    shutil.copytree(tmp_path / "backup", table.path)
    append(table, {"e": SECOND})
    append(table, {"f": SECOND})
    assert days_of(table, "e") == days_of(table, "f") == [SECOND]
    assert days_of(table, "c", "d") == []
    assert days_of(table, "a", "b") == [FIRST]


def test_an_index_is_not_believed_before_the_table_that_was_set_back_is_as_long_again(table, tmp_path):
    append(table, {"a": FIRST})
    shutil.copytree(table.path, tmp_path / "backup")
    append(table, {"b": FIRST})
    append(table, {"c": FIRST})
    assert days_of(table, "c") == [FIRST]
    shutil.rmtree(table.path)
    shutil.copytree(tmp_path / "backup", table.path)
    append(table, {"d": SECOND})
    assert days_of(table, "d") == [SECOND]


def test_an_index_whose_mark_does_not_name_its_commit_is_made_anew(table):
    append(table, {"a": FIRST})
    assert days_of(table, "a") == [FIRST]
    manifest = table.domain.index_path("events") / "event_id" / "runs.json"
    content = json.loads(manifest.read_text())
    del content["mark"]["commit"]
    manifest.write_text(json.dumps(content | {"runs": []}))
    assert days_of(table, "a") == [FIRST]


def test_an_index_goes_on_where_the_entry_it_was_made_up_to_was_cleaned_up(table, monkeypatch):
    append(table, {"a": FIRST})
    append(table, {"b": FIRST})
    assert days_of(table, "a") == [FIRST]
    append(table, {"c": SECOND})
    DeltaTable(str(table.path)).create_checkpoint()
    for version in range(2):
        (table.path / "_delta_log" / f"{version:020d}.json").unlink()
    monkeypatch.setattr(key_index.KeyIndex, "_keys_of", _once(key_index.KeyIndex._keys_of))
    assert days_of(table, "c") == [SECOND]
    assert days_of(table, "a", "b") == [FIRST]


def test_where_log_entries_were_cleaned_up_everything_is_read_again(table):
    append(table, {"a": FIRST})
    assert days_of(table, "a") == [FIRST]
    for number in range(3):
        append(table, {f"b{number}": SECOND})
    DeltaTable(str(table.path)).create_checkpoint()
    for version in range(3):
        (table.path / "_delta_log" / f"{version:020d}.json").unlink()
    assert days_of(table, "b1") == [SECOND]
    assert days_of(table, "a") == [FIRST]


def test_where_files_were_compacted_and_vacuumed_everything_is_read_again(table):
    append(table, {"a": FIRST})
    assert days_of(table, "a") == [FIRST]
    append(table, {"b": SECOND})
    append(table, {"c": SECOND})
    written = DeltaTable(str(table.path))
    written.optimize.compact()
    written.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert days_of(table, "b") == [SECOND]
    assert days_of(table, "a", "c") == [FIRST, SECOND]


def test_an_index_that_is_ahead_serves_an_older_version(table):
    append(table, {"a": FIRST})
    append(table, {"b": SECOND})
    assert days_of(table, "a", "b") == [FIRST, SECOND]
    assert FIRST in days_of(table, "a", version=0)


def test_the_hash_is_the_same_for_ever():
    keys = pa.chunked_array([pa.array(["a", None, "ü" * 100, ""], pa.string())])
    assert hashes_of(keys).tolist() == [13950350942979735504, 2114678853886981147, 1760245841805064774]


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=12), max_size=12),
    st.integers(1, 8),
)
def test_runs_name_the_days_of_any_hashes_whatever_was_merged(tmp_path_factory, batches, at_once):
    folder = tmp_path_factory.mktemp("runs")
    runs, known = SortedRuns(folder, (), {}), set()
    for batch in batches:
        hashes = np.array([key for key, _ in batch], dtype=np.uint64)
        with mock.patch.object(sorted_runs, "_MERGED_AT_ONCE", at_once):
            runs = runs.add(hashes, np.array([day for _, day in batch], dtype=np.int32), {})
        known |= set(batch)
    assert len(runs) == sum(map(len, batches))
    loaded = SortedRuns.load(folder)
    for found in (runs, *([] if loaded is None else [loaded])):
        for asked in ([], [3], [0, 7, 7, 30], list(range(31))):
            expected = {day for key, day in known if key in asked}
            days, hashes = found.find(np.array(asked, dtype=np.uint64))
            assert days == expected
            assert hashes.tolist() == sorted({key for key, _ in known if key in asked})
    assert len(list(folder.glob("*.npy"))) <= 2 * 8


def test_memory_of_a_merge_does_not_grow_with_the_runs(tmp_path, tell):
    dice, number = np.random.default_rng(1), 4_000_000
    runs = SortedRuns(tmp_path, (), {})
    for day in (1, 2):
        hashes = dice.integers(0, 2**63, number, dtype=np.uint64)
        if day == 2:
            hashes = hashes[: number // 2]
        with growth() as grown:
            runs = runs.add(hashes, np.full(len(hashes), day, dtype=np.int32), {})
    tell(f"Merge of {len(runs):,} hashes: {grown.mib} MiB more")
    (file,) = tmp_path.glob("*.hashes.npy")
    merged = np.load(file, mmap_mode="r")
    assert len(merged) == len(runs) == number * 3 // 2
    assert (merged[1:] >= merged[:-1]).all()
    assert grown.mib < 150
