"""All that the platform uses of Dagster's private modules, which may change with any of its releases.

Belongs here: what has no public call, behind a name that says what it is for. Does not belong here: anything that
`import dagster` has by itself, and what is done with it. A test names every other module that imports a `dagster._…`.

| private name | for | why not a public call |
| --- | --- | --- |
| `_core.launcher`: `LaunchRunContext`, `WorkerStatus`, `CheckRunHealthResult` | the run launcher | `RunLauncher` is public; what its methods take and return is not exported |
| `_core.events.EngineEventData` | the process id in a run's log | `report_engine_event` takes it, and nothing else carries metadata |
| `_core.code_pointer.ModuleCodePointer` | whether a run is of the platform's definitions | a run says only by its origin where its code is |
| `_core.storage.tags`: the two ends of a range of partitions | runs over several days | `RunRequest` and `execute_in_process` take one partition; a range is given by tags |
| `_cli.api._execute_run_command_body` | a run in a child of the engine | it is `dagster api execute_run`, which is to be had as a new process only |
| `_core.instance.InstanceRef` | the instance such a run is in | `DagsterInstance.from_ref` takes it; it is not exported |
| `_utils.interrupts.capture_interrupts` | the end of such a run when it is interrupted | what that command does around it |

`dagster._cli.api` is loaded on use: definitions and commands do without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.events import EngineEventData
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagster import DagsterRun

__all__ = [
    "ASSET_PARTITION_RANGE_END_TAG",
    "ASSET_PARTITION_RANGE_START_TAG",
    "CHECKED_VERSION",
    "CheckRunHealthResult",
    "LaunchRunContext",
    "WorkerStatus",
    "engine_event_data",
    "execute_launched_run",
    "load_run_command",
    "module_of",
]

CHECKED_VERSION = "1.13.27"
"""The version of Dagster that all of the above was compared with."""


def module_of(run: DagsterRun) -> str | None:
    """The module that a run's definitions are loaded from; None if it is a file, a package or not known."""
    origin = run.job_code_origin
    pointer = None if origin is None else origin.repository_origin.code_pointer
    return pointer.module if isinstance(pointer, ModuleCodePointer) else None


def engine_event_data(metadata: Mapping[str, str | bool]) -> EngineEventData:
    """What `DagsterInstance.report_engine_event` adds to its message."""
    return EngineEventData(metadata)


def load_run_command() -> None:
    """Load what `execute_launched_run` needs, for children that are forked later."""
    import dagster._cli.api
    import dagster._utils.interrupts  # noqa: F401


def execute_launched_run(run_id: str, instance_ref: str) -> bool:
    """Execute a run that was launched, in this process, as `dagster api execute_run` does. Whether it succeeded.

    A run that fails raises nothing; SIGINT and SIGTERM end it as canceled.

    Args:
        run_id: Dagster's.
        instance_ref: Dagster's reference to the instance that has the run, serialized.
    """
    from dagster import DagsterInstance, DagsterRunStatus, deserialize_value
    from dagster._cli.api import _execute_run_command_body
    from dagster._core.instance import InstanceRef
    from dagster._utils.interrupts import capture_interrupts

    with (
        capture_interrupts(),
        DagsterInstance.from_ref(deserialize_value(instance_ref, InstanceRef)) as instance,
    ):
        _execute_run_command_body(run_id, instance, lambda _: None, set_exit_code_on_failure=False)
        run = instance.get_run_by_id(run_id)
        return run is not None and run.status is DagsterRunStatus.SUCCESS
