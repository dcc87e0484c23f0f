"""What a child of the engine does: one run of Dagster's, as `dagster api execute_run` would, with Spark at the engine.

Belongs here: a process that has just been forked, from the word to go until its exit code. Does not belong here: who forks
it and what follows from the code (`engine.py`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from etl_assets.delta.session import use_driver
from etl_assets.engine.ipc import GO, Asked
from etl_assets.resources.spark import reach_engine, release_engine

if TYPE_CHECKING:
    from etl_assets.engine.spark_server import SparkServer

SUCCEEDED, NOT_BEGUN, OTHERWISE = 0, 10, 11
"""Exit codes. After any other end something of the run may still be under way in Spark."""
_GO_SECONDS = 30.0


def at_engine(spark: SparkServer | None, work: Callable[[], None]) -> int:
    """Work with the engine's Spark; sessions are given back afterwards, so that nothing of them stays there."""
    if spark is not None:
        use_driver(spark.pid)
        reach_engine(spark.address)
    work()
    release_engine()
    return SUCCEEDED


def execute(asked: Asked, connection: socket.socket, spark: SparkServer | None) -> int:
    """Wait for the word to go, then execute the run."""
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
    # Here: loaded with Dagster by the engine, before it forked this process.
    from etl_assets.dagster_internals import execute_launched_run

    succeeded = False

    def run() -> None:
        nonlocal succeeded
        succeeded = execute_launched_run(asked.run_id, asked.instance)

    code = at_engine(spark, run)
    return code if succeeded else OTHERWISE
