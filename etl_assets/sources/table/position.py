"""How far a pipeline has read another table.

Belongs here: the value, and its form among positions. Does not belong here: what follows from it
(`source.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from etl_assets.pipelines.table_source_spec import TABLE
from etl_assets.sinks.position import SinkPosition
from etl_assets.sources.ranges import Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePosition:
    """How far a table is read.

    Attributes:
        number: How many ranges were read; it identifies the records of a range.
        table_id: The table's id; empty before the first range.
        version: Every row of the versions up to this one is read.
    """

    number: int = 0
    table_id: str = ""
    version: int = -1

    @classmethod
    def of(cls, positions: Positions) -> TablePosition:
        """Return the position of a source's."""
        found = positions.get(TABLE)
        if found is None:
            return cls()
        return cls(number=found["range"], table_id=found["table_id"], version=found["version"])

    def as_positions(self) -> dict[str, Any]:
        """Return the positions of a source that has read so far."""
        return {TABLE: {"range": self.number, "table_id": self.table_id, "version": self.version}}

    @property
    def as_of_sink(self) -> SinkPosition | None:
        """The position of a sink that has as much of the table; None before the first range."""
        return SinkPosition(table_id=self.table_id, version=self.version) if self.table_id else None
