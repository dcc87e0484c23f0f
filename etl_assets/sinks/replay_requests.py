"""Requests to deliver a key again: replays of the dead letters of sinks, as rows of the table `replays`.

Belongs here: the value, its form in the table, and which requests are new to a target. Does not belong here:
submitting them (`observability/submit_replays.py`), and what is delivered (`steps/requested_rows.py`).
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from etl_assets.contracts.key_values import key_values, parse_row
from etl_assets.delta.read.data_files import batches_of_snapshot
from etl_assets.sources.replays import source_position

if TYPE_CHECKING:
    from etl_assets.contracts.columns import TableContract
    from etl_assets.delta.snapshot import Snapshot

_COLUMNS = ["dead_letter_id", "attempt", "content", "partition_date", "batch_id"]
_newest: WeakKeyDictionary[Snapshot, Mapping[str, int]] = WeakKeyDictionary()
"""Of each version that was asked, so that asking again opens no file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """A key to deliver again.

    Attributes:
        letter_id: The dead letter.
        attempt: Number of the attempt.
        day: The day of the dead letter.
        keys: The key, in the order of the table's keys.
        rejected_at: When the target rejected the row.
        number: The version of the table `replays` that has the request.
        problem: Why it cannot be delivered: it does not have the table's keys of today, and `keys` is empty.
    """

    letter_id: str
    attempt: int
    day: dt.date
    keys: tuple[Any, ...]
    rejected_at: dt.datetime
    number: int
    problem: str | None = None

    @property
    def source_position(self) -> str:
        """Where the result of the attempt says that it comes from."""
        return source_position(self.day, self.letter_id, self.attempt)


def content_of_request(keys: Mapping[str, Any], rejected_at: dt.datetime, by: str) -> bytes:
    """Return the content of a request.

    Args:
        keys: The keys, by column, as JSON has them.
        rejected_at: When the target rejected the row.
        by: Who requests it.
    """
    content = {"keys": keys, "rejected_at": rejected_at.isoformat(), "by": by}
    return json.dumps(content, default=str).encode()


def newest_request(replays: Snapshot | None, stage: str, after: int) -> int:
    """Return the number of a sink's newest request after a number; that number if there is none.

    Args:
        replays: The table of replays; None if there is none.
        stage: Name of the table of the sink's deliveries.
        after: The number that is done.

    Raises:
        OSError: a data file is gone or damaged; the caller names it (`delta/write/writing.py`).
    """
    if replays is None:
        return after
    if (newest := _newest.get(replays)) is None:
        _newest[replays] = newest = _newest_by_stage(replays)
    return max(newest.get(stage, after), after)


def _newest_by_stage(replays: Snapshot) -> Mapping[str, int]:
    """Return the newest number of each table that has any."""
    newest: dict[str, int] = {}
    for batch in batches_of_snapshot(replays, ["stage", "batch_id"]):
        for row in batch.to_pylist():
            newest[row["stage"]] = max(newest.get(row["stage"], -1), row["batch_id"])
    return newest


def done_up_to(number: int, present: int) -> int:
    """Return the number of requests that are done; -1 if the table of replays was put back since.

    Numbers after its present version are given again then, so all of its requests are looked at.

    Args:
        number: The number up to which they were done.
        present: The version of the table of replays; -1 if there is none.
    """
    return number if number <= present else -1


def requests_after(
    replays: Snapshot | None, stage: str, contract: TableContract, number: int, *, up_to: int
) -> tuple[ReplayRequest, ...]:
    """Return the requests of a sink after a number, each attempt once.

    One that does not have the table's keys of today is among them, with its problem.

    Args:
        replays: The table of replays; None if there is none.
        stage: Name of the table of the sink's deliveries.
        contract: The table that the sink follows.
        number: The number that is done.
        up_to: The last number to return.

    Raises:
        OSError: a data file is gone or damaged; the caller names it (`delta/write/writing.py`).
    """
    found = [each for each in _rows(replays, stage, number, _COLUMNS) if each["batch_id"] <= up_to]
    by_attempt: dict[tuple[str, int], ReplayRequest] = {}
    for row in sorted(found, key=lambda each: each["batch_id"]):
        by_attempt.setdefault((row["dead_letter_id"], row["attempt"]), _request(row, contract))
    return tuple(by_attempt.values())


def _request(row: Mapping[str, Any], contract: TableContract) -> ReplayRequest:
    content, keys, problem = parse_row(row["content"]), (), None
    try:
        keys = key_values(content["keys"], contract)
    except ValueError as error:
        problem = str(error)
    return ReplayRequest(
        letter_id=row["dead_letter_id"],
        attempt=row["attempt"],
        day=row["partition_date"],
        keys=keys,
        rejected_at=dt.datetime.fromisoformat(content["rejected_at"]),
        number=row["batch_id"],
        problem=problem,
    )


def _rows(
    replays: Snapshot | None, stage: str, after: int, columns: list[str]
) -> Iterable[Mapping[str, Any]]:
    import pyarrow.dataset as ds

    if replays is None or (replays.maximum("batch_id") or 0) <= after:
        return ()
    wanted = (ds.field("stage") == stage) & (ds.field("batch_id") > after)
    return (row for batch in batches_of_snapshot(replays, columns, wanted) for row in batch.to_pylist())
