"""Which sources wait for a sink that is over its lag limit, as of a worker's last look."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING

from etl_assets.errors import EtlAssetsError
from etl_assets.sensors.source_pauses import paused_sources
from etl_assets.steps.step import logger

if TYPE_CHECKING:
    from etl_assets.observability.lag_limits import SourcePause
    from etl_assets.settings import Settings


class LimitWatch:
    """Watch lag limits.

    Attributes:
        paused: Pipelines whose source must not be read further, with the reason.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.paused: Mapping[str, SourcePause] = {}

    def look(self) -> None:
        """Find the sources that wait for a sink. While the tables cannot be read, those that waited wait."""
        try:
            paused = paused_sources(self._settings, dt.datetime.now(dt.UTC))
        except (EtlAssetsError, OSError) as error:
            logger.warning("lag limits cannot be looked at now: %s", error)
            return
        for name in paused.keys() - self.paused.keys():
            logger.warning("%s", paused[name])
        for name in self.paused.keys() - paused.keys():
            logger.warning("the source of %s is read again", name)
        self.paused = paused
