"""The history of a record, and its entries, which any pipeline has. Pure: rows in, entries out.

Belongs here: what every history can be asked, and entries built from the tables that pipelines have in
common. Does not belong here: finding the rows (`record_history.py`, and the pipelines' own modules).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from etl_assets.contracts.reasons import Outcome
from etl_assets.delta.log.entries import UNDO, CommitNote
from etl_assets.sources.landing import LANDING, REPLAYS
from etl_assets.sources.replays import INGEST, replay_of

if TYPE_CHECKING:
    from etl_assets.observability.dead_letters import DeadLetter

HANDED_IN = "handed in"
TAKEN_BACK = "taken back"
DELIVERED = "delivered"
_IN_ONE_INSTANT = (
    HANDED_IN,
    Outcome.ACCEPTED,
    Outcome.REPLAYED,
    Outcome.DUPLICATE,
    Outcome.CONFLICT,
    Outcome.REJECTED,
    Outcome.NORMALIZED,
    Outcome.COMMITTED,
    DELIVERED,
    TAKEN_BACK,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFolders:
    """Folders of the sources that consist of files, by source name.

    Attributes:
        by_source: The folders.
        without_days: The sources whose files lie in the folder itself, and not in one for each day.
    """

    by_source: Mapping[str, Path | str]
    without_days: frozenset[str] = frozenset()

    @classmethod
    def of(cls, landing: Path, replays: Path) -> SourceFolders:
        """Return the landing folder and the folder of dead letters submitted to ingest again."""
        return cls(by_source={LANDING: landing, REPLAYS: replays})

    def file_and_line(self, source: str, position: str) -> tuple[str | None, int | None]:
        """Return the file and line of a source position; (None, None) for a source without files."""
        file, _, line = position.rpartition(":")
        if source not in self.by_source or not file or not line.isdigit():
            return None, None
        if source in self.without_days:
            file = file.partition("/")[2]
        return f"{self.by_source[source]}/{file}", int(line)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One entry in the history of a record.

    Attributes:
        at: Time by the platform's clock (UTC); None if it is no longer known.
        stage: Name of the stage.
        outcome: One of `contracts.reasons.Outcome`; `handed in` for a replay of a dead letter; `taken back`
            for an undo of the record's day; `delivered` for a delivery to a sink.
        position: Input of the stage: the source position at ingest, the version of the row's table at a sink,
            else the offset in its input table.
        table: Table that holds the entry; None for a submitted replay.
        offset: Offset of the resulting row in `table`; of the accepted record for a duplicate or conflict.
        file: Source file; None if the stage reads a table.
        line: Line in that file, from 1.
        reason: Reason of a rejection.
        error: Details of a rejection; for an undo, the request; for a delivery, the version it had.
        attempt: 1 plus the number of replays.
        domain: Failure domain in which the stage ran.
        audited: Whether the pipeline's audit has the entry by now; None for entries that it never holds.
    """

    at: dt.datetime | None
    stage: str
    outcome: str
    position: str
    table: str | None = None
    offset: int | None = None
    file: str | None = None
    line: int | None = None
    reason: str | None = None
    error: str | None = None
    attempt: int = 1
    domain: str | None = None
    audited: bool | None = None

    @property
    def audit_key(self) -> tuple[str, str, str]:
        """Key of the entry in an audit."""
        return self.stage, self.position, self.outcome

    def order(self, otherwise: dt.datetime) -> tuple[dt.datetime, int, int]:
        """Return the sort key that puts entries in order of time.

        Entries of one batch have the same time; attempt and outcome order them.

        Args:
            otherwise: Time to assume for an entry of unknown time.
        """
        return self.at or otherwise, self.attempt, _IN_ONE_INSTANT.index(self.outcome)

    def as_json(self) -> dict[str, Any]:
        """Return the entry as a JSON object."""
        return {**dataclasses.asdict(self), "at": None if self.at is None else self.at.isoformat()}


class History(Protocol):
    """The history of a record."""

    @property
    def happenings(self) -> tuple[HistoryEntry, ...]:
        """History entries, in order of time."""
        ...

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Stages that have yet to process the record."""
        ...

    @property
    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """Its dead letters."""
        ...

    def head(self) -> Iterator[str]:
        """Yield lines for people that say what the record is and where it came from."""
        ...

    def foot(self) -> Iterator[str]:
        """Yield lines for people that say what has become of it."""
        ...

    def as_json(self) -> dict[str, Any]:
        """Return the history as a JSON object."""
        ...


def excepted(
    row: Mapping[str, Any], table: str, folders: SourceFolders, *, ingest: str = INGEST
) -> HistoryEntry:
    """Build the entry from a row of an exceptions table.

    Args:
        row: The row.
        table: Name of the exceptions table.
        folders: Folders of the sources.
        ingest: Name of the stage that reads the source.
    """
    at_ingest = row["stage"] == ingest
    again = row["source"] == REPLAYS
    file, line = folders.file_and_line(row["source"], row["source_position"]) if at_ingest else (None, None)
    return HistoryEntry(
        at=row["failed_at"],
        stage=row["stage"],
        outcome=row["outcome"],
        position=row["source_position"] if at_ingest else str(row["original_offset"]),
        table=table,
        offset=row["original_offset"],
        file=file,
        line=line,
        reason=row["reason"],
        error=row["error"],
        attempt=replay_of(row["source_position"])[1] if again else 1,
        domain=row["domain"],
    )


def handed_in(stage: str, file: Path) -> HistoryEntry:
    """Build the entry from a file of the replays."""
    position = f"{file.parent.name}/{file.name}:1"
    return HistoryEntry(
        at=dt.datetime.fromtimestamp(file.stat().st_mtime, dt.UTC),
        stage=stage,
        outcome=HANDED_IN,
        position=position,
        file=str(file),
        line=1,
        attempt=replay_of(position)[1],
    )


def taken_back(note: CommitNote, table: str, stage: str, position: str) -> HistoryEntry:
    """Build the entry from the commit of an undo, which names the request."""
    undo = note.user_metadata.get(UNDO) or {}
    return HistoryEntry(
        at=note.at,
        stage=stage,
        outcome=TAKEN_BACK,
        position=position,
        table=table,
        error=f"by {undo.get('kind', 'an undo')} of {undo.get('table') or table}, version {note.version}",
    )


def shown_time(at: dt.datetime | None) -> str:
    """Return a time for people."""
    return "not known" if at is None else at.strftime("%Y-%m-%d %H:%M:%S")
