"""For how long a replica has been behind, as one observer saw it. Pure: versions and times in, seconds out.

No clock of another machine is asked, and nothing that a commit says of its time: the observer notes which acknowledged version
it saw first and when, on its own monotonic clock, and looks whether the replica has it by now. What it did not see it does not
count, so that a lag is never told longer than it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """A replica that lacked something when it was looked at.

    Attributes:
        version: The acknowledged version at that time.
        since: When that was, in seconds of the observer's clock.
    """

    version: int
    since: float

    def seconds(self, now: float) -> float:
        """For how long it has lacked that version, or something before it."""
        return max(0.0, now - self.since)


def still_behind(
    before: Mapping[str, Behind], version: int, behind: Mapping[str, int | None], now: float
) -> dict[str, Behind]:
    """Which replicas of a table are behind now, and since when.

    Args:
        before: What the last look found, by domain.
        version: The acknowledged version now.
        behind: How many acknowledged versions each replica lacks; None where it does not answer.
        now: The time of this look.
    """
    found: dict[str, Behind] = {}
    for domain, lacks in behind.items():
        noted = before.get(domain)
        if lacks == 0:
            continue
        caught_up = noted is not None and lacks is not None and version - lacks >= noted.version
        found[domain] = Behind(version=version, since=now) if noted is None or caught_up else noted
    return found
