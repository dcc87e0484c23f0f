"""Tables of the platform written by delta-rs from a few rows, for tests of what reads them without Spark."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from etl_assets.placement.domains import FailureDomain
from etl_assets.steps.step import platform_table

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
DAY = NOON.date()
_SCALARS = {
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
_FILLED = {"STRING": "x", "INT": 1, "BIGINT": 1, "DOUBLE": 1.0, "DATE": DAY, "TIMESTAMP": NOON}


def write_table(
    domain: FailureDomain,
    name: str,
    rows: Sequence[Mapping[str, Any]],
    cursors: Mapping[str, int] | None = None,
) -> None:
    """Append rows in one commit; a column a row does not name is null, or filled where it may not be.

    Args:
        domain: Where the table is.
        name: A table of the platform.
        rows: By column.
        cursors: Transaction ids of the commit.
    """
    contract = domain.catalog.table(name)
    arrays = {}
    for column in contract.columns:
        kind = _arrow(column.type)
        filled = None if column.nullable else _FILLED.get(column.type)
        arrays[column.name] = pa.array([row.get(column.name, filled) for row in rows], type=kind)
    path = platform_table(name, domain).path
    path.mkdir(parents=True, exist_ok=True)
    transactions = [
        Transaction(app_id=app_id, version=version) for app_id, version in (cursors or {}).items()
    ]
    write_deltalake(
        str(path),
        pa.table(arrays),
        mode="append",
        partition_by=list(contract.delta_partition) or None,
        commit_properties=CommitProperties(app_transactions=transactions),
    )


def _arrow(ddl: str) -> pa.DataType:
    if ddl in _SCALARS:
        return _SCALARS[ddl]
    if decimal := re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", ddl):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if entries := re.fullmatch(r"MAP<STRING, (.+)>", ddl):
        return pa.map_(pa.string(), _arrow(entries[1]))
    raise NotImplementedError(ddl)
