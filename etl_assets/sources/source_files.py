"""A source file: as it was listed, as it is read, and the files of one day.

Belongs here: values only. Does not belong here: how folders are listed and files checked (`landing.py`).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from etl_assets.sources.formats import JSON_LINES, RecordFormat


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SourceFile:
    """A file as it was listed. Files of folders sort in source order: day, source, name.

    A staged file of a range has a `place` in its source, the number of its `first_line` there, and maybe an
    `identity` of its place and a `version` of its records.
    """

    day: dt.date
    source: str
    name: str
    size: int
    mtime_ns: int
    place: str = ""
    first_line: int = 1
    identity: str = ""
    version: str = ""

    @property
    def key(self) -> str:
        """Identifies the file within its day."""
        return f"{self.source}/{self.name}"

    @property
    def position(self) -> str:
        """Source position of the file's lines, without the line number."""
        return self.place or f"{self.day.isoformat()}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A file to read.

    Attributes:
        file: The file as it was listed.
        path: Its path.
        format: How it is read.
        identity: What identifies the file among all files of its source, whenever it is read.
    """

    file: SourceFile
    path: str
    format: RecordFormat = JSON_LINES
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Entries of a day, by name.

    Attributes:
        files: Files to read.
        unsettled: Files that are still being written.
        ignored: Entries that are never read: folders and links; and without a pattern, names that are not of
            the format.
        set_aside: Entries whose name marks them as unfinished.
    """

    files: tuple[SourceFile, ...]
    unsettled: tuple[str, ...]
    ignored: tuple[str, ...]
    set_aside: tuple[str, ...] = ()
