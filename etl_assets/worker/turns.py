"""Turns: which pipelines the worker's threads work on, and which one is next.

Belongs here: that choice. Does not belong here: the work of a turn (`worker.py`), and errors in it
(`failed_work.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from etl_assets.errors import EtlAssetsError
from etl_assets.steps.step import logger
from etl_assets.worker.feed import Feed

LOOKUP_WAIT_SECONDS = 10.0
"""How long a turn of a pipeline holds back those that look values up in its tables."""
REST_SECONDS = 300.0
"""How long a pipeline rests whose source says when there is something new: then it is looked at anyway.

What ends its rest is asked once for all pipelines (`rest_watch.py`); a look at each costs much more.
"""
LONG_SECONDS = 900.0
"""A turn that takes longer is reported once."""
_IDLE_SECONDS = 1.0
"""How long a thread without work waits before it asks again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTurns:
    """The turns of a pipeline.

    Attributes:
        name: The pipeline.
        priority: The higher, the sooner in each round.
        looks_up: Pipelines in whose tables it looks values up.
        round: The round that its next turn belongs to. Each pipeline has one turn in a round.
        began: Begin of its last turn; negative infinity before the first one.
        due_at: Begin of its next turn, at the earliest.
    """

    name: str
    priority: int = 0
    looks_up: frozenset[str] = frozenset()
    round: int = 0
    began: float = float("-inf")
    due_at: float = float("-inf")


def next_turn(
    waiting: Iterable[PipelineTurns], now: float, *, held_back_by: Collection[str] = frozenset()
) -> PipelineTurns | None:
    """Return the pipeline whose turn is next; None if none is due.

    Within a round the highest priority comes first, then the one that was served longest ago. The round
    comes before both: a pipeline with a high priority and much to do does not keep the others waiting.

    Args:
        waiting: The pipelines that no thread works on.
        now: The time.
        held_back_by: Pipelines whose turn holds those back that look values up in their tables.
    """
    due = (each for each in waiting if each.due_at <= now and each.looks_up.isdisjoint(held_back_by))
    return min(due, key=lambda each: (each.round, -each.priority, each.began), default=None)


def thread_names(parallel: int, copies: int) -> dict[str, bool]:
    """Return the names of the threads that take turns, and whether each takes those of copies."""
    paths = ("path", *(f"path {number}" for number in range(1, parallel)))  # the first has the main session
    return dict.fromkeys(paths, False) | {f"copy {number}": True for number in range(copies)}


