"""All uses of Dagster's private modules, which may change with any of its releases.

Belongs here: functions without a public equivalent, under names that state their purpose. Does not belong
here: anything that `import dagster` exports, and the use of these functions. A test names every other module
that imports a `dagster._…`.

- `_core.launcher`: `LaunchRunContext`, `WorkerStatus`, `CheckRunHealthResult`, for the run launcher.
  `RunLauncher` is public; the types that its methods take and return are not exported.
- `_core.events.EngineEventData`, for the process id in a run's log. `report_engine_event` takes it, and
  nothing else carries metadata.
- `_core.code_pointer.ModuleCodePointer`, to detect runs of the platform's definitions. Only a run's origin
  says where its code is, and a pointer has the folder that its modules are imported from.
- `_core.storage.tags`: the two ends of a partition range, for runs over several days. `RunRequest` and
  `execute_in_process` take one partition; a range is given by tags.
- `_cli.api._execute_run_command_body`, for a run in a child of the engine. It is `dagster api execute_run`,
  which is otherwise available only as a new process.
- `_core.instance.InstanceRef`, for the instance of such a run. `DagsterInstance.from_ref` takes it; it is not
  exported.
- `_core.storage.event_log.sqlite.sqlite_event_log`: `SqliteEventLogStorage` and `INDEX_SHARD_NAME`, for the
  files that events are stored in. The storage opens and closes a connection for each event.
- `_utils.interrupts.capture_interrupts`, for the end of such a run when it is interrupted. The command does
  the same.

`dagster._cli.api` is imported on use: definitions and commands do not need it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.events import EngineEventData
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagster import DagsterInstance, DagsterRun

__all__ = [
    "ASSET_PARTITION_RANGE_END_TAG",
    "ASSET_PARTITION_RANGE_START_TAG",
    "CHECKED_VERSION",
    "CheckRunHealthResult",
    "LaunchRunContext",
    "RunOrigin",
    "WorkerStatus",
    "engine_event_data",
    "event_databases_open",
    "execute_launched_run",
    "load_run_command",
    "origin_of",
]

_SQLITE_SECONDS = 20.0
"""How long to wait for a file that another process has locked, as Dagster does."""
CHECKED_VERSION = "1.13.27"
"""Version of Dagster that all names above were checked against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrigin:
    """The code that a run executes.

    Attributes:
        executable: The Python interpreter of its code location.
        location: Name of the code location; None if the run was not launched from one.
        module: The module of its definitions; None if they are in a file or a package.
        working_directory: The folder that its modules are imported from; None if the code location names
            none.
    """

    executable: str
    location: str | None
    module: str | None
    working_directory: str | None


def origin_of(run: DagsterRun) -> RunOrigin | None:
    """Return the origin of a run; None if it has none, such as a run in a test's process."""
    code, remote = run.job_code_origin, run.remote_job_origin
    if code is None:
        return None
    pointer = code.repository_origin.code_pointer
    return RunOrigin(
        executable=code.repository_origin.executable_path,
        location=None if remote is None else remote.repository_origin.code_location_origin.location_name,
        module=pointer.module if isinstance(pointer, ModuleCodePointer) else None,
        working_directory=getattr(pointer, "working_directory", None),
    )


def engine_event_data(metadata: Mapping[str, str | bool]) -> EngineEventData:
    """Return metadata in the form that `DagsterInstance.report_engine_event` takes."""
    return EngineEventData(metadata)


def load_run_command() -> None:
    """Import what `execute_launched_run` needs, for children that are forked later."""
    import dagster._cli.api
    import dagster._utils.interrupts  # noqa: F401


@contextmanager
def event_databases_open(instance: DagsterInstance, run_id: str) -> Generator[None]:
    """Keep the SQLite files open in which a run's events are stored; nothing with another storage.

    Dagster opens a connection for each event. When the last connection to a file closes, SQLite moves its log
    into the file, flushes both and removes the log: about half of all flushes of a run over many days.
    """
    import sqlite3

    with ExitStack() as stack:
        for path in _event_databases(instance, run_id):
            # Without it a run is slower, so no error here fails one.
            with suppress(sqlite3.Error):
                connection = stack.enter_context(closing(sqlite3.connect(path, timeout=_SQLITE_SECONDS)))
                # SQLite opens its log with the first read.
                connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        yield


def _event_databases(instance: DagsterInstance, run_id: str) -> Iterator[str]:
    from dagster._core.storage.event_log.sqlite.sqlite_event_log import (
        INDEX_SHARD_NAME,
        SqliteEventLogStorage,
    )

    storage = instance.event_log_storage
    if isinstance(storage, SqliteEventLogStorage):
        for shard in (INDEX_SHARD_NAME, run_id):
            with storage.run_connection(shard):  # creates the tables of a new file
                pass
            yield storage.path_for_shard(shard)


def execute_launched_run(run_id: str, instance_ref: str) -> bool:
    """Execute a launched run in this process, as `dagster api execute_run` does.

    A run that fails raises nothing; SIGINT and SIGTERM end it as canceled.

    Args:
        run_id: Dagster's run id.
        instance_ref: Dagster's serialized reference to the instance that has the run.

    Returns:
        Whether the run succeeded.
    """
    from dagster import DagsterInstance, DagsterRunStatus, deserialize_value
    from dagster._cli.api import _execute_run_command_body
    from dagster._core.instance import InstanceRef
    from dagster._utils.interrupts import capture_interrupts

    with (
        capture_interrupts(),
        DagsterInstance.from_ref(deserialize_value(instance_ref, InstanceRef)) as instance,
    ):
        with event_databases_open(instance, run_id):
            _execute_run_command_body(run_id, instance, lambda _: None, set_exit_code_on_failure=False)
        run = instance.get_run_by_id(run_id)
        return run is not None and run.status is DagsterRunStatus.SUCCESS
