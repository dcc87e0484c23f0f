"""Records of one W3C trace, found by its id. No JVM.

One column of a table is read, and at most `MOST_RECORDS` records are returned.

Belongs here: finding them. Does not belong here: what became of each (`record_history.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from etl_assets.observability.record_origin import origin_of
from etl_assets.observability.rows import find_rows
from etl_assets.pipelines.declared import OFFSET
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.pipelines.declared import DeclaredTables
    from etl_assets.placement.domains import FailureDomain

MOST_RECORDS = 100
_COLUMNS = ("record_id", "record", "source", "source_position", "ingested_at", "ingest_domain")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRecord:
    """A record of a trace.

    Attributes:
        pipeline: Name of its pipeline.
        record_id: Its id, by which `etl-assets trace` shows what became of it.
        at: When it was accepted, or refused, by the platform's clock (UTC).
        origin: Where it came from.
        domain: Failure domain that read it.
    """

    pipeline: str
    record_id: str
    at: dt.datetime
    origin: str
    domain: str

    def as_json(self) -> dict[str, Any]:
        """Return the record as a JSON object."""
        return {**asdict(self), "at": self.at.isoformat()}


def find_traced(domain: FailureDomain, tables: DeclaredTables, trace_id: str) -> Iterator[TracedRecord]:
    """Yield the accepted records of a trace of which the pipeline's table has rows.

    Args:
        domain: Failure domain of the tables.
        tables: The pipeline's tables.
        trace_id: The id, 32 hexadecimal digits.
    """
    column = tables.table.trace_column
    if column is None:
        return
    table = platform_table(tables.table.name, domain)
    rows = find_rows(table, columns=(OFFSET,), prefix=(column, f"00-{trace_id}-"))
    offsets = {row[OFFSET] for row in islice(rows, MOST_RECORDS)}
    source = platform_table(tables.source.name, domain)
    for record in find_rows(source, columns=_COLUMNS, where={"offset": offsets}):
        yield TracedRecord(
            pipeline=tables.spec.name,
            record_id=record["record_id"],
            at=record["ingested_at"],
            origin=origin_of(tables.spec, record),
            domain=record["ingest_domain"],
        )
