"""An installation with a table and a webhook, without Spark: rows are committed here, and delivered by
processes that a test may kill.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from etl_assets.delta.table import Table
from etl_assets.delta.write.records import commit_rows
from etl_assets.settings import Settings, load_installation
from etl_assets.steps.step import platform_table

PIPELINE = """
name: films
source: {type: files, path: "landing/*.csv", id: [film_id], settle_seconds: 0}
columns: {film_id: bigint, title: string, op: string}
table:
  keys: [film_id]
  write_mode: apply_changes
  apply_as_deletes: "op = 'D'"
  except_column_list: [op]
sinks:
  - {type: webhook, connection: hooks, path: "films/{film_id}"}
"""
STEP = "films_to_webhook"
DELIVER = f"""
import resource
from etl_assets.settings import load_installation
from etl_assets.steps.step import ReadMode, StepArguments, StepContext, step_of

settings = load_installation()
context = StepContext(session=lambda: None, domain=settings.placement().domains[0])
mode = ReadMode.MODE
report = step_of({STEP!r}, StepArguments(settings=settings, context=context, mode=mode)).run([])
print(dict(report.total()), report.notes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
TOKEN = "a-token-that-must-not-be-seen"


class WebhookLab:
    """A home folder with the table `films` and its webhook."""

    def __init__(self, home: Path, url: str, **connection: Any) -> None:
        self.home = home
        home.mkdir(exist_ok=True)
        (home / "pipelines").mkdir()
        (home / "landing").mkdir()
        hooks = {
            "type": "webhook",
            "url": f"{url}/v1",
            "headers": {"Authorization": "Bearer ${HOOKS_TOKEN}"},
            "write": ["films/*"],
            "timeout_seconds": 5,
            **connection,
        }
        settings = {"pipelines": {"built_in": []}, "connections": {"hooks": hooks}}
        (home / "platform.yaml").write_text(yaml.safe_dump(settings))
        (home / "pipelines" / "films.yaml").write_text(PIPELINE)
        self.offset = 0

    @property
    def settings(self) -> Settings:
        return load_installation({"ETL_ASSETS_HOME": str(self.home)})

    def table(self, name: str = "films") -> Table:
        return platform_table(name, self.settings.placement().domains[0])

    def write(self, rows: Iterable[tuple[int, str]]) -> None:
        """Commit rows; those of the same keys are replaced."""
        given = dict(rows)
        table = self.table()
        base = table.version()
        snapshot = table.snapshot() if base >= 0 else None
        there = [] if snapshot is None else snapshot.dataset().to_table().to_pylist()
        version = max(base, 0) + 1
        self.offset += 1
        new = [
            {"film_id": key, "title": title, "_offset": self.offset, "_batch_id": version}
            for key, title in given.items()
        ]
        self._replace(table, [row for row in there if row["film_id"] not in given] + new, base)

    def delete(self, keys: Sequence[int]) -> None:
        """Commit tombstones, then the table without the rows."""
        tombstones = self.table("films_tombstones")
        base = tombstones.version()
        self.offset += 1
        dead = [
            {
                "_is_truncate": False,
                "film_id": key,
                "_offset": self.offset,
                "_batch_id": max(base, 0) + 1,
            }
            for key in keys
        ]
        commit_rows(tombstones, dead, base_version=base)
        table = self.table()
        snapshot = table.snapshot()
        assert snapshot is not None
        there = snapshot.dataset().to_table().to_pylist()
        self._replace(table, [row for row in there if row["film_id"] not in keys], table.version())

    def deliver(self, *, failpoint: str = "", mode: str = "INCREMENTAL") -> subprocess.CompletedProcess[str]:
        """Carry out the step in a process of its own."""
        process = self.start(failpoint=failpoint, mode=mode)
        out, err = process.communicate(timeout=280)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(self, *, failpoint: str = "", mode: str = "INCREMENTAL") -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "ETL_ASSETS_HOME": str(self.home),
            "ETL_ASSETS_FAILPOINT": failpoint,
            "HOOKS_TOKEN": TOKEN,
            "HOOKS_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        }
        return subprocess.Popen(
            [sys.executable, "-c", DELIVER.replace("MODE", mode)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def deliveries(self) -> list[dict[str, Any]]:
        return sorted(self._rows(STEP), key=lambda row: row["_batch_id"])

    def rejected(self) -> list[dict[str, Any]]:
        return self._rows(f"{STEP}_rejects")

    def effects(self) -> list[dict[str, Any]]:
        return self._rows("effects")

    def stored(self) -> dict[str, str]:
        return {str(row["film_id"]): row["title"] for row in self._rows("films")}

    def _rows(self, name: str) -> list[dict[str, Any]]:
        table = self.table(name)
        snapshot = table.snapshot() if table.version() >= 0 else None
        return [] if snapshot is None else snapshot.dataset().to_table().to_pylist()

    def _replace(self, table: Table, rows: list[dict[str, Any]], base: int) -> None:
        from etl_assets.delta.write.content import content_of

        snapshot = table.snapshot() if base >= 0 else None
        old = () if snapshot is None else tuple(content_of(snapshot).values())
        commit_rows(table, rows, base_version=base, removed=old)
