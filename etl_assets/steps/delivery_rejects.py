"""Rows that a target rejects, and results of replays of its dead letters: the table of rejects of a sink.

A rejected row whose key was requested again is the next attempt of its dead letter. A request whose row was
not rejected gets a result, after the target's commit and before the delivery's record.

Belongs here: these rows, and their commit. Does not belong here: dead_letters, which an asset of its own
derives from them (`collect_dead_letters.py`).
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.key_values import key_values, parse_row
from etl_assets.contracts.reasons import Outcome, RecordEncoding
from etl_assets.sources.landing import REPLAYS
from etl_assets.steps.exceptions import Exceptions, Stamps, commit_exceptions
from etl_assets.steps.few_rows import deferred, write_new
from etl_assets.steps.step import StepContext

if TYPE_CHECKING:
    from etl_assets.contracts.columns import TableContract
    from etl_assets.sinks.replay_requests import ReplayRequest
    from etl_assets.sinks.sink import Rejection

_MAX_POSITION_CHARACTERS = 1_000


@dataclass(kw_only=True)
class DeliveryRejects:
    """The table of rejects of a sink, in one delivery.

    Attributes:
        context: The context of the step.
        contract: The table of rejects.
        stage: Name of the table of deliveries.
        table: The table that the sink follows.
        requests: The keys that were requested again, of which the record has no result.
        again: The requests whose rows were rejected by this process.
    """

    context: StepContext
    contract: TableContract
    stage: str
    table: TableContract
    requests: tuple[ReplayRequest, ...] = ()
    again: set[tuple[str, int]] = field(default_factory=set)

    def reject(self, rejections: Sequence[Rejection]) -> None:
        """Commit rows that the target did not accept, each once however often it is delivered."""
        today = self.context.clock().date()
        rows = [row for each in rejections for row in self._rejected(each, today)]
        self._commit(list({row["exception_id"]: row for row in rows}.values()))

    def settle(self, result: Callable[[ReplayRequest], str], *, is_known: bool) -> None:
        """Commit the results of the requests whose rows were not rejected, each once.

        Args:
            result: Returns what became of a request, in words.
            is_known: Whether this process has delivered all of them. Otherwise the table tells what was
                rejected.
        """
        rejected = self.again if is_known else self.again | self._rejected_before()
        settled = [each for each in self.requests if (each.letter_id, each.attempt) not in rejected]
        self._commit(
            [
                self._row(
                    self._id(each, Outcome.REPLAYED),
                    each.day,
                    Outcome.REPLAYED,
                    error=result(each),
                    source=REPLAYS,
                    source_position=each.source_position,
                )
                for each in settled
            ]
        )

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
            yield self._row(
                self._id(each, Outcome.REJECTED),
                each.day,
                Outcome.REJECTED,
                source=REPLAYS,
                source_position=each.source_position,
                **told,
            )
        if not requested:
            position = f"{today.isoformat()}/{rejection.keys}"
            # With the day: an id is found in one day's partition.
            parts = (self.stage, rejection.keys, rejection.row, today.isoformat())
            yield self._row(
                _digest(*parts),
                today,
                Outcome.REJECTED,
                source=self.stage,
                source_position=position[:_MAX_POSITION_CHARACTERS],
                **told,
            )

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

    def _rejected_before(self) -> set[tuple[str, int]]:
        """Return the requests whose rows the table of rejects has as rejected."""
        import pyarrow.dataset as ds

        by_position = {each.source_position: (each.letter_id, each.attempt) for each in self.requests}
        table = self.context.table(self.contract.name)
        snapshot = table.snapshot() if table.version() >= 0 else None
        if snapshot is None or not by_position:
            return set()
        days = sorted({each.day for each in self.requests})
        wanted = (
            ds.field("partition_date").isin(days)
            & (ds.field("outcome") == Outcome.REJECTED.value)
            & ds.field("source_position").isin(list(by_position))
        )
        found = snapshot.dataset().to_table(columns=["source_position"], filter=wanted)
        return {by_position[each] for each in found.column(0).to_pylist()}

    def _id(self, request: ReplayRequest, outcome: Outcome) -> str:
        return _digest(self.stage, request.letter_id, str(request.attempt), outcome.value)

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
