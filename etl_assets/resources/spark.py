"""The Spark session as a Dagster resource.

It starts on first use, has the same settings everywhere, and cancels its jobs with the run. `spark_config`
holds the platform's Spark settings; `SparkResource` applies them.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dagster_pyspark import LazyPySparkResource
from pydantic import PrivateAttr

from etl_assets.delta.session import lost_driver_pid
from etl_assets.errors import SettingsError
from etl_assets.resources.cancellation import cancel_on_interrupt
from etl_assets.resources.jvm import jvm_settings, launcher_options, starts_quickly, works_here
from etl_assets.runtime.java import find_java
from etl_assets.settings import JvmStart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl_assets.settings import SparkSettings

STATIC = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""Settings that a running session cannot change: a session with other values is refused."""

PER_SESSION = {
    "spark.sql.session.timeZone": "UTC",
    # A value that does not fit its type fails the query instead of becoming null.
    "spark.sql.ansi.enabled": "true",
}
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # This process lists files: in a job, each of thousands of paths would be a task.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # As many as a machine has cores, not the 200 and 50 of a cluster.
    "spark.databricks.delta.snapshotPartitions": "2",
    # No Derby database, no folder beside the user's files: tables are reached by path.
    "spark.sql.catalogImplementation": "in-memory",
}
_SMALLEST_PAGE_BYTES = 1 << 20
_PAGES_OF_A_TASK = 8192
"""Spark cannot address more pages per task."""

LONG_LIVED = {
    # Jobs kept for the UI, which is off: by default thousands.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "10",
    # Broadcasts and shuffles are freed when the JVM collects their references. An idle JVM collects nothing
    # by itself, and a busy one fills its whole heap first.
    "spark.cleaner.periodicGC.interval": "2min",
}
"""Additional settings of an engine that runs for weeks."""


def spark_config(settings: SparkSettings) -> dict[str, str]:
    """Return the settings of a session.

    The platform file's come last, but cannot change the ones that the platform owns.
    """
    if settings.master.startswith("sc://"):
        return {"spark.remote": settings.master, **PER_SESSION, **settings.config}
    config = {
        "spark.app.name": "etl-assets",
        "spark.master": settings.master,
        "spark.driver.memory": settings.driver_memory,
        **STATIC,
        **PER_SESSION,
    }
    if works_here(config):
        config |= {
            **LOCAL,
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
            "spark.buffer.pageSize": str(_page_bytes(settings.driver_memory_bytes)),
        }
    return config | settings.config


