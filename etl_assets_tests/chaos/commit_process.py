"""A process that commits to a mirrored table from one domain, over and over, and notes what was acknowledged.

A commit is one data file with an id of its own and its log entry, written as Spark would write them.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import uuid
from pathlib import Path

from etl_assets.delta.replicated.replication import Replication
from etl_assets.delta.write.lock import writer_lock
from etl_assets.errors import EtlAssetsError
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.placement.domains import FailureDomain
from etl_assets.placement.site import Site
from etl_assets_tests.reference.tables import CATALOG

TABLE = "events"
NAMES = ("a", "b", "c")


def domain_of(home: Path, name: str) -> FailureDomain:
    sites = tuple(Site(name=each, root=str(home / each), role=Role.VOTER) for each in NAMES)
    return FailureDomain(catalog=CATALOG, name=name, root=home / name, sites=sites)


def data_of(commit_id: str) -> bytes:
    """The data file of a commit."""
    return commit_id.encode() * 50


def main(home: Path, name: str, acknowledged: Path) -> None:
    """Commit until killed."""
    domain = domain_of(home, name)
    table = Replication(TABLE, domain)
    with acknowledged.open("a", encoding="utf-8") as notes:
        while True:
            try:
                with writer_lock(domain.lock_path(TABLE), table=TABLE, wait_seconds=1, driver_pid=None):
                    note = commit(table)
            except (EtlAssetsError, OSError):
                time.sleep(random.uniform(0.0, 0.1))
                continue
            notes.write(f"{note}\n")
            notes.flush()
            os.fsync(notes.fileno())


def commit(table: Replication) -> str:
    """Commit one file; returns its id once it is acknowledged."""
    lead = table.lead()
    version, folder = lead.version + 1, table.folder(lead)
    commit_id = uuid.uuid4().hex
    (folder / "_delta_log").mkdir(parents=True, exist_ok=True)
    data = folder / f"part-{commit_id}.parquet"
    data.write_bytes(data_of(commit_id))
    action = {"add": {"path": data.name, "size": data.stat().st_size, "partitionValues": {}}}
    entry = json.dumps({"commitInfo": {"id": commit_id, "epoch": str(lead.epoch)}}) + "\n"
    entry += json.dumps(action) + "\n"
    with (folder / "_delta_log" / f"{version:020d}.json").open("x", encoding="utf-8") as file:
        file.write(entry)
    table.acknowledge(lead, entry.encode())
    return commit_id


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
