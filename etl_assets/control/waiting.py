"""Whether a wait is over, by a clock that may have been set back."""

from __future__ import annotations

import datetime as dt


def is_due(until: dt.datetime | None, now: dt.datetime, longest_seconds: float) -> bool:
    """Return whether a wait until a time is over.

    One that ends later than any wait can was begun before the clock was set back, and is over.
    """
    return until is None or until <= now or until > now + dt.timedelta(seconds=longest_seconds)
