"""Which files of a day are there, closed and as they were seen."""

from __future__ import annotations

import gzip
import os
import sys
import traceback
from pathlib import Path

import pytest

from etl_assets.errors import SourceChanged, SourceUnreadable
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
