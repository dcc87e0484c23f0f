"""A run whose JVM is killed in the middle of its step, in a process of its own, as no other test may lose its
engine.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from etl_assets.build import platform_resources
from etl_assets.delta.session import running_driver_pid
from etl_assets.resources.spark import SparkResource
from etl_assets.settings import load_settings
from etl_assets.steps.step import StepReport


@dataclass
class Losing:
    """A step whose first attempt loses its JVM while it waits for an answer."""

    spark: SparkResource
    drivers: list[int] = field(default_factory=list)

    def run(self, days: Sequence[Any]) -> StepReport:
        session, driver = self.spark.spark_session, running_driver_pid()
        assert driver is not None
        self.drivers.append(driver)
        rows = session.range(10)
        if len(self.drivers) == 1:
            threading.Timer(1.0, os.kill, (driver, signal.SIGKILL)).start()
            rows = session.range(10**12)
        return StepReport(table="mine", version=0, notes=(str(rows.selectExpr("sum(id % 7)").first()),))


def main() -> None:
    """Run it, and print what became of it."""
    resources = platform_resources(load_settings())
    step = Losing(spark=resources["spark"])

    @dg.asset(io_manager_key="delta", retry_policy=dg.RetryPolicy(max_retries=1, delay=0.01))
    def mine(spark: SparkResource) -> Any:
        step.spark = spark
        return step

    result = dg.materialize([mine], resources=resources, raise_on_error=False)
    repeated = [event.step_retry_data.error for event in result.all_events if event.is_step_up_for_retry]
    told = [str(error) for error in repeated]
    sys.stdout.write(json.dumps({"success": result.success, "drivers": step.drivers, "repeated": told}))


if __name__ == "__main__":
    main()
