"""Which changes of the spool are a part of a large transaction, and what versions say of their place."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from etl_assets.delta.log.entries import entry_path
from etl_assets.delta.log.log_places import FACT, LogPlace, facts_after, notes_of, place_of, whole_version
from etl_assets.errors import SourceLost
from etl_assets.pipelines.postgres_cdc_spec import LSN_FIELD, SEQUENCE_FIELD, SchemaChangePolicy
from etl_assets.sources.captures.followed_columns import FollowedColumns
from etl_assets.sources.captures.spool import Segment
from etl_assets.sources.captures.spooled_changes import SpooledChanges, TakenBefore, next_changes
from etl_assets.sources.postgres_cdc.log_position import LogPosition
from etl_assets.sources.postgres_cdc.table_changes import ReadUntil, TableChanges
from etl_assets.sources.postgres_cdc.transaction_parts import TransactionPart, log_facts
from etl_assets_tests.sources.topics import today

TAKEN = TakenBefore(
    followed=FollowedColumns(
        capture="shop", table="public.film", declared={}, policy=SchemaChangePolicy.REJECT
    )
)

_PLACE = (LSN_FIELD, SEQUENCE_FIELD)
Change = tuple[int, int]
"""Place of the commit, and number in the transaction."""


def segment(folder: Path, number: int, end_lsn: int, *changes: Change) -> Segment:
    path = folder / f"{end_lsn:016X}-{number:06d}-{len(changes)}.arrows"
    columns = [pa.array([change[i] for change in changes], pa.int64()) for i in (0, 1)]
    batch = pa.record_batch(columns, names=[LSN_FIELD, SEQUENCE_FIELD])
    with pa.ipc.new_stream(str(path), batch.schema) as stream:
        for first in range(0, len(changes), 3):
            stream.write_batch(batch.slice(first, 3))
    return Segment(path=path, end_lsn=end_lsn, rows=len(changes))


def staged(changes: SpooledChanges, folder: Path) -> list[Change]:
    found: list[Change] = []
    for each in changes.stage(folder, today()):
        with pa.OSFile(str(folder / each.name)) as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                # Records without any are not validated by columns, and Spark would take the part.
                assert batch.num_rows
                found += zip(*(batch.column(name).to_pylist() for name in _PLACE), strict=True)
    return found


@pytest.mark.parametrize("size", [1, 2, 4, 5, 7, 100])
def test_parts_have_each_change_once_and_in_order_wherever_files_and_parts_end(tmp_path, size):
    small = [(10, 0), (10, 1), (20, 0)]
    large = [(50, number) for number in range(17)]
    after = [(70, 0)]
    segments = [
        segment(tmp_path, 0, 30, (5, 0), (5, 1)),
        segment(tmp_path, 0, 60, *small, *large[:4]),
        segment(tmp_path, 1, 60, *large[4:12]),
        segment(tmp_path, 2, 60, *large[12:]),
        segment(tmp_path, 0, 80, *after),
    ]
    reached, found, ends = ReadUntil(lsn=1), [], []
    while left := [each for each in segments if each.end_lsn > reached.lsn]:
        changes = next_changes(left, reached, max_records=1, max_transaction=size, taken=TAKEN)
        folder = tmp_path / str(len(ends))
        part = staged(changes, folder)
        assert len([each for each in part if each[0] == 50]) <= size or size > 17
        found += part
        reached = changes.until
        ends.append((reached.lsn, None if reached.part is None else reached.part.sequence))
    assert found == [(5, 0), (5, 1), *small, *large, *after]
    within = [(30, sequence) for sequence in range(size, 17, size)]
    first = [(5, 0), (5, 1)] if size == 1 else []
    assert ends[-len(within) - 2 :] == [*within, (60, None), (80, None)]
    assert len(ends) == len(within) + 3 + len(first[1:])


def test_files_of_another_reading_are_cut_where_the_position_is(tmp_path):
    """After the loss of a spool, readings end elsewhere."""
    position = ReadUntil(lsn=40, part=TransactionPart(commit_lsn=50, sequence=6, number=2))
    segments = [
        segment(tmp_path, 0, 45, (43, 0), (43, 1)),  # it came with the first part
        segment(tmp_path, 0, 60, *((50, number) for number in range(10))),
    ]
    changes = next_changes(segments, position, max_records=1, max_transaction=3, taken=TAKEN)
    assert staged(changes, tmp_path / "a") == [(50, 6), (50, 7), (50, 8)]
    assert changes.until == ReadUntil(lsn=40, part=TransactionPart(commit_lsn=50, sequence=9, number=3))
    changes = next_changes(segments, changes.until, max_records=1, max_transaction=3, taken=TAKEN)
    assert (staged(changes, tmp_path / "b"), changes.until) == ([(50, 9)], ReadUntil(lsn=60))


def test_a_reading_that_goes_beyond_the_transaction_is_taken_up_to_its_end(tmp_path):
    position = ReadUntil(lsn=40, part=TransactionPart(commit_lsn=50, sequence=2, number=1))
    segments = [segment(tmp_path, 0, 60, *((50, number) for number in range(4)), (55, 0))]
    changes = next_changes(segments, position, max_records=1, max_transaction=2, taken=TAKEN)
    assert staged(changes, tmp_path / "a") == [(50, 2), (50, 3), (55, 0)]
    assert changes.until == ReadUntil(lsn=60)


def test_a_transaction_whose_rest_is_gone_is_named():
    """Of the log there is another transaction at the place."""
    read: Any = dict.fromkeys(("writer", "schema"))
    table: Any = SimpleNamespace(name="public.item", oid=1)
    part = TransactionPart(commit_lsn=0x50, sequence=6, number=2)
    after = ReadUntil(lsn=0x40, part=part)
    changes = TableChanges(**read, table=table, after=after, columns=None, max_transaction=3)
    begin = struct.pack("!cqqi", b"B", 0x70, 0, 1)
    end = struct.pack("!cBqqq", b"C", 0, 0x70, 0x78, 0)
    message = r"the log has no more of the transaction at 0/50, of which public\.item has 2 parts"
    with pytest.raises(SourceLost, match=message):
        changes.read(lambda _: (each for each in [[begin, end]]), max_changes=1, max_bytes=1)


def test_a_position_within_a_transaction_is_the_same_after_it_was_stored():
    part = TransactionPart(commit_lsn=50, sequence=6, number=2)
    position = LogPosition(system="1", lsn=40, part=part)
    assert LogPosition.of({"log": json.loads(json.dumps(position.as_json()))}) == position
    # A standby that lacks the transaction lacks what was read.
    assert position.read_until == 51


def commit(folder: Path, *facts: dict[str, object], **more: object) -> int:
    """Write entries with facts; return the newest version."""
    log = folder / "_delta_log"
    log.mkdir(exist_ok=True)
    for each in facts:
        version = len(list(log.iterdir()))
        metadata = json.dumps({"facts": each, **more})
        info = {"commitInfo": {"timestamp": 1, "operation": "WRITE", "userMetadata": metadata}}
        entry_path(folder, version).write_text(json.dumps(info) + "\n", "utf-8")
    return version


def within(number: int) -> LogPlace:
    facts = log_facts(40, None, TransactionPart(commit_lsn=50, sequence=number, number=number))
    place = LogPlace.of(facts)
    assert place is not None
    return place


def test_readers_that_want_whole_transactions_get_the_version_before_the_first_part(tmp_path):
    base = commit(tmp_path, {}, {FACT: {"lsn": "0/1"}}, {})
    assert whole_version(tmp_path, base) == base == 2
    first = commit(tmp_path, facts_after(tmp_path, base, within(1)))
    compacted = commit(tmp_path, {})
    second = commit(tmp_path, facts_after(tmp_path, compacted, within(2)))
    assert [whole_version(tmp_path, each) for each in (first, compacted, second)] == [base] * 3
    assert place_of(tmp_path, second) == LogPlace(lsn="0/28", transaction="0/32", part=2, whole_version=base)
    last = LogPlace.of(log_facts(60, TransactionPart(commit_lsn=50, sequence=2, number=2), None))
    facts = facts_after(tmp_path, second, last)
    assert whole_version(tmp_path, end := commit(tmp_path, facts)) == end
    assert notes_of("item", facts) == ("item has the transaction 0/32 as a whole, in 3 parts",)


def test_a_table_that_gets_all_parts_at_once_says_nothing_of_them(tmp_path):
    base = commit(tmp_path, {FACT: {"lsn": "0/1"}})
    last = LogPlace(lsn="0/3C", transaction="0/32", part=3, is_last=True)
    assert facts_after(tmp_path, base, last) == {FACT: {"lsn": "0/3C"}}


def test_a_copy_that_begins_anew_within_a_transaction_ends_its_parts(tmp_path):
    base = commit(tmp_path, {FACT: {"lsn": "0/1"}})
    commit(tmp_path, facts_after(tmp_path, base, within(1)))
    again = commit(tmp_path, facts_after(tmp_path, base + 1, LogPlace(lsn="0/28")))
    assert whole_version(tmp_path, again) == again


def test_a_table_that_was_restored_within_a_transaction_is_read_as_it_was_restored(tmp_path):
    base = commit(tmp_path, {FACT: {"lsn": "0/1"}})
    part = commit(tmp_path, facts_after(tmp_path, base, within(1)))
    restored = commit(tmp_path, {}, undo={"kind": "restore"})
    assert whole_version(tmp_path, restored) == restored
    again = commit(tmp_path, facts_after(tmp_path, restored, within(2)))
    assert whole_version(tmp_path, again) == restored
    assert whole_version(tmp_path, part) == base
