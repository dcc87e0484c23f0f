"""The Spark session as a Dagster resource: started on first use, the same settings everywhere, jobs cancelled with the run.

`spark_config` says how the platform runs Spark; `SparkResource` keeps to it.
"""

from __future__ import annotations

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
"""Settings a running session cannot change: a session that has others is refused."""

PER_SESSION = {
    "spark.sql.session.timeZone": "UTC",
    # Values that do not fit fail the query instead of becoming null.
    "spark.sql.ansi.enabled": "true",
}
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Files are listed by this process: by a job, each of thousands of paths would be a task.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # As many as a machine has cores, not the 200 and 50 of a cluster.
    "spark.databricks.delta.snapshotPartitions": "2",
    # No Derby database, no folder beside the user's files: tables are reached by path.
    "spark.sql.catalogImplementation": "in-memory",
}
_SMALLEST_PAGE_BYTES = 1 << 20
_PAGES_OF_A_TASK = 8192
"""Spark cannot count more."""

LONG_LIVED = {
    # What Spark remembers of jobs that are done, for a UI that is not there: by default of thousands.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "10",
    # Broadcasts and shuffles are let go when the JVM collects what refers to them; an idle one collects nothing by itself, and a
    # busy one takes all of the heap that it may before it does.
    "spark.cleaner.periodicGC.interval": "2min",
}
"""More settings, of an engine that runs for weeks."""


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
    if works_here(config):
        config |= {
            **LOCAL,
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
            "spark.buffer.pageSize": str(_page_bytes(settings.driver_memory_bytes)),
        }
    return config | settings.config


def _page_bytes(heap: int) -> int:
    """What each sort, aggregation and broadcast of a task takes at once, however little it has to hold.

    By default that is 32 MB of a heap of 2 GB: past the young generation, to be collected with the whole heap, for a micro-batch
    of some kilobytes. A task that takes all of the heap still has pages enough.
    """
    return max(_SMALLEST_PAGE_BYTES, 2 * heap // _PAGES_OF_A_TASK)


class SparkResource(LazyPySparkResource):
    """A Spark session for assets.

    Every run works in a session of its own on the shared engine, so that settings of one write cannot reach another
    run. `spark_config` holds flat Spark settings; the Delta jars are put on the class path of an engine started here.
    `start` says what the JVM of such an engine is started for (`settings.JvmStart`).
    """

    start: str = JvmStart.AUTO.value
    _runs_session: Any = PrivateAttr(default=None)
    _made_after: int = PrivateAttr(default=0)  # so many renewals

    @property
    def spark_session(self) -> SparkSession:
        """The run's session; starts the engine on first use, and has its jobs cancelled when the run is interrupted.

        Raises:
            SettingsError: an engine with other static settings is running in this process.
            RuntimeMissing: Java or a jar is missing.
        """
        return self.session_for(None)

    def session_for(self, input_bytes: int | None) -> SparkSession:
        """`spark_session`, for work on so many bytes: an engine that is started is started for that."""
        if self._runs_session is None or self._made_after != _engine.renewals or _is_lost(self._runs_session):
            self._made_after = _engine.renewals
            quick = starts_quickly(JvmStart(self.start), input_bytes)
            self._runs_session = _session(dict(self.spark_config), quick=quick)
            for key, value in PER_SESSION.items():
                self._runs_session.conf.set(key, value)
        cancel_on_interrupt(self._runs_session)
        return self._runs_session


def _is_lost(session: SparkSession) -> bool:
    """Whether the JVM of a session has ended, or was replaced since."""
    context = getattr(session, "_sc", None)  # a session at a server has none
    return context is not None and (context._jsc is None or lost_driver_pid() is not None)


class _Engine:
    """Spark outside of this process that is used instead of one of its own, and the sessions that it was asked for."""

    def __init__(self) -> None:
        self.address: str | None = None
        self.sessions: list[SparkSession] = []
        self.renewals = 0


_engine = _Engine()


def renew_sessions() -> None:
    """Have each resource of this process make another session when it is next asked: a server has lost theirs."""
    _engine.renewals += 1


def reach_engine(address: str) -> None:
    """Have this process work at an engine from now on, where it would have started Spark by itself."""
    _engine.address = address


def release_engine() -> None:
    """End the sessions at the engine: what is left of them there goes."""
    while _engine.sessions:
        _engine.sessions.pop().stop()
    _engine.address = None


def _session(config: Mapping[str, str], *, quick: bool) -> SparkSession:
    """A session that nobody else has: on a Connect server, or on the engine of this process, started if need be."""
    if "spark.remote" in config:
        session = _connect(config)
    elif _engine.address is not None and works_here(config):
        # All other settings the engine was started with.
        session = _connect({"spark.remote": _engine.address, **PER_SESSION})
        _engine.sessions.append(session)
    else:
        session = _start(config, quick=quick).newSession()
    _check(session)
    return session


def _connect(config: Mapping[str, str]) -> SparkSession:
    import delta.connect.exceptions  # noqa: F401 - Delta's errors arrive as its own classes, which the retry table knows
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
        # Without a locale Java takes file names for ASCII, and cannot open those that are not.
        os.environ["LC_ALL"] = "C.UTF-8"
    # Workers must be this interpreter, with this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _forget_lost_engine()
    builder = SparkSession.builder
    for key, value in {**config, **jvm_settings(java, config, os.environ, quick=quick)}.items():
        builder = builder.config(key, value)
    with _own_signal_handlers():
        return builder.getOrCreate()


def _forget_lost_engine() -> None:
    """PySpark keeps to the JVM that it has started once, dead or alive: let go of a dead one, so that another is started."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if lost_driver_pid() is None:
        return
    if (context := SparkContext._active_spark_context) is not None:
        context._jsc = None  # nobody is there to be stopped; the rest is of this process
        context.stop()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SparkContext._gateway = SparkContext._jvm = None


@contextmanager
def _own_signal_handlers() -> Generator[None]:
    """Undo the handler of SIGINT that Spark's context sets; see `cancellation`."""
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
                fix=f"start the Spark Connect server with --conf {key}={value}; in one process, do not start a Spark"
                " session before the platform does",
                field=key,
                value=found,
                allowed=value,
            )
