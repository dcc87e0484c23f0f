"""The failure sensor: writes one alert for every failed run."""

import dagster as dg

from etl_assets.dagster_internals import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG
from etl_assets.sensors.alerts import AlertKind, run_was_reported, write_alert
from etl_assets.sensors.missed_retries import REPORTED_AGAIN
from etl_assets.settings import Settings


def failure_sensor(settings: Settings) -> dg.SensorDefinition:
    """Build the sensor, which writes to `<home>/alerts.jsonl`.

    An alert has the run, job, partitions, step, and the error with its fix; no row values.
    """

    @dg.run_failure_sensor(
        name="run_failures",
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=settings.runs.sensor_interval_seconds,
        description="Writes every failed run to alerts.jsonl in the home folder. On by default.",
    )
    def run_failures(context: dg.RunFailureSensorContext) -> None:
        if run_was_reported(settings.home, context.dagster_run.run_id):
            return  # by the command that ran it
        if context.failure_event.message == REPORTED_AGAIN:
            return  # the first report was the alert
        alert = _alert(context)
        context.log.error(alert["error"])
        write_alert(settings.home, AlertKind.RUN_FAILED, alert)

    return run_failures


_RANGE = (ASSET_PARTITION_RANGE_START_TAG, ASSET_PARTITION_RANGE_END_TAG)


def _alert(context: dg.RunFailureSensorContext) -> dict[str, str]:
    run = context.dagster_run
    step = next(iter(context.get_step_failure_events()), None)
    data = getattr(step, "event_specific_data", None)
    error, failure = getattr(data, "error", None), getattr(data, "user_failure_data", None)
    text = (failure.description if failure is not None else None) or (
        error.message if error is not None else None
    )
    return {
        "run_id": run.run_id,
        "job": run.job_name,
        "partition": run.tags.get("dagster/partition") or "..".join(run.tags.get(tag, "") for tag in _RANGE),
        "step": step.step_key if step is not None and step.step_key else "",
        "error": (text or context.failure_event.message or "the run failed").strip()[:2_000],
    }
