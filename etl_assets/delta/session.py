"""Uses of a Spark session, local or remote: settings for one write, a small frame, the driver's process."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any

from etl_assets.processes import is_there

if TYPE_CHECKING:
    import subprocess

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@contextmanager
def scoped_settings(spark: SparkSession, settings: Mapping[str, str]) -> Generator[None]:
    """Set session settings for one write and restore the previous ones.

    Transaction ids and user metadata for MERGE can be given only this way. Left behind, they would make the
    next write to the same table a silent no-op, so they are removed in any case.
    """
    before = {key: spark.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)


def frame_of(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: StructType | str) -> DataFrame:
    """Return a few rows of this process as a frame.

    The rows are sent to Spark through Arrow and are a value in its plan, which an empty frame shortens.
    Pickled, as Spark takes tuples, they would be read back by Python workers of a second daemon beside that
    of `mapInArrow`. That costs two seconds of CPU once per process and two tasks each time.

    Args:
        spark: The session.
        rows: The values of each row.
        schema: The frame's schema; text is Spark's DDL.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    # Parsed by this session: `StructType.fromDDL` asks the first session of the thread, which a server may
    # have ended.
    declared = schema if isinstance(schema, StructType) else spark.createDataFrame([], schema).schema
    columns = to_arrow_schema(declared, timezone="UTC")
    named = [dict(zip(columns.names, row, strict=True)) for row in rows]
    # pyspark's type hints know only Arrow tables without a schema.
    table: Any = pa.Table.from_pylist(named, schema=columns)
    return spark.createDataFrame(table, declared)


_used_driver: int | None = None


def use_driver(pid: int) -> None:
    """Note that this process works with a driver JVM of this machine that another process has started."""
    global _used_driver
    _used_driver = pid


def running_driver_pid() -> int | None:
    """Return the process id of the driver JVM that this process has started or uses, None without one.

    Starts none.
    """
    return getattr(_started_driver(), "pid", _used_driver)


def lost_driver_pid(*, wait_seconds: float = 0.0) -> int | None:
    """Return the process id of this process's driver JVM if it has ended, or ends within `wait_seconds`.

    None if there is no such JVM, or it still runs.
    """
    if (started := _started_driver()) is not None:
        # Without /proc, a child whose status has not been polled counts as running.
        with suppress(TimeoutExpired):
            started.wait(wait_seconds)
    pid = running_driver_pid()
    return None if pid is None or is_there(pid) else pid


def _started_driver() -> subprocess.Popen[bytes] | None:
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return getattr(getattr(context, "_gateway", None), "proc", None)


def driver_pid(spark: SparkSession) -> int | None:
    """Return the process id of a session's driver JVM on this machine; None where it is elsewhere."""
    context = getattr(spark, "_sc", None)
    if context is None:
        return _used_driver
    return getattr(getattr(getattr(context, "_gateway", None), "proc", None), "pid", None)
