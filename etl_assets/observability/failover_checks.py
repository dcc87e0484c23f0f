"""Checks of a server whose slot has to outlive a failover: the slot, and what the standbys need.

The settings of a standby are known on the standby alone, so the checks name them in words, and check them
where the connection leads to one.

Belongs here: pure decisions over what the server says. Does not belong here: asking it
(`sources/postgres_cdc/server_state.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from etl_assets.observability.findings import Finding, fail, ok, warn
from etl_assets.sources.postgres_cdc.server_state import HAS_FAILOVER_SLOTS, ServerState

FAILOVER = "failover"
STANDBY_NEEDS = (
    "on each standby: sync_replication_slots = on, hot_standby_feedback = on, primary_slot_name, and a dbname"
    " in primary_conninfo"
)
_RELOAD = "SELECT pg_reload_conf()"
_WANTED_ON = ("sync_replication_slots", "hot_standby_feedback")


def check_failover(state: ServerState, slot: str | None) -> Iterator[Finding]:
    """Yield whether a standby can go on with a slot after a failover.

    Args:
        state: What the server says.
        slot: Name of the slot; None: one that is not made yet.
    """
    if state.version < HAS_FAILOVER_SLOTS:
        yield warn(
            FAILOVER,
            f"PostgreSQL {state.version_text} has no failover slots: after a failover the slot is gone, and"
            " the tables have to be copied again",
            "upgrade the server to PostgreSQL 17 or later, or remove `failover`",
        )
        return
    if state.is_standby:
        yield from _standby(state)
        return
    yield from _slot(state, slot)
    yield from _waits_for_standbys(state)


def _slot(state: ServerState, name: str | None) -> Iterator[Finding]:
    found = next((each for each in state.slots if each.name == name), None)
    if found is None:
        return
    if found.is_failover:
        yield ok(FAILOVER, f"the slot {name} is a failover slot; {STANDBY_NEEDS}")
    else:
        yield fail(
            FAILOVER,
            f"the slot {name} is no failover slot: no standby has it",
            f"in a session with `replication=database`, while nothing reads the slot: ALTER_REPLICATION_SLOT"
            f" {name} (FAILOVER true)",
        )


def _waits_for_standbys(state: ServerState) -> Iterator[Finding]:
    """Yield whether changes are read only after a standby has them.

    Otherwise a reader may be ahead of the standby that is promoted.
    """
    given = state.settings.get("synchronized_standby_slots", "").split(",")
    named = [each.strip() for each in given if each.strip()]
    physical = [each.name for each in state.slots if not each.plugin]
    if not named:
        slots = ", ".join(physical) or "the standby's slot"
        yield fail(
            FAILOVER,
            "synchronized_standby_slots is empty: changes may be read that a promoted standby does not have,"
            " and changes that it makes in their place would not be read",
            f"ALTER SYSTEM SET synchronized_standby_slots = '{slots}'; {_RELOAD}; {STANDBY_NEEDS}",
        )
    elif missing := [each for each in named if each not in physical]:
        yield fail(
            FAILOVER,
            f"synchronized_standby_slots names {', '.join(missing)}, which is no physical slot of the server:"
            " the log cannot be read until it is there",
            f"SELECT pg_create_physical_replication_slot('{missing[0]}'), or take it out of"
            " synchronized_standby_slots",
        )
    else:
        yield ok(FAILOVER, f"the log is read once {', '.join(named)} has it")


def _standby(state: ServerState) -> Iterator[Finding]:
    for name in _WANTED_ON:
        if state.settings.get(name) != "on":
            yield fail(
                FAILOVER,
                f"{name} is {state.settings.get(name, 'unknown')} on this standby: it keeps no slots in step",
                f"ALTER SYSTEM SET {name} = 'on'; {_RELOAD}",
            )
    if not state.settings.get("primary_slot_name"):
        yield fail(
            FAILOVER,
            "primary_slot_name is empty on this standby: it does not keep slots in step",
            f"ALTER SYSTEM SET primary_slot_name = 'the slot of this standby on the primary'; {_RELOAD}",
        )
