"""The run launcher of one machine:

Dagster's own, plus submission to the warm engine and liveness checks of runs.

Runs of the platform are submitted to the engine (`etl_assets.engine`), and those of the code locations that
the platform file names in `runs.engine_locations`. All others, and those that the engine refuses, are
launched as Dagster does it.

Dagster's launcher leaves liveness checks to the server that started the process. If that server is lost too,
with its machine or by a kill of the whole process group, the loss goes unnoticed: the run stays `STARTED`
forever and holds its pools.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from dagster import DagsterEventType, DagsterRun, DefaultRunLauncher, serialize_value

from etl_assets.dagster_internals import (
    CheckRunHealthResult,
    LaunchRunContext,
    RunOrigin,
    WorkerStatus,
    engine_event_data,
    origin_of,
)
from etl_assets.engine.ipc import Asked, hand_over
from etl_assets.errors import EtlAssetsError
from etl_assets.processes import is_there, since_1970, started_at
from etl_assets.settings import home_folder, load_settings

_DEFINITIONS = "etl_assets.definitions"
_HANDED = "engine_child"
_CLOCK_SLACK_SECONDS = 60.0


class WatchedRunLauncher(DefaultRunLauncher):
    """Launch runs as children of the engine or the code server, and report lost ones to run monitoring."""

    def launch_run(self, context: LaunchRunContext) -> None:
        """Submit the run to the engine, or launch it as Dagster does."""
        if not self._handed_over(context.dagster_run):
            super().launch_run(context)

    def terminate(self, run_id: str) -> bool:
        """Interrupt a run. Return whether there was a process to interrupt."""
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
        origin = origin_of(run)
        if origin is None or not _is_for_engine(origin):
            return False
        asked = Asked(
            run_id=run.run_id,
            instance=serialize_value(self._instance.get_ref()),
            executable=origin.executable,
            working_directory=origin.working_directory or str(Path.cwd()),
            environment=dict(os.environ),
        )

        def note(pid: int) -> None:
            # Before it begins: ending the run requires its process id.
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
        """Return the engine's child that executes a run, and the time it was recorded, or None."""
        for record in self._instance.all_logs(run.run_id, of_type=DagsterEventType.ENGINE_EVENT):
            metadata = record.dagster_event.engine_event_data.metadata if record.dagster_event else {}
            if _HANDED in metadata:
                return int(str(metadata["pid"].value)), record.timestamp
        return None

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Always True: run monitoring asks this launcher."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Check that the process that executes a run exists.

        Its id is in the run's events; a run without one is still being started.
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
        """Return the run's process id, and the time it was recorded (seconds since 1970)."""
        for record in reversed(self._instance.all_logs(run.run_id, of_type=DagsterEventType.ENGINE_EVENT)):
            metadata = record.dagster_event.engine_event_data.metadata if record.dagster_event else {}
            if "pid" in metadata:
                return int(str(metadata["pid"].value)), record.timestamp
        return None


def _is_for_engine(origin: RunOrigin) -> bool:
    if origin.module == _DEFINITIONS:
        return True
    try:
        return origin.location is not None and origin.location in load_settings().runs.engine_locations
    except EtlAssetsError:
        # A platform file with problems keeps no run of another code location from being launched.
        return False


def process_runs(pid: int, noted: float) -> bool:
    """Return whether a process exists and is not a later one with the same id.

    Args:
        pid: Its id on this machine.
        noted: A time at which it is known to have run, in seconds since 1970.
    """
    if (started := started_at(pid)) is None:
        return is_there(pid)
    return since_1970(started) <= noted + _CLOCK_SLACK_SECONDS
