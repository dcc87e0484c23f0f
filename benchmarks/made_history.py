"""The history of the increment case: a platform with millions of events of many days, made once for each size
and kept.

The rows of raw_events are made up in Spark and committed by the platform's own commit, because judging ten
million lines would take an hour; what follows from them is made by the platform's steps.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import run_script
from benchmarks.options import Options, script_environment
from etl_assets.installed import built_in_catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST_DAY = dt.date(2025, 1, 1)
EVENTS_AN_ORDER = 5
_LASTING = frozenset({".parquet", ".npy", ".jsonl"})
"""What is never written to again: a copy of a platform may share it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """How much of it there is: so many events on each of so many days."""

    days: int
    events_a_day: int

    @property
    def events(self) -> int:
        return self.days * self.events_a_day

    @property
    def all_days(self) -> list[dt.date]:
        return [FIRST_DAY + dt.timedelta(days=number) for number in range(self.days)]

    @property
    def name(self) -> str:
        """Names the size and the columns of the tables, so that a history of older columns is not taken for
        it.
        """
        columns = repr([(table.name, table.columns) for table in built_in_catalog().tables])
        return f"history-{self.events}-{self.days}-{hashlib.sha256(columns.encode()).hexdigest()[:8]}"


def kept_history(options: Options, history: History) -> Path:
    """The home of a platform with this history; not to be written to: `copied` is."""
    home = options.folder / "input" / history.name
    if not home.exists():
        print(f"  making a history of {history.events:,} events, once ...", file=sys.stderr)
        making = home.with_name(f".{home.name}")
        shutil.rmtree(making, ignore_errors=True)
        run_script(
            "increment_build",
            {
                "home": str(making),
                "days": history.days,
                "events_a_day": history.events_a_day,
                "spark": options.spark_settings(options.folder / "increment-build"),
            },
            script_environment(),
        )
        making.rename(home)
    return home


def copied(home: Path, to: Path) -> Path:
    """A platform of its own with the same content; what nobody ever writes to again is shared."""
    shutil.rmtree(to, ignore_errors=True)

    def copy(source: str, target: str) -> None:
        if Path(source).suffix in _LASTING and "_delta_log" not in source:
            os.link(source, target)
        else:
            shutil.copy2(source, target)

    shutil.copytree(home, to, copy_function=copy)
    return to


def made_rows(spark: SparkSession, history: History) -> DataFrame:
    """Rows as raw_events has them, with random ids; a partition for each day."""
    from pyspark.sql import functions as F

    from etl_assets.orders.tables.raw_events import RAW_EVENTS

    day = f"date_add(DATE'{FIRST_DAY}', CAST(id DIV {history.events_a_day} AS INT))"
    order = f"id DIV {EVENTS_AN_ORDER}"
    values = {
        "offset": "id",
        "event_id": "md5(CAST(id AS STRING))",
        "tenant_id": f"concat('tenant-', ({order}) % 4)",
        "aggregate_id": f"concat('order-', substr(md5(concat('order-', {order})), 1, 16))",
        "event_type": (
            "element_at(array('OrderCreated', 'PaymentProcessed', 'ItemShipped', 'OrderDelivered',"
            " 'ItemShipped'),"
            f" CAST(id % {EVENTS_AN_ORDER} AS INT) + 1)"
        ),
        "schema_version": "1",
        "occurred_at": f"timestampadd(SECOND, id % 86000, CAST({day} AS TIMESTAMP))",
        "payload": (
            f'concat(\'{{"amount":"12.50","currency":"EUR","customer_id":"c-\', ({order}) % 50000, \'"}}\')'
        ),
        "fingerprint": "sha2(CAST(id AS STRING), 256)",
        "source": "'landing'",
        "source_position": f"concat({day}, '/made.jsonl:', id % {history.events_a_day} + 1)",
        "ingest_domain": "'local'",
        "ingested_at": f"timestampadd(HOUR, 23, CAST({day} AS TIMESTAMP))",
        "batch_id": "1",
        "partition_date": day,
    }
    rows = spark.range(0, history.events, 1, numPartitions=history.days)
    null = F.lit(None)
    return rows.select(
        *(
            (F.expr(values[column.name]) if column.name in values else null)
            .cast(column.type)
            .alias(column.name)
            for column in RAW_EVENTS.columns
        )
    )
