"""What a command must leave alone now: sources whose sink is over its lag limit, and controlled pipelines."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from etl_assets.control.known_states import look_at_states
from etl_assets.sensors.source_pauses import paused_sources

if TYPE_CHECKING:
    from etl_assets.control.states import ControlState
    from etl_assets.observability.lag_limits import SourcePause
    from etl_assets.observability.pending import Unfinished
    from etl_assets.settings import Settings


@dataclass(slots=True)
class PausedSources:
    """The paused sources of an installation, and its pipelines that are not followed, as of the last look.

    Attributes:
        settings: The platform file.
        tables: Names of the tables of paused sources.
        states: States of the pipelines that run control keeps from being followed.
        controlled: Names of all their tables.
        problem: Why the states are not those of now; None if they are.
    """

    settings: Settings
    tables: frozenset[str] = frozenset()
    states: Mapping[str, ControlState] = field(default_factory=dict)
    controlled: frozenset[str] = frozenset()
    problem: str | None = None

    def look(self) -> Iterable[SourcePause]:
        """Look, and return the pauses by lag limits."""
        pipelines = self.settings.catalog().pipelines
        known = look_at_states(self.settings)
        self.states, self.problem = known.left_out(pipeline.name for pipeline in pipelines), known.problem
        self.controlled = frozenset(
            name for pipeline in pipelines if pipeline.name in self.states for name in pipeline.names
        )
        pauses = paused_sources(self.settings, dt.datetime.now(dt.UTC))
        self.tables = frozenset(
            stage.name
            for pipeline in pipelines
            if pipeline.name in pauses
            for stage in pipeline.stages
            if stage.source is not None
        )
        return pauses.values()

    def look_again(self) -> frozenset[str]:
        """Look, and return the names of the tables that must not be written now."""
        self.look()
        return self.tables | self.controlled

    def left_to_do(self, unfinished: Unfinished) -> Unfinished:
        """Return unfinished work without that of pipelines that are not followed."""
        return replace(
            unfinished,
            behind={name: days for name, days in unfinished.behind.items() if name not in self.controlled},
            replays={name: days for name, days in unfinished.replays.items() if name not in self.controlled},
        )
