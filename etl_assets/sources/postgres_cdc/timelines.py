"""Timelines of a PostgreSQL server: which places of an earlier primary's log it has.

A promoted standby begins a new timeline where it had received the log. Up to there both have the same log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from etl_assets.sources.postgres_cdc.lsn import lsn_text, parse_lsn


@dataclass(frozen=True, slots=True, kw_only=True)
class Timelines:
    """The history of a server.

    Attributes:
        current: Number of its timeline.
        ends: Where each earlier timeline of its history ended.
    """

    current: int
    ends: Mapping[int, int]

    def lacks(self, timeline: int, lsn: int) -> str | None:
        """Return why the server lacks a place that was read on a timeline; None if it has it."""
        if timeline == self.current:
            return None
        end = self.ends.get(timeline)
        if end is None:
            return (
                f"the log was read on timeline {timeline}, which is not in the history of this server"
                f" (timeline {self.current}): it is an old primary, or another standby was promoted"
            )
        if lsn > end:
            return (
                f"a standby was promoted at {lsn_text(end)}, and lacks transactions that were read up to"
                f" {lsn_text(lsn)}"
            )
        return None


def parse_history(content: str | bytes) -> dict[int, int]:
    """Return where each timeline ended, by a history file: number, place and reason on each line."""
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    fields = (line.split(None, 2) for line in text.splitlines() if line.strip() and line[0] != "#")
    return {int(each[0]): parse_lsn(each[1]) for each in fields}
