"""What ends an error of a captured table: one table from kind of error to policy, and the pauses of attempts.

Belongs here: pure decisions, with the time passed in. Does not belong here: whether a step is repeated
(`error_policy.py`), and storing an error (`table_states.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from etl_assets.errors import EtlAssetsError


class TableRetry(StrEnum):
    """What ends an error.

    NONE: no further attempt helps, because changes are missing: the table is copied again, or left out.
    MANUAL: `etl-assets cdc rollback`, after the solution was carried out.
    TIMED: the platform tries again by itself: after a pause, or at the next discovery if that found it.
    """

    NONE = "none"
    MANUAL = "manual"
    TIMED = "timed"


class FoundBy(StrEnum):
    """What found an error."""

    DISCOVERY = "discovery"
    READER = "reader"
    STEP = "step"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableErrorRule:
    """A set of errors, what ends them, and the reason.

    Attributes:
        names: Class names of the error or of a base class.
        retry: The policy.
        why: The reason.
        found_by: What found them; None: any.
    """

    names: tuple[str, ...]
    retry: TableRetry
    why: str
    found_by: FoundBy | None = None


# The first match wins.
RULES = (
    TableErrorRule(
        names=("EtlAssetsError",),
        found_by=FoundBy.READER,
        retry=TableRetry.NONE,
        why="a change could not be kept, and the reader went on without it",
    ),
    TableErrorRule(names=("SourceLost",), retry=TableRetry.NONE, why="changes cannot be read any more"),
    TableErrorRule(
        names=("SourceRefused",),
        found_by=FoundBy.DISCOVERY,
        retry=TableRetry.TIMED,
        why="every discovery looks whether the table can be followed by now; its changes are kept",
    ),
    TableErrorRule(
        names=("SourceUnavailable",),
        retry=TableRetry.TIMED,
        why="the server may answer later, have a session left, or a lock may be given up",
    ),
    TableErrorRule(
        names=("EtlAssetsError",), retry=TableRetry.MANUAL, why="an operator must act; the error says how"
    ),
)


def retry_of(error: EtlAssetsError, found_by: FoundBy) -> TableRetry:
    """Return what ends an error."""
    names = {each.__name__ for each in type(error).__mro__}
    return next(
        each.retry for each in RULES if each.found_by in (None, found_by) and not names.isdisjoint(each.names)
    )


FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 5.0, 300.0
"""Pause after the first attempt that failed, and the longest one: each is twice as long as the last."""
HOLDS_LOG_SECONDS = 1_800.0
"""For so long a table that is tried again holds the server's log back as any other table does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """Attempts of a table in a row that failed. Times are seconds since 1970.

    Attributes:
        number: How many.
        since: When the first one failed.
        next_at: When the next one is due.
    """

    number: int
    since: float
    next_at: float

    @staticmethod
    def failed(before: Attempts | None, now: float) -> Attempts:
        """Return the attempts after one more failed. After a long time without one they begin again."""
        if before is None or now - before.next_at > 2 * MAX_PAUSE_SECONDS:
            return Attempts(number=1, since=now, next_at=now + FIRST_PAUSE_SECONDS)
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** min(before.number, 20), MAX_PAUSE_SECONDS)
        return Attempts(number=before.number + 1, since=before.since, next_at=now + pause)

    def holds_log(self, now: float) -> bool:
        """Return whether the server still keeps its log for the table."""
        return now - self.since < HOLDS_LOG_SECONDS
