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
        is_copying: Whether rows of a first copy are next, which other threads take.
        is_handed_over: Whether the last look found that a copy begins.
        rests: Whether there was nothing to do in its last turn, and its source says when there is something.
    """

    pipeline: Pipeline
    cursor: WatchCursor = field(default_factory=WatchCursor)
    unreadable: Mapping[dt.date, str] = field(default_factory=dict)
    left_behind: frozenset[dt.date] = frozenset()
    found: Watched | None = None
    waits: bool = False
    is_copying: bool = False
    is_handed_over: bool = False
    rests: bool = False
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

    def note_copy(self, is_copying: bool) -> None:
        """Note whether rows of a first copy are next."""
        self.is_handed_over, self.is_copying = is_copying and not self.is_copying, is_copying

    @property
    def says_when(self) -> bool:
        """Whether its source says when there is something again, after a look that found nothing."""
        found = self.found
        if found is None or found.unreadable or found.left:
            return False
        return found.lag is not None and found.lag.is_same is not None

    @property
    def has_news(self) -> bool:
        """Whether a feed that rests may have something to do by now.

        Raises:
            EtlAssetsError, OSError: the source cannot be looked at now.
        """
        lag = None if self.found is None else self.found.lag
        return bool(self.left_behind) or lag is None or lag.is_same is None or not lag.is_same()

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


def feed_with(feeds: Iterable[Feed], table: str) -> Feed | None:
    """Return the feed whose path has a table."""
    return next((feed for feed in feeds if table in feed.path), None)


def entry_of(feeds: Iterable[Feed], table: str) -> str:
    """Return the table under which days back off: that at which they enter the path, or the table."""
    return table if (feed := feed_with(feeds, table)) is None else feed.path[0]
