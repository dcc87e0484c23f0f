"""History entries of an event, each built from one row of a table of the orders pipeline. Pure: rows in,
entries out.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from etl_assets.contracts.reasons import Outcome
from etl_assets.observability.history import HistoryEntry, SourceFolders
from etl_assets.orders.tables.normalized_orders import NORMALIZED_ORDERS
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS
from etl_assets.sources.landing import REPLAYS
from etl_assets.sources.replays import INGEST, NORMALIZE, replay_of

COMMIT = "commit"


def accepted(event: Mapping[str, Any], folders: SourceFolders) -> HistoryEntry:
    """Build the entry from a row of raw_events."""
    again = event["source"] == REPLAYS
    file, line = folders.file_and_line(event["source"], event["source_position"])
    return HistoryEntry(
        at=event["ingested_at"],
        stage=INGEST,
        outcome=(Outcome.REPLAYED if again else Outcome.ACCEPTED).value,
        position=event["source_position"],
        table=RAW_EVENTS.name,
        offset=event["offset"],
        file=file,
        line=line,
        attempt=replay_of(event["source_position"])[1] if again else 1,
        domain=event["ingest_domain"],
    )


def normalized(row: Mapping[str, Any], at: dt.datetime | None, attempt: int) -> HistoryEntry:
    """Build the entry from a row of normalized_orders, which does not hold its commit time."""
    return HistoryEntry(
        at=at,
        stage=NORMALIZE,
        outcome=Outcome.NORMALIZED.value,
        position=str(row["raw_offset"]),
        table=NORMALIZED_ORDERS.name,
        offset=row["offset"],
        attempt=attempt,
        domain=row["transform_domain"],
    )


def committed(row: Mapping[str, Any]) -> HistoryEntry:
    """Build the entry from a row of warehouse_rows."""
    return HistoryEntry(
        at=row["committed_at"],
        stage=COMMIT,
        outcome=Outcome.COMMITTED.value,
        position=str(row["normalized_offset"]),
        table=WAREHOUSE_ROWS.name,
        offset=row["normalized_offset"],
        domain=row["sink_domain"],
    )
