"""States of captured tables, and which spool they are served from, in the control store.

Belongs here: their rows. Does not belong here: which state may follow (`sources/captures/`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as postgres
from sqlalchemy.dialects import sqlite

from etl_assets.control.schema import CAPTURE_SPOOLS, CAPTURE_TABLES
from etl_assets.control.store import ControlStore
from etl_assets.sources.captures.shared_states import CaptureStates
from etl_assets.sources.captures.spool import KnownSpool
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

    def spool(self, capture: str) -> KnownSpool | None:
        """Return the spool from which the tables of a capture are served; None: none is known."""
        rows = CAPTURE_SPOOLS.c
        query = sa.select(rows.spool, rows.system, rows.timeline, rows.publication)
        with self._store.reading() as connection:
            found = connection.execute(query.where(rows.capture == capture)).first()
        if found is None:
            return None
        id_, system, timeline, publication = found
        return KnownSpool(id=id_, system=system, timeline=timeline, publication=publication)

    def put_spool(self, capture: str, before: KnownSpool | None, spool: KnownSpool) -> bool:
        """Store a spool in the place of another one, if that is still there."""
        rows = CAPTURE_SPOOLS.c
        values = _spool_values(spool)
        with self._store.writing() as connection:
            if before is None:
                return _added(connection, CAPTURE_SPOOLS, {"capture": capture, **values})
            changed = CAPTURE_SPOOLS.update().where(rows.capture == capture, rows.spool == before.id)
            return connection.execute(changed.values(**values)).rowcount == 1

    def put(self, state: CapturedTableState) -> bool:
        """Store a state if it follows the stored one."""
        rows = CAPTURE_TABLES.c
        values = _values(state)
        key = _key(state)
        with self._store.writing() as connection:
            if state.version == 1:
                return _added(connection, CAPTURE_TABLES, key | values)
            changed = CAPTURE_TABLES.update().where(
                rows.capture == state.capture,
                rows.source_table == state.table,
                rows.version == state.version - 1,
            )
            return connection.execute(changed.values(**values)).rowcount == 1

    def refresh(self, capture: str, *, if_doubtful: bool = False) -> None:
        """Do nothing: this is what all processes share."""

    def adopt(self, capture: str, states: CaptureStates) -> None:
        """Have of a capture what was agreed on elsewhere, and nothing else."""
        rows, key = CAPTURE_TABLES.c, CAPTURE_TABLES.c.capture == capture
        with self._store.writing() as connection:
            found = connection.execute(sa.select(rows.source_table, rows.state).where(key))
            there = {name: _state_of(state) for name, state in found}
            outdated = [name for name, state in there.items() if state != states.tables.get(name)]
            new = [state for name, state in states.tables.items() if state != there.get(name)]
            for name in outdated:
                connection.execute(CAPTURE_TABLES.delete().where(key, rows.source_table == name))
            for state in new:
                connection.execute(CAPTURE_TABLES.insert().values(**_key(state), **_values(state)))
            connection.execute(CAPTURE_SPOOLS.delete().where(CAPTURE_SPOOLS.c.capture == capture))
            if states.spool is not None:
                spool = _spool_values(states.spool)
                connection.execute(CAPTURE_SPOOLS.insert().values(capture=capture, **spool))


def _key(state: CapturedTableState) -> dict[str, Any]:
    return {"capture": state.capture, "source_table": state.table}


def _values(state: CapturedTableState) -> dict[str, Any]:
    return {
        "version": state.version,
        "phase": state.phase.value,
        "state": json.dumps(state.as_json()),
    }


def _spool_values(spool: KnownSpool) -> dict[str, Any]:
    return {
        "spool": spool.id,
        "system": spool.system,
        "timeline": spool.timeline,
        "publication": spool.publication,
    }


def _added(connection: sa.Connection, table: sa.Table, values: Mapping[str, Any]) -> bool:
    """Add a row unless there is one with its key; return whether it was added."""
    dialect = postgres if connection.dialect.name == "postgresql" else sqlite
    insert = dialect.insert(table).values(**values).on_conflict_do_nothing()
    # SQLAlchemy does not count the rows of every insert.
    return connection.execute(insert.returning(*table.primary_key)).first() is not None


@lru_cache(maxsize=4_096)
def _state_of(text: str) -> CapturedTableState:
    """Return a state of its JSON. All tables are asked for each second, and few have changed."""
    return CapturedTableState.of(json.loads(text))
