"""A source of files in an installation: where its files are, and what their records must be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.sources.landing import REPLAYS, Folders

if TYPE_CHECKING:
    from etl_assets.ingest.records import Records


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """A source of files.

    Attributes:
        folders: The folder with the files, and the one with replayed dead letters.
        records: What records must be.
        settle_seconds: How long a file must have been unchanged before it is read.
        max_batch_bytes: Input of one batch; a larger file is a batch of its own.
    """

    folders: tuple[Folders, ...]
    records: Records
    settle_seconds: float
    max_batch_bytes: int

    @property
    def path(self) -> Path:
        """The folder with the files."""
        return next(each.path for each in self.folders if each.source != REPLAYS)
