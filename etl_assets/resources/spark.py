"""The Spark session as a Dagster resource: started on first use, the same settings everywhere, jobs cancelled with the run.

`spark_config` says how the platform runs Spark; `SparkResource` keeps to it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dagster_pyspark import LazyPySparkResource
from pydantic import PrivateAttr

from etl_assets.errors import SettingsError
from etl_assets.runtime.jars import delta_jars
from etl_assets.runtime.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl_assets.settings import SparkSettings

STATIC = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""Settings a running session cannot change: a session that has others is refused."""

PER_SESSION = {
    "spark.sql.session.timeZone": "UTC",
    # Values that do not fit fail the query instead of becoming null.
    "spark.sql.ansi.enabled": "true",
    # Event lines are handed to Python in batches: of few rows where the rows are large.
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
}
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # As many as a machine has cores, not the 200 and 50 of a cluster.
    "spark.databricks.delta.snapshotPartitions": "2",
    # No Derby database, no folder beside the user's files: tables are reached by path.
    "spark.sql.catalogImplementation": "in-memory",
}


def spark_config(settings: SparkSettings) -> dict[str, str]:
    """The settings a session is made with; those of the platform file come last, but cannot change the owned ones."""
    if settings.master.startswith("sc://"):
        return {"spark.remote": settings.master, **PER_SESSION, **settings.config}
    config = {
        "spark.app.name": "etl-assets",
        "spark.master": settings.master,
        "spark.driver.memory": settings.driver_memory,
        **STATIC,
        **PER_SESSION,
    }
    if settings.master.startswith("local"):
        config |= {**LOCAL, "spark.sql.shuffle.partitions": str(os.cpu_count() or 2)}
    return config | settings.config


class SparkResource(LazyPySparkResource):
    """A Spark session for assets.

    Every run works in a session of its own on the shared engine, so that settings of one write cannot reach another
    run. `spark_config` holds flat Spark settings; the Delta jars are put on the class path of an engine started here.
    """

    _runs_session: Any = PrivateAttr(default=None)
    _tag: str | None = PrivateAttr(default=None)

    @property
    def spark_session(self) -> SparkSession:
        """The run's session; starts the engine on first use.

        Raises:
            SettingsError: an engine with other static settings is running in this process.
            RuntimeMissing: Java or a jar is missing.
        """
        if self._runs_session is None:
            self._runs_session = _start(dict(self.spark_config)).newSession()
            for key, value in PER_SESSION.items():
                self._runs_session.conf.set(key, value)
            if self._tag is not None:
                self._runs_session.addTag(self._tag)
        return self._runs_session

    @contextmanager
    def cancelled_with(self, tag: str) -> Generator[None]:
        """Run Spark jobs under a tag, and cancel them when the block ends by an error or an interrupt.

        Starts no engine by itself.
        """
        self._tag = tag
        if self._runs_session is not None:
            self._runs_session.addTag(tag)
        try:
            yield
        except BaseException:
            if self._runs_session is not None:
                self._runs_session.interruptTag(tag)
            raise
        finally:
            self._tag = None
            if self._runs_session is not None:
                self._runs_session.removeTag(tag)


def _start(config: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    if "spark.remote" in config:
        builder = SparkSession.builder.remote(config["spark.remote"])
    else:
        os.environ["JAVA_HOME"] = str(find_java().home)
        # Workers must be this interpreter, with this package.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.config(
            "spark.driver.extraClassPath", os.pathsep.join(str(jar) for jar in delta_jars())
        )
    for key, value in config.items():
        if key != "spark.remote":
            builder = builder.config(key, value)
    session = builder.getOrCreate()
    _check(session, config)
    return session


def _check(session: SparkSession, config: Mapping[str, str]) -> None:
    for key, value in STATIC.items():
        found = session.conf.get(key, None)
        if key in config and found != value:
            raise SettingsError(
                f"the Spark session in this process has {key} = {found!r}, the platform needs {value!r}",
                fix="do not start a Spark session before the platform does, or give it the settings of"
                " etl_assets.resources.spark.spark_config",
                field=key,
                value=found,
                allowed=value,
            )
