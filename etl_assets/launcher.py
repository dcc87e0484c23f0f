"""The run launcher of one machine: Dagster's own, and it knows a warm engine, and whether a run's process is still there.

Runs of the platform are handed to the engine (`etl_assets.engine`); all others, and those that it does not take, are launched
as Dagster does it.

Whether a process is there Dagster's launcher leaves to the server that started it. If that server is gone too, with its
machine or by a kill of the whole process group, nobody notices: the run stays `STARTED` for ever, and holds its pools.
"""

from __future__ import annotations

import os
import signal

from dagster import DagsterEventType, DagsterRun, DefaultRunLauncher, serialize_value

from etl_assets.dagster_internals import (
    CheckRunHealthResult,
    LaunchRunContext,
    WorkerStatus,
    engine_event_data,
    module_of,
)
from etl_assets.engine.ipc import Asked, hand_over
from etl_assets.processes import is_there, since_1970, started_at
from etl_assets.settings import home_folder

_DEFINITIONS = "etl_assets.definitions"
_HANDED = "engine_child"
_CLOCK_SLACK_SECONDS = 60.0


class WatchedRunLauncher(DefaultRunLauncher):
    """Starts runs as children of the engine or of the code server, and tells run monitoring which of them are gone."""

    def launch_run(self, context: LaunchRunContext) -> None:
        """Hand the run to the engine, or launch it as Dagster does."""
        if not self._handed_over(context.dagster_run):
            super().launch_run(context)

    def terminate(self, run_id: str) -> bool:
        """Interrupt a run. Whether there was somebody to interrupt."""
        run = self._instance.get_run_by_id(run_id)
        child = None if run is None or run.is_finished else self._handed_to(run)
        if run is None or child is None or not process_runs(*child):
            return super().terminate(run_id)
        self._instance.report_run_canceling(run)
        try:
            os.kill(child[0], signal.SIGINT)
        except ProcessLookupError:
            return False
        return True

    def _handed_over(self, run: DagsterRun) -> bool:
        origin = run.job_code_origin
        if origin is None or module_of(run) != _DEFINITIONS:
            return False
        asked = Asked(
            run_id=run.run_id,
            instance=serialize_value(self._instance.get_ref()),
            executable=origin.repository_origin.executable_path,
            environment=dict(os.environ),
        )

        def note(pid: int) -> None:
            # Before it begins: whoever wants to end the run has to know where it is.
            self._instance.report_engine_event(
                f"Handed to the engine, whose child {pid} executes it.",
                run,
                engine_event_data({"pid": str(pid), _HANDED: True}),
                cls=type(self),
            )

        def note_refusal(why: str) -> None:
            self._instance.report_engine_event(
                f"Launched with a Spark of its own; the engine does not take it: {why}.", run, cls=type(self)
            )

        return hand_over(home_folder(), asked, note, note_refusal)

    def _handed_to(self, run: DagsterRun) -> tuple[int, float] | None:
        """The engine's child that a run was handed to, and when that was noted; None if it was not."""
        for record in self._instance.all_logs(run.run_id, of_type=DagsterEventType.ENGINE_EVENT):
            metadata = record.dagster_event.engine_event_data.metadata if record.dagster_event else {}
            if _HANDED in metadata:
                return int(str(metadata["pid"].value)), record.timestamp
        return None

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
        return is_there(pid)
    return since_1970(started) <= noted + _CLOCK_SLACK_SECONDS
