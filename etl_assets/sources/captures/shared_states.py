"""What all machines have agreed on of a capture: the states of its tables, and the spool in use.

Belongs here: the value, and the interface of its store. Does not belong here: a store (`states_table.py`),
and the copy of it in a home folder (`mirrored_states.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from etl_assets.errors import SourceUnavailable
from etl_assets.sources.captures.spool import KnownSpool
from etl_assets.sources.captures.table_states import CapturedTableState


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureStates:
    """A capture.

    Attributes:
        spool: The spool from which its tables are served; None: none is known.
        tables: The states of its tables, by name.
    """

    spool: KnownSpool | None = None
    tables: Mapping[str, CapturedTableState] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of the capture."""
        return self.spool is None and not self.tables

    @property
    def spool_id(self) -> str:
        """Name of the spool; empty: none is known."""
        return "" if self.spool is None else self.spool.id

    def version_of(self, table: str) -> int:
        """Return the version of a table's state; 0 without one."""
        found = self.tables.get(table)
        return 0 if found is None else found.version

    def having(self, state: CapturedTableState) -> CaptureStates:
        """Return the capture with a table's state in the place of the former one."""
        return replace(self, tables={**self.tables, state.table: state})

    def with_newer(self, of_home: CaptureStates) -> CaptureStates:
        """Return the capture with what a home folder has that nobody else can have changed.

        That is everything where nothing is agreed on yet, as after an upgrade. Of the home folder whose spool
        is in use, it is what a release wrote that stored states there alone.
        """
        if self.is_empty:
            return of_home
        if self.spool_id != of_home.spool_id:
            return self
        newer = {
            name: state for name, state in of_home.tables.items() if state.version > self.version_of(name)
        }
        return replace(self, tables={**self.tables, **newer}) if newer else self


CaptureChange = Callable[[CaptureStates], CaptureStates]
"""What a capture becomes; the same value if nothing changes. It may be called several times."""


class SharedStates(Protocol):
    """A store that all machines share. `testing/memory_shared_states.py` is its twin in memory."""

    def read(self, capture: str) -> CaptureStates:
        """Return what is agreed on.

        A call that begins after another one has returned from `update` has that change.

        Raises:
            QuorumUnavailable: too few failure domains answer to know.
        """
        ...

    def update(self, capture: str, change: CaptureChange) -> CaptureStates:
        """Let a change decide on what is agreed on, store what it returns, and return that.

        A majority of the failure domains has it then. Nothing comes between the decision and the store: if
        another process stores something meanwhile, the change decides again. Its errors are raised here, and
        nothing is stored.

        Raises:
            QuorumUnavailable: too few failure domains answer. It may be stored all the same, now or later.
            CommitConflict, TableBusy, Fenced: others stored something at each attempt.
            DomainUnavailable, StorageFailed: no failure domain can store it now.
        """
        ...


def is_read_elsewhere(capture: str) -> SourceUnavailable:
    """Return the error of a home folder whose spool is no longer the one in use."""
    return SourceUnavailable(
        f"another home folder reads the log of the capture {capture} now",
        fix="end the platform there or here: one home folder reads a capture, the one whose worker was"
        " started last",
        source=capture,
    )
