"""Health of a failure domain, as a pure function of probe results and times.

Does not belong here: how a domain is probed (`probes.py`), and where its health is stored
(`observations.py`). All times are seconds of this machine's monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

FAILURES_TO_UNAVAILABLE = 3
SUCCESSES_TO_RETURN = 3
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 60.0
BELIEVED_SECONDS = 60.0
"""How long after a missed probe a domain still counts as unavailable. Later no process seems to probe it."""
SLOW_SHARE = 0.2
"""A probe that takes more than this share of its time limit is slow."""


class HealthState(StrEnum):
    """State of a domain according to its last probe results.

    HEALTHY: the domain answers.
    DEGRADED: it answers slowly, or has failed lately, but fewer than `FAILURES_TO_UNAVAILABLE` times in a
    row.
    UNAVAILABLE: it hung, or failed that many times in a row.

    A degraded or unavailable domain is healthy again after `SUCCESSES_TO_RETURN` answers in a row.
    """

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """Result of one check of a domain.

    Attributes:
        began: When the check began.
        ended: When the check ended.
        problem: What was wrong, or None.
        hangs: Whether the root answered nothing at all within the time limit. One such result makes a domain
            unavailable.
        slow: Whether it answered slowly.
    """

    began: float
    ended: float
    problem: str | None = None
    hangs: bool = False
    slow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Health of a domain.

    Attributes:
        state: Healthy, degraded or unavailable.
        why: The reason for that state; None for a healthy domain.
        failures: Number of failures in a row, up to the last result.
        successes: Number of successes in a row, up to the last result, while the domain is not healthy.
        seen_at: When the last check ended; 0 if there was none.
        next_probe: The domain is not probed before this time.
    """

    state: HealthState = HealthState.HEALTHY
    why: str | None = None
    failures: int = 0
    successes: int = 0
    seen_at: float = 0.0
    next_probe: float = 0.0

    @property
    def problem(self) -> str | None:
        """Why no stage may be placed in the domain, or None if one may."""
        if self.failures:
            return self.why
        if self.state is HealthState.UNAVAILABLE:
            return f"{self.why}; it answers again, {self.successes} of {SUCCESSES_TO_RETURN} times in a row"
        return None

    def is_due(self, now: float) -> bool:
        """Return whether a probe is due. It always is for a domain that answers and is not unavailable."""
        return now >= self.next_probe

    def shut(self, now: float) -> str | None:
        """Return why the domain must not be asked anything now, or None if it may be asked."""
        gone = self.state is HealthState.UNAVAILABLE and self.failures > 0
        return self.why if gone and now < self.next_probe + BELIEVED_SECONDS else None

    def claimed(self, until: float) -> Health:
        """Return this health with no probe before `until`, as one process has claimed the next probe."""
        return replace(self, next_probe=until)

    def after(self, sighting: ProbeResult) -> Health:
        """Return the health after one more result, ignoring a check that began before the last one ended."""
        if sighting.began < self.seen_at:
            return self
        seen = replace(self, seen_at=sighting.ended)
        return seen._failed(sighting) if sighting.problem is not None else seen._answered(sighting)

    def _failed(self, sighting: ProbeResult) -> Health:
        failures = self.failures + 1
        gone = sighting.hangs or self.state is HealthState.UNAVAILABLE or failures >= FAILURES_TO_UNAVAILABLE
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 30), MAX_PAUSE_SECONDS)
        return replace(
            self,
            state=HealthState.UNAVAILABLE if gone else HealthState.DEGRADED,
            why=sighting.problem,
            failures=failures,
            successes=0,
            next_probe=sighting.ended + pause,
        )

    def _answered(self, sighting: ProbeResult) -> Health:
        slow = "it answers slowly" if sighting.slow else None
        if self.state is not HealthState.UNAVAILABLE and slow is not None:
            return Health(state=HealthState.DEGRADED, why=slow, seen_at=sighting.ended)
        successes = self.successes + 1
        if self.state is HealthState.HEALTHY or successes >= SUCCESSES_TO_RETURN:
            state = HealthState.HEALTHY if slow is None else HealthState.DEGRADED
            return Health(state=state, why=slow, seen_at=sighting.ended)
        pause = FIRST_PAUSE_SECONDS if self.state is HealthState.UNAVAILABLE else 0.0
        return replace(self, failures=0, successes=successes, next_probe=sighting.ended + pause)