def _page_bytes(heap: int) -> int:
    """Return the page size, the memory each sort, aggregation and broadcast of a task takes at least.

    Spark's default is 32 MB for a heap of 2 GB: such pages skip the young generation and wait for a full
    collection, even for a micro-batch of some kilobytes. A task that takes the whole heap still has enough
    pages.
    """
    return max(_SMALLEST_PAGE_BYTES, 2 * heap // _PAGES_OF_A_TASK)


class SparkResource(LazyPySparkResource):
    """A Spark session for assets.

    Every run works in a session of its own on the shared engine, so that the settings of one write cannot
    reach another run. `spark_config` holds flat Spark settings. An engine started by this process gets the
    Delta jars on its class path. `start` selects what the JVM of such an engine is tuned for
    (`settings.JvmStart`).
    """

    start: str = JvmStart.AUTO.value
    _runs_session: Any = PrivateAttr(default=None)
    _made_after: int = PrivateAttr(default=0)  # number of renewals when it was made

    @property
    def spark_session(self) -> SparkSession:
        """The run's session. First use starts the engine; an interrupt of the run cancels the jobs.

        Raises:
            SettingsError: an engine with other static settings is running in this process.
            RuntimeMissing: Java or a jar is missing.
        """
        return self.session_for(None)

    def session_for(self, input_bytes: int | None) -> SparkSession:
        """Return `spark_session` for work of a given size, for which an engine is tuned if one is started."""
        if self._runs_session is None or self._made_after != _engine.renewals or _is_lost(self._runs_session):
            self._made_after = _engine.renewals
            quick = starts_quickly(JvmStart(self.start), input_bytes)
            self._runs_session = _session(dict(self.spark_config), quick=quick)
            for key, value in PER_SESSION.items():
                self._runs_session.conf.set(key, value)
            if not gc.get_freeze_count():
                # What is loaded by now stays: each full collection would go through it, which takes 0.1 s.
                gc.freeze()
        cancel_on_interrupt(self._runs_session)
        return self._runs_session


def _is_lost(session: SparkSession) -> bool:
    """Return whether the JVM of a session has ended or has been replaced."""
    context = getattr(session, "_sc", None)  # a session on a server has none
    return context is not None and (context._jsc is None or lost_driver_pid() is not None)


class _Engine:
    """An external Spark engine that this process uses instead of its own, and the sessions opened on it."""

    def __init__(self) -> None:
        self.address: str | None = None
        self.sessions: list[SparkSession] = []
        self.renewals = 0


_engine = _Engine()


def renew_sessions() -> None:
    """Have each resource of this process create another session on next use: a server has lost theirs."""
    _engine.renewals += 1


def reach_engine(address: str) -> None:
    """Use an external engine from now on, where this process would start Spark itself."""
    _engine.address = address


def release_engine() -> None:
    """End the sessions on the external engine, which drops their state there."""
    while _engine.sessions:
        _engine.sessions.pop().stop()
    _engine.address = None


def _session(config: Mapping[str, str], *, quick: bool) -> SparkSession:
    """Create a session that no other caller shares: on a Connect server, or on this process's engine.

    The engine is started if necessary.
    """
    if "spark.remote" in config:
        session = _connect(config)
    elif _engine.address is not None and works_here(config):
        # The engine was started with all other settings.
        session = _connect({"spark.remote": _engine.address, **PER_SESSION})
        _engine.sessions.append(session)
    else:
        session = _start(config, quick=quick).newSession()
    _check(session)
    _log_no_errors()
    return session


def _log_no_errors() -> None:
    """Keep PySpark from logging every error that it raises, with values of rows and a stack of Java's.

    The error policy reports those that nothing handles.
    """
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        # PySpark would make a logger that changes the format of the root logger's handlers. The level stays
        # where others configure logging in this process, as uvicorn does; `disabled` does not.
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _connect(config: Mapping[str, str]) -> SparkSession:
    import delta.connect.exceptions  # noqa: F401 - Delta's errors arrive as its own classes, which the error policy knows
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in config.items():
        builder = builder.config(key, value)
    return builder.create()


def _start(config: Mapping[str, str], *, quick: bool) -> SparkSession:
    import delta.exceptions  # noqa: F401 - as above
    from pyspark.sql import SparkSession

    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", launcher_options(os.environ))
    if not any(os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG")):
        # Without a locale Java reads file names as ASCII and cannot open others.
        os.environ["LC_ALL"] = "C.UTF-8"
    # Workers must use this interpreter, which has this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _forget_lost_engine()
    builder = SparkSession.builder
    for key, value in {**config, **jvm_settings(java, config, os.environ, quick=quick)}.items():
        builder = builder.config(key, value)
    with _own_signal_handlers():
        return builder.getOrCreate()


def _forget_lost_engine() -> None:
    """Drop PySpark's reference to a dead JVM, so that another is started. PySpark would keep it forever."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if lost_driver_pid() is None:
        return
    if (context := SparkContext._active_spark_context) is not None:
        context._jsc = None  # the JVM is dead; stop only this process's part
        context.stop()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SparkContext._gateway = SparkContext._jvm = None


@contextmanager
def _own_signal_handlers() -> Generator[None]:
    """Undo the SIGINT handler that Spark's context sets; see `cancellation`."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGINT, before)


def _check(session: SparkSession) -> None:
    for key, value in STATIC.items():
        found = session.conf.get(key, None)
        if found != value:
            raise SettingsError(
                f"the Spark engine has {key} = {found!r}, the platform needs {value!r}",
                fix=f"start the Spark Connect server with --conf {key}={value}; in one process, do not start"
                " a Spark session before the platform does",
                field=key,
                value=found,
                allowed=value,
            )
