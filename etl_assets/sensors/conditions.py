"""Conditions of failure domains: reported once when they open, and once when they are resolved. Pure.

Belongs here: when an alert is due. Does not belong here: the conditions (`failure_domains.py`) and the file
(`alerts.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from etl_assets.sensors.alerts import AlertKind

OVER = {
    AlertKind.DOMAIN_LOST: AlertKind.DOMAIN_BACK,
    AlertKind.STAGE_STOPPED: AlertKind.STAGE_RUNS,
    AlertKind.ONE_LOSS_LOSES: AlertKind.ONE_LOSS_SAFE,
    AlertKind.TABLE_TROUBLED: AlertKind.TABLE_WELL,
}
"""The alert that resolves each kind."""
AT_ONCE = frozenset({AlertKind.DOMAIN_LOST})
"""Kinds reported when first seen, because the probe has confirmed them.

The others often pass within one tick.
"""

Conditions = Mapping[str, str]
"""The reason for each condition, in words, by `<kind> <subject>`."""


def condition(kind: AlertKind, subject: str = "") -> str:
    """Return the key of a condition."""
    return f"{kind} {subject}".strip()


def parts(key: str) -> tuple[AlertKind, str]:
    """Split a condition's key into its kind and subject."""
    kind, _, subject = key.partition(" ")
    return AlertKind(kind), subject


def of_domains(told: Conditions, domains: Collection[str]) -> dict[str, str]:
    """Return the reported conditions without those of removed domains and of older releases' formats."""
    kinds = {kind.value for kind in OVER}
    lost = {condition(AlertKind.DOMAIN_LOST, name) for name in domains}
    return {
        key: why
        for key, why in told.items()
        if key in lost or key.partition(" ")[0] in kinds - {AlertKind.DOMAIN_LOST.value}
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Conditions to report.

    Attributes:
        begun: Conditions that open now.
        over: Conditions that were reported and are resolved now, with their reasons.
        told: Conditions that are open after that.
        waiting: Conditions to report if they still hold at the next tick.
    """

    begun: Conditions = field(default_factory=dict)
    over: Conditions = field(default_factory=dict)
    told: Conditions = field(default_factory=dict)
    waiting: Conditions = field(default_factory=dict)


def news(told: Conditions, waiting: Conditions, now: Conditions) -> News:
    """Compare the current conditions with the reported ones and with those first seen at the last tick."""
    new = {key: why for key, why in now.items() if key not in told}
    begun = {key: why for key, why in new.items() if key in waiting or parts(key)[0] in AT_ONCE}
    return News(
        begun=begun,
        over={key: why for key, why in told.items() if key not in now},
        told={key: why for key, why in told.items() if key in now} | begun,
        waiting={key: why for key, why in new.items() if key not in begun},
    )
