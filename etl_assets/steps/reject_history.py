"""What the tables already say of a sink's dead letters: rejections, attempts, and closed ones.

Belongs here: reading. Does not belong here: new rows of the table (`delivery_rejects.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.reasons import DeadLetterState, Outcome
from etl_assets.observability.rows import find_rows
from etl_assets.sources.replays import replay_of, source_position

if TYPE_CHECKING:
    from etl_assets.delta.table import Table
    from etl_assets.sinks.replay_requests import ReplayRequest

_KEPT = ("reason", "record", "record_encoding")


def kept_of(table: Table, requests: Sequence[ReplayRequest]) -> dict[str, dict[str, Any]]:
    """Return what the last rejection before each request kept: reason, record and encoding, by dead letter.

    Dead letters of which the table knows nothing are left out.
    """
    found = {
        row["exception_id"]: {name: row[name] for name in _KEPT}
        for row in _rejected(table, requests, "exception_id", {each.letter_id for each in requests}, _KEPT)
    }
    again = {source_position(each.day, each.letter_id, each.attempt - 1) for each in requests}
    for row in _rejected(table, requests, "source_position", again, _KEPT):
        found[replay_of(row["source_position"])[0]] = {name: row[name] for name in _KEPT}
    return found


def first_rejected_at(table: Table, requests: Sequence[ReplayRequest]) -> dict[str, dt.datetime]:
    """Return when the target rejected the row of each dead letter first; without unknown ones."""
    letters = {each.letter_id for each in requests}
    rows = _rejected(table, requests, "exception_id", letters, ("failed_at",))
    return {row["exception_id"]: row["failed_at"] for row in rows}


def rejected_attempts(table: Table, requests: Sequence[ReplayRequest]) -> set[tuple[str, int]]:
    """Return those of some requests whose rows were rejected again, as dead letter and attempt."""
    by_position = {each.source_position: (each.letter_id, each.attempt) for each in requests}
    rows = _rejected(table, requests, "source_position", by_position)
    return {by_position[row["source_position"]] for row in rows}


def closed_letters(table: Table, dead_letters: Table, stage: str, day: dt.date) -> set[str]:
    """Return the ids of a stage's dead letters of a day that are closed: replayed, or discarded.

    Args:
        table: The sink's table of rejects, which has the results of replays.
        dead_letters: The table that operators discard in.
        stage: Name of the table of deliveries.
        day: The day.
    """
    where: dict[str, Collection[Any]] = {"partition_date": [day], "outcome": [Outcome.REPLAYED.value]}
    rows = find_rows(table, columns=("source_position",), where=where)
    replayed = {replay_of(row["source_position"])[0] for row in rows}
    where = {"partition_date": [day], "stage": [stage], "state": [DeadLetterState.DISCARDED.value]}
    rows = find_rows(dead_letters, columns=("dead_letter_id",), where=where)
    return replayed | {row["dead_letter_id"] for row in rows}


def _rejected(
    table: Table,
    requests: Sequence[ReplayRequest],
    column: str,
    values: Collection[str],
    columns: Sequence[str] = (),
) -> Iterator[dict[str, Any]]:
    """Yield the rejections of the days of some requests that have one of some values in a column."""
    where: dict[str, Collection[Any]] = {
        "partition_date": {each.day for each in requests},
        "outcome": [Outcome.REJECTED.value],
        column: values,
    }
    return find_rows(table, columns=(column, *columns), where=where)
