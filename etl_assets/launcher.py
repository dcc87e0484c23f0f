"""The run launcher of one machine: Dagster's own, and it knows whether a run's process is still there.

Dagster's launcher leaves that to the server that started the process. If that server is gone too, with its machine or by a
kill of the whole process group, nobody notices: the run stays `STARTED` for ever, and holds its pools.
"""

from __future__ import annotations

import os
from pathlib import Path

from dagster import DagsterEventType, DagsterRun
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus

from etl_assets.processes import since_1970, started_at

_CLOCK_SLACK_SECONDS = 60.0


class WatchedRunLauncher(DefaultRunLauncher):
    """Starts runs as processes of the code server, and tells run monitoring which of them are gone."""

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Run monitoring asks this launcher."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Whether the process that executes a run is there.

        Its id is in the run's events; a run that has none yet is still being started.
        """
        found = self._process_of(run)
        if found is None or process_runs(*found):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(
            WorkerStatus.FAILED,
            f"The process {found[0]} of the run is gone",
            run_worker_id=str(found[0]),
        )

    def _process_of(self, run: DagsterRun) -> tuple[int, float] | None:
        """Process id, and when it was noted (seconds since 1970)."""
        for record in reversed(self._instance.all_logs(run.run_id, of_type=DagsterEventType.ENGINE_EVENT)):
            metadata = record.dagster_event.engine_event_data.metadata if record.dagster_event else {}
            if "pid" in metadata:
                return int(str(metadata["pid"].value)), record.timestamp
        return None


def process_runs(pid: int, noted: float) -> bool:
    """Whether a process is there and is not another that got its id later.

    Args:
        pid: Its id on this machine.
        noted: When it was known to run, in seconds since 1970.
    """
    if (started := started_at(pid)) is None:
        return not Path("/proc/self").exists() and _answers(pid)
    return since_1970(started) <= noted + _CLOCK_SLACK_SECONDS


def _answers(pid: int) -> bool:
    """Whether there is a process of that id, on a system that says no more of it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is there, and belongs to somebody else
    return True
