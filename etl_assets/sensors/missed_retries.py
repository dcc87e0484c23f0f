"""The sensor of missed retries: reports a failed run again if Dagster's daemon has overlooked its failure.

The daemon retries a run when it reads the event of its failure. Dagster stores that event first and marks the
run as failed afterwards. A daemon that looks in between takes the run for one that has not failed, passes the
event, and never comes back to it: the run is not retried, and its backfill never ends. This is still so in
Dagster 1.13.29 (https://github.com/dagster-io/dagster/issues/33741).
"""

from __future__ import annotations

import datetime as dt

import dagster as dg

from etl_assets.settings import Settings

REPORTED_AGAIN = "Reported again, because the failure of this run was not followed by the retry that is due."
PATIENCE_SECONDS = 30.0
"""How long the daemon may take to retry a run. It looks every few seconds."""
_OLDEST = dt.timedelta(days=1)


def missed_retries_sensor(settings: Settings) -> dg.SensorDefinition:
    """Build the sensor. It starts no runs: it only makes the daemon look again."""

    @dg.sensor(
        name="missed_retries",
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=max(30, settings.runs.sensor_interval_seconds),
        description="Lets Dagster retry a failed run whose failure it has overlooked. On by default.",
    )
    def missed_retries(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        overlooked = _overlooked(context.instance, dt.datetime.now(dt.UTC))
        for run in overlooked:
            context.log.warning("The failure of run %s was overlooked; it is reported again.", run.run_id)
            context.instance.report_run_failed(run, REPORTED_AGAIN)
        return dg.SkipReason(
            f"{len(overlooked)} failures reported again." if overlooked else "No retry was missed."
        )

    return missed_retries


def _overlooked(instance: dg.DagsterInstance, now: dt.datetime) -> list[dg.DagsterRun]:
    """Return failed runs of the last day that wait for a retry for longer than it takes."""
    waiting = dg.RunsFilter(
        statuses=[dg.DagsterRunStatus.FAILURE],
        tags={"dagster/will_retry": "true"},
        updated_after=now - _OLDEST,
        updated_before=now - dt.timedelta(seconds=PATIENCE_SECONDS),
    )
    return [run for run in instance.get_runs(waiting) if run.is_complete_and_waiting_to_retry]
