"""The past of the history case: landing files of many days, and tables with a version for each of those days."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from etl_assets.delta.log import entry_path, latest_version
from etl_assets.events.wire import WireEvent

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


def land_past(landing: Path, past: Past) -> None:
    """Land the files, evenly over the days; nothing reads them yet, so nothing is fsynced."""
    for number in range(past.files):
        day = past.past_days[number % past.days]
        _land(landing, day, f"past-{number:06d}", f"past-{number}", EVENTS_A_FILE)


def land_increment(landing: Path, day: dt.date, number: int, events: int) -> None:
    """Land one more file of a day."""
    _land(landing, day, f"increment-{number:06d}", f"increment-{number}", events)


def spread_over_versions(spark: SparkSession, table: Path) -> None:
    """Rewrite a table's log as if each of its days had been committed by itself, cursors and all, with a checkpoint.

    A thousand commits by Spark would take half an hour. The rows keep the batch id of the one commit, which only says
    that they have been read long ago.
    """
    if (newest := latest_version(table)) < 1:
        return
    actions = [json.loads(line) for line in entry_path(table, newest).read_text("utf-8").splitlines()]
    days = _added_by_day(actions)
    if len(days) < 2:
        return
    info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    for version, (day, added) in enumerate(days.items(), start=newest):
        _write_entry(table, version, [*_of_one_day(info, day), *added])
    rest = [action for action in actions if not action.keys() & {"add", "commitInfo"}]
    _write_entry(table, newest + len(days), [{"commitInfo": {**info, "userMetadata": None}}, *rest])
    checkpoint(spark, table)


def checkpoint(spark: SparkSession, table: Path) -> None:
    """Have Delta write a checkpoint, as it does with every tenth commit, and forget all it knows of tables."""
    # Delta offers no public way to a checkpoint.
    java: Any = spark._jvm
    delta_log = java.org.apache.spark.sql.delta.DeltaLog
    delta_log.clearCache()
    delta_log.forTable(spark._jsparkSession, str(table)).checkpoint()
    delta_log.clearCache()


def _added_by_day(actions: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    days: dict[str, list[dict[str, Any]]] = {}
    for action in actions:
        if (day := action.get("add", {}).get("partitionValues", {}).get("partition_date")) is not None:
            days.setdefault(day, []).append(action)
    return days


def _of_one_day(info: dict[str, Any], day: str) -> list[dict[str, Any]]:
    """The commit's information, and the day's cursors as transaction ids, as a run over that day leaves them."""
    metadata = json.loads(info["userMetadata"])
    cursors = {name: version for name, version in metadata["cursors"].items() if name.endswith(f"/{day}")}
    text = json.dumps({**metadata, "cursors": cursors})
    ids = [{"txn": {"appId": name, "version": version}} for name, version in cursors.items()]
    return [{"commitInfo": {**info, "userMetadata": text}}, *ids]


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
