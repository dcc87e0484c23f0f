"""What was seen of a failure domain lately, and what follows from it. Pure: sightings and times in, states out.

Does not belong here: how a domain is looked at (`probes.py`), and where what was seen is kept (`observations.py`). Times are
seconds of the machine's monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

FAILURES_TO_UNAVAILABLE = 3
SUCCESSES_TO_RETURN = 3
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 60.0
BELIEVED_SECONDS = 60.0
"""How long after the next probe was due a domain is still taken for unavailable; then nobody is watching any more."""
SLOW_SHARE = 0.2
"""A probe is slow that takes this share of its time limit."""


class HealthState(StrEnum):
    """What the last sightings of a domain say.

    HEALTHY: it answers.
    DEGRADED: it answers slowly, or failed lately, but not often enough in a row to be given up.
    UNAVAILABLE: it hung, or failed several times in a row, and has not answered several times in a row since.
    """

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """One look at a domain.

    Attributes:
        began, ended: When.
        problem: What was wrong, None if nothing.
        hangs: The problem is that it answered nothing at all within the time limit. That is not a hiccup.
        slow: It answered slowly.
    """

    began: float
    ended: float
    problem: str | None = None
    hangs: bool = False
    slow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health of a domain.

    Attributes:
        state: Healthy, degraded or unavailable.
        why: What made it so; None for a healthy domain.
        failures: Failures in a row up to the last sighting.
        successes: Successes in a row up to the last sighting, while it is not healthy.
        seen_at: When the last sighting ended; 0 if there was none.
        next_probe: It is not probed before.
    """

    state: HealthState = HealthState.HEALTHY
    why: str | None = None
    failures: int = 0
    successes: int = 0
    seen_at: float = 0.0
    next_probe: float = 0.0

    @property
    def problem(self) -> str | None:
        """Why nothing may be placed there, None if something may."""
        if self.failures:
            return self.why
        if self.state is HealthState.UNAVAILABLE:
            return f"{self.why}; it answers again, {self.successes} of {SUCCESSES_TO_RETURN} times in a row"
        return None

    def is_due(self, now: float) -> bool:
        """Whether it may be probed. A domain that answers always may."""
        return now >= self.next_probe

    def shut(self, now: float) -> str | None:
        """Why the domain is not to be asked anything now, None if it may be asked."""
        gone = self.state is HealthState.UNAVAILABLE and self.failures > 0
        return self.why if gone and now < self.next_probe + BELIEVED_SECONDS else None

    def claimed(self, until: float) -> Health:
        """The same, with the next probe left to whoever claimed it."""
        return replace(self, next_probe=until)

    def after(self, sighting: ProbeResult) -> Health:
        """The health with one more sighting. One that began before the last one ended tells nothing new."""
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
