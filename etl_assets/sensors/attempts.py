"""When to request a failed run again: pure decisions about attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FIRST_PAUSE_SECONDS = 30.0
MAX_PAUSE_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An earlier run for the same request: whether it has ended and succeeded, and how long ago."""

    ended: bool
    succeeded: bool
    ended_seconds_ago: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDecision:
    """Decision to request attempt `number`, or to wait (None); with the reason in words."""

    number: int | None
    reason: str


def next_attempt(newest: Sequence[Attempt], number: int) -> AttemptDecision:
    """Request a run unless one is under way or the last failure is too recent.

    Args:
        newest: The newest runs for the request, enough of them for the longest pause.
        number: Number of all runs for the request. It numbers the attempt, so it stays the same however often
            the sensor asks, and changes after a lost run.
    """
    if any(not attempt.ended for attempt in newest):
        return AttemptDecision(number=None, reason="a run for it is under way")
    failures = sum(not attempt.succeeded for attempt in newest)
    if failures:
        pause = min(FIRST_PAUSE_SECONDS * 2 ** (failures - 1), MAX_PAUSE_SECONDS)
        rest = pause - min(attempt.ended_seconds_ago for attempt in newest)
        if rest > 0:
            return AttemptDecision(
                number=None,
                reason=f"{failures} runs for it failed lately, the next one starts in {rest:.0f} s",
            )
    return AttemptDecision(number=number, reason="it has unread files")
