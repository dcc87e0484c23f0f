"""The health of a domain: what a row of sightings makes of it. Pure."""

from __future__ import annotations

import itertools

import pytest

from etl_assets.placement.health import (
    BELIEVED_SECONDS,
    FIRST_PAUSE_SECONDS,
    MAX_PAUSE_SECONDS,
    Health,
    HealthState,
    ProbeResult,
)

HEALTHY, DEGRADED, UNAVAILABLE = HealthState


def seen(signs: str, health: Health | None = None, *, start: float = 1.0) -> Health:
    """The health after sightings, a second apart: `+` answered, `~` answered slowly, `x` failed."""
    health = health or Health()
    for number, sign in enumerate(signs):
        began = start + number
        problem = "no answer" if sign == "x" else None
        health = health.after(ProbeResult(began=began, ended=began + 0.5, problem=problem, slow=sign == "~"))
    return health


@pytest.mark.parametrize(
    ("signs", "state", "usable"),
    [
        ("", HEALTHY, True),
        ("+", HEALTHY, True),
        ("~", DEGRADED, True),
        ("~++", DEGRADED, True),
        ("~+++", HEALTHY, True),
        ("~~~~~", DEGRADED, True),
        ("x", DEGRADED, False),
        ("x+", DEGRADED, True),
        ("x+++", HEALTHY, True),
        ("xx", DEGRADED, False),
        ("xx+xx", DEGRADED, False),
        ("xxx", UNAVAILABLE, False),
        ("xxx++", UNAVAILABLE, False),
        ("xxx++x++", UNAVAILABLE, False),
        ("xxx+++", HEALTHY, True),
        ("xxx++~", DEGRADED, True),
        ("xxxx", UNAVAILABLE, False),
    ],
)
def test_several_failures_in_a_row_give_a_domain_up_and_several_successes_bring_it_back(signs, state, usable):
    health = seen(signs)
    assert health.state is state
    assert (health.problem is None) is usable
    assert (health.why is None) is (state is HEALTHY)


def test_what_overlaps_is_seen_once():
    # Three processes meet one hiccup of a second.
    health = Health()
    for began in (1.0, 1.2, 1.4):
        health = health.after(ProbeResult(began=began, ended=began + 1.0, problem="no answer"))
    assert (health.state, health.failures) == (DEGRADED, 1)


def test_pauses_between_probes_grow_and_are_bounded():
    pauses = []
    health = Health()
    for _ in range(20):
        health = seen("x", health, start=health.next_probe + 1)
        pauses.append(health.next_probe - health.seen_at)
    assert pauses[0] == FIRST_PAUSE_SECONDS
    assert all(later >= earlier for earlier, later in itertools.pairwise(pauses))
    assert pauses[1] > pauses[0]
    assert pauses[-1] == MAX_PAUSE_SECONDS
    assert seen("x" * 5_000).next_probe < 5_001 + MAX_PAUSE_SECONDS + 1


def test_a_domain_that_was_given_up_is_not_asked_until_it_answers_or_nobody_looks_any_more():
    assert seen("xx").shut(3.0) is None
    gone = seen("xxx")
    assert gone.shut(4.0) == "no answer"
    assert gone.shut(gone.next_probe + BELIEVED_SECONDS - 1) == "no answer"
    assert gone.shut(gone.next_probe + BELIEVED_SECONDS) is None
    back = seen("+", gone, start=10.0)
    assert back.shut(10.6) is None, "it is asked as soon as it answers"
    assert back.problem == "no answer; it answers again, 1 of 3 times in a row"
