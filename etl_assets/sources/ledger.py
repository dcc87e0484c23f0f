"""The ledger: which files of a day a table has read, as its commits tell.

Every commit of a batch names its files. The ledger gathers them in one small file for each day, so that a run looks at its
days only, and remembers the commit up to which it has done so. It is made from the log alone: lost, or in another failure
domain, it is made again. It never says more than the log, and less only while it has not been brought up to date, or of
commits whose log entries were cleaned up before it saw them: then a file is read again, which changes nothing, because its
events are known.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.delta.durability import remove_durably, write_all_durably, write_durably
from etl_assets.delta.log import CommitNote, commit_notes
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.sources.landing import SourceFile

if TYPE_CHECKING:
    from etl_assets.delta.table import Table
    from etl_assets.sources.batch_plan import Marks

FILES = "files"
"""Fact of a commit: the files it read, as `BatchPlan.marks` has them."""
_UP_TO = "up_to.json"
_WITHOUT_TABLE = 3
"""So much of what a commit is known by was kept before the table's id was."""


class Ledger:
    """The files read by the commits of a table up to a version."""

    def __init__(self, folder: Path, table_path: Path, version: int, table_id: str) -> None:
        self._folder = folder
        self._table_path = table_path
        self._version = version
        self._table_id = table_id

    @classmethod
    def of(cls, table: Table) -> Ledger:
        """The ledger of a table as it is now."""
        snapshot = table.snapshot()
        version, table_id = (-1, "") if snapshot is None else (snapshot.version, snapshot.table_id)
        return cls(table.domain.progress_path(table.name) / "ledger", table.path, version, table_id)

    def unread(self, files: Sequence[SourceFile]) -> tuple[SourceFile, ...]:
        """Those of one day's files that no commit has read as they are now."""
        read = self._read(files[0].day) if files else {}
        return tuple(file for file in files if read.get(file.key) != [file.size, file.mtime_ns])

    def changed(self, files: Sequence[SourceFile]) -> tuple[SourceFile, ...]:
        """Those of one day's files that were read when they had another size or time."""
        read = self._read(files[0].day) if files else {}
        now = {file.key: [file.size, file.mtime_ns] for file in files}
        return tuple(file for file in files if read.get(file.key, now[file.key]) != now[file.key])

    def keep(self) -> None:
        """Bring the files of the days up to the version, durably. Killed or done twice, it is only done again."""
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
        """What commits tell that the kept days lack, whether these are of this table's commits, and the newest commit.

        A table made anew, or set back to a backup, does not have the commit up to which the days were kept. Where the log
        begins later than that commit, the table's id tells; the commits in between are not in the log for anybody.
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
