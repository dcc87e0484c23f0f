"""The ledger: which files of a day a table has read, according to its commits.

Every commit of a batch names its files. The ledger collects them in one small file per day, so that a run
reads only its days, and records the commit up to which it is current. It is derived from the log alone: if it
is lost, or in another failure domain, it is rebuilt. It never contains more than the log. It contains less
while it is behind, or of commits whose log entries were cleaned up before it read them. A file is then read
again, which changes nothing, because its events are known.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.delta.log.durability import remove_durably, write_all_durably, write_durably
from etl_assets.delta.log.entries import CommitNote, commit_notes
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.sources.source_files import SourceFile

if TYPE_CHECKING:
    from etl_assets.delta.table import Table
    from etl_assets.sources.batch_plan import Marks

FILES = "files"
"""Fact of a commit: the files it read, in the form of `BatchPlan.marks`."""
_UP_TO = "up_to.json"
_WITHOUT_TABLE = 3
"""Length of a commit's identity in ledgers written before the table's id became part of it."""


class Ledger:
    """The files read by the commits of a table up to a version."""

    def __init__(self, folder: Path, table_path: Path, version: int, table_id: str) -> None:
        self._folder = folder
        self._table_path = table_path
        self._version = version
        self._table_id = table_id

    @classmethod
    def of(cls, table: Table) -> Ledger:
        """Return the ledger of a table at its newest version."""
        snapshot = table.snapshot()
        version, table_id = (-1, "") if snapshot is None else (snapshot.version, snapshot.table_id)
        return cls(table.domain.progress_path(table.name) / "ledger", table.path, version, table_id)

    def unread(self, files: Sequence[SourceFile]) -> tuple[SourceFile, ...]:
        """Return those of one day's files that no commit has read in their present state."""
        read = self._read(files[0].day) if files else {}
        return tuple(file for file in files if read.get(file.key) != [file.size, file.mtime_ns])

    def changed(self, files: Sequence[SourceFile]) -> tuple[SourceFile, ...]:
        """Return those of one day's files that were read with another size or modification time."""
        read = self._read(files[0].day) if files else {}
        now = {file.key: [file.size, file.mtime_ns] for file in files}
        return tuple(file for file in files if read.get(file.key, now[file.key]) != now[file.key])

    def keep(self) -> None:
        """Write the files of the days up to the version, durably. Safe to repeat, also after a kill."""
        news, goes_on, up_to = self._since
        if up_to is None or (goes_on and up_to == self._kept_up_to):
            return
        failpoint(Failpoint.LEDGER_BEFORE_WRITE)
        if not goes_on:
            remove_durably([self._up_to])
            remove_durably(path for path in self._folder.glob("*.json") if path.stem not in news)
        write_all_durably({self._path(day): _dump(self._read(dt.date.fromisoformat(day))) for day in news})
        write_durably(self._up_to, _dump(up_to))
        failpoint(Failpoint.LEDGER_AFTER_WRITE)

    def _read(self, day: dt.date) -> Marks:
        news, goes_on, _ = self._since
        kept = _load(self._path(day.isoformat())) if goes_on else None
        return (kept or {}) | news.get(day.isoformat(), {})

    @cached_property
    def _since(self) -> tuple[dict[str, Marks], bool, list[Any] | None]:
        """Read the commits since the ledger's files were written.

        A table that was created again, or set back to a backup, lacks the commit up to which the files were
        written. If the log begins after that commit, the table's id decides; the commits in between are in no
        log any more.

        Returns:
            The files of these commits by day, whether the ledger's files belong to this table's commits, and
            the newest commit.
        """
        news: dict[str, Marks] = {}
        newest = oldest = None
        kept_up_to = self._kept_up_to
        for note in commit_notes(self._table_path, self._version):
            oldest = self._identity(note)
            newest = newest or oldest
            if kept_up_to in (oldest, oldest[:_WITHOUT_TABLE]):
                return news, True, newest
            for day, marks in ((note.user_metadata.get("facts") or {}).get(FILES) or {}).items():
                news[day] = marks | news.get(day, {})
        is_cleaned_up = oldest is not None and kept_up_to is not None and kept_up_to[0] < oldest[0]
        return news, is_cleaned_up and kept_up_to[_WITHOUT_TABLE:] == [self._table_id], newest

    def _identity(self, note: CommitNote) -> list[Any]:
        return [*note.identity, self._table_id]

    @cached_property
    def _kept_up_to(self) -> list[Any] | None:
        return _load(self._up_to)

    @property
    def _up_to(self) -> Path:
        return self._folder / _UP_TO

    def _path(self, day: str) -> Path:
        return self._folder / f"{day}.json"


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
