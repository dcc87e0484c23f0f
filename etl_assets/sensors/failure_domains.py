"""Sensor of the failure domains: probes them, reconciles and scrubs replicas, and reports changes."""

from collections.abc import Mapping, Sequence
from time import monotonic

import dagster as dg

from etl_assets.delta.replicated.replication_status import ReplicationStatus
from etl_assets.errors import EtlAssetsError
from etl_assets.observability.domain_changes import Noted, changes
from etl_assets.observability.domain_states import domain_states, one_loss, replication_statuses
from etl_assets.observability.lag import still_behind
from etl_assets.observability.throughput import rows_acknowledged
from etl_assets.pipelines.dagster_names import FAILURE_DOMAINS
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.placement.domains import Placement
from etl_assets.replicas.reconcile import ReconcileResult, reconcile_replicas, resume_from
from etl_assets.replicas.scrub import scrub
from etl_assets.sensors.alerts import AlertKind
from etl_assets.sensors.conditions import Conditions, condition, of_domains, parts
from etl_assets.sensors.domains_cursor import DomainsCursor
from etl_assets.sensors.domains_metadata import DomainsReport
from etl_assets.sensors.telling import SAFE, lost_domains, tell
from etl_assets.settings import Settings
from etl_assets.steps.step import platform_table

ASSET = FAILURE_DOMAINS
CHECK = "losing_any_one_domain_loses_nothing"
INTERVAL_SECONDS = 15
ROUND_SECONDS = 20.0
"""How long a tick keeps starting on further tables to reconcile. Dagster gives a tick one minute."""
WAIT_SECONDS = 5.0
"""How long to wait for one table, and for a replica to be rebuilt.

Longer work continues between the ticks.
"""
LOOK_SECONDS = 1.0
"""How long a tick scrubs the replicas of one table."""
OBSERVED_SECONDS = 60.0
"""Interval of metrics while rows flow or a replica is behind: often enough for a chart."""


def failure_domains_asset(settings: Settings) -> dg.AssetSpec:
    """Return the asset that the sensor observes, for the asset graph."""
    return dg.AssetSpec(
        ASSET,
        description=(
            "The failure domains: health, which tables each leads, how far each replica is behind, and"
            " whether losing any"
            " one of them now would lose anything. Observed by the sensor of the same name."
        ),
        owners=list(settings.owners),
        group_name="observe",
        kinds={"deltalake"},
    )


def failure_domains_check(settings: Settings) -> dg.AssetChecksDefinition:
    """Build the check that summarizes the domains. The sensor evaluates it with every observation."""

    @dg.asset_check(
        asset=ASSET,
        name=CHECK,
        description="Passes while every acknowledged row is in two failure domains at least.",
    )
    def losing_any_one_domain_loses_nothing() -> dg.AssetCheckResult:
        danger = one_loss(domain_states(settings.placement()))
        return dg.AssetCheckResult(passed=danger is None, description=danger or SAFE)

    return losing_any_one_domain_loses_nothing


