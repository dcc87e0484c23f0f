"""How far each sink is behind its table: commits, rows and seconds. No Spark.

Belongs here: the figures. Does not belong here: whether there is something to deliver at all
(`undelivered.py`), and the lag of replicas (`lag.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.delta.log.cursor import read_cursors
from etl_assets.delta.log.entries import entry_path
from etl_assets.delta.read.data_files import batches_of_snapshot
from etl_assets.delta.write.writing import storage_named
from etl_assets.observability.undelivered import has_requests, replays_of, undelivered
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.delta.table import Table
    from etl_assets.placement.domains import FailureDomain


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryLag:
    """A sink that lacks commits of its table, or replays of its dead letters.

    Attributes:
        deliveries: The table of deliveries.
        table: The table that the sink follows.
        version: The table's newest version.
        commits: Commits that the sink lacks; all of them if it has none.
        rows: New and changed rows among them. Deletes, undos and compactions have none.
        seconds: Age of the oldest of these commits, 0 if there is none. If the log no longer has it, the age
            of the oldest that it has, which is less; None if it has none.
        has_replays: Whether dead letters of it were submitted again that no delivery has taken up.
    """

    deliveries: str
    table: str
    version: int
    commits: int
    rows: int
    seconds: float | None
    has_replays: bool = False

    def __str__(self) -> str:
        if not self.commits:
            return f"{self.deliveries} has dead letters to replay"
        age = "" if self.seconds is None else f", the oldest for {dt.timedelta(seconds=round(self.seconds))}"
        replays = ", and has dead letters to replay" if self.has_replays else ""
        return (
            f"{self.deliveries} is {self.commits:,} commits and {self.rows:,} rows behind"
            f" {self.table}{age}{replays}"
        )


def delivery_lags(
    domain: FailureDomain, now: dt.datetime, *, among: Container[str] | None = None
) -> Iterator[DeliveryLag]:
    """Yield the lag of each sink that lacks something.

    Args:
        domain: Failure domain of the tables.
        now: The time, which the age of a commit is counted to.
        among: Tables of deliveries to look at; None: all.
    """
    for name in undelivered(domain, among=among):
        stage = domain.catalog.stage(name)
        table = platform_table(stage.inputs[0], domain)
        delivered = read_cursors(platform_table(name, domain), table.name, [None])[None]
        version = table.version()
        if delivered > version:
            delivered = -1  # the table was taken back, or made again: everything is delivered
        yield DeliveryLag(
            deliveries=name,
            table=table.name,
            version=version,
            commits=version - delivered,
            rows=_rows_after(table, delivered),
            seconds=_age(table, delivered + 1, now) if delivered < version else 0.0,
            has_replays=has_requests(platform_table(name, domain), replays_of(domain)),
        )


def _rows_after(table: Table, version: int) -> int:
    """Return the number of rows that later versions wrote. Files that statistics exclude stay closed."""
    import pyarrow.dataset as ds

    snapshot = table.snapshot()
    assert table.contract is not None  # a stage reads it
    column = table.contract.batch_column
    if snapshot is None:
        return 0
    if version < 0 or column is None:
        return snapshot.row_count()
    with storage_named(table):
        found = batches_of_snapshot(snapshot, [column], ds.field(column) > version)
        return sum(batch.num_rows for batch in found)


def _age(table: Table, version: int, now: dt.datetime) -> float | None:
    path = entry_path(table.path, version)
    if not path.exists():  # cleaned up: the oldest one left is a lower bound
        left = (each for each in path.parent.glob(f"{'[0-9]' * 20}.json") if each.name > path.name)
        path = min(left, default=path)
    try:
        return max(0.0, now.timestamp() - path.stat().st_mtime)
    except FileNotFoundError:
        return None
