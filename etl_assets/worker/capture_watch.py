"""The worker's looks for tables of captures, so that new and changed ones are followed without a restart.

Belongs here: when to look, and what people are told. Does not belong here: looking
(`etl_assets/captures.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from etl_assets.error_policy import told
from etl_assets.errors import EtlAssetsError
from etl_assets.pipelines.capture_files import usable_captures
from etl_assets.steps.step import logger

if TYPE_CHECKING:
    from etl_assets.settings import Settings


FIRST_LOOK_SECONDS = 15.0
"""How long the first look is waited for: a server that does not answer keeps other pipelines no longer."""


class CaptureWatch:
    """Looks for tables of each capture every `discovery_interval_seconds`.

    Args:
        settings: The platform file.
        alert: Writes an alert.
        clock: Returns seconds that only rise.
    """

    def __init__(
        self,
        settings: Settings,
        alert: Callable[[Mapping[str, str]], object],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._alert, self._clock = settings, alert, clock
        self._next: dict[str, float] = {}
        self._told: dict[str, str] = {}
        self._has_looked = threading.Event()

    def look(self) -> None:
        """Look for tables of the captures whose time has come. An error is told once, and tried again."""
        for name, capture in usable_captures(self._settings.home).items():
            now = self._clock()
            if now < self._next.get(name, now):
                continue
            self._next[name] = now + capture.discovery_interval_seconds
            try:
                self._discover(name)
                self._told.pop(name, None)
            except (EtlAssetsError, OSError) as error:
                text = told(error)
                if self._told.get(name) != text:
                    logger.error("capture %s: %s", name, text)
                    self._alert({"partition": "", "step": f"capture {name}", "error": text[:2_000]})
                self._told[name] = text
        self._has_looked.set()

    def wait(self) -> None:
        """Wait for the first look, if there are captures.

        Columns that have changed while no worker ran are known by then. Values that a column takes since it
        became wider would be dead letters otherwise.
        """
        if usable_captures(self._settings.home):
            self._has_looked.wait(FIRST_LOOK_SECONDS)

    def _discover(self, name: str) -> None:
        from etl_assets.captures import discover, states_of

        found = discover(self._settings, name)
        for what, tables in (("follows", found.added), ("no longer follows", found.left)):
            for table in tables:
                logger.warning("capture %s: %s %s", name, what, table)
        errors = {each.table: each.error for each in states_of(self._settings, name)}
        for table in found.errored:
            if (error := errors[table]) is not None:
                logger.error("capture %s: %s: %s", name, table, error.reason)
                text = f"{error.reason}\n  fix: {error.solution}"
                self._alert({"partition": "", "step": f"capture {name}: {table}", "error": text[:2_000]})
