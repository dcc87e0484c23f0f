"""Whether a standby can go on with a slot: what is said of servers that lack something."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etl_assets.observability.cdc_checks import CdcTarget, check_cdc
from etl_assets.observability.failover_checks import FAILOVER, check_failover
from etl_assets.observability.findings import Finding, Status
from etl_assets.sources.postgres_cdc.server_state import RoleState, ServerState, SlotState

OWN = SlotState(
    name="films",
    plugin="pgoutput",
    database="shop",
    is_active=False,
    wal_status="reserved",
    held_bytes=0,
    is_failover=True,
)
OF_STANDBY = SlotState(
    name="standby_1", plugin="", database="", is_active=True, wal_status="reserved", held_bytes=0
)
SERVER = ServerState(
    version=170_004,
    version_text="17.4",
    database="shop",
    is_standby=False,
    settings={
        "wal_level": "logical",
        "max_replication_slots": "10",
        "max_wal_senders": "10",
        "max_slot_wal_keep_size": "50000",
        "synchronous_commit": "on",
        "fsync": "on",
        "synchronized_standby_slots": "standby_1",
    },
    role=RoleState(name="etl", replicates=True, may_create=True, is_superuser=False),
    slots=(OWN, OF_STANDBY),
    walsenders=1,
    publication=None,
    tables=(),
)
ON_STANDBY = {"sync_replication_slots": "on", "hot_standby_feedback": "on", "primary_slot_name": "standby_1"}


def problems(state: ServerState, slot: str | None = "films") -> list[Finding]:
    return [each for each in check_failover(state, slot) if each.status is not Status.OK]


def with_settings(state: ServerState, **settings: str) -> ServerState:
    return replace(state, settings={**state.settings, **settings})


def test_a_primary_whose_standby_has_the_slot_has_no_problem_and_names_what_standbys_need():
    assert problems(SERVER) == []
    said = " ".join(each.detail for each in check_failover(SERVER, "films"))
    assert all(name in said for name in ("sync_replication_slots", "hot_standby_feedback"))


def test_a_slot_that_standbys_do_not_have_is_named_with_the_command():
    (found,) = problems(replace(SERVER, slots=(replace(OWN, is_failover=False), OF_STANDBY)))
    assert (found.check, found.status) == (FAILOVER, Status.FAIL)
    assert "ALTER_REPLICATION_SLOT films (FAILOVER true)" in (found.fix or "")


def test_a_slot_that_is_not_made_yet_is_no_problem():
    assert problems(replace(SERVER, slots=(OF_STANDBY,))) == []


def test_reading_ahead_of_the_standbys_is_refused_with_the_names_of_their_slots():
    (found,) = problems(with_settings(SERVER, synchronized_standby_slots=""))
    assert found.status is Status.FAIL
    assert "synchronized_standby_slots = 'standby_1'" in (found.fix or "")


def test_a_standby_slot_that_is_missing_keeps_the_log_from_being_read():
    (found,) = problems(with_settings(SERVER, synchronized_standby_slots="standby_1, standby_2"))
    assert (found.status, "names standby_2" in found.detail) == (Status.FAIL, True)


@pytest.mark.parametrize("name", sorted(ON_STANDBY))
def test_a_standby_that_does_not_keep_slots_in_step_says_which_setting_it_lacks(name):
    standby = with_settings(replace(SERVER, is_standby=True), **ON_STANDBY)
    assert problems(standby) == []
    off = "" if name == "primary_slot_name" else "off"
    (found,) = problems(with_settings(standby, **{name: off}))
    assert found.detail.startswith(name)
    assert f"ALTER SYSTEM SET {name}" in (found.fix or "")


def test_an_older_server_has_no_failover_slots():
    (found,) = problems(replace(SERVER, version=160_002, version_text="16.2"))
    assert (found.status, "copied again" in found.detail) == (Status.WARN, True)


@pytest.mark.parametrize("wanted", [True, False])
def test_failover_is_checked_only_where_it_is_declared(wanted):
    found = check_cdc(SERVER, CdcTarget(slot="films", failover=wanted))
    assert any(each.check == FAILOVER for each in found) == wanted
