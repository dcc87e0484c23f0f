"""A step whose own root hangs: its process ends, and no other does."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from etl_assets.placement.domains import Placement
from etl_assets.replicas import watchdog as hung_root
from etl_assets.replicas.watchdog import killed_on_hang
from etl_assets_tests.reference.hanging_root import hanging_mount
from etl_assets_tests.reference.three_domains import A, root_of, three_domains

LIMIT = 0.3
WORKS_IN = """
import pathlib, sys
while True:
    (pathlib.Path(sys.argv[1]) / "made").mkdir(exist_ok=True)
    (pathlib.Path(sys.argv[1]) / "made").rmdir()
"""
"""What a driver does: make things in the root."""
STEP_WITH_DRIVER = """
import subprocess, sys, types
from etl_assets.settings import load_settings
from etl_assets.steps.step import StepContext, domain_watched

placement = load_settings().placement()
domain = placement.domains[0]
context = StepContext(session=lambda: None, domain=domain, domain_problem=lambda: placement.problem(domain))
driver = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(domain.root)], stdin=subprocess.PIPE)
# Where Spark has the process of its driver.
gateway = types.SimpleNamespace(proc=driver)
sys.modules["pyspark"] = types.SimpleNamespace(SparkContext=types.SimpleNamespace(_gateway=gateway))
with domain_watched(context):
    print(driver.pid, flush=True)
    driver.wait()
"""
STEP = """
import dataclasses, sys
from pathlib import Path
from etl_assets.settings import load_settings
from etl_assets.steps.step import StepContext, domain_watched

placement = load_settings().placement()
domain = placement.domains[0]
context = StepContext(session=lambda: None, domain=domain, domain_problem=lambda: placement.problem(domain))
with domain_watched(context):
    print("works", flush=True)
    sys.stdin.readline()
    work = (domain.root / "work").read_bytes()
print("done", flush=True)
"""


@pytest.fixture
def placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Placement:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    found = three_domains(tmp_path, timeout_seconds=LIMIT)
    (root_of(found, A) / "work").write_bytes(b"rows")
    return found


@pytest.fixture
def step(placement):
    """A process in the middle of a step in the first domain; it reads there when it is told to go on."""
    process = subprocess.Popen(
        [sys.executable, "-c", STEP],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "works\n"
    yield process
    process.kill()
    process.communicate()


def test_a_process_that_hangs_with_its_root_is_ended_and_says_why(placement, step):
    with hanging_mount(root_of(placement, A)):
        _, told = step.communicate("go on\n", timeout=30)
    assert step.returncode == -signal.SIGKILL
    assert f"{root_of(placement, A)} has not answered" in told


def test_a_process_whose_root_hung_for_a_moment_goes_on(placement, step):
    with hanging_mount(root_of(placement, A)):
        time.sleep(1.6)  # one look in vain, and the next one is not
    told, _ = step.communicate("go on\n", timeout=30)
    assert (step.returncode, told) == (0, "done\n")


def test_a_root_that_is_gone_ends_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(hung_root, "EVERY_SECONDS", 0.01)
    ended: list[bool] = []
    with killed_on_hang(tmp_path / "gone", timeout_seconds=LIMIT, end=lambda: ended.append(True)):
        time.sleep(0.3)
    assert not ended


def test_the_driver_that_hangs_with_the_lock_of_the_folder_is_ended_first(placement):
    process = subprocess.Popen(
        [sys.executable, "-c", STEP_WITH_DRIVER, WORKS_IN], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        driver = int(process.stdout.readline())
        time.sleep(0.5)
        with hanging_mount(root_of(placement, A)):
            assert process.wait(30) == -signal.SIGKILL
            assert not runs(driver)
    finally:
        process.kill()
        process.communicate()


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
