"""The sensor of the failure domains: probes them, looks after the replicas, and tells what became of domains and tables."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import dagster as dg

from etl_assets.errors import EtlAssetsError
from etl_assets.observability.domain_states import DomainState, domain_states, one_loss
from etl_assets.placement.health import Health, HealthState
from etl_assets.sensors.alerts import write_alert
from etl_assets.settings import Settings
from etl_assets.steps.keep_replicas import Kept, keep_replicas

ASSET = "failure_domains"
INTERVAL_SECONDS = 15
LOST, BACK = "DomainLost", "DomainBack"
"""Kinds of alerts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cursor:
    """What the last tick saw, and which domains were told to be unavailable, with why."""

    seen: str = ""
    told: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str | None) -> "_Cursor":
        """A cursor that is of no known form is that of a first tick."""
        try:
            found = json.loads(text or "")
            return cls(seen=found["seen"], told=dict(found["told"]))
        except (ValueError, KeyError, TypeError):
            return cls()

    def __str__(self) -> str:
        return json.dumps({"seen": self.seen, "told": dict(self.told)})


def failure_domains_asset(settings: Settings) -> dg.AssetSpec:
    """What the sensor observes, in the asset graph."""
    return dg.AssetSpec(
        ASSET,
        description=(
            "The failure domains: health, which tables each leads, how far each replica is behind, and whether losing any"
            " one of them now would lose anything. Observed by the sensor of the same name."
        ),
        owners=list(settings.owners),
        group_name="observe",
        kinds={"deltalake"},
    )


def failure_domains_sensor(settings: Settings) -> dg.SensorDefinition:
    """Build the sensor. A tick starts no Spark; it observes only what has changed since the last."""

    @dg.sensor(
        name=ASSET,
        minimum_interval_seconds=max(INTERVAL_SECONDS, settings.runs.sensor_interval_seconds),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Moves leaders away from lost domains, brings replicas up to date. On by default.",
    )
    def failure_domains(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        placement = settings.placement()
        last = _Cursor.read(context.cursor)
        told = dict(last.told)
        try:
            # First of all: what follows asks no domain that is known not to answer.
            told = _tell(settings, told, placement.watch.probe_all(placement.sites))
            kept = keep_replicas(placement, keep_log_versions=settings.upkeep.keep_log_versions)
            states = domain_states(placement)
        except EtlAssetsError as error:
            return dg.SensorResult(skip_reason=str(error), cursor=str(_Cursor(seen=last.seen, told=told)))
        seen = json.dumps([[state.as_json() for state in states], [str(each) for each in kept]])
        cursor = str(_Cursor(seen=seen, told=told))
        if seen == last.seen:
            reason = "; ".join(map(str, kept)) or "every replica is up to date"
            return dg.SensorResult(skip_reason=reason, cursor=cursor)
        observation = dg.AssetObservation(ASSET, metadata=observed(states, kept))
        return dg.SensorResult(asset_events=[observation], cursor=cursor)

    return failure_domains


def _tell(settings: Settings, told: Mapping[str, str], health: Mapping[str, Health]) -> dict[str, str]:
    """Write an alert for each domain that became unavailable, and for each that is back; returns those that are not."""
    now = dict(told)
    for name, each in health.items():
        if each.state is HealthState.UNAVAILABLE and name not in told:
            now[name] = each.why or "it does not answer"
            _alert(settings, name, LOST, f"the failure domain {name} is unavailable: {now[name]}")
        elif each.state is not HealthState.UNAVAILABLE and name in told:
            del now[name]
            _alert(settings, name, BACK, f"the failure domain {name} is back; it was lost: {told[name]}")
    return {name: why for name, why in now.items() if name in health}


def _alert(settings: Settings, domain: str, kind: str, error: str) -> None:
    fix = (
        "see docs/operations.md, An alert of a failure domain"
        if kind == LOST
        else "nothing: its replicas are brought up"
    )
    write_alert(settings.home, {"kind": kind, "domain": domain, "error": f"{error}\n  fix: {fix}"})


def observed(states: list[DomainState], kept: list[Kept]) -> dict[str, dg.MetadataValue]:
    """The states as metadata: figures that Dagster plots over time, and tables for people."""
    danger = one_loss(states)
    lags = [lag for state in states for lag in state.behind.values()]
    rows = [f"| {state.name} | {state.told} | {_leads(state)} | {_behind(state)} |" for state in states]
    table = "\n".join(["| domain | state | leads | behind |", "| --- | --- | --- | --- |", *rows])
    return {
        "domains": dg.MetadataValue.md(table),
        "one_loss": dg.MetadataValue.text(danger or "losing any one domain now would lose nothing"),
        "safe_from_one_loss": dg.MetadataValue.bool(danger is None),
        "usable_domains": dg.MetadataValue.int(sum(state.problem is None for state in states)),
        "versions_behind": dg.MetadataValue.int(sum(lag or 0 for lag in lags)),
        "replicas_not_answering": dg.MetadataValue.int(sum(lag is None for lag in lags)),
        "done": dg.MetadataValue.md("\n".join(f"- {each}" for each in kept) or "nothing"),
    }


def _leads(state: DomainState) -> str:
    if state.leads and len(state.leads) == len(state.behind):
        return "every table"
    return ", ".join(state.leads) or "-"


def _behind(state: DomainState) -> str:
    if state.behind and all(lag is None for lag in state.behind.values()):
        return "does not answer"
    return ", ".join(_lag(name, lag) for name, lag in state.behind.items() if lag != 0) or "nothing"


def _lag(table: str, lag: int | None) -> str:
    return f"{table} does not answer" if lag is None else f"{table} by {lag:,}"
