"""The sources that a command must not read now, because a sink is over its lag limit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.sensors.source_pauses import paused_sources

if TYPE_CHECKING:
    from etl_assets.observability.lag_limits import SourcePause
    from etl_assets.settings import Settings


@dataclass(slots=True)
class PausedSources:
    """The paused sources of an installation, as of the last look.

    Attributes:
        settings: The platform file.
        tables: Names of their tables.
    """

    settings: Settings
    tables: frozenset[str] = frozenset()

    def look(self) -> Iterable[SourcePause]:
        """Look, and return the pauses."""
        pauses = paused_sources(self.settings, dt.datetime.now(dt.UTC))
        self.tables = frozenset(
            stage.name
            for pipeline in self.settings.catalog().pipelines
            if pipeline.name in pauses
            for stage in pipeline.stages
            if stage.source is not None
        )
        return pauses.values()

    def look_again(self) -> frozenset[str]:
        """Look, and return the names of the tables."""
        self.look()
        return self.tables
