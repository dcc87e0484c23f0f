"""Failure domains and the stages that run in them.

A domain is a storage root that fails as one (a disk, a zone, a region). A table is reached through a domain's root and
in no other way, so that a second domain can be added without touching the steps.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from etl_assets.errors import DomainUnavailable

FIRST_GENERATION = "g000001"


class Stage(StrEnum):
    """What a placement policy speaks of."""

    INGEST = "ingest"
    TRANSFORM = "transform"
    SINK = "sink"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureDomain:
    """A storage root and its name (`provider/region[/zone]`, or any name for a single machine)."""

    name: str
    root: Path

    def table_path(self, table: str, generation: str = FIRST_GENERATION) -> Path:
        """Folder of a table's replica in this domain: `<root>/tables/<table>/<content generation>`."""
        return self.root / "tables" / table / generation

    def lock_path(self, table: str) -> Path:
        """File whose lock admits one writer of the table on this machine."""
        return self.root / "locks" / f"{table}.lock"

    def staging_path(self, table: str) -> Path:
        """Folder for the files of unfinished batches of the table."""
        return self.root / "staging" / table

    def progress_path(self, table: str) -> Path:
        """Folder of a table's planned batches and input ledger."""
        return self.root / "progress" / table

    def replays_path(self, stage: str) -> Path:
        """Folder of the dead letters of a stage that were handed in again."""
        return self.root / "replays" / stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Says in which domain a stage runs. With one domain configured, every stage runs there."""

    domains: tuple[FailureDomain, ...]

    def place(self, stage: Stage) -> FailureDomain:
        """The domain that may run `stage` now.

        Raises:
            DomainUnavailable: its root cannot be used (absent and not creatable, or not writable).
        """
        domain = self.domains[0]
        try:
            domain.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DomainUnavailable(
                f"domain {domain.name} cannot run stage {stage}: its root {domain.root} cannot be used ({error.strerror})",
                fix="mount or create the folder and make it writable for this user, then run again",
                domain=domain.name,
                stage=stage.value,
                allowed=tuple(d.name for d in self.domains),
            ) from error
        if not os.access(domain.root, os.R_OK | os.W_OK | os.X_OK):
            raise DomainUnavailable(
                f"domain {domain.name} cannot run stage {stage}: its root {domain.root} is not writable",
                fix="give this user write permission to the folder, or mount it writable, then run again",
                domain=domain.name,
                stage=stage.value,
                allowed=tuple(d.name for d in self.domains),
            )
        return domain
