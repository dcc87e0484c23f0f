"""When what failed is asked for again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.sensors.attempts import MAX_PAUSE_SECONDS, Attempt, next_attempt

RUNNING = Attempt(ended=False, succeeded=False)


def failed(seconds_ago: float) -> Attempt:
    return Attempt(ended=True, succeeded=False, ended_seconds_ago=seconds_ago)


def test_what_was_never_asked_for_is_asked_for():
    assert next_attempt([], 0).number == 0


def test_nothing_is_asked_for_while_a_run_is_under_way():
    assert next_attempt([failed(10**6), RUNNING], 2).number is None


@pytest.mark.parametrize(("failures", "pause"), [(1, 30), (2, 60), (3, 120), (8, 3_600), (50, 3_600)])
def test_the_pause_doubles_with_each_failure_up_to_an_hour(failures, pause):
    assert next_attempt([failed(pause - 1)] * failures, failures).number is None
    assert next_attempt([failed(pause)] * failures, failures).number == failures


def test_the_reason_says_how_long_to_wait():
    assert (
        "2 runs for it failed lately, the next one starts in 50 s"
        in next_attempt([failed(10), failed(500)], 2).reason
    )


def test_success_with_files_still_unread_is_asked_for_at_once():
    assert next_attempt([Attempt(ended=True, succeeded=True)], 1).number == 1


@given(
    st.lists(
        st.builds(Attempt, ended=st.booleans(), succeeded=st.booleans(), ended_seconds_ago=st.floats(0, 1e7))
    ),
    st.integers(0, 1_000),
)
def test_a_number_is_never_given_twice_and_a_long_wait_ends_every_pause(newest, older):
    number = len(newest) + older
    decision = next_attempt(newest, number)
    assert decision.number in (None, number)
    if all(attempt.ended and attempt.ended_seconds_ago >= MAX_PAUSE_SECONDS for attempt in newest):
        assert decision.number == number
