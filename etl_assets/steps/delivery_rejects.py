"""Rows that a target rejects, and results of replays of its dead letters: the table of rejects of a sink.

A rejected row whose key was requested again is the next attempt of its dead letter. A request whose row was
not rejected gets a result, after the target's commit and before the delivery's record; so does one that
cannot be delivered, as rejected.

Belongs here: these rows, and their commit. Does not belong here: what the table has already
(`reject_history.py`), and dead_letters, which an asset of its own derives from it
(`collect_dead_letters.py`).
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.key_values import key_values, parse_row
from etl_assets.contracts.reasons import DeadLetterReason, Outcome, RecordEncoding
from etl_assets.contracts.tables.dead_letters import DEAD_LETTERS
from etl_assets.sources.landing import REPLAYS
from etl_assets.steps.exceptions import Exceptions, Stamps, commit_exceptions
from etl_assets.steps.few_rows import deferred, write_new
from etl_assets.steps.reject_history import closed_letters, kept_of, rejected_attempts
from etl_assets.steps.step import StepContext

if TYPE_CHECKING:
    from etl_assets.contracts.columns import TableContract
    from etl_assets.delta.table import Table
    from etl_assets.sinks.replay_requests import ReplayRequest
    from etl_assets.sinks.sink import Rejection

_MAX_POSITION_CHARACTERS = 1_000
_NOTHING_KEPT: Mapping[str, Any] = MappingProxyType({"reason": DeadLetterReason.REFUSED_BY_TARGET.value})


@dataclass(kw_only=True)
class DeliveryRejects:
    """The table of rejects of a sink, in one delivery.

    Attributes:
        context: The context of the step.
        contract: The table of rejects.
        stage: Name of the table of deliveries.
        table: The table that the sink follows.
        requests: The keys that were requested again, of which the record has no result.
        unusable: Requests that cannot be delivered.
        again: The requests whose rows were rejected by this process.
    """

    context: StepContext
    contract: TableContract
    stage: str
    table: TableContract
    requests: tuple[ReplayRequest, ...] = ()
    unusable: tuple[ReplayRequest, ...] = ()
    again: set[tuple[str, int]] = field(default_factory=set)

    def reject(self, rejections: Sequence[Rejection]) -> None:
        """Commit rows that the target did not accept, each once however often it is delivered."""
        today = self.context.clock().date()
        rows = [row for each in rejections for row in self._rejected(each, today)]
        self._commit(list({row["exception_id"]: row for row in rows}.values()))

    def keep_up_to(self, number: int) -> None:
        """Leave requests after a number to the next delivery."""
        self.requests = tuple(each for each in self.requests if each.number <= number)
        self.unusable = tuple(each for each in self.unusable if each.number <= number)

    def settle(self, result: Callable[[ReplayRequest], str], *, is_known: bool) -> None:
        """Commit the results of the requests whose rows were not rejected, and of unusable ones, each once.

        Args:
            result: Returns what became of a request, in words.
            is_known: Whether this process has delivered all of them. Otherwise the table tells what was
                rejected.
        """
        rejected = self.again if is_known else self.again | rejected_attempts(self._table, self.requests)
        settled = [each for each in self.requests if (each.letter_id, each.attempt) not in rejected]
        replayed = [self._attempt(each, Outcome.REPLAYED, error=result(each)) for each in settled]
        self._commit([*replayed, *self._unusable()])

    def _unusable(self) -> Iterator[dict[str, Any]]:
        """Yield the next attempt of each dead letter whose request cannot be delivered, with its record."""
        known = kept_of(self._table, self.unusable)
        for each in self.unusable:
            kept = known.get(each.letter_id, _NOTHING_KEPT)
            error = f"not delivered, it lacks the keys that {self.table.name} has now: {each.problem}"
            yield self._attempt(each, Outcome.REJECTED, **kept, error=error)

    def _rejected(self, rejection: Rejection, today: dt.date) -> Iterator[dict[str, Any]]:
        """Yield the next attempt of each dead letter that was requested; else a new dead letter."""
        told: dict[str, Any] = {
            "reason": rejection.reason,
            "error": rejection.error,
            "record": rejection.row,
            "record_encoding": RecordEncoding.UTF8.value,
        }
        requested = self._requested(rejection)
        for each in requested:
            self.again.add((each.letter_id, each.attempt))
            yield self._attempt(each, Outcome.REJECTED, **told)
        if not requested:
            position = f"{today.isoformat()}/{rejection.keys}"
            yield self._row(
                self._new_letter(rejection, today),
                today,
                Outcome.REJECTED,
                source=self.stage,
                source_position=position[:_MAX_POSITION_CHARACTERS],
                **told,
            )

    def _new_letter(self, rejection: Rejection, today: dt.date) -> str:
        """Return the id of the dead letter of a row: of one day the same, unless that is closed."""
        # With the day: an id is found in one day's partition.
        parts = (self.stage, rejection.keys, rejection.row, today.isoformat())
        letter, closed_before = _digest(*parts), 0
        while letter in self._closed(today):
            closed_before += 1
            letter = _digest(*parts, str(closed_before))
        return letter

    def _closed(self, day: dt.date) -> set[str]:
        """Return the dead letters of a day that were replayed or discarded before this delivery."""
        if day not in self._closed_by_day:
            letters = self.context.table(DEAD_LETTERS.name)
            self._closed_by_day[day] = closed_letters(self._table, letters, self.stage, day)
        return self._closed_by_day[day]

    @cached_property
    def _closed_by_day(self) -> dict[dt.date, set[str]]:
        return {}

    @property
    def _table(self) -> Table:
        return self.context.table(self.contract.name)

    def _requested(self, rejection: Rejection) -> Sequence[ReplayRequest]:
        if not self.requests:
            return ()
        try:
            return self._by_keys.get(key_values(parse_row(rejection.keys), self.table), ())
        except ValueError:  # keys that cannot be read are of no request
            return ()

    @cached_property
    def _by_keys(self) -> Mapping[tuple[Any, ...], Sequence[ReplayRequest]]:
        found: dict[tuple[Any, ...], list[ReplayRequest]] = {}
        for each in self.requests:
            found.setdefault(each.keys, []).append(each)
        return found

    def _id(self, request: ReplayRequest, outcome: Outcome) -> str:
        return _digest(self.stage, request.letter_id, str(request.attempt), outcome.value)

    def _attempt(self, request: ReplayRequest, outcome: Outcome, **values: Any) -> dict[str, Any]:
        """Return the row that says what became of a request."""
        return self._row(
            self._id(request, outcome),
            request.day,
            outcome,
            source=REPLAYS,
            source_position=request.source_position,
            **values,
        )

    def _row(self, exception_id: str, day: dt.date, outcome: Outcome, **values: Any) -> dict[str, Any]:
        return {
            "exception_id": exception_id,
            "stage": self.stage,
            "outcome": outcome.value,
            "partition_date": day,
            **values,
        }

    def _commit(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if not rows:
            return

        def make(stamps: Stamps) -> Exceptions:
            stamped = [
                {
                    **row,
                    "domain": stamps.domain,
                    "failed_at": stamps.failed_at,
                    "batch_id": stamps.batch_id,
                }
                for row in rows
            ]
            return Exceptions(
                frame=deferred(self.context, self.contract, stamped),
                files=lambda folder, known: write_new(folder, self.contract, stamped, known),
            )

        days = sorted({row["partition_date"] for row in rows})
        commit_exceptions(self.context, self.contract, make, output=self.stage, days=days)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
