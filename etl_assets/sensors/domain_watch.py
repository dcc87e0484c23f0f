"""Sensor of a platform with one failure domain: writes alerts when its disk is lost and when it is back.

With several domains, `failure_domains.py` does that and more. Without either, a lost disk would show only in
the skip reasons of the landing sensor, and raise no alert.
"""

import json

import dagster as dg

from etl_assets.errors import EtlAssetsError
from etl_assets.sensors.conditions import of_domains
from etl_assets.sensors.telling import lost_domains, tell
from etl_assets.settings import Settings

INTERVAL_SECONDS = 15


def domain_watch_sensor(settings: Settings) -> dg.SensorDefinition:
    """Build the sensor. A tick writes and reads a small file under the root; it requests no run."""

    @dg.sensor(
        name="domain_watch",
        minimum_interval_seconds=max(INTERVAL_SECONDS, settings.runs.sensor_interval_seconds),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Writes an alert when the disk of the tables is gone, and when it is back. On by"
        " default.",
    )
    def domain_watch(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        placement = settings.placement()
        told = of_domains(_told(context.cursor), [site.name for site in placement.sites])
        try:
            lost = lost_domains(placement.watch.probe_all(placement.sites))
        except EtlAssetsError as error:
            return dg.SensorResult(skip_reason=str(error))
        found = tell(settings.home, told, {}, lost)
        reason = "; ".join(lost.values()) or f"{placement.sites[0].root} can be written and read"
        return dg.SensorResult(skip_reason=reason, cursor=json.dumps(dict(found.told)))

    return domain_watch


def _told(cursor: str | None) -> dict[str, str]:
    try:
        told = json.loads(cursor or "{}")
    except ValueError:
        return {}
    return {str(key): str(why) for key, why in told.items()} if isinstance(told, dict) else {}
