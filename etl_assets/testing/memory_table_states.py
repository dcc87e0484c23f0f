"""The store of captured tables' states, in memory."""

from __future__ import annotations

import threading

from etl_assets.sources.captures.shared_states import CaptureStates
from etl_assets.sources.captures.spool import KnownSpool
from etl_assets.sources.captures.table_states import CapturedTableState


class MemoryTableStates:
    """Keeps states as `TableStates` and `HomeStates` say, for this process."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], CapturedTableState] = {}
        self._spools: dict[str, KnownSpool] = {}
        self._lock = threading.Lock()

    def of_capture(self, capture: str) -> tuple[CapturedTableState, ...]:
        """Return the tables of a capture, by name."""
        return tuple(state for (of, _), state in sorted(self._found.items()) if of == capture)

    def spool(self, capture: str) -> KnownSpool | None:
        """Return the spool from which the tables of a capture are served; None: none is known."""
        return self._spools.get(capture)

    def put_spool(self, capture: str, before: KnownSpool | None, spool: KnownSpool) -> bool:
        """Store a spool in the place of another one, if that is still there."""
        with self._lock:
            found = self._spools.get(capture)
            if (found and found.id) != (before and before.id):
                return False
            self._spools[capture] = spool
            return True

    def put(self, state: CapturedTableState) -> bool:
        """Store a state if it follows the stored one."""
        key = (state.capture, state.table)
        with self._lock:
            before = self._found.get(key)
            if state.version != (0 if before is None else before.version) + 1:
                return False
            self._found[key] = state
            return True

    def refresh(self, capture: str, *, if_doubtful: bool = False) -> None:
        """Do nothing: nobody else has these."""

    def adopt(self, capture: str, states: CaptureStates) -> None:
        """Have of a capture what was agreed on, and nothing else."""
        with self._lock:
            self._found = {key: state for key, state in self._found.items() if key[0] != capture}
            self._found |= {(capture, name): state for name, state in states.tables.items()}
            self._spools.pop(capture, None)
            if states.spool is not None:
                self._spools[capture] = states.spool
