"""What reads rows ends well: none of pyarrow's threads needs the interpreter while that is ending.

Such a thread cannot have the interpreter any more, and takes the process with it: "terminate called without
an active exception", exit code 134, after the result was printed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from etl_assets.settings import load_settings
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.written_tables import DAY, NOON, write_table

EVENT = "01a1dcac-717f-7e0b-8db9-aeca2d71850d"
PACKAGE = Path(__file__).parents[2] / "etl_assets"
LETTER = {
    "dead_letter_id": "a" * 64,
    "stage": "ingest",
    "reason": "MalformedJson",
    "record": "{",
    "record_encoding": "utf-8",
    "source": "landing",
    "source_position": f"{DAY}/f.jsonl:1",
    "attempts": 1,
    "state": "open",
    "failed_at": NOON,
}
READ_COMMANDS = (
    ("dead-letters", "list", "--json"),
    ("dead-letters", "show", "a" * 64, "--json"),
    ("trace", EVENT, "--json"),
    ("tables", "--json"),
    ("domains", "list"),
    ("effects", "list", "--json"),
    ("tables", "path", "raw_events", "--json"),
    (
        "sql",
        "select e.*, d.record from raw_events e full join dead_letters d using (source)",
        "--format",
        "csv",
    ),
)
CALLS = int(os.environ.get("READ_CALLS", "2"))
SLOW_RELEASE = """
import os, sys, time
import deltalake.fs.fs_handler as handler
import pyarrow as pa

class Slow:
    closed = False
    def __init__(self, file):
        self.file = file
    def __getattr__(self, name):
        return getattr(self.file, name)
    def __del__(self):
        while True:  # for as long as the process lives: a thread that was not given a core for a while
            time.sleep(0.002)

def open_input_file(self, path):
    return pa.PythonFile(Slow(self._handler.open_input_file(path)))

handler.DeltaStorageHandler.open_input_file = open_input_file
from etl_assets.cli.main import main
main()
"""
"""Every file in Python that deltalake gives to pyarrow is let go of slowly, as on a machine that has much to
do.
"""


@pytest.fixture
def domain(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    found = load_settings().placement().domains[0]
    write_table(found, "dead_letters", [LETTER])
    for name in ("raw_events", "order_status_view", "effects"):
        write_table(
            found, name, [{"event_id": EVENT, "source": "landing", "source_position": f"{DAY}/f.jsonl:1"}]
        )
    return found


def test_a_command_that_read_rows_ends_with_its_own_exit_code_on_a_slow_machine(domain):
    command = [sys.executable, "-c", SLOW_RELEASE, "dead-letters", "list", "--json"]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False, timeout=60)

    assert "a" * 64 in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", READ_COMMANDS, ids=" ".join)
def test_a_read_command_always_ends_with_its_own_exit_code_into_a_pipe(domain, command):
    """Twice as many at once as there are cores, which is when threads end late. READ_CALLS=300 for a
    proof.
    """
    ends = []
    with ThreadPoolExecutor(max_workers=4) as calls:
        for done in calls.map(lambda _: call(*command), range(CALLS)):
            ends.append((done.returncode, done.stderr if done.returncode else ""))
            assert done.stdout

    # One domain alone: `domains list` says that its loss would lose something, by exit code 1.
    assert Counter(ends) == {(1 if command[0] == "domains" else 0, ""): CALLS}


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "etl_assets.cli.main", *arguments]
    return subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False, timeout=120)


def test_rows_are_read_through_a_file_system_without_python(domain):
    import pyarrow.fs

    snapshot = platform_table("dead_letters", domain).snapshot()
    assert snapshot is not None
    files = snapshot.dataset().filesystem
    while isinstance(files, pyarrow.fs.SubTreeFileSystem):
        files = files.base_fs

    assert isinstance(files, pyarrow.fs.LocalFileSystem)


def test_only_the_snapshot_asks_deltalake_for_a_dataset_and_nothing_reads_python_files():
    """`BytesIO` and its like are files in Python too: a `pyarrow.BufferReader` is none."""
    found = {
        f"{path.relative_to(PACKAGE)}: {match[0]}"
        for path in PACKAGE.rglob("*.py")
        for match in re.finditer(
            r"to_pyarrow_(dataset|table)|ParquetFile\(BytesIO|read_table\(BytesIO", path.read_text("utf-8")
        )
    }
    assert found == {"delta/snapshot.py: to_pyarrow_dataset"}
