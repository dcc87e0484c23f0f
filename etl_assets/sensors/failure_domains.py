"""The sensor of the failure domains: looks after the replicas, and tells what became of domains and tables."""

import json

import dagster as dg

from etl_assets.errors import EtlAssetsError
from etl_assets.observability.domain_states import DomainState, domain_states, one_loss
from etl_assets.settings import Settings
from etl_assets.steps.keep_replicas import Kept, keep_replicas

ASSET = "failure_domains"
INTERVAL_SECONDS = 15


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
        try:
            kept = keep_replicas(placement)
            states = domain_states(placement)
        except EtlAssetsError as error:
            return dg.SensorResult(skip_reason=str(error))
        seen = json.dumps([[state.as_json() for state in states], [str(each) for each in kept]])
        if seen == context.cursor:
            return dg.SensorResult(skip_reason="; ".join(map(str, kept)) or "every replica is up to date")
        observation = dg.AssetObservation(ASSET, metadata=observed(states, kept))
        return dg.SensorResult(asset_events=[observation], cursor=seen)

    return failure_domains


def observed(states: list[DomainState], kept: list[Kept]) -> dict[str, dg.MetadataValue]:
    """The states as metadata: figures that Dagster plots over time, and tables for people."""
    danger = one_loss(states)
    lags = [lag for state in states for lag in state.behind.values()]
    rows = [
        f"| {state.name} | {state.problem or 'healthy'} | {', '.join(state.leads) or '-'} |"
        f" {', '.join(_lag(name, lag) for name, lag in state.behind.items() if lag != 0) or 'nothing'} |"
        for state in states
    ]
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


def _lag(table: str, lag: int | None) -> str:
    return f"{table} does not answer" if lag is None else f"{table} by {lag:,}"
