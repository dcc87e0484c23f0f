"""When the tables of a capture had reached which place in the log, and what was held back meanwhile.

Belongs here: looking, and the clock. Does not belong here: which changes there were (`cases/cdc_latency.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from etl_assets.delta.log.log_places import place_of
from etl_assets.sources.postgres_cdc.lsn import parse_lsn
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.placement.domains import FailureDomain


class LogArrivals:
    """Notes when a version of a table was first acknowledged, and the place in the log that it has.

    Attributes:
        times: For each table, when its versions were seen, in seconds since 1970.
        places: For each table, the places of these versions in the log.
    """

    def __init__(self, domain: FailureDomain, tables: Collection[str]) -> None:
        self._domain = domain
        self._versions = dict.fromkeys(tables, -1)
        self.times: Mapping[str, list[float]] = {name: [] for name in tables}
        self.places: Mapping[str, list[int]] = {name: [] for name in tables}

    def look(self) -> None:
        """Look at the tables."""
        for name, before in self._versions.items():
            pinned = platform_table(name, self._domain).pin()
            if pinned is None or pinned.version == before:
                continue
            now = time.time()
            self._versions[name] = pinned.version
            if (place := place_of(pinned.path, pinned.version, after=before)) is not None:
                self.times[name].append(now)
                self.places[name].append(parse_lsn(place.lsn))

    def latencies(self, table: str, commits: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Return how many seconds after their commits some changes were in an acknowledged version.

        Args:
            table: The table.
            commits: The places of the commits in the log.
            times: The times of the commits, in seconds since 1970.
        """
        # A version has what ends at or before its place. A transaction ends behind the place of its commit.
        first = np.searchsorted(np.array(self.places[table]), commits, side="right")
        return np.array(self.times[table])[first] - times


class Sampler(threading.Thread):
    """Calls something again and again until `leave`."""

    def __init__(self, call: Callable[[], None], every_seconds: float) -> None:
        super().__init__(daemon=True)
        self._call, self._every_seconds, self._left = call, every_seconds, threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        """Call it."""
        while not self._left.is_set():
            began = time.monotonic()
            try:
                self._call()
            except Exception as error:  # noqa: BLE001 - raised in the thread that waits
                self.error = error
                return
            self._left.wait(max(0.0, began + self._every_seconds - time.monotonic()))

    def leave(self) -> None:
        """Call it no more.

        Raises:
            Exception: of the call that failed.
        """
        self._left.set()
        self.join()
        if self.error is not None:
            raise self.error


def folder_bytes(folder: Path) -> int:
    """Return the size of the files below a folder, whose names may change meanwhile."""
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.stat().st_size
        except FileNotFoundError:
            continue
    return size
