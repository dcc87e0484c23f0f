"""Which sources are paused because a required sink is over its lag limit. No Spark, no Dagster.

Belongs here: the comparison with the limits, and what was recorded of pauses. Does not belong here: the lag
(`delivery_lag.py`), and recording and reporting a pause (`sensors/source_pauses.py`).
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.observability.delivery_lag import DeliveryLag, delivery_lags

if TYPE_CHECKING:
    from etl_assets.pipelines.lag_limit import LagLimit
    from etl_assets.pipelines.stage import Stage
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.settings import Settings

FIX = (
    "bring the sink back: what it lacks is delivered, and then the source is read again, both by itself; or"
    " raise its `max_lag`, or declare it `required: false`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LagExcess:
    """A required sink that is over its limit."""

    lag: DeliveryLag
    limit: LagLimit

    def __str__(self) -> str:
        return f"{self.lag}, over its limit of {self.limit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePause:
    """A source that is not read further.

    Attributes:
        pipeline: Name of its pipeline.
        since: Since when (UTC).
        excesses: The sinks that are over their limits.
    """

    pipeline: str
    since: dt.datetime
    excesses: tuple[LagExcess, ...]

    @property
    def reason(self) -> str:
        """The sinks, with lag and limit."""
        return "; ".join(map(str, self.excesses))

    def __str__(self) -> str:
        return (
            f"the source of {self.pipeline} is not read further since {self.since:%Y-%m-%d %H:%M:%S} UTC:"
            f" {self.reason}"
        )


def lag_limit_of(stage: Stage, settings: Settings) -> LagLimit | None:
    """Return the limit of a sink: its own, or the platform file's; None if it pauses no source."""
    if not stage.delivers or not stage.is_required:
        return None
    return stage.lag_limit or settings.pipelines.lag_limit


def find_excesses(
    domain: FailureDomain, settings: Settings, now: dt.datetime
) -> dict[str, tuple[LagExcess, ...]]:
    """Return the sinks that are over their limits, by the pipeline whose source they pause.

    Costs nothing where no sink has a limit.
    """
    limits = {
        stage.name: limit
        for stage in domain.catalog.stages
        if (limit := lag_limit_of(stage, settings)) is not None
    }
    found: dict[str, tuple[LagExcess, ...]] = {}
    for lag in delivery_lags(domain, now, among=limits) if limits else ():
        limit, pipeline = limits[lag.deliveries], domain.catalog.pipeline_of(lag.deliveries)
        if pipeline is not None and limit.is_exceeded(lag.rows, lag.seconds):
            excess = LagExcess(lag=lag, limit=limit)
            found[pipeline.name] = (*found.get(pipeline.name, ()), excess)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRecord:
    """What all processes know of a pause.

    Attributes:
        since: Its begin, in seconds since 1970.
        reason: The sinks, with lag and limit, as of the last look.
        told: Whether its alert was written.
    """

    since: float
    reason: str
    told: bool = False


def pauses_file(home: Path) -> Path:
    """Return the file that says which sources are paused."""
    return home / "source_pauses.json"


def parse_pauses(text: str) -> dict[str, PauseRecord]:
    """Return the recorded pauses by pipeline. Text that another process is just writing has none."""
    try:
        return {name: PauseRecord(**record) for name, record in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def recorded_pauses(home: Path) -> dict[str, PauseRecord]:
    """Return the pauses that were recorded last."""
    try:
        return parse_pauses(pauses_file(home).read_text("utf-8"))
    except OSError:
        return {}


def as_pauses(
    excesses: Mapping[str, tuple[LagExcess, ...]], recorded: Mapping[str, PauseRecord], now: dt.datetime
) -> dict[str, SourcePause]:
    """Return the pauses that follow, by pipeline, each since it was recorded first."""
    return {
        name: SourcePause(
            pipeline=name,
            since=dt.datetime.fromtimestamp(recorded[name].since, dt.UTC) if name in recorded else now,
            excesses=of_pipeline,
        )
        for name, of_pipeline in excesses.items()
    }