class Turns:
    """Give pipelines to threads, one turn after another. Each pipeline has one thread at a time.

    Args:
        interval_seconds: From the begin of a pipeline's turn to that of its next one, at least.
        clock: Returns seconds that only rise.
    """

    def __init__(self, *, interval_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval, self._clock = interval_seconds, clock
        self._feeds: Mapping[str, Feed] = {}
        self._turns: dict[str, PipelineTurns] = {}
        self._busy: dict[str, float] = {}
        self._woken: set[str] = set()
        self._reported: set[str] = set()
        self._round = 0
        self._is_over = False
        self._changed = threading.Condition()

    def follow(self, feeds: Iterable[Feed], looks_up: Callable[[str], frozenset[str]]) -> None:
        """Give turns to some pipelines from now on, and to no others.

        A pipeline that a thread works on gets its next turn once that one has ended. Those that rest are
        looked at: their declaration may be another one.
        """
        with self._changed:
            latest = self._clock() + self._interval
            self._feeds = {feed.pipeline.name: feed for feed in feeds}
            before = {
                name: self._turns.get(name) or PipelineTurns(name=name, round=self._round)
                for name in self._feeds
            }
            self._turns = {
                name: replace(
                    before[name],
                    priority=feed.pipeline.priority,
                    looks_up=looks_up(name),
                    due_at=min(before[name].due_at, latest),
                )
                for name, feed in self._feeds.items()
            }
            self._changed.notify_all()

    def take(self, *, copies: bool = False) -> Feed | None:
        """Return the pipeline whose turn is next, once there is one. Call `done` after its turn.

        Args:
            copies: Whether it is one of those whose first copy is under way, or one of the others.

        Returns:
            None after a while without one, so that the caller can look at other things, and after `end`.
        """
        with self._changed:
            if not self._is_over and self._choose(copies) is None:
                self._changed.wait(self._seconds_to_next(copies))
            if self._is_over or (chosen := self._choose(copies)) is None:
                return None
            now = self._clock()
            self._round = max(self._round, chosen.round)
            self._turns[chosen.name] = replace(
                chosen, round=self._round + 1, began=now, due_at=now + self._interval
            )
            self._busy[chosen.name] = now
            feed = self._feeds[chosen.name]
            feed.rests = feed.is_handed_over = False
            return feed

    def done(self, name: str) -> None:
        """End the turn of a pipeline. If it rests, its next one begins after `wake`, or `REST_SECONDS`."""
        with self._changed:
            del self._busy[name]
            if (feed := self._feeds.get(name)) is not None:
                now = self._clock()
                feed.rests &= name not in self._woken
                if feed.rests:
                    self._turns[name] = replace(self._turns[name], due_at=now + REST_SECONDS)
                elif feed.is_handed_over:
                    self._turns[name] = replace(self._turns[name], due_at=now)
            self._woken.discard(name)
            self._reported.discard(name)
            self._changed.notify_all()

    def wake_up(self) -> None:
        """Wake the pipelines that rest and whose source may have something by now."""
        found = []
        for feed in self.resting():
            try:
                if feed.has_news:
                    found.append(feed.pipeline.name)
            except (EtlAssetsError, OSError):
                found.append(feed.pipeline.name)  # its turn says what it is
        if found:
            self.wake(found)

    def resting(self) -> list[Feed]:
        """Return the pipelines that rest."""
        with self._changed:
            return [feed for name, feed in self._feeds.items() if feed.rests and name not in self._busy]

    def wake(self, names: Iterable[str]) -> None:
        """Let the next turns of some pipelines begin now. One that has a turn does not rest after it."""
        with self._changed:
            now = self._clock()
            for name in names:
                if name in self._busy:
                    self._woken.add(name)
                if name in self._turns and self._turns[name].due_at > now:
                    self._turns[name] = replace(self._turns[name], due_at=now)
            self._changed.notify_all()

    def wake_all(self) -> None:
        """Wake all pipelines that rest, and let none rest after a turn that has begun."""
        with self._changed:
            names = [name for name, feed in self._feeds.items() if feed.rests or name in self._busy]
        self.wake(names)

    def end(self) -> None:
        """Give no more turns."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    @property
    def under_way(self) -> int:
        """Number of turns that have begun and not ended."""
        with self._changed:
            return len(self._busy)

    def report_long_ones(self) -> None:
        """Log each turn that takes long, once."""
        with self._changed:
            now = self._clock()
            for name in self._busy.keys() - self._reported:
                if (seconds := now - self._busy[name]) >= LONG_SECONDS:
                    self._reported.add(name)
                    logger.warning("%s: a micro-batch has been under way for %.0f s", name, seconds)

    def _choose(self, copies: bool) -> PipelineTurns | None:
        now = self._clock()
        recent = {name for name, began in self._busy.items() if now - began < LOOKUP_WAIT_SECONDS}
        return next_turn(self._waiting(copies), now, held_back_by=recent)

    def _waiting(self, copies: bool) -> Iterator[PipelineTurns]:
        """Yield the pipelines that no thread works on, of those that are copied or of the others."""
        for name, each in self._turns.items():
            if name not in self._busy and self._feeds[name].is_copying is copies:
                yield each

    def _seconds_to_next(self, copies: bool) -> float:
        """Return how long to wait, if no turn ends before."""
        now = self._clock()
        due = (each.due_at - now for each in self._waiting(copies))
        return min([each for each in due if each > 0] + [_IDLE_SECONDS])
