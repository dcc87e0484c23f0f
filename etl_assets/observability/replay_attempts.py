"""The attempts of a dead letter: who submitted it and when, and what became of it. No JVM.

Belongs here: attempts, from the table `replays` and the tables of rejects. Does not belong here: the dead
letters themselves (`dead_letters.py`), and the history of a record (`record_history.py`).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.reasons import DeadLetterState, Outcome
from etl_assets.contracts.tables import REPLAYS as REPLAYS_TABLE
from etl_assets.delta.log.entries import commit_notes
from etl_assets.observability.rows import find_rows
from etl_assets.sources.landing import REPLAYS
from etl_assets.sources.replays import REQUESTED_BY, source_position
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.observability.dead_letters import DeadLetter
    from etl_assets.placement.domains import FailureDomain

_HANDED_IN = ("dead_letter_id", "attempt", "stage", "content", "handed_in_at", "batch_id", "domain")
_JUDGED = ("source_position", "outcome", "reason", "error", "failed_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayAttempt:
    """A replay of a dead letter.

    Attributes:
        attempt: Its number: 2 for the first replay.
        stage: The stage that it was submitted to.
        handed_in_at: When.
        by: Who submitted it, and where; None if that is no longer known.
        domain: Failure domain in which it was submitted.
        outcome: One of `contracts.reasons.Outcome`; None if nothing has judged it.
        judged_at: When it was judged; None if that is not known.
        detail: Why it was rejected, or what became of it.
    """

    attempt: int
    stage: str
    handed_in_at: dt.datetime
    by: str | None
    domain: str
    outcome: str | None = None
    judged_at: dt.datetime | None = None
    detail: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the attempt as a JSON object."""
        at = self.judged_at
        return dataclasses.asdict(self) | {
            "handed_in_at": self.handed_in_at.isoformat(),
            "judged_at": None if at is None else at.isoformat(),
        }

    def __str__(self) -> str:
        by = "" if self.by is None else f" by {self.by}"
        text = f"{self.attempt}, handed in to {self.stage} at {self.handed_in_at:%Y-%m-%d %H:%M:%S}{by}: "
        if self.outcome is None:
            return text + "not judged yet"
        at = "" if self.judged_at is None else f" at {self.judged_at:%Y-%m-%d %H:%M:%S}"
        return f"{text}{self.outcome}{at}{'' if self.detail is None else f': {self.detail}'}"


def attempts_of(domain: FailureDomain, letter: DeadLetter) -> list[ReplayAttempt]:
    """Return the replays of a dead letter, in their order."""
    table = platform_table(REPLAYS_TABLE.name, domain)
    where: Mapping[str, Collection[Any]] = {
        "partition_date": [letter.partition_date],
        "dead_letter_id": [letter.dead_letter_id],
    }
    rows = sorted(find_rows(table, columns=_HANDED_IN, where=where), key=lambda row: row["batch_id"])
    by_attempt = {row["attempt"]: row for row in rows}  # of one attempt the last one counts
    judged = _judged(domain, letter, by_attempt)
    found = []
    for attempt, row in by_attempt.items():
        outcome: dict[str, Any] = dict(judged.get(attempt, {}))
        if not outcome and attempt == letter.attempts and letter.state == DeadLetterState.REPLAYED:
            outcome = {"outcome": Outcome.REPLAYED.value}
        reason, error = outcome.get("reason"), outcome.get("error")
        found.append(
            ReplayAttempt(
                attempt=attempt,
                stage=row["stage"],
                handed_in_at=row["handed_in_at"],
                by=_by(row) or _noted(table.path, row["batch_id"]),
                domain=row["domain"],
                outcome=outcome.get("outcome"),
                judged_at=outcome.get("failed_at"),
                detail=error if reason is None else f"{reason}: {error}",
            )
        )
    return found


def _judged(
    domain: FailureDomain, letter: DeadLetter, attempts: Collection[int]
) -> Mapping[int, Mapping[str, Any]]:
    """Return the rows of the tables of rejects that are about some attempts, the last one of each."""
    day = letter.partition_date
    positions = {source_position(day, letter.dead_letter_id, each): each for each in attempts}
    where = {"partition_date": [day], "source": [REPLAYS], "source_position": positions}
    rows = [
        row
        for name in _rejects(domain, letter)
        for row in find_rows(platform_table(name, domain), columns=_JUDGED, where=where)
    ]
    return {positions[row["source_position"]]: row for row in sorted(rows, key=lambda row: row["failed_at"])}


def _rejects(domain: FailureDomain, letter: DeadLetter) -> Iterator[str]:
    """Yield the tables of rejects of the pipeline that a dead letter is of."""
    for pipeline in domain.catalog.pipelines:
        if any(stage.name_in_rejects == letter.stage for stage in pipeline.stages):
            yield from (stage.rejects.name for stage in pipeline.stages if stage.rejects is not None)


def _by(row: Mapping[str, Any]) -> str | None:
    """Return who requested a row of a sink again."""
    content: Any = None
    with suppress(ValueError):  # a record for a source may be anything
        content = json.loads(row["content"])
    is_request = isinstance(content, dict) and content.keys() == {"keys", "rejected_at", "by"}
    return content["by"] if is_request else None


def _noted(path: Any, version: int) -> str | None:
    """Return who made a commit, while the log has it."""
    note = next(commit_notes(path, version), None)
    return None if note is None else note.user_metadata.get(REQUESTED_BY)
