"""A source of files in an installation: where its files are, and what their records must be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.sources.landing import REPLAYS, Folders

if TYPE_CHECKING:
    from collections.abc import Callable

    from etl_assets.ingest.records import Records
    from etl_assets.sources.formats import RecordFormat
    from etl_assets.sources.ranges import RangeSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """A source that is read in ranges, in an installation.

    Attributes:
        source: Name of the source, in the columns `source` of its tables.
        label: What is read, for people, without secrets: `the topic orders at broker:9092`.
        open: Opens the source. The caller closes it.
        format: How the staged files of its ranges are read.
        max_records: About how many records a batch has at most.
    """

    source: str
    label: str
    open: Callable[[], RangeSource]
    format: RecordFormat
    max_records: int = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """A source of files.

    Attributes:
        folders: The folder with the files, and the one with replayed dead letters.
        records: What records must be.
        settle_seconds: How long a file must have been unchanged before it is read.
        max_batch_bytes: Input of one batch; a larger file is a batch of its own.
        ranges: A source that is read in ranges, beside the files of replayed dead letters; None: there are
            files only.
    """

    folders: tuple[Folders, ...]
    records: Records
    settle_seconds: float
    max_batch_bytes: int
    ranges: Ranges | None = None

    @property
    def path(self) -> Path:
        """The folder with the files; of a source without files, the one with replayed dead letters."""
        return next((each.path for each in self.folders if each.source != REPLAYS), self.folders[-1].path)

    @property
    def units(self) -> str:
        """What a source consists of, for people."""
        return "files" if self.ranges is None else "records"

    @property
    def label(self) -> str:
        """What is read, for people."""
        if self.ranges is not None:
            return self.ranges.label
        return next((each.place for each in self.folders if each.source != REPLAYS), str(self.path))
