"""When pipelines that rest get their next turn: each question is asked once for all of them.

A source that says when it has something again is asked each second. What the tables say changes seldom, and
costs more: it is looked at every `TABLES_SECONDS`.

Belongs here: what ends a rest. Does not belong here: the turns (`turns.py`), and work left unfinished in the
tables, which the thread of the derived tables finds (`worker.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from etl_assets.contracts.tables import REPLAYS
from etl_assets.errors import EtlAssetsError
from etl_assets.sources.positions import read_positions
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.settings import Settings
    from etl_assets.worker.feed import Feed
    from etl_assets.worker.turns import Turns

TABLES_SECONDS = 15.0
"""Between two looks at what tables say: dead letters that were submitted again, and positions."""


class RestWatch:
    """Ends the rest of pipelines that may have something to do.

    Args:
        settings: The platform file.
        turns: Their turns.
        clock: Returns seconds that only rise.
    """

    def __init__(
        self, settings: Settings, turns: Turns, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._turns, self._clock = settings, turns, clock
        self._due_at = float("-inf")
        self._replays: int | None = None

    def look(self) -> None:
        """Wake the pipelines that may have something to do by now."""
        self._turns.wake_up()
        if (now := self._clock()) < self._due_at:
            return
        self._due_at = now + TABLES_SECONDS
        try:
            domain = self._settings.placement().reader()
            replays = platform_table(REPLAYS.name, domain).version()
        except (EtlAssetsError, OSError):
            self._replays = None
            self._turns.wake_all()  # their turns say what it is
            return
        if replays != self._replays:
            self._replays = replays
            self._turns.wake_all()
            return
        self._turns.wake(
            feed.pipeline.name for feed in self._turns.resting() if self._was_set_back(feed, domain)
        )

    @staticmethod
    def _was_set_back(feed: Feed, domain: FailureDomain) -> bool:
        """Return whether the positions of a table are others than those that nothing was found after.

        An undo, a backup that was restored or a run of another process have set them.
        """
        try:
            positions = read_positions(platform_table(feed.path[0], domain))
        except (EtlAssetsError, OSError):
            return True
        return feed.found is None or positions != feed.found.positions
