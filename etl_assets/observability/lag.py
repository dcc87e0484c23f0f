"""How long a replica has been behind, as one observer saw it. Pure: versions and times in, seconds out.

Neither another machine's clock nor a commit's timestamp is used. The observer notes which acknowledged
version it saw first, and when, on its own monotonic clock; later it checks whether the replica has that
version. Time that was not observed does not count, so a reported lag is never longer than the real one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """A replica that lacked something when it was observed.

    Attributes:
        version: The acknowledged version at that time.
        since: Time of that observation, in seconds of the observer's clock.
    """

    version: int
    since: float

    def seconds(self, now: float) -> float:
        """Return for how long the replica has lacked that version or an earlier one."""
        return max(0.0, now - self.since)


def still_behind(
    before: Mapping[str, Behind], version: int, behind: Mapping[str, int | None], now: float
) -> dict[str, Behind]:
    """Return which replicas of a table are behind now, and since when.

    Args:
        before: Result of the previous observation, by domain.
        version: The acknowledged version now.
        behind: Number of acknowledged versions that each replica lacks; None if it does not answer.
        now: Time of this observation.
    """
    found: dict[str, Behind] = {}
    for domain, lacks in behind.items():
        noted = before.get(domain)
        if lacks == 0:
            continue
        caught_up = noted is not None and lacks is not None and version - lacks >= noted.version
        found[domain] = Behind(version=version, since=now) if noted is None or caught_up else noted
    return found
