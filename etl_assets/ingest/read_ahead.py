"""The next range of a source, read while the rows of the one before are stored.

Belongs here: the thread that reads, and whether what it read is what comes next. Does not belong here: what a
range is (`sources/ranges.py`), and what happens with it (`range_step.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from etl_assets.errors import EtlAssetsError
from etl_assets.steps.step import logger

if TYPE_CHECKING:
    from etl_assets.sources.ranges import Positions, RangeRead, ReadRange


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRange:
    """A range that was read.

    Attributes:
        found: The range.
        folder: Folder of its files.
    """

    found: RangeRead
    folder: Path


class ReadAhead:
    """Reads one range ahead, in a thread of its own.

    It stores nothing and decides nothing: the range is used only if the table has exactly the positions that
    it was planned after. Otherwise, and if it could not be read, it is planned and read again in its turn,
    where errors are raised. A source has one caller at a time: nothing else may call it until `take` returns.

    Args:
        plan: Returns the next range after some positions, as `RangeSource.plan`.
        read: Writes a range into a folder, as `RangeSource.read`.
        folder: An empty folder; each range has one in it.
    """

    def __init__(
        self,
        plan: Callable[[Positions], ReadRange | None],
        read: Callable[[ReadRange, Path], RangeRead],
        folder: Path,
    ) -> None:
        self._plan, self._read, self._folder = plan, read, folder
        self._thread = ThreadPoolExecutor(1, "read-ahead")
        self._begun: tuple[Mapping[str, Any], Future[StagedRange | None]] | None = None
        self._number = 0

    def begin(self, positions: Positions) -> None:
        """Begin to read the range after some positions."""
        self._number += 1
        into = self._folder / str(self._number)
        self._begun = (dict(positions), self._thread.submit(self._one, dict(positions), into))

    def take(self, positions: Positions) -> StagedRange | None:
        """Return the range after some positions if it was read; wait while it is being read."""
        if self._begun is None:
            return None
        (after, reading), self._begun = self._begun, None
        try:
            found = reading.result()
        except (EtlAssetsError, OSError) as error:
            logger.info("a range could not be read ahead, and is read in its turn: %s", error)
            return None
        if found is not None and after != positions:
            shutil.rmtree(found.folder, ignore_errors=True)
            return None
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait for the thread: the source may be closed afterwards."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _one(self, positions: Positions, folder: Path) -> StagedRange | None:
        wanted = self._plan(positions)
        return None if wanted is None else read_range(self._read, wanted, folder)


def read_range(read: Callable[[ReadRange, Path], RangeRead], wanted: ReadRange, folder: Path) -> StagedRange:
    """Read a range into a new folder."""
    folder.mkdir(parents=True)
    return StagedRange(found=read(wanted, folder), folder=folder)
