"""The control store of an installation, opened when it is first needed, and what is built on it.

Belongs here: opening once for a process. Does not belong here: the store itself (`store.py`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from etl_assets.control.connection_rows import ConnectionRows
from etl_assets.control.connections import RestConnections
from etl_assets.control.definitions import Definitions
from etl_assets.control.revisions import Revisions
from etl_assets.control.run_controls import RunControls
from etl_assets.control.store import FILE, open_store

if TYPE_CHECKING:
    from etl_assets.control.store import ControlStore
    from etl_assets.settings import Settings


class ControlPlane:
    """Run control and definitions of an installation. Thread-safe.

    Whatever opens the store raises `ControlStoreUnavailable` while it does not answer, and tries again at
    the next use.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opening = threading.Lock()
        self._store: ControlStore | None = None

    @property
    def is_in_use(self) -> bool:
        """Whether the installation has a control store, or is to have one. Does not open it."""
        return self._settings.control.connection is not None or (self._settings.home / FILE).exists()

    @property
    def revisions(self) -> Revisions:
        """The revisions of declarations over REST."""
        return Revisions(self._opened())

    @property
    def definitions(self) -> Definitions:
        """The pipelines that are declared over REST."""
        return Definitions(self._settings, self.revisions, lambda name: self.runs.state_of(name).state)

    @property
    def connections(self) -> RestConnections:
        """The connections that are defined over REST."""
        return RestConnections(self._settings, ConnectionRows(self._opened()))

    @property
    def runs(self) -> RunControls:
        """Run control."""
        return RunControls(self._opened(), lease_seconds=self._settings.control.lease_seconds)

    def close(self) -> None:
        """Close the store's connections."""
        with self._opening:
            if self._store is not None:
                self._store.close()
                self._store = None

    def _opened(self) -> ControlStore:
        with self._opening:
            if self._store is None:
                self._store = open_store(self._settings)
            return self._store
