"""What goes wrong with failure domains for a while: told once when it begins, and once when it is over. Pure.

Belongs here: when a line is due. Does not belong here: what is wrong (`failure_domains.py`), and the file (`alerts.py`).
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
"""What is told when each is over."""
AT_ONCE = frozenset({AlertKind.DOMAIN_LOST})
"""Told at first sight: it was made sure of before. The others pass by themselves within one tick, often."""

Conditions = Mapping[str, str]
"""By `<kind> <subject>` why it is so, in words."""


def condition(kind: AlertKind, subject: str = "") -> str:
    """The key of a condition."""
    return f"{kind} {subject}".strip()


def parts(key: str) -> tuple[AlertKind, str]:
    """The kind and the subject of a condition."""
    kind, _, subject = key.partition(" ")
    return AlertKind(kind), subject


def of_domains(told: Conditions, domains: Collection[str]) -> dict[str, str]:
    """What was told, without what an older release wrote otherwise, and without domains that are not there any more."""
    kinds = {kind.value for kind in OVER}
    lost = {condition(AlertKind.DOMAIN_LOST, name) for name in domains}
    return {
        key: why
        for key, why in told.items()
        if key in lost or key.partition(" ")[0] in kinds - {AlertKind.DOMAIN_LOST.value}
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What is to be told.

    Attributes:
        begun: Conditions to tell of.
        over: Conditions that were told of and are over, with why they were.
        told: What stands told after that.
        waiting: What is told if it still holds at the next look.
    """

    begun: Conditions = field(default_factory=dict)
    over: Conditions = field(default_factory=dict)
    told: Conditions = field(default_factory=dict)
    waiting: Conditions = field(default_factory=dict)


def news(told: Conditions, waiting: Conditions, now: Conditions) -> News:
    """Compare what holds now with what was told, and with what the last look saw for the first time."""
    new = {key: why for key, why in now.items() if key not in told}
    begun = {key: why for key, why in new.items() if key in waiting or parts(key)[0] in AT_ONCE}
    return News(
        begun=begun,
        over={key: why for key, why in told.items() if key not in now},
        told={key: why for key, why in told.items() if key in now} | begun,
        waiting={key: why for key, why in new.items() if key not in begun},
    )
