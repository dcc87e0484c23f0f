"""Which files of a day are there, closed and as they were seen."""

from __future__ import annotations

import datetime as dt
import gzip
import os
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import pytest

from etl_assets.errors import SourceChanged, SourceUnreadable
from etl_assets.sources.formats import Csv
from etl_assets.sources.landing import LANDING, Folders, parse_day
from etl_assets_tests.pipeline import DAY

NOW_NS = 10**18
LONG_AGO_NS = NOW_NS - 10**12


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(source=LANDING, path=tmp_path / "landing")


def put(folders: Folders, name: str, content: bytes = b"x\n", mtime_ns: int = LONG_AGO_NS) -> Path:
    path = folders.path / DAY.isoformat() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return path


def listed(folders: Folders, settle_seconds: float = 2):
    return folders.list_day(DAY, now_ns=NOW_NS, settle_seconds=settle_seconds)


def test_a_days_folder_that_is_removed_meanwhile_is_no_day(folders):
    for day in ("2026-01-05", "2026-01-06"):
        (folders.path / day).mkdir(parents=True)
    days = folders.days()
    seen, _ = next(days)
    (other,) = (path for path in folders.path.iterdir() if path.name != seen.isoformat())
    other.rmdir()
    assert list(days) == []


@pytest.mark.parametrize(
    "name", ["a.jsonl", "a.jsonl.gz", "a.ndjson", "a.ndjson.gz", "a [1]*% b.jsonl", "é.jsonl"]
)
def test_a_closed_event_file_is_listed(folders, name):
    put(folders, name)
    assert [file.name for file in listed(folders).files] == [name]


@pytest.mark.parametrize(
    "name", [".a.jsonl", "_a.jsonl", "a.jsonl.tmp", "a.jsonl.part", "a.jsonl.inprogress", ".a.jsonl.tmp"]
)
def test_a_file_that_its_name_calls_open_is_not_there_yet(folders, name):
    put(folders, name)
    found = listed(folders)
    assert (found.files, found.unsettled, found.ignored, found.set_aside) == ((), (), (), (name,))


def test_a_file_that_changed_a_moment_ago_is_still_being_written(folders):
    put(folders, "a.jsonl", mtime_ns=NOW_NS - 1_999_999_999)
    assert listed(folders).files == ()
    assert listed(folders).unsettled == ("a.jsonl",)
    put(folders, "a.jsonl", mtime_ns=NOW_NS - 2_000_000_000)
    assert [file.name for file in listed(folders).files] == ["a.jsonl"]


def test_a_file_from_the_future_is_still_being_written(folders):
    put(folders, "a.jsonl", mtime_ns=NOW_NS + 10**12)
    assert listed(folders).unsettled == ("a.jsonl",)


def test_what_is_no_event_file_is_named_and_not_read(folders):
    put(folders, "a.csv")
    (folders.path / DAY.isoformat() / "folder.jsonl").mkdir()
    (folders.path / DAY.isoformat() / "link.jsonl").symlink_to("a.csv")
    assert listed(folders).ignored == ("a.csv", "folder.jsonl", "link.jsonl")
    assert listed(folders).files == ()


@pytest.mark.parametrize("name", [b"\xff\xfe.jsonl", b"a\xe9.ndjson.gz"])
def test_an_event_file_whose_name_is_not_utf_8_is_refused_by_a_name_that_can_be_printed(folders, name):
    put(folders, "a.jsonl")
    (folders.path / DAY.isoformat() / os.fsdecode(name)).write_bytes(b"x\n")
    with pytest.raises(SourceUnreadable, match=r"x(ff|e9).* has a name that is not UTF-8") as refused:
        listed(folders)
    assert refused.value.day == DAY
    str(refused.value).encode()


def test_whatever_else_has_such_a_name_is_named_as_well(folders):
    (folders.path / DAY.isoformat()).mkdir(parents=True)
    for name in (b"\xff.csv", b".\xff.jsonl"):
        (folders.path / DAY.isoformat() / os.fsdecode(name)).write_bytes(b"")
    (folders.path / os.fsdecode(b"\xffday")).mkdir()
    assert (listed(folders).ignored, listed(folders).set_aside) == (("\\xff.csv",), (".\\xff.jsonl",))
    assert folders.strangers() == ("\\xffday",)


def test_files_are_listed_in_source_order(folders):
    for name in ("b.jsonl", "a.jsonl", "B.jsonl"):
        put(folders, name)
    files = listed(folders).files
    assert [file.name for file in files] == ["B.jsonl", "a.jsonl", "b.jsonl"]
    assert files == tuple(sorted(files))
    assert (files[1].key, files[1].position) == ("landing/a.jsonl", "2026-01-05/a.jsonl")


def test_an_absent_landing_folder_has_no_days_and_no_strangers(folders):
    assert list(folders.days()) == []
    assert folders.strangers() == ()


