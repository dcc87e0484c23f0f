"""Which place of a database's log the versions of a table have, by the facts of their commits.

A version has all transactions up to its place. A transaction that is very large may be divided: then some
versions have a part of it too, and say so. A reader that must not see half a transaction takes the last
version before them.

Belongs here: the fact, and finding it. Does not belong here: what a place is (`sources/postgres_cdc/`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from etl_assets.delta.log.entries import UNDO, commit_notes

FACT = "log"
"""Name of the fact."""
_REMEMBERED_COMMITS = 100
"""Commits that are searched: some say nothing of the log, such as compactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """The place of a version in a log.

    Attributes:
        lsn: The version has every transaction that ends at or before this place.
        transaction: Place of the commit of a transaction that the version has a part of beside; None: it has
            whole transactions alone.
        part: Number of that part, from 1.
        is_last: Whether it is the last one, so that the version has all of that transaction, and `lsn` is its
            end.
        whole_version: If it is not the last one: the last version of the table before the first part.
    """

    lsn: str
    transaction: str | None = None
    part: int = 0
    is_last: bool = False
    whole_version: int | None = None

    @property
    def is_within(self) -> bool:
        """Whether the version has some changes of a transaction and lacks others."""
        return self.transaction is not None and not self.is_last

    def as_json(self) -> dict[str, Any]:
        """Return the place as JSON."""
        if self.transaction is None:
            return {"lsn": self.lsn}
        found = {"lsn": self.lsn, "transaction": self.transaction, "part": self.part, "is_last": self.is_last}
        return found if self.whole_version is None else {**found, "whole_version": self.whole_version}

    @staticmethod
    def of(facts: Mapping[str, Any]) -> LogPlace | None:
        """Return the place that facts of a commit tell; None if they tell none."""
        found = facts.get(FACT)
        return LogPlace(**found) if isinstance(found, dict) else None


def notes_of(table: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what people should know of a commit with some facts: nothing of whole transactions."""
    place = LogPlace.of(facts)
    if place is None or place.transaction is None:
        return ()
    if place.is_last:
        return (f"{table} has the transaction {place.transaction} as a whole, in {place.part} parts",)
    return (f"{table} has {place.part} parts of the transaction {place.transaction}, and lacks others",)


def place_of(table_path: Path, version: int, *, after: int = -1) -> LogPlace | None:
    """Return the place in the log that a version has; None if no commit tells it.

    None tells it after an undo either, until the next load: what it put back may be from before all of them.

    Args:
        table_path: Folder of the table.
        version: The version.
        after: Commits up to this version are not looked at.
    """
    for note in islice(commit_notes(table_path, version), _REMEMBERED_COMMITS):
        if note.version <= after or UNDO in note.user_metadata:
            break
        if (found := LogPlace.of(note.user_metadata.get("facts") or {})) is not None:
            return found
    return None


def whole_version(table_path: Path, version: int) -> int:
    """Return the last version up to one that ends where a transaction ends."""
    found = place_of(table_path, version)
    if found is None or not found.is_within or found.whole_version is None:
        return version
    return found.whole_version


def facts_after(table_path: Path, base_version: int, place: LogPlace | None) -> dict[str, Any]:
    """Return the facts of a commit, by the place that its rows end at.

    Args:
        table_path: Folder of the table.
        base_version: The version before the commit.
        place: The place; None: the rows are not of a log.
    """
    if place is None:
        return {}
    if place.transaction is not None:
        before = place_of(table_path, base_version)
        goes_on = before is not None and before.is_within
        if place.is_last and not goes_on:
            # All parts became visible at once.
            place = LogPlace(lsn=place.lsn)
        elif not place.is_last:
            since = before.whole_version if before is not None and goes_on else base_version
            place = replace(place, whole_version=since)
    return {FACT: place.as_json()}
