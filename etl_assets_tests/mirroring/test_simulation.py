"""The protocol under thousands of random schedules, and the simulator under the mistakes it must catch.

Schedules follow from their seeds alone; a failure names its seed. `MIRRORING_SECONDS` says how long to look
(eight seconds for each profile, unless it says more), `MIRRORING_SEED` where to begin. One schedule
again:

    MIRRORING_SEED=208 MIRRORING_SECONDS=0 python -m pytest -k every_invariant
"""

from __future__ import annotations

import os
import time
from itertools import count

import pytest

from etl_assets_tests.mirroring.simulation import Profile, World, first_violation
from etl_assets_tests.mirroring.slips import (
    MORE_SLIPS,
    SLIPS,
    SLIPS_OF_SHORTER_LOGS,
    acknowledging_what_was_not_reached,
    counting_the_vote_of_a_fork,
    reading_a_fork,
)

SECONDS = float(os.environ.get("MIRRORING_SECONDS", "8"))
FIRST_SEED = int(os.environ.get("MIRRORING_SEED", "0"))
PATIENCE_FOR_A_SLIP = 1500

PROFILES = {
    "outages": Profile(),
    "emptied roots": Profile(empty=0.005),
    "many faults": Profile(fault=0.06, kill=0.016, pause=0.02, outage=0.008),
    # Folders that are empty for a moment, as before a disk is mounted on them again.
    "blinking roots": Profile(blink=0.01),
    # One root is put back from a backup, while the only other one that knows what it forgot is away.
    "restored roots": Profile(restore=0.01, outage=0, move=0.03, tidy=0, outage_steps=300, layouts=("vvv",)),
    "two leaders at once": Profile(rogue=0.5, move=0.04, layouts=("vvv",)),
    # Long enough for logs to begin later, and for domains to be away or emptied meanwhile.
    "shorter logs": Profile(
        steps=2500,
        fault=0.006,
        kill=0.003,
        pause=0.004,
        outage=0.003,
        outage_steps=600,
        move=0.003,
        rogue=0.05,
        empty=0.0015,
        stay=0.85,
        tidy=0.7,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_every_invariant_holds_in_every_schedule(profile):
    began = time.monotonic()
    for seed in count(FIRST_SEED):
        assert first_violation([seed], profile) is None, f"seed {seed} of the profile {profile}"
        if time.monotonic() - began >= SECONDS:
            break


@pytest.mark.slow
@pytest.mark.parametrize("slip", SLIPS + MORE_SLIPS, ids=lambda slip: slip.__name__)
def test_a_slip_put_back_is_caught(slip):
    # Blank memories and claims that lead nowhere come of emptied roots; the other slips show more often
    # without them.
    empties = slip.__name__ in ("voting_from_a_blank_memory", "a_leader_that_never_gives_way")
    profile = PROFILES["emptied roots" if empties else "outages"]
    assert first_violation(range(PATIENCE_FOR_A_SLIP), profile, slip) is not None


@pytest.mark.slow
def test_an_acknowledgement_of_what_was_not_reached_is_caught():
    slip = acknowledging_what_was_not_reached
    assert first_violation(range(PATIENCE_FOR_A_SLIP), PROFILES["blinking roots"], slip) is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    "slip", [counting_the_vote_of_a_fork, reading_a_fork], ids=lambda slip: slip.__name__
)
def test_a_slip_with_a_root_that_was_put_back_is_caught(slip):
    assert first_violation(range(PATIENCE_FOR_A_SLIP), PROFILES["restored roots"], slip) is not None


@pytest.mark.slow
@pytest.mark.parametrize("slip", SLIPS_OF_SHORTER_LOGS, ids=lambda slip: slip.__name__)
def test_a_slip_in_shortening_logs_is_caught(slip):
    assert first_violation(range(PATIENCE_FOR_A_SLIP), PROFILES["shorter logs"], slip) is not None


def test_a_schedule_follows_from_its_seed():
    def end(seed: int) -> tuple[int, int, float]:
        world = World(seed, PROFILES["emptied roots"])
        world.run()
        return world.step, world.oracle.newest_reported, world.random.random()

    assert [end(seed) for seed in range(5)] == [end(seed) for seed in range(5)]


def test_schedules_do_move_on_and_meet_every_kind_of_trouble():
    worlds = [World(seed, PROFILES["emptied roots"]) for seed in range(50)]
    worlds += [World(seed, PROFILES["shorter logs"]) for seed in range(10)]
    worlds += [World(seed, PROFILES["blinking roots"]) for seed in range(2)]
    worlds += [World(seed, PROFILES["restored roots"]) for seed in range(20)]
    for world in worlds:
        world.run()
    assert sum(world.oracle.newest_reported + 1 for world in worlds) > 60
    met = {trouble for world in worlds for trouble in world.met}
    assert met >= {
        "kill",
        "pause",
        "outage",
        "move",
        "empty",
        "lost",
        "unanswered",
        "late",
        "twice",
        "absent",
        "restore",
        "forked",
        "rebuilt",
        "shortened",
        "snapshot",
        "pointed at",
    }
