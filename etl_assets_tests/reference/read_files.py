"""Commits that name the files they read, as ingest makes them: log entries by hand, without Spark and without
rows.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from etl_assets.delta.log.entries import entry_path, latest_version
from etl_assets.sources.batch_plan import BatchPlan
from etl_assets.sources.ledger import FILES, Ledger
from etl_assets.sources.source_files import SourceFile


class ReadFiles:
    """A table in a folder, and the ledger of it beside."""

    def __init__(self, folder: Path) -> None:
        self.table = folder / "table"
        self.days = folder / "ledger"
        self.table_id = uuid.uuid4().hex

    def ledger(self, days: Path | None = None) -> Ledger:
        return Ledger(days or self.days, self.table, latest_version(self.table), self.table_id)

    def clean_up(self, *, before: int) -> None:
        """Shorten the table's log."""
        for version in range(before):
            entry_path(self.table, version).unlink(missing_ok=True)

    def commit(self, *files: SourceFile, **other_facts: object) -> None:
        """Commit a batch of files, or something else without any."""
        version = latest_version(self.table) + 1
        facts = {FILES: BatchPlan(batch_id=version, files=files).marks} if files else other_facts
        metadata = {"writer": uuid.uuid4().hex, "facts": facts}
        info = {"commitInfo": {"timestamp": 1_000 * version, "userMetadata": json.dumps(metadata)}}
        path = entry_path(self.table, version)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(info) + "\n")
