"""How far a required sink may be behind its table before its pipeline's source is paused. Pure."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LagLimit:
    """A limit of rows, of seconds, or of both, of which the first that is exceeded counts.

    Attributes:
        rows: Most rows that the sink may lack; None: any number.
        seconds: Greatest age of the oldest commit that it lacks; None: any age.
    """

    rows: int | None = None
    seconds: float | None = None

    def is_exceeded(self, rows: int, seconds: float | None) -> bool:
        """Return whether a lag is over the limit. An age that is not known is over no limit."""
        too_many = self.rows is not None and rows > self.rows
        return too_many or (self.seconds is not None and seconds is not None and seconds > self.seconds)

    def __str__(self) -> str:
        rows = () if self.rows is None else (f"{self.rows:,} rows",)
        age = () if self.seconds is None else (str(dt.timedelta(seconds=self.seconds)),)
        return " and ".join((*rows, *age))
