"""Rows in a mirrored table of three domains, committed without Spark: for tests of what reads them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable

from etl_assets.delta.log.entries import entry_path
from etl_assets.delta.write.records import commit_rows
from etl_assets.delta.write.writing import writing
from etl_assets.placement.domains import Placement
from etl_assets.steps.step import platform_table


def commit_customers(placement: Placement, domain: str, ids: Iterable[str]) -> int:
    """Commit customers from a domain, and bring every replica that answers up to that; the version."""
    found = placement.named(domain)
    assert found is not None
    table = platform_table("customers", found)
    with writing(table, wait_seconds=10, driver_pid=None):
        rows = [{"customer_id": each, "customer_region": "EU"} for each in ids]
        commit_rows(table, rows, base_version=table.version())
    assert table.replication is not None
    table.replication.follow()
    return table.version()


def publish_unacknowledged(name: str, placement: Placement) -> None:
    """Have every replica's log go on with a version that nobody voted for: the rows of the last one again, in
    another file.
    """
    for domain in placement.domains:
        pinned = platform_table(name, domain).pin()
        assert pinned is not None
        assert pinned.domain == domain.name
        actions = [
            json.loads(line) for line in entry_path(pinned.path, pinned.version).read_text().splitlines()
        ]
        for added in (action["add"] for action in actions if "add" in action):
            shutil.copyfile(pinned.path / added["path"], pinned.path / f"again-{added['path']}")
            added["path"] = f"again-{added['path']}"
        entry = "".join(f"{json.dumps(action)}\n" for action in actions)
        entry_path(pinned.path, pinned.version + 1).write_text(entry, "utf-8")
