"""What a process is told when its domain leads: what it may build on, and where."""

from __future__ import annotations

from dataclasses import dataclass

from etl_assets.mirroring.epochs import Epoch


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
