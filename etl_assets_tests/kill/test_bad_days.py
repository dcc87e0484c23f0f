"""Days with bad files among good ones, by the command that users type: the good ones arrive, the bad ones are
named each time.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from etl_assets.failpoints import Failpoint
from etl_assets_tests.pipeline import event

pytestmark = [pytest.mark.spark, pytest.mark.kill]

PLATFORM = {
    "start_date": "2026-01-04",
    "landing": {"settle_seconds": 0},
    "spark": {
        "master": "local[2]",
        "driver_memory": "1g",
        "start": "quick",
        "config": {"spark.sql.shuffle.partitions": "2", "spark.databricks.delta.snapshotPartitions": "2"},
    },
}
COMMAND = Path(sys.executable).with_name("etl-assets")
NOT_UTF_8 = os.fsdecode(b"\xff\xfe.jsonl")


class Home:
    """A home folder and what a user does with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        (path / "platform.yaml").write_text(json.dumps(PLATFORM))

    def land(self, day: int, name: str, *lines: dict[str, Any] | str) -> Path:
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        content = "".join(f"{text}\n" for text in texts).encode()
        file = self.path / "landing" / f"2026-01-{day:02}" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(content)[:-9] if name.endswith(".gz") else content)
        return file

    def run(self, failpoint: str = "") -> subprocess.CompletedProcess[str]:
        surroundings = {"ETL_ASSETS_HOME": str(self.path), "ETL_ASSETS_FAILPOINT": failpoint}
        return subprocess.run(
            [COMMAND, "run", "--json"],
            env=os.environ | surroundings,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def rows(self, table: str) -> list[dict[str, Any]]:
        from deltalake import DeltaTable

        (folder,) = (self.path / "data" / "tables" / table).glob("g*")
        return DeltaTable(str(folder)).to_pyarrow_dataset().to_table().to_pylist()

    def days(self, table: str) -> set[int]:
        return {row["partition_date"].day for row in self.rows(table)}

    def outcomes(self) -> dict[str, str]:
        """What became of each line at ingest; none has two."""
        rows = [row for row in self.rows("audit_log") if row["stage"] == "ingest"]
        found = {row["source_position"]: row["outcome"] for row in rows}
        assert len(found) == len(rows)
        refused = self.rows("raw_events_exceptions")
        assert {row["source_position"]: row["outcome"] for row in refused}.items() <= found.items()
        assert len(refused) == sum(outcome != "accepted" for outcome in found.values())
        return found


def test_good_days_arrive_beside_bad_ones_and_after_a_kill_each_line_has_one_outcome(tmp_path):
    home = Home(tmp_path / "home")
    home.land(2, "a.jsonl", event(99))
    home.land(5, "a.jsonl", event(1), "bad")
    home.land(6, "a.jsonl", event(2))
    broken = home.land(6, "broken.jsonl.gz", event(3))
    home.land(7, "a.jsonl", event(4, payload={"customer_id": "c", "amount": "12.50\u2028"}), event(5))
    home.land(8, "a.jsonl", event(6))
    unnameable = home.land(8, NOT_UTF_8, event(7))
    home.land(9, "a.jsonl", event(8))
    for number in range(6):
        (home.path / "landing" / f"backup-{number}").mkdir()
    (home.path / "landing" / "2026-01-09" / "link.jsonl").symlink_to("a.jsonl")

    done = home.run()
    assert done.returncode == 1, done.stderr
    for part in (
        "broken.jsonl.gz cannot be decompressed",
        r"2026-01-08/\xff\xfe.jsonl has a name that is not UTF-8",
        "backup-4 and 1 more in the landing folder are no days",
        "2026-01-02 lie outside of the partitions",
        "2026-01-09/link.jsonl are no event files",
    ):
        assert part in done.stderr
    assert json.loads(done.stdout)["raw_events"]["accepted"] == 4
    assert home.days("raw_events") == {5, 7, 9}
    assert {row["event_id"] for row in home.rows("warehouse_rows")} == {"event-1", "event-5", "event-8"}
    assert {row["order_id"] for row in home.rows("order_status_view")} == {"order-1", "order-5", "order-8"}
    letters = {row["source_position"]: row["reason"] for row in home.rows("dead_letters")}
    assert letters == {"2026-01-05/a.jsonl:2": "MalformedJson", "2026-01-07/a.jsonl:1": "InvalidPayload"}

    # One bad day is put right, and the run dies between what a batch of another day refuses and its rows.
    unnameable.rename(unnameable.with_name("b.jsonl"))
    first = home.land(10, "a.jsonl", event(9))
    home.land(10, "b.jsonl", event(9, payload={"customer_id": "other", "amount": 1}), event(10), "bad")
    assert home.run(f"{Failpoint.EXCEPTIONS_AFTER_COMMIT}@raw_events").returncode == -signal.SIGKILL
    assert home.days("raw_events") == {5, 7, 8, 9}
    assert home.days("raw_events_exceptions") == {5, 10}

    # Without the file that came first, the line that contradicted it is the one that stands.
    first.rename(tmp_path / "a.jsonl")
    broken.unlink()
    done = home.run()
    assert done.returncode == 0, done.stderr
    assert home.days("warehouse_rows") == {5, 6, 7, 8, 9, 10}
    assert home.outcomes() == {
        **{f"2026-01-{day:02}/a.jsonl:1": "accepted" for day in (5, 6, 7, 8, 9)},
        "2026-01-05/a.jsonl:2": "rejected",
        "2026-01-07/a.jsonl:2": "accepted",
        "2026-01-08/b.jsonl:1": "accepted",
        "2026-01-10/b.jsonl:1": "accepted",
        "2026-01-10/b.jsonl:2": "accepted",
        "2026-01-10/b.jsonl:3": "rejected",
    }
    at_ingest = {row["source_position"] for row in home.rows("dead_letters") if row["stage"] == "ingest"}
    assert at_ingest == {"2026-01-05/a.jsonl:2", "2026-01-10/b.jsonl:3"}
