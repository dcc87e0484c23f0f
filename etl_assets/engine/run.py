"""Work of an engine's child: one Dagster run on the engine's Spark.

The child executes the run as `dagster api execute_run` would. Belongs here: a freshly forked process, from
the start message to its exit code. Does not belong here: forking it and interpreting the code (`engine.py`).
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from etl_assets.delta.session import use_driver
from etl_assets.engine.ipc import GO, Asked
from etl_assets.resources.spark import reach_engine, release_engine

if TYPE_CHECKING:
    from etl_assets.engine.spark_server import SparkServer

SUCCEEDED, NOT_BEGUN, OTHERWISE = 0, 10, 11
"""Exit codes. After any other exit, work of the run may still be under way in Spark."""
_GO_SECONDS = 30.0


def at_engine(spark: SparkServer | None, work: Callable[[], None]) -> int:
    """Work with the engine's Spark, and release the sessions afterwards, so that none stay there."""
    if spark is not None:
        use_driver(spark.pid)
        reach_engine(spark.address)
    work()
    release_engine()
    return SUCCEEDED


def execute(asked: Asked, connection: socket.socket, spark: SparkServer | None) -> int:
    """Wait for the start message, then execute the run."""
    connection.settimeout(_GO_SECONDS)
    try:
        told = connection.recv(len(GO)) == GO
    except OSError:
        told = False
    connection.close()
    if not told:
        return NOT_BEGUN
    os.environ.clear()
    os.environ.update(asked.environment)
    # Modules of a code location of the user's are imported here first, as its own process imports them.
    os.chdir(asked.working_directory)
    sys.path.insert(0, asked.working_directory)
    # Imported here: the engine loaded it with Dagster, before it forked this process.
    from etl_assets.dagster_internals import execute_launched_run

    succeeded = False

    def run() -> None:
        nonlocal succeeded
        succeeded = execute_launched_run(asked.run_id, asked.instance)

    code = at_engine(spark, run)
    return code if succeeded else OTHERWISE
