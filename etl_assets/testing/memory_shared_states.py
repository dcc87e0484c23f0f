"""What machines share of captures, in memory. The twin of `sources.captures.states_table.StatesTable`."""

from __future__ import annotations

import threading

from etl_assets.errors import QuorumUnavailable
from etl_assets.sources.captures.shared_states import CaptureChange, CaptureStates


class MemorySharedStates:
    """Keeps captures as `SharedStates` says, for this process.

    Attributes:
        is_down: Whether too few failure domains answer.
        reads: How often it was read or changed.
    """

    def __init__(self) -> None:
        self.is_down = False
        self.reads = 0
        self._found: dict[str, CaptureStates] = {}
        self._lock = threading.Lock()

    def read(self, capture: str) -> CaptureStates:
        """Return what is agreed on; see `SharedStates`."""
        self._asked()
        return self._found.get(capture, CaptureStates())

    def update(self, capture: str, change: CaptureChange) -> CaptureStates:
        """Change what is agreed on; see `SharedStates`."""
        with self._lock:
            self._asked()
            self._found[capture] = change(self._found.get(capture, CaptureStates()))
            return self._found[capture]

    def _asked(self) -> None:
        self.reads += 1
        if self.is_down:
            raise QuorumUnavailable(
                "too few voters of the table capture_states answer",
                fix="bring them back",
                table="capture_states",
                missing={},
            )
