"""What a process is told when its domain leads: what it may build on, and where."""

from __future__ import annotations

from dataclasses import dataclass

from etl_assets.mirroring.epochs import Epoch
from etl_assets.mirroring.record import folder_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """What a process needs to write: the acknowledged head it may build on, and where.

    Attributes:
        epoch: The epoch the domain leads under; goes into the commit's user metadata.
        version: The acknowledged version, and the newest of the home log.
        chain: Its chain.
        folder: Number of the content generation to write to.
        generation: The locator's generation.
    """

    epoch: Epoch
    version: int
    chain: str
    folder: int
    generation: int

    @property
    def content_generation(self) -> str:
        """Name of the folder to write to, under the table's."""
        return folder_name(self.folder)
