"""Alerts about failure domains: one when a condition opens, one when it is resolved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from etl_assets.placement.health import Health, HealthState
from etl_assets.sensors.alerts import AlertKind, write_alert
from etl_assets.sensors.conditions import OVER, Conditions, News, condition, news, parts

SAFE = "losing any one domain now would lose nothing"


def tell(home: Path, told: Conditions, waiting: Conditions, now: Conditions) -> News:
    """Write an alert for each condition that opens or is resolved.

    Args:
        home: The home folder.
        told: Open conditions that were reported, as the last call returned them.
        waiting: Conditions to report if they still hold, as the last call returned them.
        now: Current conditions.
    """
    found = news(told, waiting, now)
    for key, why in found.begun.items():
        _alert(home, *parts(key), why)
    for key, why in found.over.items():
        kind, subject = parts(key)
        _alert(home, OVER[kind], subject, f"it was: {why}")
    return found


def lost_domains(health: Mapping[str, Health]) -> Conditions:
    """Return a condition for each probed domain that is unavailable."""
    return {
        condition(AlertKind.DOMAIN_LOST, name): each.why or "it does not answer"
        for name, each in health.items()
        if each.state is HealthState.UNAVAILABLE
    }


_SENTENCES = {
    AlertKind.DOMAIN_LOST: "the failure domain {} is unavailable: {}",
    AlertKind.DOMAIN_BACK: "the failure domain {} is back; {}",
    AlertKind.STAGE_STOPPED: "no failure domain that may run the stage {} can: {}",
    AlertKind.STAGE_RUNS: "the stage {} has a failure domain again; {}",
    AlertKind.ONE_LOSS_LOSES: "{}{}",
    AlertKind.ONE_LOSS_SAFE: "{}" + SAFE + "; {}",
    AlertKind.TABLE_TROUBLED: "the replicas of the table {} cannot be looked after: {}",
    AlertKind.TABLE_WELL: "the replicas of the table {} are looked after again; {}",
}
_SUBJECTS = {
    AlertKind.DOMAIN_LOST: "domain",
    AlertKind.STAGE_STOPPED: "stage",
    AlertKind.TABLE_TROUBLED: "table",
}


def _alert(home: Path, kind: AlertKind, subject: str, why: str) -> None:
    begins = next((begin for begin, over in OVER.items() if over is kind), kind)
    fix = f"see docs/operations.md, {kind}" if kind in OVER else "nothing"
    named = {_SUBJECTS[begins]: subject} if begins in _SUBJECTS else {}
    error = _SENTENCES[kind].format(subject, why)
    write_alert(home, kind, {**named, "error": f"{error}\n  fix: {fix}"})
