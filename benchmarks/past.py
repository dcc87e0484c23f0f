"""The past of the history case: landing files of many days, and tables with a version for each of those
files.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from etl_assets.delta.log.entries import entry_path, latest_version
from etl_assets.delta.log.own_commit import keep_last_commit
from etl_assets.orders.generator.wire import WireEvent
from etl_assets.sources.ledger import FILES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_DAY = dt.date(2023, 1, 1)
EVENTS_A_FILE = 2
INCREMENT = 1_000
"""Events of a file that comes in while the clock runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """How much of it there is."""

    days: int
    files: int

    @property
    def past_days(self) -> tuple[dt.date, ...]:
        return tuple(FIRST_DAY + dt.timedelta(days=number) for number in range(self.days))

    @property
    def day(self) -> dt.date:
        """The day after, which is the one that a measured run touches."""
        return FIRST_DAY + dt.timedelta(days=self.days)

    def day_of(self, number: int) -> dt.date:
        """The day of a landing file: each day gets one in turn."""
        return FIRST_DAY + dt.timedelta(days=number % self.days)


def land_past(landing: Path, past: Past) -> None:
    """Land the files, evenly over the days; nothing reads them yet, so nothing is fsynced."""
    for number in range(past.files):
        _land(landing, past.day_of(number), f"past-{number:06d}", f"past-{number}", EVENTS_A_FILE)


def land_increment(landing: Path, day: dt.date, number: int, events: int) -> None:
    """Land one more file of a day."""
    _land(landing, day, f"increment-{number:06d}", f"increment-{number}", events)


def spread_over_versions(spark: SparkSession, table: Path, past: Past) -> None:
    """Rewrite a table's log as if each landing file had been carried by itself: a version for each, and a
    checkpoint.

    Ten thousand commits by Spark would take half a day. So the first file of a day brings all rows that the
    table has of it (all there are, where it has no days) and the day's other files bring none; each says what
    such a commit says: the file it read, and as transaction ids the cursors of its day, as versions of
    sources that have been spread as well. The rows keep the batch id of the one commit, which only says that
    they have been read long ago.
    """
    if (base := latest_version(table)) < 1:
        return
    actions = [json.loads(line) for line in entry_path(table, base).read_text("utf-8").splitlines()]
    info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    of_all = json.loads(info["userMetadata"])
    positions = {each["txn"]["appId"]: each["txn"]["version"] for each in actions if "txn" in each}
    positions |= of_all["cursors"]
    changes = _changes_by_day(actions)
    for number in range(past.files):
        day = past.day_of(number).isoformat()
        note = _note_of_one_file(of_all, day, number // past.days)
        ends = ("/*", f"/{day}")
        head = [
            {"commitInfo": {**info, "userMetadata": json.dumps(note)}},
            *(
                {"txn": {"appId": name, "version": version + number}}
                for name, version in positions.items()
                if "/" not in name or name.endswith(ends)
            ),
        ]
        first = changes.pop(None, []) if number == 0 else []
        _write_entry(table, base + number, [*head, *first, *changes.pop(day, [])])
    if changes:
        raise ValueError(f"{table} has rows of days without a landing file: {sorted(map(str, changes))}")
    newest = base + past.files - 1
    keep_last_commit(table, newest, entry_path(table, newest).read_bytes())
    checkpoint(spark, table)


def checkpoint(spark: SparkSession, table: Path) -> None:
    """Have Delta write a checkpoint, as it does with every tenth commit, and forget all it knows of
    tables.
    """
    # Delta offers no public way to a checkpoint.
    java: Any = spark._jvm
    delta_log = java.org.apache.spark.sql.delta.DeltaLog
    delta_log.clearCache()
    delta_log.forTable(spark._jsparkSession, str(table)).checkpoint()
    delta_log.clearCache()


def _changes_by_day(actions: list[dict[str, Any]]) -> dict[str | None, list[dict[str, Any]]]:
    """What a commit does to the table, by the day of the file it adds; None for the rest."""
    changes: dict[str | None, list[dict[str, Any]]] = {}
    for action in actions:
        if not action.keys() & {"commitInfo", "txn"}:
            day = action.get("add", {}).get("partitionValues", {}).get("partition_date")
            changes.setdefault(day, []).append(action)
    return changes


def _note_of_one_file(note: dict[str, Any], day: str, of_day: int) -> dict[str, Any]:
    """Of the note of the one commit what a commit says that has carried one file: the so-manyth of a day."""
    facts = dict(note["facts"])
    if FILES in facts:
        file, mark = list(facts[FILES][day].items())[of_day]
        facts[FILES] = {day: {file: mark}}
    return {**note, "cursors": {}, "facts": facts}


def _write_entry(table: Path, version: int, actions: list[dict[str, Any]]) -> None:
    path = entry_path(table, version)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.with_suffix(".crc").unlink(missing_ok=True)
    path.write_text("".join(json.dumps(action) + "\n" for action in actions), "utf-8")


def _land(landing: Path, day: dt.date, file: str, seed: str, events: int) -> None:
    folder = landing / day.isoformat()
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(event.to_line() + "\n" for event in _events(Random(seed), day, events))
    hidden = folder / f".{file}"
    hidden.write_text(lines, "utf-8")
    hidden.rename(folder / f"{file}.jsonl")


def _events(random: Random, day: dt.date, events: int) -> Iterator[WireEvent]:
    """Events with random ids, so that nothing about an id tells where in the past it might be."""
    for number in range(events):
        yield WireEvent(
            event_id=f"{random.getrandbits(128):032x}",
            tenant_id=f"tenant-{number % 4}",
            aggregate_id=f"order-{random.getrandbits(64):016x}",
            event_type="OrderCreated",
            payload={"customer_id": f"c-{number}", "amount": "12.50", "currency": "EUR"},
            timestamp=f"{day.isoformat()}T10:00:00Z",
        )