def test_a_link_to_itself_is_a_stranger(folders):
    (folders.path / "2026-01-05").mkdir(parents=True)
    (folders.path / "2026-01-06").symlink_to("2026-01-06")
    assert [day for day, _ in folders.days()] == [DAY]
    assert folders.strangers() == ("2026-01-06",)


def test_a_folder_that_is_no_date_is_a_stranger(folders):
    for name in ("2026-01-05", "2026-1-5", "20260105", "2026-02-30", "backup", "_reference", ".hidden"):
        (folders.path / name).mkdir(parents=True)
    (folders.path / "2026-01-06").write_text("a file, no folder")
    assert [day for day, _ in folders.days()] == [DAY]
    assert folders.strangers() == ("2026-01-06", "2026-02-30", "2026-1-5", "20260105", "backup")


@pytest.mark.parametrize("name", ["2026-W01-1", "2026-01-05T00", "٢٠٢٦-٠١-٠٥", ""])
def test_only_the_one_spelling_of_a_day_is_a_day(name):
    assert parse_day(name) is None


def test_files_as_they_were_seen_pass(folders):
    put(folders, "a.jsonl")
    folders.verify(listed(folders).files)


@pytest.mark.parametrize(
    "content", [b"", b"x\ny\n", b"y\n"], ids=["shorter", "longer", "other bytes of one length"]
)
def test_a_file_that_changed_is_named_with_its_sizes(folders, content):
    path = put(folders, "a.jsonl")
    files = listed(folders).files
    put(folders, "a.jsonl", content, mtime_ns=LONG_AGO_NS + 1)
    with pytest.raises(SourceChanged, match=r"a\.jsonl changed while it was being read") as changed:
        folders.verify(files)
    assert changed.value.file == str(path)


def test_a_file_that_is_gone_is_named(folders):
    path = put(folders, "a.jsonl")
    files = listed(folders).files
    path.unlink()
    with pytest.raises(SourceUnreadable, match=r"a\.jsonl cannot be read: No such file"):
        folders.verify(files)


@pytest.mark.skipif(sys.platform != "linux", reason="os.fork and user ids as on Linux")
def test_without_permission_the_file_and_the_folder_are_named(folders, tmp_path):
    for parent in tmp_path.parents:
        if parent != parent.parent and parent.stat().st_mode & 0o001 == 0 and os.geteuid() == 0:
            # pytest's own folders are its user's; the test is about those below.
            parent.chmod(parent.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    path = put(folders, "a.jsonl")
    files = listed(folders).files
    path.chmod(0)

    def unreadable_file() -> None:
        with pytest.raises(SourceUnreadable, match=r"a\.jsonl cannot be read: Permission denied"):
            folders.verify(files)

    def unreadable_folder() -> None:
        with pytest.raises(SourceUnreadable, match=r"2026-01-05 cannot be read: Permission denied"):
            listed(folders)

    assert as_ordinary_user(unreadable_file) == 0
    path.parent.chmod(0)
    try:
        assert as_ordinary_user(unreadable_folder) == 0
    finally:
        path.parent.chmod(0o755)


def as_ordinary_user(check) -> int:
    """Run a check in a process that permissions hold for: root ignores them."""
    process = os.fork()
    if process == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            check()
        except BaseException:  # noqa: BLE001 - the parent sees the exit code and the trace, and nothing may run on here
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"x\n" * 1000)[:-12], b"no gzip", gzip.compress(b"x\n") + b"y"],
    ids=["cut", "text", "tail"],
)
def test_a_compressed_file_that_is_broken_is_named(folders, content):
    put(folders, "a.jsonl.gz", gzip.compress(b"x\n"))
    put(folders, "b.jsonl")
    folders.verify_compression(listed(folders).files)
    path = put(folders, "c.jsonl.gz", content)
    with pytest.raises(SourceUnreadable, match=r"c\.jsonl\.gz cannot be decompressed") as broken:
        folders.verify_compression(listed(folders).files)
    assert broken.value.file == str(path)


DAY_NS = 86_400 * 10**9
TODAY_NS = 1_767_614_400 * 10**9
"""Noon of `DAY`."""


def flat(tmp_path: Path, pattern: str = "*.csv", *, source: str = "files") -> Folders:
    (tmp_path / "in").mkdir(exist_ok=True)
    return Folders(source=source, path=tmp_path / "in", format=Csv(), pattern=pattern, by_day=False)


def drop(folders: Folders, name: str | bytes, content: bytes = b"a\n1\n", at_ns: int = TODAY_NS) -> Path:
    path = folders.path / os.fsdecode(name)
    path.write_bytes(content)
    os.utime(path, ns=(at_ns, at_ns))
    return path


def on(folders: Folders, day: dt.date = DAY):
    return folders.list_day(day, now_ns=TODAY_NS + 9 * DAY_NS, settle_seconds=2)


