"""Checks of the slots of connections: which are all in use, and by which steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from etl_assets.observability.findings import Finding, ok, warn
from etl_assets.steps.connection_slots import holders, limits_of

if TYPE_CHECKING:
    from etl_assets.settings import Settings

SLOTS = "connection slots"


def check_connection_slots(settings: Settings) -> Iterator[Finding]:
    """Name the connections and targets of which all slots are in use: further steps wait for them."""
    declared = [file.spec for file in settings.installed().files if file.spec is not None]
    targets = {(sink.connection, sink.target_name) for spec in declared for sink in spec.sinks}
    limits = {limit for name in settings.connections for limit in limits_of(settings, name)}
    limits |= {limit for name, target in targets for limit in limits_of(settings, name, target)}
    for limit in sorted(limits, key=lambda each: each.file):
        found = list(holders(limit, settings.slots_path))
        if len(found) == limit.slots:
            yield warn(
                SLOTS,
                f"{limit.name}: {limit.slots} of {limit.slots} slots are in use, by"
                f" {', '.join(map(str, found))}",
                f"nothing, if that is a busy time; else raise {limit.field}",
            )
    yield ok(SLOTS, f"{len(limits):,} connections and targets have a limit")
