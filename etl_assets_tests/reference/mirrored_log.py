"""Log entries of a mirrored table as Spark writes them, made without Spark.

They have all that a checkpoint must keep: in-commit timestamps, transaction ids, domain metadata, partition
values, statistics, files that come and go.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from etl_assets.delta.log.checkpoint import checkpoint_in_place
from etl_assets.delta.log.entries import entry_path
from etl_assets.delta.replicated.replication import TABLE_PROPERTIES, Replication
from etl_assets.delta.snapshot import Snapshot
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.placement.domain_registry import DomainRegistry
from etl_assets.placement.domains import FailureDomain
from etl_assets.placement.site import Site
from etl_assets_tests.reference.tables import CATALOG

FIRST_DAY = dt.date(2026, 1, 1)
DATA = b"not opened"
_START_MILLISECONDS = 1_767_225_600_000
_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("event_id", "string"), ("batch_id", "long"), ("partition_date", "date"))
    ],
}


def log_entries(count: int, *, first: int = 0) -> Iterator[bytes]:
    """The entries of some versions. Each adds a file; every tenth one takes out the file of the one
    before.
    """
    for version in range(first, first + count):
        yield "".join(json.dumps(action) + "\n" for action in _actions(version)).encode()


def _actions(version: int) -> Iterator[dict[str, Any]]:
    at = _START_MILLISECONDS + 1_000 * version
    yield {
        "commitInfo": {"inCommitTimestamp": at, "timestamp": at, "operation": "WRITE", "operationMetrics": {}}
    }
    if version == 0:
        yield {
            "protocol": {
                "minReaderVersion": 1,
                "minWriterVersion": 7,
                "writerFeatures": ["appendOnly", "domainMetadata", "inCommitTimestamp", "invariants"],
            }
        }
        yield {
            "metaData": {
                "id": "6f2d6f1e-7f0c-4f5c-9d0e-0c7d3b9f3a10",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(_SCHEMA),
                "partitionColumns": ["partition_date"],
                "configuration": TABLE_PROPERTIES,
                "createdTime": at,
            }
        }
        yield {"domainMetadata": {"domain": "etl", "configuration": '{"kept":true}', "removed": False}}
    day = FIRST_DAY + dt.timedelta(days=version % 30)
    yield {"txn": {"appId": f"raw_events/{day}", "version": version, "lastUpdated": at}}
    yield {"add": _file(version, at, day)}
    if version % 10 == 9:
        before = _file(version - 1, at, FIRST_DAY + dt.timedelta(days=(version - 1) % 30))
        yield {
            "remove": {
                "path": before["path"],
                "deletionTimestamp": at,
                "dataChange": True,
                "extendedFileMetadata": True,
                "partitionValues": before["partitionValues"],
                "size": before["size"],
            }
        }


def _file(version: int, at: int, day: dt.date) -> dict[str, Any]:
    stats = {
        "numRecords": 3,
        "minValues": {"event_id": f"e{version}", "batch_id": version},
        "maxValues": {"event_id": f"e{version}z", "batch_id": version},
        "nullCount": {"event_id": 0, "batch_id": 0},
    }
    return {
        "path": f"partition_date={day}/part-{version}.parquet",
        "partitionValues": {"partition_date": day.isoformat()},
        "size": len(DATA),
        "modificationTime": at,
        "dataChange": True,
        "stats": json.dumps(stats),
    }


def write_log(folder: Path, count: int) -> None:
    """A table's log in a folder, without data files."""
    entry_path(folder, 0).parent.mkdir(parents=True)
    for version, entry in enumerate(log_entries(count)):
        entry_path(folder, version).write_bytes(entry)


def single_log(
    root: Path,
    count: int,
    *,
    name: str = "events",
    checkpoints: Sequence[int] = (),
    properties: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """A table as a platform of one domain leaves it, data files and Delta's own checkpoints of some versions;
    its folder.
    """
    folder = root / "tables" / name / "g000001"
    entry_path(folder, 0).parent.mkdir(parents=True)
    for version, entry in enumerate(log_entries(count)):
        lines = [_of_one_domain(json.loads(line), properties) for line in entry.splitlines()]
        put_data(folder, entry)
        entry_path(folder, version).write_text("".join(json.dumps(line) + "\n" for line in lines))
        if version in checkpoints:
            checkpoint_in_place(folder, version)
    return folder


def _of_one_domain(action: dict[str, Any], properties: Mapping[str, str]) -> dict[str, Any]:
    if "commitInfo" in action:
        action["commitInfo"].pop("inCommitTimestamp")
    if "protocol" in action:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    if "metaData" in action:
        action["metaData"]["configuration"] = dict(properties)
    return action


def three_replications(home: Path, name: str = "events") -> tuple[Replication, ...]:
    """A mirrored table as seen from each of three domains."""
    made = replications(home, name)
    made[0].create()
    return made


def replications(
    home: Path, name: str = "events", *, roles: Mapping[str, Role] = MappingProxyType({})
) -> tuple[Replication, ...]:
    """A table as new processes in each of three domains see it, mirrored or not yet."""
    sites = tuple(Site(name=each, root=str(home / each), role=roles.get(each, Role.VOTER)) for each in "abc")
    memory = DomainRegistry(home / "domains.json")
    for site in sites:
        memory.take(site.name, site.root)
    return tuple(
        Replication(name, FailureDomain(catalog=CATALOG, name=site.name, root=Path(site.root), sites=sites))
        for site in sites
    )


def commit_entries(mirrored: Replication, count: int) -> int:
    """Have the next versions acknowledged, data files and all; the newest version."""
    lead = mirrored.lead()
    for entry in log_entries(count, first=lead.version + 1):
        folder, version = mirrored.folder(lead), lead.version + 1
        put_data(folder, entry)
        entry_path(folder, version).parent.mkdir(exist_ok=True)
        entry_path(folder, version).write_bytes(entry)
        mirrored.acknowledge(lead, entry)
        lead = mirrored.lead()
    return lead.version


def put_data(folder: Path, entry: bytes) -> None:
    """Have the data files that an entry adds."""
    for line in entry.splitlines():
        if (added := json.loads(line).get("add")) is not None:
            (folder / added["path"]).parent.mkdir(parents=True, exist_ok=True)
            (folder / added["path"]).write_bytes(DATA)


def all_that_it_says(snapshot: Snapshot) -> dict[str, Any]:
    """What the platform asks of a snapshot."""
    days = [FIRST_DAY + dt.timedelta(days=number) for number in range(30)]
    return {
        "version": snapshot.version,
        "table": snapshot.table_id,
        "plain": snapshot.is_plain,
        "partitions": snapshot.partition_columns(),
        "rows": snapshot.rows_by("partition_date"),
        "files": sorted(snapshot.files_by_day()),
        "newest": snapshot.newest_batch_by_day(),
        "highest": snapshot.maximum("batch_id"),
        "cursors": [snapshot.transaction_version(f"raw_events/{day}") for day in days],
    }