def test_a_file_in_a_flat_folder_belongs_to_the_day_of_its_last_change_and_keeps_its_identity(tmp_path):
    folders = flat(tmp_path)
    path = drop(folders, "a.csv")
    drop(folders, "b.csv", at_ns=TODAY_NS - DAY_NS)
    assert {day for day, _ in folders.days()} == {DAY, DAY - dt.timedelta(days=1)}
    (first,) = on(folders).files
    os.utime(path, ns=(TODAY_NS + DAY_NS, TODAY_NS + DAY_NS))
    assert on(folders).files == ()
    (later,) = on(folders, DAY + dt.timedelta(days=1)).files
    assert (first.name, later.day - first.day) == ("a.csv", dt.timedelta(days=1))
    assert folders.input_file(first).identity == folders.input_file(later).identity == "a.csv"
    with pytest.raises(SourceChanged):
        folders.verify([first])
    folders.verify([later])


def test_sources_of_one_folder_see_their_own_files_only(tmp_path):
    one, other = flat(tmp_path, "orders-*.csv"), flat(tmp_path, "customers-*.csv")
    for name in (
        "orders-1.csv",
        "customers-1.csv",
        "notes.txt",
        ".orders-2.csv",
        "customers-2.csv.part",
        "_x",
    ):
        drop(one, name)
    assert [file.name for file in on(one).files] == ["orders-1.csv"]
    assert [file.name for file in on(other).files] == ["customers-1.csv"]
    assert (on(one).ignored, on(one).set_aside) == ((), (".orders-2.csv",))
    assert (on(other).ignored, on(other).set_aside) == ((), ("customers-2.csv.part",))


def test_sources_of_one_folder_with_days_see_their_own_files_only(folders):
    mine = replace(folders, format=Csv(), pattern="a-*.csv")
    for name in ("a-1.csv", "b-1.csv", ".a-2.csv", ".b-2.csv"):
        put(folders, name)
    found = listed(mine)
    assert [file.name for file in found.files] == ["a-1.csv"]
    assert (found.ignored, found.set_aside) == ((), (".a-2.csv",))


def test_a_pattern_decides_alone_which_files_are_read(tmp_path):
    folders = flat(tmp_path, "data_*.[0-9]")
    for name in ("data_a.1", "data_a.x", "DATA_a.1"):
        drop(folders, name)
    assert [file.name for file in on(folders).files] == ["data_a.1"]


def test_folders_and_links_with_a_name_that_matches_are_ignored(tmp_path):
    folders = flat(tmp_path)
    (folders.path / "folder.csv").mkdir()
    (folders.path / "link.csv").symlink_to("a.csv")
    (folders.path / "broken.csv").symlink_to("nowhere")
    for name in ("folder.csv", "link.csv", "broken.csv"):
        os.utime(folders.path / name, ns=(TODAY_NS, TODAY_NS), follow_symlinks=False)
    drop(folders, "a.csv")
    assert [file.name for file in on(folders).files] == ["a.csv"]
    assert on(folders).ignored == ("broken.csv", "folder.csv", "link.csv")


def test_in_a_flat_folder_a_name_that_is_not_utf_8_keeps_its_own_day_from_being_read(tmp_path):
    folders = flat(tmp_path)
    drop(folders, b"\xff.csv")
    drop(folders, b"\xff.txt")
    drop(folders, "b.csv", at_ns=TODAY_NS - DAY_NS)
    with pytest.raises(SourceUnreadable, match="not UTF-8"):
        on(folders)
    assert [file.name for file in on(folders, DAY - dt.timedelta(days=1)).files] == ["b.csv"]


def test_a_flat_folder_that_does_not_exist_is_empty(tmp_path):
    folders = replace(flat(tmp_path), path=tmp_path / "none")
    assert (list(folders.days()), folders.strangers(), on(folders).files) == ([], (), ())


def test_a_flat_folder_is_listed_once_for_several_days_and_again_for_the_next_look(tmp_path, monkeypatch):
    folders = flat(tmp_path)
    for number in range(5):
        drop(folders, f"{number}.csv", at_ns=TODAY_NS - number * DAY_NS)
    scans = []
    scandir = os.scandir
    monkeypatch.setattr(
        "etl_assets.sources.landing.os.scandir", lambda path: scans.append(path) or scandir(path)
    )
    now = folders.scanned()
    assert [len(on(now, day).files) for day, _ in now.days()] == [1] * 5
    assert len(scans) == 1
    drop(folders, "new.csv")
    assert len(on(folders.scanned()).files) == 2
    assert len(on(folders).files) == 2


def test_a_file_that_a_worker_found_wrong_is_named_with_its_fault(tmp_path):
    folders = flat(tmp_path)
    path = drop(folders, "a.csv", b"a,a\n1,2\n")
    good = drop(folders, "b.csv")
    said = RuntimeError(
        f"etl_assets.errors.SourceUnreadable: {str(path)!r} has a first line, and so on {good}"
    )
    with pytest.raises(SourceUnreadable, match=r"a\.csv.* names 'a' twice") as refused:
        folders.refuse_named(on(folders).files, said)
    assert refused.value.file == str(path)
