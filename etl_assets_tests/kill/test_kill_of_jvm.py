"""The JVM of a run is killed, as by the kernel for its memory: the step is repeated with another one, and it
is said what was lost.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml

pytestmark = [pytest.mark.kill, pytest.mark.spark]


def test_a_step_that_loses_its_jvm_is_repeated_with_another_one_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    spark = {
        "master": "local[1]",
        "driver_memory": "512m",
        "config": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
    }
    (tmp_path / "platform.yaml").write_text(yaml.safe_dump({"spark": spark}))
    done = subprocess.run(
        [sys.executable, "-m", "etl_assets_tests.kill.losing_engine"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["success"], done.stderr
    first, second = told["drivers"]
    assert first != second
    (error,) = told["repeated"]
    assert f"the Spark engine of this process (process {first}) has ended" in error
    assert "spark.driver_memory" in error
