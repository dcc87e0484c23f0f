"""Revisions of declarations that came over REST: rows of the control store, never changed or removed.

Belongs here: reading and appending rows. Does not belong here: which revision may follow (`definitions.py`).
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

from etl_assets.control.schema import REVISIONS
from etl_assets.control.store import ControlStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A declaration as it was stored, or the end of one.

    Attributes:
        id: Number of the change over all pipelines, from 1.
        pipeline: Name.
        revision: Number of the change of this pipeline, from 1.
        tenant: Whose it is, also after its end.
        declaration: The declaration with its name; None: the pipeline was deleted.
        at: When (UTC, clock of the store).
        actor: By whom.
    """

    id: int
    pipeline: str
    revision: int
    tenant: str
    declaration: Mapping[str, Any] | None
    at: dt.datetime
    actor: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it, without the declaration."""
        return {
            "revision": self.revision,
            "at": self.at.isoformat(timespec="seconds"),
            "actor": self.actor,
            "deleted": self.declaration is None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestRevisions:
    """The newest revision of each pipeline at one time.

    Attributes:
        last_id: Number of the last change; 0 before the first.
        of: By pipeline, deleted ones included, in the order in which the pipelines were first declared.
    """

    last_id: int
    of: Mapping[str, Revision]

    def live(self) -> tuple[Revision, ...]:
        """Return those that are not deleted."""
        return tuple(each for each in self.of.values() if each.declaration is not None)


class Revisions:
    """The revisions in a store. Every method raises `ControlStoreUnavailable` while it does not answer."""

    def __init__(self, store: ControlStore) -> None:
        self._store = store

    def newest(self) -> NewestRevisions:
        """Return the newest revision of each pipeline."""
        first, last = sa.func.min(REVISIONS.c.id), sa.func.max(REVISIONS.c.id)
        ends = sa.select(first.label("first"), last.label("last")).group_by(REVISIONS.c.pipeline).subquery()
        query = sa.select(REVISIONS).join(ends, REVISIONS.c.id == ends.c.last).order_by(ends.c.first)
        with self._store.reading() as connection:
            found = [_revision(row) for row in connection.execute(query).mappings()]
        return NewestRevisions(
            last_id=max((each.id for each in found), default=0), of={each.pipeline: each for each in found}
        )

    def of_pipeline(
        self, pipeline: str, *, before: int | None = None, limit: int = 50
    ) -> tuple[Revision, ...]:
        """Return revisions of a pipeline, the newest first, older than `before`."""
        query = sa.select(REVISIONS).where(REVISIONS.c.pipeline == pipeline)
        if before is not None:
            query = query.where(REVISIONS.c.revision < before)
        with self._store.reading() as connection:
            rows = connection.execute(query.order_by(REVISIONS.c.revision.desc()).limit(limit)).mappings()
            return tuple(map(_revision, rows))

    def append(
        self,
        pipeline: str,
        *,
        tenant: str,
        declaration: Mapping[str, Any] | None,
        actor: str,
        seen: NewestRevisions,
    ) -> Revision | None:
        """Append a revision, and return it; None if there is a change that the caller has not seen.

        Args:
            pipeline: Name.
            tenant: Whose it is.
            declaration: The declaration; None deletes the pipeline.
            actor: Who does it.
            seen: What the change was decided on.
        """
        before = seen.of.get(pipeline)
        with self._store.writing() as connection:
            last = connection.execute(sa.select(sa.func.max(REVISIONS.c.id))).scalar() or 0
            if last != seen.last_id:
                return None
            made = Revision(
                id=last + 1,
                pipeline=pipeline,
                revision=1 if before is None else before.revision + 1,
                tenant=tenant,
                declaration=declaration,
                at=self._store.now(connection),
                actor=actor,
            )
            insert = sqlite_insert if connection.dialect.name == "sqlite" else postgres_insert
            values = {name: getattr(made, name) for name in REVISIONS.c.keys()}  # noqa: SIM118 - of columns
            values["declaration"] = None if declaration is None else json.dumps(dict(declaration))
            statement = insert(REVISIONS).values(values).on_conflict_do_nothing().returning(REVISIONS.c.id)
            # Nothing is returned if another process was first in between.
            return made if connection.execute(statement).first() is not None else None


def _revision(row: Mapping[Any, Any]) -> Revision:
    text = row["declaration"]
    typed: dict[str, Any] = {**row, "declaration": None if text is None else json.loads(text)}
    return Revision(**typed)
