"""The interface of a database that a query is read from.

Belongs here: what a source needs of any database. Does not belong here: how one is asked (`postgres.py` for
PostgreSQL, `alchemy.py` for those that SQLAlchemy knows), and which rows are wanted (`source.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from etl_assets.sources.sql.bounds import KeyBounds, Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryColumn:
    """A column of a query's result.

    Attributes:
        name: Its name.
        type: The database's name of its type; empty where values have types and columns do not.
        orders: Whether its values can be keys.
        overlaps: Whether an overlap can be taken from its values.
        refusal: Why its values cannot be records' values, and what to do; empty if they can.
    """

    name: str
    type: str
    orders: bool
    overlaps: bool
    refusal: str = ""


class Database(Protocol):
    """A query over a database, and its two key columns. Nothing can be written through it.

    Raises, from every call:
        SourceUnavailable: the database does not answer now.
        SourceRefused: it refuses the query.
    """

    def columns(self) -> tuple[QueryColumn, ...]:
        """Return the columns of the query's result, without reading rows."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Let all calls in a block see the database at one moment, as far as it can."""
        ...

    def hold(self) -> str:
        """Begin one snapshot that all calls see until `release`, or go on with it.

        Returns:
            The snapshot's name: another one than before if the former was lost. Empty if the database keeps
            none over several calls.
        """
        ...

    def release(self) -> None:
        """Let go of the snapshot that is held. Never raises."""
        ...

    def last(self, bounds: KeyBounds, limit: int) -> Pair | None:
        """Return the last pair of the first `limit` rows of some bounds; None if there are no rows."""
        ...

    def digest(self, bounds: KeyBounds | None) -> str:
        """Return a digest of rows, in any order: those in bounds, or those without a key (None)."""
        ...

    def write(self, bounds: KeyBounds | None, path: Path) -> None:
        """Write rows as lines of JSON, in the order of their pairs: those in bounds, or those without a key.

        Memory does not depend on their number.
        """
        ...

    def write_ids(self, names: Sequence[str], path: Path) -> None:
        """Write some columns of all rows that have values there as lines of JSON, in any order."""
        ...

    def row_bytes(self) -> int:
        """Return about how many bytes a row has as JSON, from the first rows."""
        ...

    def count(self, bounds: KeyBounds, limit: int) -> int:
        """Return how many rows are in bounds, at most `limit`."""
        ...

    def lacks_keys(self) -> bool:
        """Return whether there are rows without a key or an id."""
        ...

    def first_time(self, bounds: KeyBounds) -> dt.datetime | None:
        """Return the least key in bounds, if keys are times with a zone."""
        ...

    def repeated_pair(self, limit: int) -> bool:
        """Return whether two of the first `limit` rows have one pair."""
        ...

    def close(self) -> None:
        """Let go of connections. Never raises."""
        ...
