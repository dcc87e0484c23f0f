"""The table of transitions is whole, and the page is made of it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from etl_assets import control_documentation
from etl_assets.control.failures import MAX_ATTEMPTS, failure_of, without_machine_paths
from etl_assets.control.lease_watch import LeaseWatch
from etl_assets.control.records import HeldLease
from etl_assets.control.states import Action, ControlState, Party, RetryPolicy
from etl_assets.control.transitions import (
    TRANSITIONS,
    ControlFacts,
    When,
    allowed_actions,
    transition,
)
from etl_assets.control.waiting import is_due
from etl_assets.errors import SinkRefused, SourceUnavailable, StorageFailed, TransitionRefused
from etl_assets_tests.control.model import NOW, later

PAGE = Path(__file__).parents[2] / "docs" / "control-plane.md"


def test_the_page_is_what_the_table_says():
    assert PAGE.read_text("utf-8") == control_documentation.render(), "write it again: make docs"


def test_the_diagram_has_every_change_of_state():
    drawn = {tuple(line.partition(":")[0].split(" --> ")) for line in control_documentation.mermaid()}
    for row in TRANSITIONS:
        assert row.start is row.end or (f"    {row.start}", str(row.end)) in drawn


@pytest.mark.parametrize(("state", "action"), list(product(ControlState, Action)))
def test_each_action_in_each_state_leads_to_one_state_or_is_refused_with_a_fix(state, action):
    rows = [row for row in TRANSITIONS if row.start is state and row.action is action]
    for row in rows[:-1]:
        assert row.when is not When.ALWAYS, "rows after it would never apply"
    if rows:
        assert rows[-1].when is When.ALWAYS
        assert transition("p", ControlFacts(state=state), action).start is state
        return
    with pytest.raises(TransitionRefused) as refused:
        transition("p", ControlFacts(state=state), action)
    assert refused.value.fix
    assert str(state) in refused.value.message


def test_every_state_can_be_reached_and_set_by_those_it_names():
    for state in ControlState:
        parties = {row.action.party for row in TRANSITIONS if row.end is state and row.start is not state}
        assert parties == set(state.set_by)


def test_no_state_is_a_dead_end_for_clients():
    for state in ControlState:
        ends = {
            row.end for row in TRANSITIONS if row.start is state and row.action.party is not Party.RECOVERY
        }
        assert ends - {state}
    assert {Action.RETRY, Action.RUN} <= set(allowed_actions(ControlState.FAILED))


def test_only_states_with_a_runner_can_lose_it():
    assert {row.start for row in TRANSITIONS if row.action is Action.LOSE} == {
        state for state in ControlState if state.has_runner
    }


def test_an_error_that_may_pass_is_tried_three_times_with_longer_waits_and_then_timed():
    error = SourceUnavailable("away", fix="bring it back", source="s")
    found = [failure_of(error, attempt=attempt, jitter=1.0) for attempt in range(1, MAX_ATTEMPTS + 1)]
    assert [each.wait_seconds for each in found] == [1.0, 2.0, 300.0]
    assert [each.repeats for each in found] == [True, True, False]
    assert found[-1].policy is RetryPolicy.TIMED
    assert failure_of(error, attempt=1, jitter=0.0).wait_seconds == 0.5


def test_an_error_that_stays_fails_at_once_and_says_what_helps():
    refused = failure_of(SinkRefused("no", fix="grant it", sink="s"), attempt=1, jitter=0.5)
    assert (refused.repeats, refused.policy, refused.solution) == (False, RetryPolicy.NONE, "grant it")
    unknown = failure_of(ValueError("?"), attempt=1, jitter=0.5)
    assert (unknown.repeats, unknown.policy) == (False, RetryPolicy.MANUAL)
    full = failure_of(OSError(28, "No space left on device"), attempt=1, jitter=0.5)
    assert full.policy is RetryPolicy.MANUAL
    assert failure_of(StorageFailed("away", fix="mount it"), attempt=1, jitter=0.5).repeats


def test_a_wait_is_over_when_its_time_has_come_or_the_clock_was_set_back():
    assert is_due(None, NOW, 300)
    assert is_due(NOW, NOW, 300)
    assert not is_due(later(1), NOW, 300)
    assert not is_due(later(300), NOW, 300)
    assert is_due(later(3_600), NOW, 300)


def _lease(beats: int, token: int = 1) -> HeldLease:
    return HeldLease(pipeline="p", runner="r", token=token, beats=beats, lease_seconds=10, at=NOW)


def test_a_lease_expires_when_its_beats_stand_still_by_the_observers_clock():
    watch = LeaseWatch()
    assert watch.expired([_lease(1)], 0) == ()
    assert watch.expired([_lease(1)], 10) == ()
    assert watch.expired([_lease(2)], 11) == ()
    assert watch.expired([_lease(2)], 21) == ()
    assert watch.expired([_lease(2, token=2)], 22) == (), "another claim"
    assert watch.expired([_lease(2, token=2)], 33) == (_lease(2, token=2),)
    assert watch.expired([], 34) == ()


def test_errors_of_runs_name_no_path_of_the_machine():
    home = Path("/srv/etl home")
    error = StorageFailed(
        "cannot write /srv/etl-home/x: denied: '/var/lib/etl/data/tables/films/a.parquet'",
        fix="see s3://bucket/exports, http://host:1/a/b, `pipelines/a.yaml`, and/or /etc/platform.yaml",
    )
    found = failure_of(error, attempt=1, jitter=0.5, home=Path("/var/lib/etl"))
    assert "cannot write …/x: denied: 'data/tables/films/a.parquet'" in found.error
    assert found.solution == (
        "see s3://bucket/exports, http://host:1/a/b, `pipelines/a.yaml`, and/or …/platform.yaml"
    )
    assert without_machine_paths("/srv/a", home) == "…/a"
