"""Tables of users' own assets written without Spark: by delta-rs, in one domain or as a mirrored table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from etl_assets.delta.asset_record import AssetRecord, put_record
from etl_assets.delta.log.entries import entry_path
from etl_assets.delta.table import Table
from etl_assets.placement.domains import FailureDomain

VISITS = AssetRecord(asset="lab/visits", write_spec={"delta_upsert/write_mode": "append"})
NAME = "lab.visits"


def own_table(domain: FailureDomain, name: str = NAME) -> Table:
    return Table(name=name, domain=domain)


def append(
    table: Table,
    rows: Sequence[dict[str, Any]],
    *,
    run: str | None = None,
    partition_by: list[str] | None = None,
) -> int:
    """Append rows in one commit, and have it acknowledged if the table is mirrored; return the table's
    version.
    """
    mirrored = table.replication
    folder, lead = table.path, None
    if mirrored is not None:
        mirrored.create()
        lead = mirrored.lead()
        folder = mirrored.folder(lead)
    folder.mkdir(parents=True, exist_ok=True)
    ids = [] if run is None else [Transaction(app_id=run, version=0)]
    write_deltalake(
        str(folder),
        pa.Table.from_pylist(list(rows)),
        mode="append",
        partition_by=partition_by,
        commit_properties=CommitProperties(app_transactions=ids),
    )
    if mirrored is not None and lead is not None:
        mirrored.acknowledge(lead, entry_path(folder, lead.version + 1).read_bytes())
        mirrored.follow()
    return table.version()


def visits(domain: FailureDomain, *numbers: int) -> Table:
    """A table of an own asset that says so, one commit a number after its first two versions."""
    table = own_table(domain)
    append(table, [{"n": 0, "partition_date": "eu"}], partition_by=["partition_date"])
    put_record(table, VISITS, base_version=0)
    for number in numbers:
        append(table, [{"n": number, "partition_date": "eu"}], partition_by=["partition_date"])
    return table


def rows_in(folder: Path | str, version: int | None = None) -> list[int]:
    from deltalake import DeltaTable

    found = DeltaTable(str(folder), version=version).to_pyarrow_dataset().to_table(columns=["n"])
    return sorted(found.column("n").to_pylist())
