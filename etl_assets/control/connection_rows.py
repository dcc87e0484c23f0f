"""Rows of connections that came over REST: one for each, replaced by its next change.

There is no history: a secret that was replaced, also an encrypted one, is gone.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from etl_assets.control.schema import CONNECTIONS
from etl_assets.control.store import ControlStore


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConnection:
    """A connection as it is stored.

    Attributes:
        name: Its name.
        tenant: Whose it is, also after its end.
        revision: Number of its last change, from 1.
        content: The connection, with references and encrypted values for secrets; None: it was deleted.
        at: When it was changed (UTC, clock of the store).
        actor: By whom.
    """

    name: str
    tenant: str
    revision: int
    content: Mapping[str, Any] | None
    at: dt.datetime
    actor: str


class ConnectionRows:
    """The rows in a store. Every method raises `ControlStoreUnavailable` while it does not answer."""

    def __init__(self, store: ControlStore) -> None:
        self._store = store

    def all(self) -> dict[str, StoredConnection]:
        """Return all by name, deleted ones included."""
        query = sa.select(CONNECTIONS).order_by(CONNECTIONS.c.name)
        with self._store.reading() as connection:
            found = map(_stored, connection.execute(query).mappings())
            return {each.name: each for each in found}

    def put(
        self, name: str, *, tenant: str, content: Mapping[str, Any] | None, actor: str, seen: int
    ) -> StoredConnection | None:
        """Store a change, and return it; None if there is another change since the one that was seen.

        Args:
            name: The connection.
            tenant: Whose it is.
            content: What it is now; None deletes it.
            actor: Who does it.
            seen: The revision that the change was decided on; 0: there was none.
        """
        with self._store.writing() as connection:
            made = StoredConnection(
                name=name,
                tenant=tenant,
                revision=seen + 1,
                content=content,
                at=self._store.now(connection),
                actor=actor,
            )
            values = {each: getattr(made, each) for each in CONNECTIONS.c.keys()}  # noqa: SIM118 - of columns
            values["content"] = None if content is None else json.dumps(dict(content))
            if seen:
                same = (CONNECTIONS.c.name == name) & (CONNECTIONS.c.revision == seen)
                statement = sa.update(CONNECTIONS).where(same).values(values).returning(CONNECTIONS.c.name)
            else:
                insert = sqlite_insert if connection.dialect.name == "sqlite" else postgres_insert
                begun = insert(CONNECTIONS).values(values).on_conflict_do_nothing()
                statement = begun.returning(CONNECTIONS.c.name)
            return made if connection.execute(statement).first() is not None else None


def _stored(row: Mapping[Any, Any]) -> StoredConnection:
    text = row["content"]
    typed: dict[str, Any] = {**row, "content": None if text is None else json.loads(text)}
    return StoredConnection(**typed)
