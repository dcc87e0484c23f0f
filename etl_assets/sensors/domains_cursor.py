"""What one tick of the sensor of the failure domains leaves for the next one."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, ValidationError

from etl_assets.observability.domain_changes import Noted
from etl_assets.observability.lag import Behind
from etl_assets.placement.observations import boot_id
from etl_assets.replicas.scrub import ScrubCursor


class DomainsCursor(BaseModel):
    """The cursor. Its times are those of the machine's monotonic clock; those of another boot are forgotten.

    Attributes:
        boot: The boot the times are of.
        seen: A hash of what the last observation showed.
        told: Conditions that were told of, with why.
        waiting: Conditions that are told of if they still hold.
        tables: Where each table stood.
        behind: For each table which replicas are behind, and since when.
        observed_at: When the last observation was made; None for never.
        rows: Rows acknowledged since then, by table.
        flowing: Whether the last observation had any.
        begin: The table that the next round begins with; None for the first one.
        survey: How far the replicas have been looked over for damage.
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
        """From the text; one of no known form is that of a first tick."""
        try:
            found = cls.model_validate_json(text or "{}")
        except ValidationError:
            found = cls()
        if found.boot == boot_id():
            return found
        return found.model_copy(update={"boot": boot_id(), "behind": {}, "observed_at": None})

    def dump(self) -> str:
        """As text for Dagster."""
        return self.model_dump_json()

    def seconds_behind(self, now: float) -> dict[str, dict[str, float]]:
        """For each table how long each replica that is behind has been so."""
        return {
            table: {domain: each.seconds(now) for domain, each in found.items()}
            for table, found in self.behind.items()
        }

    def rows_per_minute(self, now: float) -> dict[str, int]:
        """Rows acknowledged a minute since the last observation, by table; empty if there was none."""
        if self.observed_at is None or now <= self.observed_at:
            return {}
        minutes = (now - self.observed_at) / 60
        return {name: round(rows / minutes) for name, rows in self.rows.items()}

    def is_due(self, now: float, *, every: float) -> bool:
        """Whether figures are to be observed though nothing else has changed: also the first that fall to nothing."""
        moving = self.flowing or any(self.rows.values()) or any(self.behind.values())
        return moving and (self.observed_at is None or now - self.observed_at >= every)

    def observed(self, seen: str, now: float) -> DomainsCursor:
        """The cursor after an observation."""
        flowing = any(self.rows_per_minute(now).values())
        return self.model_copy(update={"seen": seen, "observed_at": now, "rows": {}, "flowing": flowing})
