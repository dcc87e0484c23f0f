"""What was landed and handed in, in what order: what must be in the tables, in plain Python.

Two lines of one event id that arrive in one *epoch* (between two moments at which everything was read) may be
met in either order, unless all that happened in it was one undisturbed run: then the order is that of days,
names and lines. Belongs here: the model. Does not belong here: reading tables and comparing them
(`comparison.py`).
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from etl_assets_tests.campaign.files import LandingFile
from etl_assets_tests.campaign.judge import Event, Refusal, judge_line

LANDING, REPLAYS = "landing", "dead_letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A line that ingest meets.

    Attributes:
        source: The landing folder, or dead letters handed in again.
        position: `<day>/<file>:<line>`.
        day: The day of its folder.
        order: Its place among all that are read at once.
        epoch: Between which moments it came.
        line: Its bytes.
        judged: What it is by itself.
        attempt: Which one of its dead letter it is.
        versions: How many lines this position has had so far, for a file that was changed after it was read.
    """

    source: str
    position: str
    day: dt.date
    order: tuple[str, str, str, int]
    epoch: int
    line: bytes
    judged: Event | Refusal
    attempt: int = 1
    versions: int = 1

    @property
    def content(self) -> tuple[str, str] | bytes:
        """What tells it from another line at the same position."""
        judged = self.judged
        return (judged.event_id, judged.fingerprint) if isinstance(judged, Event) else self.line


@dataclass(slots=True, kw_only=True)
class DeadLetter:
    """A dead letter that an operator has dealt with, as it must be now."""

    state: str
    attempts: int | None
    reasons: frozenset[str] | None = None


@dataclass(slots=True)
class Reference:
    """Everything that was given to a platform."""

    epoch: int = 0
    unordered: set[int] = field(default_factory=set)
    undone: bool = False
    """Whether an undo has taken rows away, so that offsets of normalized_orders have gaps."""
    files: dict[tuple[str, str], LandingFile] = field(default_factory=dict)
    """The files that are in the landing folder."""
    arrivals: dict[tuple[str, str], list[Arrival]] = field(default_factory=lambda: defaultdict(list))
    """All lines ever, by source and position."""
    payloads: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    """Corrected payloads by event id; None where it was handed in as it came."""
    letters: dict[str, DeadLetter] = field(default_factory=dict)
    """Dead letters that are not as their stage left them, by id."""

    def land(self, file: LandingFile) -> None:
        """A file was landed, or was changed after it had been read."""
        self.files[file.day, file.name] = file
        for number, line in enumerate(file.lines, 1):
            order = (file.day, LANDING, file.name, number)
            self._arrive(f"{file.day}/{file.name}:{number}", dt.date.fromisoformat(file.day), order, line)

    def hand_in(self, letter_id: str, day: dt.date, attempt: int, record: bytes) -> Arrival:
        """A dead letter of ingest was handed in again."""
        name = f"{letter_id}.{attempt}.jsonl"
        position = f"{day}/{name}:1"
        self._arrive(position, day, (day.isoformat(), REPLAYS, name, 1), record.strip(), attempt)
        return self.arrivals[REPLAYS, position][-1]

    def next_epoch(self) -> None:
        """Everything that has come was read."""
        self.epoch += 1

    def disturbed(self) -> None:
        """Lines of this epoch may be met in any order."""
        self.unordered.add(self.epoch)

    def all_arrivals(self) -> Iterator[Arrival]:
        for versions in self.arrivals.values():
            yield from versions

    def by_event(self) -> dict[str, list[Arrival]]:
        """The lines that are events, by id."""
        found: dict[str, list[Arrival]] = defaultdict(list)
        for arrival in self.all_arrivals():
            if isinstance(arrival.judged, Event):
                found[arrival.judged.event_id].append(arrival)
        return found

    def first(self, group: Iterable[Arrival]) -> list[Arrival]:
        """Which lines of one event id may be the one that was accepted."""
        group = list(group)
        epoch = min(arrival.epoch for arrival in group)
        earliest = [arrival for arrival in group if arrival.epoch == epoch]
        return earliest if epoch in self.unordered else [min(earliest, key=lambda arrival: arrival.order)]

    def _arrive(
        self, position: str, day: dt.date, order: tuple[str, str, str, int], line: bytes, attempt: int = 1
    ) -> None:
        if (judged := judge_line(line, day)) is None:
            return
        there = self.arrivals[order[1], position]
        arrival = Arrival(
            source=order[1],
            position=position,
            day=day,
            order=order,
            epoch=self.epoch,
            line=line,
            judged=judged,
            attempt=attempt,
            versions=len(there) + 1,
        )
        if arrival.content not in [each.content for each in there]:
            there.append(arrival)
