"""What the kill test starts in processes of their own: steps of the data path that end at a failpoint.

A JVM of its own for each process would cost more than everything else. At a failpoint the JVM is idle, so
whether it dies with the process makes no difference to what lies on the disk; only a death in the middle of
Spark's write does, and such processes start their own (`gateway` None).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etl_assets_tests.pipeline import DAY, NEXT_DAY, Pipeline

SURVIVED = 99
"""Exit code of a process that never came to its failpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Where a running JVM listens for Python."""

    port: int
    secret: str

    @classmethod
    def of(cls, spark: Any) -> Gateway:
        """That of a session in this process."""
        parameters = spark.sparkContext._gateway.gateway_parameters
        return cls(port=parameters.port, secret=parameters.auth_token)


def run(root: Path, landing: Path, table: str | None, failpoint: str, gateway: Gateway | None) -> None:
    """Run the step that writes `table`, or all steps, and die at the failpoint."""
    os.environ["ETL_ASSETS_FAILPOINT"] = failpoint
    session = own_session() if gateway is None else attached_session(gateway)
    pipeline = Pipeline(root=root, landing=landing, session=lambda: session)
    pipeline.run([DAY, NEXT_DAY], only=None if table is None else [table])
    os._exit(SURVIVED)


def compact(root: Path, landing: Path, table: str, failpoint: str, gateway: Gateway) -> None:
    """Compact a table, and die at the failpoint."""
    from etl_assets.steps.compact import Compact

    os.environ["ETL_ASSETS_FAILPOINT"] = failpoint
    session = attached_session(gateway)
    pipeline = Pipeline(root=root, landing=landing, session=lambda: session)
    Compact(context=pipeline.context, table=table).run()
    os._exit(SURVIVED)


def own_session() -> Any:
    from etl_assets.resources.spark import SparkResource, spark_config
    from etl_assets.settings import SparkSettings

    settings = SparkSettings(
        master="local[2]",
        config={
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    return SparkResource(spark_config=spark_config(settings)).spark_session


def attached_session(gateway: Gateway) -> Any:
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(gateway.port), "PYSPARK_GATEWAY_SECRET": gateway.secret}
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    from etl_assets.resources.spark import PER_SESSION

    java = launch_gateway()
    context = java.jvm.JavaSparkContext(java.jvm.org.apache.spark.SparkContext.getOrCreate())
    session = SparkSession(
        SparkContext(gateway=java, jsc=context, conf=SparkConf(_jconf=context.getConf()))
    ).newSession()
    for key, value in PER_SESSION.items():
        session.conf.set(key, value)
    return session
