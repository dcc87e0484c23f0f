"""The lead: the acknowledged head that a process of the leading domain may commit on, and where to commit."""

from __future__ import annotations

from dataclasses import dataclass

from etl_assets.mirroring.protocol.epochs import Epoch
from etl_assets.mirroring.protocol.record import folder_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """The acknowledged head that a process may commit on, and the folder to commit to.

    Attributes:
        epoch: The epoch the domain leads under; recorded in the commit's user metadata.
        version: The acknowledged version, and the newest of the home log.
        chain: The chain of that version.
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
        """Name of the folder to write to, in the table's folder."""
        return folder_name(self.folder)