def failure_domains_sensor(settings: Settings) -> dg.SensorDefinition:
    """Build the sensor. A tick starts no Spark.

    An observation is made when the state has changed, and at intervals for the metrics.
    """

    @dg.sensor(
        name=ASSET,
        minimum_interval_seconds=max(INTERVAL_SECONDS, settings.runs.sensor_interval_seconds),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Moves leaders away from lost domains, brings replicas up to date. On by default.",
    )
    def failure_domains(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        placement = settings.placement()
        last = _remembered(context.cursor, placement)
        lost: Conditions = {}
        try:
            # 1. Probe first: the later steps ask no domain that is known not to answer.
            lost = lost_domains(placement.watch.probe_all(placement.sites))
            # 2. Reconcile and scrub the replicas, each for a limited time.
            kept = reconcile_replicas(
                placement,
                begin=last.begin,
                seconds=ROUND_SECONDS,
                wait_seconds=WAIT_SECONDS,
                keep_log_versions=settings.upkeep.keep_log_versions,
            )
            survey, found = scrub(placement, last.survey, seconds=LOOK_SECONDS, wait_seconds=WAIT_SECONDS)
            kept += found
            # 3. Read the resulting state.
            tables = replication_statuses(placement)
            states = domain_states(placement, tables)
        except EtlAssetsError as error:
            # Conditions that this tick could not check stay as they were reported.
            cursor = _told(settings, last, {**last.told, **lost})
            return dg.SensorResult(skip_reason=str(error), cursor=cursor.dump())
        now = monotonic()
        cursor = _noted(placement, last, kept, tables, now).model_copy(update={"survey": survey})
        report = DomainsReport(
            states=states,
            tables=tables,
            kept=[each for each in kept if not each.left],
            changed=list(changes(last.tables, cursor.tables)),
            seconds_behind=cursor.seconds_behind(now),
            rows_per_minute=cursor.rows_per_minute(now),
        )
        # 4. Write the alerts that are due.
        unsafe = {condition(AlertKind.ONE_LOSS_LOSES): report.danger} if report.danger else {}
        troubles = {**_stopped(placement), **unsafe, **_troubled(last, lost, kept)}
        cursor = _told(settings, cursor, {**lost, **troubles})
        # 5. Observe the asset if its state has changed, or its metrics are due.
        if report.fingerprint() == last.seen and not cursor.is_due(now, every=OBSERVED_SECONDS):
            reason = "; ".join(map(str, kept)) or "every replica is up to date"
            return dg.SensorResult(skip_reason=reason, cursor=cursor.dump())
        cursor = cursor.observed(report.fingerprint(), now)
        return dg.SensorResult(asset_events=_events(report), cursor=cursor.dump())

    return failure_domains


def _events(report: DomainsReport) -> list[dg.AssetObservation | dg.AssetCheckEvaluation]:
    evaluation = dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey(ASSET),
        check_name=CHECK,
        passed=report.danger is None,
        description=report.danger or SAFE,
    )
    return [dg.AssetObservation(ASSET, metadata=report.metadata()), evaluation]


def _troubled(last: DomainsCursor, lost: Conditions, kept: Sequence[ReconcileResult]) -> Conditions:
    """Return the tables whose replicas cannot be reconciled.

    While a domain is lost, that follows for every table, so no new ones are reported.
    """
    if lost:
        return {key: why for key, why in last.told.items() if parts(key)[0] is AlertKind.TABLE_TROUBLED}
    known = {**last.waiting, **last.told}
    found = {}
    for each in kept:
        key = condition(AlertKind.TABLE_TROUBLED, each.table)
        # A table that this round did not reach keeps its condition.
        if why := known.get(key) if each.left else each.problem:
            found[key] = why
    return found


def _stopped(placement: Placement) -> dict[str, str]:
    stopped = {stage: placement.stopped(stage) for stage in PlacementClass}
    return {condition(AlertKind.STAGE_STOPPED, stage): why for stage, why in stopped.items() if why}


def _remembered(text: str | None, placement: Placement) -> DomainsCursor:
    last = DomainsCursor.load(text)
    names = [site.name for site in placement.sites]
    return last.model_copy(
        update={"told": of_domains(last.told, names), "waiting": of_domains(last.waiting, names)}
    )


def _noted(
    placement: Placement,
    last: DomainsCursor,
    kept: Sequence[ReconcileResult],
    tables: Mapping[str, ReplicationStatus],
    now: float,
) -> DomainsCursor:
    """Return the cursor with this tick's findings. A table without a known state keeps its last one."""
    noted = {name: Noted.of(each) for name, each in tables.items() if each.problem is None}
    behind = {
        name: still_behind(last.behind.get(name, {}), each.version, tables[name].behind, now)
        for name, each in noted.items()
    }
    return last.model_copy(
        update={
            "tables": {**last.tables, **noted},
            "behind": {**last.behind, **behind},
            "rows": _rows(placement, last, noted),
            "begin": resume_from(kept),
        }
    )


def _rows(placement: Placement, last: DomainsCursor, noted: Mapping[str, Noted]) -> dict[str, int]:
    """Return the rows acknowledged since the last observation, by table, this tick's included."""
    rows = dict(last.rows)
    for name in [name for name in placement.catalog.counted if name in noted and name in last.tables]:
        table = platform_table(name, placement.reader())
        more = rows_acknowledged(table, last.tables[name].version, noted[name].version)
        rows[name] = rows.get(name, 0) + more
    return rows


def _told(settings: Settings, cursor: DomainsCursor, now: Conditions) -> DomainsCursor:
    """Write the alerts that are due, and return the cursor that remembers them."""
    found = tell(settings.home, cursor.told, cursor.waiting, now)
    return cursor.model_copy(update={"told": found.told, "waiting": found.waiting})
