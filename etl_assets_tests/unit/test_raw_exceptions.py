"""What workers make of the lines that do not become rows, without Spark: exceptions with their places, in
bounded files.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etl_assets.contracts.reasons import DeadLetterReason, RecordEncoding
from etl_assets.delta.read.rows import day_folder
from etl_assets.delta.write.append import _Footer
from etl_assets.ingest import raw_exceptions, stage_lines
from etl_assets.ingest.exceptions_tasks import exceptions_tasks
from etl_assets.ingest.located_blocks import LocatedBlock
from etl_assets.ingest.original_offsets import offsets_of, read_offsets, write_offsets
from etl_assets.ingest.raw_exceptions import _ExceptionMaker
from etl_assets.ingest.raw_rows import repeated_ordinals
from etl_assets.ingest.repeats import Repeats
from etl_assets.orders.tables.exceptions import RAW_EVENTS_EXCEPTIONS
from etl_assets.sources import lines
from etl_assets_tests.pipeline import DAY, NEXT_DAY, RECORDS
from etl_assets_tests.reference.staged_lines import (
    KINDS,
    OFFSET_OF_ORIGINAL,
    cut_and_place,
    place,
    placed_block,
    stage,
    write_lines,
)

FIRST_OFFSET = 40
NOW = dt.datetime(2026, 1, 7, tzinfo=dt.UTC)
STAMPS: dict[str, Any] = {"domain": "local", "failed_at": NOW, "batch_id": 7}
FILES = st.lists(
    st.tuples(st.sampled_from([DAY, NEXT_DAY]), st.lists(st.sampled_from(KINDS), max_size=12)), max_size=5
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    FILES,
    st.sampled_from([300, 1_000, 1 << 20]),
    st.sampled_from([1, 700, 1 << 20]),
    st.sampled_from([(1, 99), (99, 1), (99, 99)]),
)
def test_each_line_that_is_no_row_is_written_once_however_files_are_cut(
    tmp_path_factory, files, task_bytes, piece_bytes, cut
):
    folder = tmp_path_factory.mktemp("exceptions")
    files = sorted(files, key=lambda file: file[0])
    with pytest.MonkeyPatch.context() as patch:
        placed, repeats = cut_and_place(patch, files, folder, task=task_bytes, piece=piece_bytes)
        patch.setattr(raw_exceptions, "_ROWS_AT_ONCE", 3)
        maker = maker_of(folder, repeats, placed)
        tasks = list(exceptions_tasks(placed, *cut))
        tables = [table for task in tasks for _, table in maker.rows_of(task)]
        written = [(task, each) for task in tasks for each in maker.write(task, folder, {})]
    assert all(table.num_rows for table in tables)
    found = {}
    for task, each in written:
        assert each.name is not None
        assert each.left_out == 0
        assert _bounds(folder / each.name) == {"exception_id", "batch_id"}
        for row in pq.read_table(folder / each.name, partitioning=None).to_pylist():
            found[row["source_position"]] = each.partition, row
        assert each.partition.partition("/")[0] in {day_folder(block.day) for block in task.blocks}
    assert len({partition for partition, _ in found.values()}) == len(written) or cut != (99, 99)
    expected = {
        f"{day}/{index}:{number + 1}": (day, kind, f"event-{index}-{number}")
        for index, (day, kinds) in enumerate(files)
        for number, kind in enumerate(kinds)
        if kind in ("duplicate", "conflict", "bad")
    }
    assert found.keys() == expected.keys()
    offsets = expected_offsets(files)
    assert sum(table.num_rows for table in tables) == len(expected)
    for position, (day, kind, event_id) in expected.items():
        partition, row = found[position]
        outcome = "rejected" if kind == "bad" else kind
        assert partition == f"partition_date={day}/outcome={outcome}"
        _check(row, position, kind, event_id, offsets[position])
        if kind == "conflict":
            index, number = (int(part) for part in position.rpartition("/")[2].split(":"))
            line = (folder / f"{index}.jsonl").read_text("utf-8").splitlines()[number - 1]
            assert (row["record"], row["record_encoding"]) == (line, RecordEncoding.UTF8.value)
    assert len({row["exception_id"] for _, row in found.values()}) == len(found)


def test_an_exception_that_the_table_has_is_left_out_and_counted(tmp_path):
    kinds = ["bad", "conflict", "bad", "event"]
    path = write_lines(tmp_path / "0.jsonl", 0, DAY, kinds)
    placed, repeats = place(
        stage([(str(path), path.stat().st_size, DAY)], tmp_path), [(DAY, kinds)], tmp_path
    )
    maker = maker_of(tmp_path, repeats, placed)
    (task,) = exceptions_tasks(placed)
    first = [each.name for each in maker.write(task, tmp_path, {}) if each.name]
    assert len(first) == 2
    known = {DAY: [str(tmp_path / name) for name in first]}
    again = list(maker.write(task, tmp_path, known))
    assert [(each.name, each.left_out) for each in again] == [(None, 3)]
    some = list(maker.write(task, tmp_path, {DAY: known[DAY][:1], NEXT_DAY: known[DAY]}))
    assert sum(each.left_out for each in some) in (1, 2)
    assert [each.name is None for each in some] == [False, True]


def test_a_worker_holds_no_more_long_records_than_so_many_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "_PIECE_BYTES", 1)
    monkeypatch.setattr(stage_lines, "_PIECE_BYTES", 1)
    path = tmp_path / "0.jsonl"
    path.write_text(("x" * 2_000 + "\n") * 12, "utf-8")
    (block,) = stage([(str(path), path.stat().st_size, DAY)], tmp_path)
    (task,) = exceptions_tasks([placed_block(block)])
    maker = maker_of(tmp_path, (), [])
    assert [table.num_rows for _, table in maker.rows_of(task)] == [12]
    monkeypatch.setattr(raw_exceptions, "_BYTES_AT_ONCE", 8_000)
    tables = [table for _, table in maker.rows_of(task)]
    assert max(table.nbytes for table in tables) < 12_000
    assert sum(table.num_rows for table in tables) == 12
    (written,) = maker.write(task, tmp_path, {})
    assert pq.read_metadata(tmp_path / (written.name or "")).num_rows == 12


def test_exceptions_that_are_not_as_many_as_were_counted_stop_the_task(tmp_path):
    path = write_lines(tmp_path / "0.jsonl", 0, DAY, ["bad", "event"])
    (block,) = stage([(str(path), path.stat().st_size, DAY)], tmp_path)
    (task,) = exceptions_tasks([placed_block(block, repeated=1)])
    _, repeats = place([block], [(DAY, ["bad", "event"])], tmp_path)
    with pytest.raises(RuntimeError, match="came to 1 exceptions, not the 2 counted"):
        list(maker_of(tmp_path, repeats, []).rows_of(task))


def test_a_conflict_whose_line_is_not_what_it_was_stops_the_task(tmp_path):
    path = write_lines(tmp_path / "0.jsonl", 0, DAY, ["event", "conflict"])
    files = [(DAY, ["event", "conflict"])]
    placed, repeats = place(stage([(str(path), path.stat().st_size, DAY)], tmp_path), files, tmp_path)
    (task,) = exceptions_tasks(placed)
    path.write_text(path.read_text("utf-8").replace("event-0-1", "event-0-2"), "utf-8")
    with pytest.raises(RuntimeError, match=r"record 2 of .*0\.jsonl is not what it was"):
        list(maker_of(tmp_path, repeats, placed).rows_of(task))
    path.write_text("")
    with pytest.raises(RuntimeError, match=r"record 2 of .*0\.jsonl is not what it was"):
        list(maker_of(tmp_path, repeats, placed).rows_of(task))


def maker_of(folder: Path, repeats: tuple[str, ...], blocks: list[LocatedBlock]) -> _ExceptionMaker:
    """What a worker is given, with the offsets of events that others of the batch repeat."""
    found = Repeats(folder=folder if repeats else None)
    originals = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Repeats, "files", repeats)
        if len(ordinals := found.original_ordinals()):
            offsets = offsets_of(
                ordinals, blocks, repeats=found.ordinals(), staging=folder, first_offset=FIRST_OFFSET
            )
            originals = write_offsets(folder, ordinals, offsets)
    read_offsets.cache_clear()
    repeated_ordinals.cache_clear()
    return _ExceptionMaker(
        contract=RAW_EVENTS_EXCEPTIONS,
        stage="ingest",
        records=RECORDS,
        staging=folder,
        repeats=repeats,
        originals=originals,
        stamps=STAMPS,
    )


def expected_offsets(files: list[tuple[dt.date, list[str]]]) -> dict[str, int | None]:
    """The offset of the event that each line repeats, by its position."""
    offsets: dict[str, int | None] = {}
    new = 0
    for index, (_, kinds) in enumerate(files):
        for number, kind in enumerate(kinds):
            new += kind == "event"
            repeated = FIRST_OFFSET + new - 1 if kind == "duplicate" and new else OFFSET_OF_ORIGINAL
            offsets[f"{files[index][0]}/{index}:{number + 1}"] = None if kind == "bad" else repeated
    return offsets


def _check(row: dict[str, Any], position: str, kind: str, event_id: str, offset: int | None) -> None:
    told = (row["stage"], row["source"], row["domain"], row["failed_at"], row["batch_id"])
    assert told == ("ingest", "landing", "local", NOW, 7)
    assert row["original_offset"] == offset
    assert row["event_id"] == (None if kind == "bad" else event_id)
    if kind == "bad":
        assert row["reason"] == DeadLetterReason.MALFORMED_JSON.value
        assert (row["record"], row["record_encoding"]) == ("bad", RecordEncoding.UTF8.value)
        assert row["exception_id"] == _sha256(f"ingest|landing|{position}|bad")
    elif kind == "conflict":
        assert row["reason"] == DeadLetterReason.FINGERPRINT_CONFLICT.value
    else:
        assert {row[name] for name in ("reason", "error", "record", "record_encoding")} == {None}


def _bounds(file: Path) -> set[str]:
    """The columns that the log entry of an append is to name bounds of, among those that it keeps."""
    with pq.ParquetFile(file) as opened:
        assert set(opened.schema_arrow.names) | {"partition_date", "outcome"} == set(
            RAW_EVENTS_EXCEPTIONS.names
        )
        statistics = _Footer(opened).statistics(["exception_id", "batch_id"])
    assert statistics["minValues"].keys() == statistics["maxValues"].keys() == statistics["nullCount"].keys()
    return set(statistics["minValues"])


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
