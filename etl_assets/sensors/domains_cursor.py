"""State that one tick of the failure domains' sensor leaves for the next."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, ValidationError

from etl_assets.observability.domain_changes import Noted
from etl_assets.observability.lag import Behind
from etl_assets.placement.observations import boot_id
from etl_assets.replicas.scrub import ScrubCursor


class DomainsCursor(BaseModel):
    """Cursor of the sensor. Its times are the machine's monotonic clock; those of another boot are dropped.

    Attributes:
        boot: The boot that the times belong to.
        seen: Fingerprint of the last observation.
        told: Open conditions that were reported, with their reasons.
        waiting: Conditions to report if they still hold.
        tables: State of each table at the last tick.
        behind: Replicas that are behind, and since when, by table.
        observed_at: Time of the last observation; None for never.
        rows: Rows acknowledged since then, by table.
        flowing: Whether the last observation had any rows.
        begin: The table that the next round begins with; None for the first one.
        survey: Progress of the scrub of the replicas.
    """

    model_config = ConfigDict(frozen=True)

    boot: str = ""
    seen: str = ""
    told: Mapping[str, str] = {}
    waiting: Mapping[str, str] = {}
    tables: Mapping[str, Noted] = {}
    behind: Mapping[str, Mapping[str, Behind]] = {}
    observed_at: float | None = None
    rows: Mapping[str, int] = {}
    flowing: bool = False
    begin: str | None = None
    survey: ScrubCursor = ScrubCursor()

    @classmethod
    def load(cls, text: str | None) -> DomainsCursor:
        """Parse a cursor. A text in an unknown format counts as a first tick's."""
        try:
            found = cls.model_validate_json(text or "{}")
        except ValidationError:
            found = cls()
        if found.boot == boot_id():
            return found
        return found.model_copy(update={"boot": boot_id(), "behind": {}, "observed_at": None})

    def dump(self) -> str:
        """Return the cursor as text for Dagster."""
        return self.model_dump_json()

    def seconds_behind(self, now: float) -> dict[str, dict[str, float]]:
        """Return for how many seconds each replica has been behind, by table and domain."""
        return {
            table: {domain: each.seconds(now) for domain, each in found.items()}
            for table, found in self.behind.items()
        }

    def rows_per_minute(self, now: float) -> dict[str, int]:
        """Return the rows acknowledged per minute since the last observation, by table.

        Empty if there was no observation.
        """
        if self.observed_at is None or now <= self.observed_at:
            return {}
        minutes = (now - self.observed_at) / 60
        return {name: round(rows / minutes) for name, rows in self.rows.items()}

    def is_due(self, now: float, *, every: float) -> bool:
        """Return whether to observe metrics although the state is unchanged.

        True also for the first metrics that fall to zero.
        """
        moving = self.flowing or any(self.rows.values()) or any(self.behind.values())
        return moving and (self.observed_at is None or now - self.observed_at >= every)

    def observed(self, seen: str, now: float) -> DomainsCursor:
        """Return the cursor after an observation."""
        flowing = any(self.rows_per_minute(now).values())
        return self.model_copy(update={"seen": seen, "observed_at": now, "rows": {}, "flowing": flowing})
