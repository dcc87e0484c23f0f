"""What Spark's JVM says on standard error: that something failed and why, in lines that people read; no
stacks.
"""

from __future__ import annotations

import os
import subprocess
import sys

from etl_assets.resources import jvm
from etl_assets.runtime.java import find_java

FAIL = """
from pyspark.java_gateway import launch_gateway
gateway = launch_gateway()
java = gateway.jvm.java
cause = java.io.IOException("No space left on device")
log = gateway.jvm.org.apache.logging.log4j.LogManager.getLogger("org.apache.spark.executor.Executor")
log.error("Exception in task 0", java.lang.RuntimeException("task failed", cause))
log.error("it ended")
gateway.shutdown()
"""


def test_an_error_is_a_line_with_its_root_cause_and_no_stack():
    configuration = f"-Dlog4j2.configurationFile={jvm._LOG4J.as_uri()}"
    done = subprocess.run(
        [sys.executable, "-c", FAIL],
        env={
            **os.environ,
            "JAVA_HOME": str(find_java().home),
            "PYSPARK_SUBMIT_ARGS": f"--driver-java-options {configuration} --driver-memory 256m"
            " pyspark-shell",
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    said = done.stderr.splitlines()
    at = next(
        number for number, line in enumerate(said) if line.endswith("ERROR Executor: Exception in task 0")
    )
    assert said[at + 1] == "java.io.IOException: No space left on device"
    assert said[at + 2].endswith("ERROR Executor: it ended")
    assert "\tat " not in done.stderr
