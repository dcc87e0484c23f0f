"""A feed: a pipeline whose source the worker follows, and how far it has got with it."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from etl_assets.pipelines.catalog import Catalog
from etl_assets.pipelines.pipeline import Pipeline
from etl_assets.sources.unread_days import WatchCursor, Watched


@dataclass(slots=True)
class Feed:
    """A pipeline whose source is followed. One thread at a time works on it; any may leave days behind.

    Attributes:
        pipeline: The pipeline.
        cursor: How far its files have been listed.
        unreadable: Errors of days whose folder could not be listed.
        left_behind: Days that are unfinished on its path.
        found: What the last look at its source found; None if it failed.
        waits: Whether the last step of its source found no slot of a connection.
    """

    pipeline: Pipeline
    cursor: WatchCursor = field(default_factory=WatchCursor)
    unreadable: Mapping[dt.date, str] = field(default_factory=dict)
    left_behind: frozenset[dt.date] = frozenset()
    found: Watched | None = None
    waits: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def __str__(self) -> str:
        return self.pipeline.name

    def leave_behind(self, days: Iterable[dt.date]) -> None:
        """Note the days that are unfinished on its path, in place of those noted before."""
        with self._lock:
            self.left_behind = frozenset(days)

    def take_left_behind(self) -> tuple[dt.date, ...]:
        """Return the days that are unfinished on its path, once."""
        with self._lock:
            left, self.left_behind = self.left_behind, frozenset()
        return tuple(sorted(left))

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the tables of its data path."""
        return tuple(stage.name for stage in self.pipeline.path)


def feeds_of(catalog: Catalog, before: Iterable[Feed] = ()) -> tuple[Feed, ...]:
    """Return the feeds of the pipelines that read a source; each goes on from where it was before.

    They are in the order of their priority, the highest first.
    """
    cursors = {feed.pipeline.name: feed.cursor for feed in before}
    return tuple(
        Feed(pipeline, cursor=cursors.get(pipeline.name, WatchCursor()))
        for pipeline in sorted(catalog.pipelines, key=lambda each: -each.priority)
        if pipeline.path
    )
