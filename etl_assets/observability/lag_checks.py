"""Checks of how far sources and sinks are behind, and of what waits for a sink.

Belongs here: findings for `etl-assets doctor`. Does not belong here: the figures (`asset_lag.py`,
`delivery_lag.py`) and the limits (`lag_limits.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from etl_assets.errors import EtlAssetsError
from etl_assets.observability.asset_lag import source_lag
from etl_assets.observability.delivery_lag import delivery_lags
from etl_assets.observability.findings import Finding, fail, ok, warn
from etl_assets.observability.lag_limits import FIX, as_pauses, find_excesses, recorded_pauses
from etl_assets.sinks.circuit_breaker import read_circuits
from etl_assets.steps.placing import once_led

if TYPE_CHECKING:
    import datetime as dt

    from etl_assets.settings import Settings

SOURCES, DELIVERIES = "sources", "deliveries"


def check_sources(settings: Settings, now: dt.datetime) -> Iterator[Finding]:
    """Check that every source answers, and say what is unread there. Unread input is no problem by itself."""
    placement = settings.placement()
    for stage in settings.catalog().sources:
        try:
            lag = once_led(placement, lambda stage=stage: source_lag(stage, settings, now))
        except EtlAssetsError as error:
            yield fail(SOURCES, f"{stage.name}: {error.message}", error.fix)
            continue
        yield ok(SOURCES, f"{stage.name} has {'everything' if lag.is_current else f'not read {lag}'}")


def check_deliveries(settings: Settings, now: dt.datetime) -> Iterator[Finding]:
    """Check that every sink has what its table has."""
    domain = settings.placement().reader()
    sinks = sum(stage.delivers for stage in domain.catalog.stages)
    circuits = read_circuits(settings.home)
    behind = 0
    for lag in delivery_lags(domain, now):
        behind += 1
        circuit = circuits.get(lag.deliveries)
        yield warn(
            DELIVERIES,
            str(lag) if circuit is None else f"{lag}; {circuit.sentence(now.timestamp())}",
            "`etl-assets run` delivers it, or says why that fails; a run or a worker that is at work does it"
            " by itself",
        )
    excesses = find_excesses(domain, settings, now)
    for pause in as_pauses(excesses, recorded_pauses(settings.home), now).values():
        yield warn(DELIVERIES, str(pause), FIX)
    if sinks > behind:
        yield ok(DELIVERIES, f"{sinks - behind} of {sinks} sinks have all that their tables have")
