"""Positions in a log, as they are committed with the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etl_assets.sources.postgres_cdc.column_changes import Columns, columns_as_json, columns_of_json
from etl_assets.sources.postgres_cdc.heap_pages import PagePosition
from etl_assets.sources.postgres_cdc.lsn import lsn_text, parse_lsn
from etl_assets.sources.postgres_cdc.transaction_parts import TransactionPart
from etl_assets.sources.ranges import Positions

LOG = "log"
"""The one partition of the input, in positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPosition:
    """A position.

    Attributes:
        system: What identifies the server's data.
        lsn: End of the last transaction that was read as a whole, or where the slot began.
        part: How far the table is within the transaction after it, if that is divided.
        is_copying: Whether the table is being copied.
        after: Key of the last row that was copied, as texts; None: there is none yet.
        pages: Of a copy by pages: where it goes on; None: it reads by keys, or has not begun.
        snapshot: Place in the log of the rows that were copied last; 0: there are none yet.
        rows: How many records the copy has at that place.
        empties: Whether the copy begins with a truncate, because the table has rows from before.
        again_until_lsn: Rows whose keys changed up to this place in the log are read again where the change
            lacks values; 0: none is.
        ahead_until_lsn: Some rows were read as they were up to this place. Until the position reaches it, the
            table may have rows that are newer than the position.
        again: Marks of the keys of rows that were read again, each with the place at which it was.
        copy_number: Of a captured table: number of the copy that it is from.
        copied: Of a captured table: rows that the copy has read.
        timeline: Timeline of the server's log; 0: it is not known.
        columns: The columns of the table that were taken last; None: it is not known.
        columns_lsn: Of a captured table: the place in the log from which on it has them.
        partitions: Marks of the table's partitions; None: they are not known, or of a captured table.
        publication: OID of the publication; 0: it is not known, or of a captured table.
        membership: Marks of the table's membership in the publication; None: they are not known, or of a
            captured table.
    """

    system: str
    lsn: int
    part: TransactionPart | None = None
    is_copying: bool = False
    after: tuple[str, ...] | None = None
    pages: PagePosition | None = None
    snapshot: int = 0
    rows: int = 0
    empties: bool = False
    again_until_lsn: int = 0
    ahead_until_lsn: int = 0
    again: tuple[tuple[str, int], ...] = ()
    copy_number: int = 0
    copied: int = 0
    timeline: int = 0
    columns: Columns | None = None
    columns_lsn: int = 0
    partitions: tuple[str, ...] | None = None
    publication: int = 0
    membership: tuple[str, ...] | None = None

    @property
    def read_until(self) -> int:
        """The place in the log up to which rows or changes have been read."""
        return max(self.changes_until, self.snapshot, self.again_until_lsn, self.ahead_until_lsn)

    @property
    def changes_until(self) -> int:
        """The place in the log up to which changes have been read."""
        return self.lsn if self.part is None else max(self.lsn, self.part.commit_lsn + 1)

    def as_json(self) -> dict[str, Any]:
        """Return the position as JSON."""
        found: dict[str, Any] = {"system": self.system, "lsn": lsn_text(self.lsn)}
        if self.part is not None:
            found["part"] = self.part.as_json()
        if self.timeline:
            found["timeline"] = self.timeline
        if self.copy_number or self.copied:
            found |= {"copy_number": self.copy_number, "copied": self.copied}
        if self.again_until_lsn:
            found["again_until"] = lsn_text(self.again_until_lsn)
        if self.ahead_until_lsn > self.lsn:
            found["ahead_until"] = lsn_text(self.ahead_until_lsn)
        if self.again:
            found["again"] = [[mark, lsn_text(place)] for mark, place in self.again]
        return found | self._catalog_as_json() | self._copy_as_json()

    def _catalog_as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.columns is not None:
            found["columns"] = columns_as_json(self.columns)
        if self.columns_lsn:
            found["columns_since"] = lsn_text(self.columns_lsn)
        if self.publication:
            found["publication"] = self.publication
        if self.membership is not None:
            found["membership"] = list(self.membership)
        if self.partitions is not None:
            found["partitions"] = list(self.partitions)
        return found

    def _copy_as_json(self) -> dict[str, Any]:
        if not self.is_copying:
            return {}
        copy: dict[str, Any] = {
            "after": None if self.after is None else list(self.after),
            "snapshot": lsn_text(self.snapshot),
            "rows": self.rows,
            "empties": self.empties,
        }
        if self.pages is not None:
            copy["pages"] = self.pages.as_json()
        return {"copy": copy}

    @staticmethod
    def of(positions: Positions) -> LogPosition | None:
        """Return the position of a source's; None before the first one."""
        found: Mapping[str, Any] | None = positions.get(LOG)
        if found is None:
            return None
        copy, columns = found.get("copy"), found.get("columns")
        return LogPosition(
            system=found["system"],
            lsn=parse_lsn(found["lsn"]),
            part=TransactionPart.of(found.get("part")),
            is_copying=copy is not None,
            after=None if copy is None or copy["after"] is None else tuple(copy["after"]),
            pages=None if copy is None else _pages_of(copy.get("pages")),
            snapshot=0 if copy is None else parse_lsn(copy["snapshot"]),
            rows=0 if copy is None else copy["rows"],
            empties=copy is not None and copy["empties"],
            again_until_lsn=parse_lsn(found["again_until"]) if "again_until" in found else 0,
            ahead_until_lsn=parse_lsn(found["ahead_until"]) if "ahead_until" in found else 0,
            again=tuple((mark, parse_lsn(place)) for mark, place in found.get("again", ())),
            copy_number=found.get("copy_number", 0),
            copied=found.get("copied", 0),
            timeline=found.get("timeline", 0),
            columns=None if columns is None else columns_of_json(columns),
            columns_lsn=parse_lsn(found["columns_since"]) if "columns_since" in found else 0,
            publication=found.get("publication", 0),
            partitions=tuple(found["partitions"]) if "partitions" in found else None,
            membership=tuple(found["membership"]) if "membership" in found else None,
        )


def _pages_of(found: Sequence[Any] | None) -> PagePosition | None:
    if found is None:
        return None
    identity, file, page, end = found
    return PagePosition(identity=identity, file=file, page=page, end=end)
