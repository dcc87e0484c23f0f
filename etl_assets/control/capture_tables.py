"""States of captured tables in the control store.

Belongs here: their rows. Does not belong here: which state may follow (`sources/captures/`).
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from etl_assets.control.schema import CAPTURE_TABLES
from etl_assets.control.store import ControlStore
from etl_assets.sources.captures.table_states import CapturedTableState


class StoredTableStates:
    """The states in a store. Every method raises `ControlStoreUnavailable` while it does not answer."""

    def __init__(self, store: ControlStore) -> None:
        self._store = store

    def of_capture(self, capture: str) -> tuple[CapturedTableState, ...]:
        """Return the tables of a capture, by name."""
        rows = CAPTURE_TABLES.c
        query = sa.select(rows.state).where(rows.capture == capture).order_by(rows.source_table)
        with self._store.reading() as connection:
            return tuple(CapturedTableState.of(json.loads(state)) for (state,) in connection.execute(query))

    def put(self, state: CapturedTableState) -> bool:
        """Store a state if it follows the stored one."""
        rows = CAPTURE_TABLES.c
        values = {
            "version": state.version,
            "phase": state.phase.value,
            "state": json.dumps(state.as_json()),
        }
        try:
            with self._store.writing() as connection:
                if state.version == 1:
                    key = {"capture": state.capture, "source_table": state.table}
                    connection.execute(CAPTURE_TABLES.insert().values(**key, **values))
                    return True
                changed = connection.execute(
                    CAPTURE_TABLES.update()
                    .where(
                        rows.capture == state.capture,
                        rows.source_table == state.table,
                        rows.version == state.version - 1,
                    )
                    .values(**values)
                )
                return changed.rowcount == 1
        except IntegrityError:
            return False  # another process has taken it up
