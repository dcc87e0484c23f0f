"""A root that begins to hang while Spark writes there: the process and its engine end, so that the run can start elsewhere."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from etl_assets_tests.reference.hanging_root import hanging_mount
from etl_assets_tests.reference.three_domains import A, root_of, three_domains

pytestmark = [pytest.mark.spark, pytest.mark.kill]
WRITES = """
from etl_assets.settings import load_settings
from etl_assets.steps.step import StepContext, domain_watched
from etl_assets_tests.kill.dying_run import own_session

placement = load_settings().placement()
domain = placement.domains[0]
spark = own_session()
context = StepContext(session=lambda: spark, domain=domain, domain_problem=lambda: placement.problem(domain))
frame = spark.range(0, 1_000, numPartitions=2)
with domain_watched(context):
    frame.write.format("delta").mode("append").save(str(domain.root / "tables" / "written"))
    print(spark.sparkContext._gateway.proc.pid, flush=True)
    while True:
        frame.write.format("delta").mode("append").save(str(domain.root / "tables" / "written"))
"""


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_whose_spark_hangs_with_its_root_is_ended_with_its_engine(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    placement = three_domains(tmp_path, timeout_seconds=1.0)
    process = subprocess.Popen(
        [sys.executable, "-c", WRITES], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        driver = int(process.stdout.readline())
        time.sleep(0.5)  # in the middle of a write
        with hanging_mount(root_of(placement, A)):
            _, told = process.communicate(timeout=30)
            assert process.returncode == -signal.SIGKILL
            assert "This process ends" in told
            deadline = time.monotonic() + 10
            while runs(driver) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not runs(driver)
    finally:
        process.kill()
        process.communicate()
