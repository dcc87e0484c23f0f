"""Landing files appear whole or not at all, and never change."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from etl_assets.errors import InputError, LandingFileDiffers, LandingNotWritten
from etl_assets.orders.generator import writer
from etl_assets.orders.generator.reference import CUSTOMERS_FILE, add_customers
from etl_assets.orders.generator.writer import LandingWriter

DAY = date(2024, 2, 29)


@pytest.fixture
def landing(tmp_path):
    return tmp_path / "deep" / "landing"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_lines_land_in_the_folder_of_their_day(landing):
    file = LandingWriter(landing).land(DAY, "a-1", [b"one", b"two"])
    assert file.path == landing / "2024-02-29" / "a-1.jsonl"
    assert file.path.read_bytes() == b"one\ntwo\n"
    assert (file.bytes, file.written) == (8, True)


def test_more_lines_than_one_write_takes_are_all_there(landing):
    lines = [b"%d" % n for n in range(10_001)]
    assert LandingWriter(landing).land(DAY, "a-1", iter(lines)).path.read_bytes().split(b"\n")[:-1] == lines


def test_the_same_bytes_again_write_nothing(landing):
    first = LandingWriter(landing).land(DAY, "a-1", [b"one"])
    before = first.path.stat()
    again = LandingWriter(landing).land(DAY, "a-1", [b"one"])
    assert (again.written, again.bytes) == (False, 4)
    assert (first.path.stat().st_ino, first.path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("other", [[b"two"], [b"one", b"two"], [b"on"], []])
def test_other_bytes_under_the_same_name_are_refused_and_the_file_stays(landing, other):
    path = LandingWriter(landing).land(DAY, "a-1", [b"one"]).path
    with pytest.raises(LandingFileDiffers, match=r"a-1\.jsonl") as caught:
        LandingWriter(landing).land(DAY, "a-1", other)
    assert caught.value.fix
    assert caught.value.file == str(path)
    assert path.read_bytes() == b"one\n"


def test_until_it_is_complete_a_file_has_a_hidden_name(landing):
    seen = []

    def lines():
        yield b"one"
        seen.extend(names_in(landing / "2024-02-29"))

    LandingWriter(landing).land(DAY, "a-1", lines())
    assert len(seen) == 1
    assert seen[0].startswith(".")
    assert seen[0].endswith(".tmp")


def test_a_failure_in_the_middle_leaves_nothing_behind(landing):
    def lines():
        yield b"one"
        raise KeyError("no more")

    with pytest.raises(KeyError):
        LandingWriter(landing).land(DAY, "a-1", lines())
    assert names_in(landing / "2024-02-29") == []


def test_a_killed_writer_leaves_only_a_hidden_file_and_can_be_repeated(landing):
    code = (
        "import os, sys, signal, datetime, pathlib\n"
        "from etl_assets.orders.generator.writer import LandingWriter\n"
        "def lines():\n"
        "    for n in range(100_000):\n"
        "        yield b'x' * 100\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "LandingWriter(pathlib.Path(sys.argv[1])).land(datetime.date(2024, 2, 29), 'a-1', lines())\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(landing)], check=False)
    assert killed.returncode == -9
    names = names_in(landing / "2024-02-29")
    assert len(names) == 1
    assert names[0].startswith(".")
    assert LandingWriter(landing).land(DAY, "a-1", [b"one"]).written


def test_a_full_disk_is_named_with_the_file_and_leaves_nothing(landing, monkeypatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    LandingWriter(landing).land(DAY, "a-1", [b"one"])
    monkeypatch.setattr(writer.os, "fsync", full)
    with pytest.raises(LandingNotWritten, match=r"a-2\.jsonl cannot be written or compared: No space left"):
        LandingWriter(landing).land(DAY, "a-2", [b"one"])
    assert names_in(landing / "2024-02-29") == ["a-1.jsonl"]


def test_a_file_in_the_place_of_the_folder_is_named(landing):
    landing.parent.mkdir(parents=True)
    landing.write_text("not a folder")
    with pytest.raises(LandingNotWritten):
        LandingWriter(landing).land(DAY, "a-1", [b"one"])


def test_check_writes_nothing_and_sees_what_is_in_the_way(landing):
    writer = LandingWriter(landing)
    writer.check(DAY, "a-1", [b"one"])
    assert not landing.exists()
    writer.land(DAY, "a-1", [b"one"])
    writer.check(DAY, "a-1", [b"one"])
    with pytest.raises(LandingFileDiffers):
        writer.check(DAY, "a-1", [b"two"])


def test_customers_are_merged_into_the_reference_file(landing):
    assert add_customers(landing, {"c-2": "NORTH", "c-1": 'SO"UTH'})
    assert add_customers(landing, {"c-3": "EAST", "c-2": "WEST"})
    text = (landing / CUSTOMERS_FILE).read_text()
    assert text == 'customer_id,customer_region\nc-1,"SO""UTH"\nc-2,WEST\nc-3,EAST\n'


def test_a_customer_who_moved_has_the_new_region(landing):
    add_customers(landing, {"c-1": "NORTH"})
    assert add_customers(landing, {"c-1": "WEST"})
    assert (landing / CUSTOMERS_FILE).read_text().splitlines()[1:] == ["c-1,WEST"]


def test_customers_who_are_there_already_change_nothing(landing):
    add_customers(landing, {"c-1": "NORTH"})
    assert not add_customers(landing, {"c-1": "NORTH"})


@pytest.mark.parametrize(
    ("text", "line"), [("id,region\nc-1,N\n", 1), ("customer_id,customer_region\nc-1\n", 2), ("", 1)]
)
def test_a_reference_file_of_another_shape_is_named_with_its_line_and_kept(landing, text, line):
    path = landing / CUSTOMERS_FILE
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(InputError, match=f"customers.csv, line {line}"):
        add_customers(landing, {"c-1": "NORTH"})
    assert path.read_text() == text
