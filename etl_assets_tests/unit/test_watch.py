"""What the landing sensor finds, and what it remembers: a time and the open days, never a list of files."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.sources import unread_days as watching
from etl_assets.sources.formats import Csv
from etl_assets.sources.landing import LANDING, Folders
from etl_assets.sources.unread_days import Unread, WatchCursor, Watched
from etl_assets_tests.pipeline import DAY, NEXT_DAY
from etl_assets_tests.reference.read_files import ReadFiles

NOW = dt.datetime(2026, 1, 7, 12, tzinfo=dt.UTC)
NOW_NS = int(NOW.timestamp()) * 10**9
HOUR_NS = 3_600 * 10**9
START = WatchCursor()


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(source=LANDING, path=tmp_path / "landing")


@pytest.fixture
def read(tmp_path: Path) -> ReadFiles:
    return ReadFiles(tmp_path)


def put(folders: Folders, day: str, name: str = "a.jsonl", mtime_ns: int = NOW_NS - HOUR_NS) -> None:
    folder = folders.path / day
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"x\n")
    os.utime(folder / name, ns=(mtime_ns, mtime_ns))
    os.utime(folder, ns=(mtime_ns, mtime_ns))


def watch(
    folders: Folders,
    read: ReadFiles,
    cursor: WatchCursor = START,
    *,
    now: dt.datetime = NOW,
    most: int = 9,
) -> Watched:
    return watching.watch(
        (folders,),
        read.ledger(),
        cursor,
        first_day=dt.date(2026, 1, 1),
        now=now,
        settle_seconds=2,
        most_days=most,
    )


def read_all(folders: Folders, read: ReadFiles, day: dt.date) -> None:
    read.commit(*folders.list_day(day, now_ns=NOW_NS, settle_seconds=2).files)


def test_a_day_with_unread_files_is_ready_until_they_are_read(folders, read):
    put(folders, "2026-01-05")
    first = watch(folders, read)
    assert first.ready == (DAY,)
    second = watch(folders, read, first.cursor)
    assert second.ready == (DAY,), "a day that was asked for and not read is asked for again"
    read_all(folders, read, DAY)
    third = watch(folders, read, second.cursor)
    assert third.ready == ()
    assert third.cursor.open_days == ()


def test_a_file_still_being_written_keeps_its_day_open(folders, read):
    put(folders, "2026-01-05", mtime_ns=NOW_NS)
    first = watch(folders, read)
    assert (first.ready, first.unsettled, first.cursor.open_days) == ((), 1, (DAY,))
    later = watch(folders, read, first.cursor, now=NOW + dt.timedelta(minutes=5))
    assert later.ready == (DAY,)


def test_a_file_that_lands_in_an_old_day_is_found(folders, read):
    put(folders, "2026-01-05")
    read_all(folders, read, DAY)
    cursor = watch(folders, read).cursor
    later = NOW + dt.timedelta(minutes=5)
    put(
        folders, "2026-01-05", "late.jsonl", mtime_ns=int((later - dt.timedelta(seconds=3)).timestamp() * 1e9)
    )
    assert watch(folders, read, cursor, now=later).ready == (DAY,)


def test_quiet_days_are_not_looked_into(folders, read, monkeypatch):
    for day in range(1, 8):
        put(folders, f"2026-01-0{day}")
        read_all(folders, read, dt.date(2026, 1, day))
    cursor = watch(folders, read, watch(folders, read).cursor).cursor
    looked: list[dt.date] = []
    list_day = Folders.list_day
    monkeypatch.setattr(
        Folders, "list_day", lambda self, day, **by: looked.append(day) or list_day(self, day, **by)
    )
    later = NOW + dt.timedelta(minutes=5)
    put(folders, "2026-01-06", "b.jsonl", mtime_ns=int(later.timestamp() * 1e9) - 3 * 10**9)
    assert watch(folders, read, cursor, now=later).ready == (NEXT_DAY,)
    assert looked == [NEXT_DAY]


def test_more_days_than_one_look_takes_wait_for_the_next(folders, read):
    for day in (1, 2, 3):
        put(folders, f"2026-01-0{day}")
    first = watch(folders, read, most=2)
    assert [day.day for day in first.ready] == [1, 2]
    for day in first.ready:
        read_all(folders, read, day)
    assert first.left == 1
    assert list(first.remarks(first_day=DAY, settle_seconds=2)) == ["1 more day is looked into next time"]
    second = watch(folders, read, first.cursor, most=2)
    third = watch(folders, read, second.cursor, most=2)
    assert [day.day for day in (*second.ready, *third.ready)] == [3]


def test_days_without_a_partition_are_reported_and_not_asked_for(folders, read):
    put(folders, "2025-12-31")
    put(folders, "2026-01-08")
    found = watch(folders, read)
    assert found.ready == ()
    assert [day.isoformat() for day in found.outside] == ["2025-12-31", "2026-01-08"]


def test_a_day_ahead_is_read_once_it_has_come(folders, read):
    put(folders, "2026-01-08", mtime_ns=NOW_NS - HOUR_NS)
    cursor = watch(folders, read).cursor
    assert watch(folders, read, cursor, now=NOW + dt.timedelta(days=1)).ready == (dt.date(2026, 1, 8),)


def test_the_cursor_never_goes_back(folders, read):
    cursor = watch(folders, read).cursor
    assert watch(folders, read, cursor, now=NOW - dt.timedelta(hours=1)).cursor.seen_ns == cursor.seen_ns


def test_a_file_is_found_though_its_clock_is_behind(folders, read):
    put(folders, "2026-01-05", mtime_ns=NOW_NS - HOUR_NS)
    read_all(folders, read, DAY)
    cursor = START
    for _ in range(3):
        cursor = watch(folders, read, cursor).cursor
    put(folders, "2026-01-06", mtime_ns=NOW_NS - HOUR_NS + 1)
    assert watch(folders, read, cursor).ready == (NEXT_DAY,)


def test_a_file_of_a_clock_ahead_is_closed_at_once_if_files_need_not_settle(folders):
    put(folders, "2026-01-05", mtime_ns=NOW_NS + HOUR_NS)
    assert len(folders.list_day(DAY, now_ns=NOW_NS, settle_seconds=0).files) == 1
    assert folders.list_day(DAY, now_ns=NOW_NS, settle_seconds=2).unsettled == ("a.jsonl",)


def test_strangers_are_named(folders, read):
    put(folders, "backup")
    assert watch(folders, read).strangers == ("backup",)


def remarks(found: Watched) -> list[str]:
    return list(found.remarks(first_day=dt.date(2026, 1, 1), settle_seconds=2))


def test_all_that_is_not_read_is_named_or_counted_at_each_look(folders, read):
    for number in range(7):
        put(folders, f"backup-{number}")
        put(folders, f"2025-12-0{number + 1}")
    put(folders, "2026-01-05")
    put(folders, "2026-01-05", ".open.jsonl")
    put(folders, "2026-01-05", "open.part")
    day = folders.path / "2026-01-05"
    for name in ("b.json", "c.JSONL", "d.jsonl.bz2"):
        put(folders, "2026-01-05", name)
    (day / "nested").mkdir()
    (day / "link.jsonl").symlink_to("a.jsonl")
    os.mkfifo(day / "pipe.jsonl")
    put(folders, "2026-01-06", "e.csv")
    os.utime(day, ns=(NOW_NS - HOUR_NS, NOW_NS - HOUR_NS))
    read_all(folders, read, DAY)
    first = watch(folders, read)
    lasting = [
        "2025-12-01, 2025-12-02, 2025-12-03, 2025-12-04, 2025-12-05 and 2 more lie outside of the"
        " partitions, which start on"
        " 2026-01-01 and end today; set start_date, or move the files",
        "backup-0, backup-1, backup-2, backup-3, backup-4 and 2 more in the landing folder are no days"
        " (YYYY-MM-DD) and are"
        " never read",
        "2026-01-05/b.json, 2026-01-05/c.JSONL, 2026-01-05/d.jsonl.bz2, 2026-01-05/link.jsonl,"
        " 2026-01-05/nested and 2 more"
        " are no event files (*.jsonl, *.jsonl.gz, *.ndjson, *.ndjson.gz; no links, no folders) and are"
        " never read",
    ]
    unfinished = (
        "not read yet because of unfinished files' names (`.` or `_` first, .tmp, .part, .inprogress): 2"
    )
    assert remarks(first) == [unfinished, *lasting]
    cursor = WatchCursor.load(watch(folders, read, first.cursor).cursor.dump())
    assert remarks(watch(folders, read, cursor)) == lasting, "quiet days are not looked into again"
    for name in ("b.json", "c.JSONL", "d.jsonl.bz2", "link.jsonl", "pipe.jsonl"):
        (day / name).unlink()
    (day / "nested").rmdir()
    assert remarks(watch(folders, read, cursor))[-1].startswith("2026-01-06/e.csv are no event files")


def test_a_file_that_changed_after_it_was_read_is_named(folders, read):
    put(folders, "2026-01-05")
    read_all(folders, read, DAY)
    assert watch(folders, read).changed == ()
    put(folders, "2026-01-05", mtime_ns=NOW_NS - HOUR_NS + 1)
    found = watch(folders, read)
    assert (found.ready, found.changed) == ((DAY,), ("2026-01-05/a.jsonl",))
    assert remarks(found) == ["changed after being read, and read again: 2026-01-05/a.jsonl"]


def test_a_day_with_a_file_that_cannot_be_named_keeps_no_other_day_from_being_read(folders, read):
    put(folders, "2026-01-05")
    put(folders, "2026-01-06")
    put(folders, "2026-01-06", os.fsdecode(b"\xff.jsonl"))
    found = watch(folders, read)
    assert found.ready == (DAY,)
    assert list(found.unreadable) == [NEXT_DAY]
    (text,) = remarks(found)
    assert "2026-01-06/\\xff.jsonl has a name that is not UTF-8" in text
    assert "rename it" in text
    assert watch(folders, read, found.cursor).unreadable == found.unreadable


@pytest.fixture
def flat(tmp_path: Path) -> Folders:
    (tmp_path / "in").mkdir()
    return Folders(source="files", path=tmp_path / "in", format=Csv(), pattern="*.csv", by_day=False)


def drop(folders: Folders, name: str, at_ns: int = NOW_NS - 48 * HOUR_NS) -> None:
    (folders.path / name).write_bytes(b"a\n1\n")
    os.utime(folders.path / name, ns=(at_ns, at_ns))


def test_a_file_of_a_flat_folder_that_changes_is_read_again_on_its_new_day(flat, read):
    drop(flat, "a.csv")
    first = watch(flat, read)
    assert first.ready == (DAY,)
    read_all(flat, read, DAY)
    assert watch(flat, read, first.cursor).ready == ()
    drop(flat, "a.csv", NOW_NS - 24 * HOUR_NS)
    again = watch(flat, read, WatchCursor(open_days=(DAY,)))
    assert (again.ready, again.changed) == ((NEXT_DAY,), ())


def test_remarks_name_the_source_s_own_folder_and_pattern(flat, read):
    (flat.path / "folder.csv").mkdir()
    os.utime(flat.path / "folder.csv", ns=(NOW_NS - 48 * HOUR_NS, NOW_NS - 48 * HOUR_NS))
    for name in ("a.csv", ".b.csv", "c.csv.part", "other.txt", ".other"):
        drop(flat, name)
    drop(flat, "d.csv", NOW_NS - 24 * HOUR_NS)
    assert remarks(watch(flat, read)) == [
        "not read yet because of unfinished files' names (`.` or `_` first, .tmp, .part, .inprogress): 2",
        f"2026-01-05/folder.csv in {flat.path} are no files of this source (*.csv; no links, no folders) and"
        " are never read",
    ]
    by_day = replace(flat, by_day=True)
    found = remarks(watch(by_day, read))
    assert found == [
        f"a.csv, c.csv.part, d.csv, folder.csv, other.txt in {flat.path} are no days (YYYY-MM-DD) and are"
        " never read"
    ]


def test_a_look_at_a_flat_folder_lists_it_once_however_many_days_it_has(flat, read, monkeypatch):
    for day in range(1, 7):
        drop(flat, f"{day}.csv", NOW_NS - day * 24 * HOUR_NS)
    scans = []
    scandir = os.scandir
    monkeypatch.setattr(
        "etl_assets.sources.landing.os.scandir", lambda path: scans.append(path) or scandir(path)
    )
    found = watch(flat, read)
    assert len(found.ready) == 6
    assert len(scans) == 1


def test_a_file_that_is_moved_into_a_flat_folder_with_an_old_time_is_found(flat, read):
    drop(flat, "a.csv")
    read_all(flat, read, DAY)
    cursor = watch(flat, read).cursor
    assert cursor.open_days == ()
    drop(flat, ".b.csv")
    (flat.path / ".b.csv").rename(flat.path / "b.csv")
    assert watch(flat, read, cursor).ready == (DAY,), "its time is before that of the cursor"


@given(
    st.builds(
        WatchCursor,
        seen_ns=st.integers(0, 2**63),
        open_days=st.lists(st.dates()).map(tuple),
        unread=st.dictionaries(
            st.dates(),
            st.builds(Unread, names=st.lists(st.text(), max_size=3).map(tuple), number=st.integers(1)),
        ),
    )
)
def test_a_cursor_comes_back_from_its_text(cursor):
    assert WatchCursor.load(cursor.dump()) == cursor


@pytest.mark.parametrize(
    "text",
    [None, "", "not json", "[]", "7", '{"open_days": ["no day"]}', '{"seen_ns": "x"}', '{"open_days": 1}'],
)
def test_a_text_that_is_no_cursor_starts_from_the_beginning(text):
    assert WatchCursor.load(text) == WatchCursor()


def test_an_old_file_that_is_moved_into_a_folder_without_days_is_found(tmp_path, read):
    flat = Folders(source=LANDING, path=tmp_path / "flat", by_day=False)
    flat.path.mkdir()
    now = dt.datetime.now(dt.UTC)
    old = tmp_path / "a.jsonl"
    old.write_bytes(b"x\n")
    an_hour_ago = int(now.timestamp()) * 10**9 - HOUR_NS
    os.utime(old, ns=(an_hour_ago, an_hour_ago))
    first = watch(flat, read, now=now)
    old.rename(flat.path / "a.jsonl")
    assert watch(flat, read, first.cursor, now=now).ready == (
        dt.datetime.fromtimestamp(an_hour_ago // 10**9, dt.UTC).date(),
    )
