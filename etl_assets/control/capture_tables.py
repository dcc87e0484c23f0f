"""States of captured tables in the control store.

Belongs here: their rows. Does not belong here: which state may follow (`sources/captures/`).
"""

from __future__ import annotations

import json
from functools import lru_cache

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

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
            return tuple(_state_of(state) for (state,) in connection.execute(query))

    def put(self, state: CapturedTableState) -> bool:
        """Store a state if it follows the stored one."""
        rows = CAPTURE_TABLES.c
        values = {
            "version": state.version,
            "phase": state.phase.value,
            "state": json.dumps(state.as_json()),
        }
        key = {"capture": state.capture, "source_table": state.table}
        with self._store.writing() as connection:
            if state.version == 1:
                insert = postgres_insert if connection.dialect.name == "postgresql" else sqlite_insert
                added = insert(CAPTURE_TABLES).values(**key, **values).on_conflict_do_nothing()
                return connection.execute(added).rowcount == 1
            changed = CAPTURE_TABLES.update().where(
                rows.capture == state.capture,
                rows.source_table == state.table,
                rows.version == state.version - 1,
            )
            return connection.execute(changed.values(**values)).rowcount == 1


@lru_cache(maxsize=4_096)
def _state_of(text: str) -> CapturedTableState:
    """Return a state of its JSON. All tables are asked for each second, and few have changed."""
    return CapturedTableState.of(json.loads(text))
