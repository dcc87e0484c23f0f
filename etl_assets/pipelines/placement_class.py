"""The classes of work that a placement policy decides on."""

from __future__ import annotations

from enum import StrEnum


class PlacementClass(StrEnum):
    """The class of a stage, and of the tables that it writes: the policy says for each where it may run."""

    INGEST = "ingest"
    TRANSFORM = "transform"
    SINK = "sink"
