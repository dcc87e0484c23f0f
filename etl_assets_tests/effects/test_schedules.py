"""In any schedule of kills, pauses, lost answers and changes of the leading domain an effect is completed at
most once.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from etl_assets.effects.effect import Effect
from etl_assets.effects.store import EffectStore
from etl_assets.testing.memory_effects import MemoryEffects, MemoryEffectsTable
from etl_assets_tests.effects.world import World

STEPS = 40
SCHEDULES = int(os.environ.get("EFFECTS_SCHEDULES", "2000"))


def violation(seeds: range) -> str | None:
    """The first that is met, and the seed of its schedule."""
    for seed in seeds:
        world = World(seed)
        world.run(STEPS)
        if world.violations:
            return f"seed {seed}: {world.violations[0]}"
    return None


def test_an_effect_is_completed_at_most_once_and_in_the_end_it_is():
    befell: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        world = World(seed)
        world.run(STEPS)
        assert world.violations == [], f"seed {seed}"
        befell.update(world.befell)
    met = (
        "kill",
        "claim",
        "reuse",
        "lost answers",
        "taken over",
        "Fenced",
        "EffectInProgress",
        "EffectTakenOver",
    )
    assert all(befell[kind] > SCHEDULES / 20 for kind in met), befell


def _without_a_version_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = MemoryEffects._commit
    monkeypatch.setattr(
        MemoryEffects,
        "_commit",
        lambda self, rows, epoch, _: commit(self, rows, epoch, len(self.table.versions)),
    )


def _without_a_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = MemoryEffects._commit
    monkeypatch.setattr(
        MemoryEffects, "_commit", lambda self, rows, _, base: commit(self, rows, self.table.epoch, base)
    )


def _without_looking_at_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EffectStore, "_expect_mine", lambda _, effect, *__: effect)


def _taking_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EffectStore, "_has_expired", lambda *_: True)


def _by_the_clock_of_the_observer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        EffectStore, "_has_expired", lambda self, effect: self._monotonic() >= self._expires_seconds
    )


def _forgetting_what_was_seen_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def expired(self: EffectStore, effect: Effect) -> bool:
        now = self._monotonic()
        return now - self._seen.setdefault(effect.key, (("", 0), now))[1] >= self._expires_seconds

    monkeypatch.setattr(EffectStore, "_has_expired", expired)


def _completing_under_any_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    def expect(self: EffectStore, effect: Effect, key: str, epoch: str) -> Effect:
        del epoch
        return real(self, effect, key, effect.owner_epoch)

    real = EffectStore._expect_mine
    monkeypatch.setattr(EffectStore, "_expect_mine", expect)


@pytest.mark.parametrize(
    "slip",
    [
        _without_a_version_guard,
        _without_a_fence,
        _without_looking_at_the_token,
        _taking_over_at_once,
        _by_the_clock_of_the_observer_alone,
        _forgetting_what_was_seen_when_it_changes,
        _completing_under_any_epoch,
    ],
)
def test_every_known_slip_is_caught(slip, monkeypatch):
    slip(monkeypatch)
    assert violation(range(SCHEDULES)) is not None


def test_a_schedule_comes_back_from_its_seed():
    worlds = [World(7), World(7)]
    for world in worlds:
        world.run(STEPS)
    assert worlds[0].befell == worlds[1].befell
    assert isinstance(worlds[0].table, MemoryEffectsTable)
