"""An index of the days that a key may be in, stored beside a table and derived from the table alone.

File statistics find keys that rise with time. Random keys may be anywhere: a search for them would open a
file of every day. The index looks up any number of keys by a binary search in hashes of 12 bytes a key.

The index is extended from the log entries up to the version asked for. It is rebuilt if it is lost, broken,
or of another table. It is also rebuilt if it contains commits that the table lost when it was set back to a
backup. It may name a day too many, and omits none.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import logging
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etl_assets.delta.log.entries import commit_notes, latest_version, read_entry
from etl_assets.delta.log.gate import Access, expect
from etl_assets.delta.log.partition_values import as_text, day_of
from etl_assets.delta.read.rows import DAY_COLUMN
from etl_assets.delta.read.sorted_runs import Days, Hashes, SortedRuns, Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.delta.table import Table

FORMAT = 1
_PIECE = 1 << 21
"""Number of keys sorted at once while the index is built."""
_EPOCH_DAY = dt.date(1970, 1, 1)
logger = logging.getLogger("etl_assets")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundKeys:
    """Keys that a table may have: it may name one too many, and omits none.

    Attributes:
        days: The days that any of them may be in, sorted.
        hashes: Their hashes, sorted, each once.
    """

    days: list[dt.date]
    hashes: Hashes


class KeyIndex:
    """Index of one text column, of a table with a partition for each day."""

    def __init__(self, table: Table, column: str) -> None:
        self._table = table
        self._column = column
        self._folder = table.domain.index_path(table.name) / column

    def find(self, hashes: Hashes, version: int) -> FoundKeys:
        """Return which of some keys a table's version may have.

        Args:
            hashes: `hashes_of` the keys.
            version: A version of the table, not below -1.
        """
        if version < 0 or not len(hashes):
            return FoundKeys(days=[], hashes=np.empty(0, dtype=np.uint64))
        with self._alone():
            try:
                days, found = self._up_to(version, rebuild=False).find(hashes)
            except Unreadable:
                logger.warning("the index of %s.%s is broken and is rebuilt", self._table.name, self._column)
                days, found = self._up_to(version, rebuild=True).find(hashes)
        return FoundKeys(days=sorted(_EPOCH_DAY + dt.timedelta(days=day) for day in days), hashes=found)

    def _up_to(self, version: int, *, rebuild: bool) -> SortedRuns:
        """Return the index of a version or a later one; `rebuild` discards what is there."""
        snapshot = self._table.snapshot(version)
        if snapshot is None:
            return SortedRuns(self._folder, (), {})
        expect(self._table.name, snapshot, Access.INDEX)
        mark: dict[str, Any] = {"format": FORMAT, "table": snapshot.table_id}
        index = None if rebuild else SortedRuns.load(self._folder)
        if (
            index is not None
            and {name: index.mark.get(name) for name in mark} == mark
            and self._has_commit_of(index.mark)
        ):
            if index.mark["version"] >= version:
                return index
            # If log entries were cleaned up or files vacuumed since, the whole table is read again.
            with suppress(FileNotFoundError):
                files = list(self._added(index.mark["version"] + 1, version))
                return self._extended(index, files, mark | self._commit_at(version))
        logger.info("%s: the index of %s is made from the whole table", self._table.name, self._column)
        empty = SortedRuns(self._folder, (), {})
        name = self._table.name
        files = [(path, day_of(as_text(day), table=name)) for path, day, _ in snapshot.files_by_day()]
        return self._extended(empty, files, mark | self._commit_at(version))

    def _commit_at(self, version: int) -> dict[str, Any]:
        """Return the part of a mark that identifies the commit up to which its index was built."""
        note = next(commit_notes(self._table.path, version), None)
        return {"version": version, "commit": None if note is None else note.identity}

    def _has_commit_of(self, mark: Mapping[str, Any]) -> bool:
        """Return whether the table has the commit up to which an index was built, as far as its log shows.

        A table that is set back to a backup keeps its id, and in time has every version number again, for
        other commits. If the log begins after the commit (entries are cleaned up behind checkpoints), the
        table's id must suffice. If the log ends before it, the commit is lost. A mark from before marks named
        their commit is not trusted.
        """
        if "commit" not in mark:
            return False
        note = next(commit_notes(self._table.path, mark["version"]), None)
        if note is None:
            return mark["version"] < latest_version(self._table.path)
        return note.identity == mark["commit"]

    def _added(self, first: int, last: int) -> Iterator[tuple[str, dt.date]]:
        """Return the files with keys that the table did not have before."""
        for version in range(first, last + 1):
            for file in read_entry(self._table.path, version).added:
                if file.changes_rows:
                    day = day_of(file.partition.get(DAY_COLUMN), table=self._table.name)
                    yield file.path, day

    def _extended(
        self, index: SortedRuns, files: list[tuple[str, dt.date]], mark: dict[str, Any]
    ) -> SortedRuns:
        """Add the keys of more files to the index.

        Parts written before the last one carry a mark that `_up_to` rejects, so that an unfinished index is
        rebuilt.
        """
        hashes: list[Hashes] = []
        days: list[Days] = []
        for number, (path, day) in enumerate(files, start=1):
            found = hashes_of(self._keys_of(path))
            hashes.append(found)
            days.append(np.full(len(found), (day - _EPOCH_DAY).days, dtype=np.int32))
            if number == len(files) or sum(map(len, hashes)) >= _PIECE:
                done = mark if number == len(files) else {**mark, "format": None}
                index = index.add(np.concatenate(hashes), np.concatenate(days), done)
                hashes, days = [], []
        if not files:
            index = index.add(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int32), mark)
        return index

    def _keys_of(self, path: str) -> pa.ChunkedArray:
        import pyarrow.parquet as pq

        return pq.read_table(self._table.path / path, columns=[self._column], partitioning=None).column(0)

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Lock the index for this process. Others wait no longer than one reading of the table takes."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with Path(self._folder, ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def hashes_of(keys: pa.ChunkedArray) -> Hashes:
    """Return a hash for each key that is not null, the same in every process."""
    from pandas.util import hash_array

    texts = keys.drop_null().to_numpy()
    return hash_array(np.asarray(texts, dtype=object), categorize=False)
