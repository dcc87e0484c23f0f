"""Read dead letters from their table: list them, find one by its id. No JVM."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import heapq
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.reasons import DeadLetterReason, DeadLetterState, RecordEncoding
from etl_assets.contracts.tables.dead_letters import DEAD_LETTERS
from etl_assets.errors import NotFound
from etl_assets.observability.rows import find_rows
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.placement.domains import FailureDomain

_LIGHT_COLUMNS = tuple(name for name in DEAD_LETTERS.names if name not in ("record", "batch_id"))
_ID_START = re.compile(r"[0-9a-f]{1,64}")
_SHOWN_CHARACTERS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One dead letter. `record` is None if it was not read or not kept."""

    dead_letter_id: str
    stage: str
    reason: str
    error: str | None
    record: str | None = None
    record_encoding: str | None
    source: str
    source_position: str
    event_id: str | None
    trace_id: str | None
    attempts: int
    state: str
    failed_at: dt.datetime
    partition_date: dt.date

    @property
    def is_open(self) -> bool:
        """Whether the dead letter waits for an operator."""
        return self.state == DeadLetterState.OPEN

    @property
    def is_cut_off(self) -> bool:
        """Whether only the beginning of the record was kept."""
        return self.reason == DeadLetterReason.RECORD_TOO_LARGE

    def record_bytes(self) -> bytes:
        """Return the record as received; empty if it was not kept."""
        if self.record is None:
            return b""
        if self.record_encoding == RecordEncoding.BASE64:
            return base64.b64decode(self.record)
        return self.record.encode()

    def as_json(self) -> dict[str, Any]:
        """Return the dead letter as a JSON object."""
        content = dataclasses.asdict(self)
        content["failed_at"] = self.failed_at.isoformat()
        content["partition_date"] = self.partition_date.isoformat()
        return content


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Filter on dead letters. A field that is None matches all of them."""

    state: DeadLetterState | None = None
    stages: tuple[str, ...] | None = None
    reason: DeadLetterReason | None = None
    day: dt.date | None = None
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    before: tuple[dt.datetime, str] | None = None
    """Time and id of a dead letter: those that a list, the newest first, has after it."""

    def values(self) -> dict[str, list[Any]]:
        """Return the allowed values by column."""
        wanted = {
            "state": None if self.state is None else [self.state.value],
            "stage": None if self.stages is None else list(self.stages),
            "reason": None if self.reason is None else [self.reason.value],
            "partition_date": None if self.day is None else [self.day],
        }
        return {name: values for name, values in wanted.items() if values is not None}

    def has_time(self, failed_at: dt.datetime) -> bool:
        """Return whether a time is wanted: from `since` on, and before `until`."""
        return (self.since is None or failed_at >= self.since) and (
            self.until is None or failed_at < self.until
        )

    def has(self, row: Mapping[str, Any]) -> bool:
        """Return whether the dead letter of a row is wanted by its time and place."""
        place = (row["failed_at"], row["dead_letter_id"])
        return self.has_time(row["failed_at"]) and (self.before is None or place < self.before)


def list_letters(
    domain: FailureDomain, wanted: DeadLetterFilter, *, limit: int | None
) -> tuple[list[DeadLetter], int]:
    """Return the newest dead letters, without their records, and the number of all that match.

    Args:
        domain: Failure domain to read the table in.
        wanted: Filter on the dead letters.
        limit: Maximum number to return; None returns all.
    """
    total = 0

    def counted() -> Any:
        nonlocal total
        for row in find_rows(_table(domain), columns=_LIGHT_COLUMNS, where=wanted.values()):
            if wanted.has(row):
                total += 1
                yield DeadLetter(**row)

    letters = counted()
    found = (
        sorted(letters, key=_age, reverse=True) if limit is None else heapq.nlargest(limit, letters, key=_age)
    )
    return found, total


def count_open(domain: FailureDomain) -> Counter[str]:
    """Return the number of open dead letters by stage or sink, as their column `stage` names it."""
    where = {"state": [DeadLetterState.OPEN.value]}
    return Counter(row["stage"] for row in find_rows(_table(domain), columns=("stage",), where=where))


def find_letters(domain: FailureDomain, ids: Sequence[str]) -> list[DeadLetter]:
    """Return dead letters with their records, by id or by a unique prefix of it.

    The result has the order of `ids`, and each dead letter once.

    Raises:
        NotFound: no dead letter has an id, or a prefix matches more than one.
    """
    whole = dict.fromkeys(_resolve(domain, each) for each in ids)
    found = {letter.dead_letter_id: letter for letter in read_dead_letters(domain, dead_letter_id=whole)}
    return [found[each] for each in whole]


def read_dead_letters(domain: FailureDomain, **where: Iterable[Any]) -> list[DeadLetter]:
    """Return the dead letters with given values in some columns, with their records."""
    columns = (*_LIGHT_COLUMNS, "record")
    values = {name: list(some) for name, some in where.items()}
    return [DeadLetter(**row) for row in find_rows(_table(domain), columns=columns, where=values)]


def _resolve(domain: FailureDomain, start: str) -> str:
    start = start.lower()
    matches: list[str] = []
    if _ID_START.fullmatch(start):
        rows = find_rows(_table(domain), columns=("dead_letter_id",), prefix=("dead_letter_id", start))
        matches = sorted({row["dead_letter_id"] for row in rows})
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise NotFound(
            f"there is no dead letter {start!r}",
            fix="`etl-assets dead-letters list --state all` shows them; one that was refused just now is"
            " there after the next run of dead_letters",
            dead_letter_id=start,
        )
    shown = ", ".join(match[:_SHOWN_CHARACTERS] for match in matches[:5])
    raise NotFound(
        f"{len(matches):,} dead letters start with {start!r}: {shown}{', …' if len(matches) > 5 else ''}",
        fix="give more of the id",
        dead_letter_id=start,
    )


def _age(letter: DeadLetter) -> tuple[dt.datetime, str]:
    return letter.failed_at, letter.dead_letter_id


def _table(domain: FailureDomain) -> Any:
    return platform_table(DEAD_LETTERS.name, domain)
