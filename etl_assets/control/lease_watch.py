"""Which leases have expired, by what this process has seen: no clock of another machine is trusted.

A lease lives as long as its beats change. It has expired when they have not for its whole length, measured by
this process's own monotonic clock. So a clock that is set back or forward ends no lease and keeps none alive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from etl_assets.control.records import HeldLease


@dataclass(slots=True)
class LeaseWatch:
    """Beats by pipeline, each with the monotonic time at which it was first seen."""

    _seen: dict[str, tuple[int, int, float]] = field(default_factory=dict)

    def expired(self, leases: Iterable[HeldLease], now: float) -> tuple[HeldLease, ...]:
        """Return the leases whose beats have not changed for longer than they last.

        Args:
            leases: All leases of the store as they are now.
            now: Monotonic seconds.
        """
        seen, expired = {}, []
        for lease in leases:
            token, beats, since = self._seen.get(lease.pipeline, (lease.token, lease.beats, now))
            if (token, beats) != (lease.token, lease.beats):
                since = now
            seen[lease.pipeline] = (lease.token, lease.beats, since)
            if now - since > lease.lease_seconds:
                expired.append(lease)
        self._seen = seen
        return tuple(expired)
