"""One writer of a table at a time, and no lock outlives its holder, nor ends before its holder's JVM has."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from etl_assets.delta.write import lock
from etl_assets.delta.write.lock import writer_lock
from etl_assets.errors import TableBusy, WriterLeftBehind
from etl_assets.processes import started_at

HOLDER = """
import sys, time
from pathlib import Path
from etl_assets.delta.write.lock import writer_lock
driver = int(sys.argv[2]) or None
with writer_lock(Path(sys.argv[1]), table="orders", wait_seconds=5, driver_pid=driver):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "orders.lock"


@pytest.fixture
def driver():
    """A process in the place of a driver JVM."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def held_by_another_process(path: Path, driver_pid: int = 0) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), str(driver_pid)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert process.stdout is not None
    process.stdout.close()


def acquire(path: Path, wait_seconds: float = 0, driver_pid: int | None = None) -> None:
    with writer_lock(path, table="orders", wait_seconds=wait_seconds, driver_pid=driver_pid):
        pass


def test_the_second_writer_is_told_who_the_first_is(path):
    process = held_by_another_process(path)
    try:
        with pytest.raises(
            TableBusy, match=f"orders is being written by process {process.pid} on {socket.gethostname()}"
        ):
            acquire(path)
    finally:
        killed(process)


def test_a_thread_of_the_same_process_is_another_writer(path):
    with writer_lock(path, table="orders", wait_seconds=0, driver_pid=None), pytest.raises(TableBusy):
        acquire(path)


def test_a_holder_killed_by_sigkill_frees_the_lock(path):
    killed(held_by_another_process(path))
    acquire(path)


def test_the_living_jvm_of_a_dead_holder_is_waited_for(path, driver):
    killed(held_by_another_process(path, driver.pid))
    with pytest.raises(TableBusy):
        acquire(path, wait_seconds=0.2)
    threading.Timer(0.3, driver.kill).start()
    started = time.monotonic()
    acquire(path, wait_seconds=30)
    assert time.monotonic() - started >= 0.2


def test_a_writer_at_the_jvm_of_a_dead_holder_does_not_wait_for_its_own_end(path, driver, monkeypatch):
    killed(held_by_another_process(path, driver.pid))
    monkeypatch.setattr(lock, "running_driver_pid", lambda: driver.pid)
    for _ in range(2):  # what is known of the dead holder stays for whoever comes next
        with pytest.raises(WriterLeftBehind, match="orders"):
            acquire(path, wait_seconds=30, driver_pid=driver.pid)
    monkeypatch.setattr(lock, "running_driver_pid", lambda: None)
    with pytest.raises(TableBusy):
        acquire(path)


def test_a_jvm_that_is_a_zombie_holds_nothing(path, driver):
    killed(held_by_another_process(path, driver.pid))
    driver.kill()
    while started_at(driver.pid) is not None:
        time.sleep(0.01)
    acquire(path)


def test_another_process_under_the_number_of_a_dead_jvm_is_not_waited_for(path, driver):
    killed(held_by_another_process(path, driver.pid))
    path.write_text(json.dumps({**json.loads(path.read_text()), "driver_started_at": "1"}), encoding="utf-8")
    acquire(path)


def test_a_dead_holder_of_another_machine_is_not_looked_for_here(path, driver):
    killed(held_by_another_process(path, driver.pid))
    path.write_text(json.dumps({**json.loads(path.read_text()), "host": "elsewhere"}), encoding="utf-8")
    acquire(path)


def test_a_holder_that_ends_well_leaves_no_name_even_when_it_fails(path):
    with (
        pytest.raises(RuntimeError),
        writer_lock(path, table="orders", wait_seconds=0, driver_pid=os.getpid()),
    ):
        raise RuntimeError
    assert path.read_text("utf-8") == ""
    acquire(path)


@pytest.mark.parametrize("content", ["{", '{"host": "x"}', '{"driver_pid": 1}', "\x00\x00"])
def test_a_torn_name_of_a_holder_does_not_lock_the_table_for_ever(path, content):
    path.parent.mkdir(parents=True)
    path.write_text(content.replace('"x"', json.dumps(socket.gethostname())), encoding="utf-8")
    acquire(path)
