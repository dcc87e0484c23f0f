"""The sink: calls to a receiver that follow one table.

Belongs here: the order of calls, what is saved of them and when, and their outcomes. Does not belong here:
one call (`client.py`, `calls.py`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.contracts.trace_context import TRACEPARENT
from etl_assets.errors import SinkRefused
from etl_assets.sinks.sink import Delivered, Delivery, Guarantee, Rejection, SinkPosition
from etl_assets.sinks.webhook.calls import Call, CallMaker, RowChange, left_of, scope_of
from etl_assets.sinks.webhook.client import CallAnswer, CallPatience, Receiver, WebhookClient
from etl_assets.sinks.webhook.part import Part
from etl_assets.sinks.webhook.progress import CallProgress
from etl_assets.sinks.webhook.signature import signature_headers

if TYPE_CHECKING:
    from etl_assets.contracts.columns import TableContract

PART_ROWS = 500
"""Calls whose answers are saved together. A kill repeats at most as many, each with its key."""
_GONE = (404, 410)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTarget:
    """A path of a receiver that follows a table.

    Attributes:
        receiver: The receiver.
        path: The path below its address, as declared.
        write: The paths that may be written, as globs.
        name: Pipeline and sink: with the table's id, a part of each call's key.
        methods: The method of HTTP of each `RowChange`.
        concurrency: Most calls at a time.
        signing_key: Key of the signature; None: calls are not signed.
        patience: How long a busy receiver is waited for.
    """

    receiver: Receiver
    path: str
    write: tuple[str, ...]
    name: str
    methods: Mapping[str, str] = field(
        default_factory=lambda: {"new": "POST", "changed": "PUT", "deleted": "DELETE"}
    )
    concurrency: int = 8
    signing_key: bytes | None = field(default=None, repr=False)
    patience: CallPatience = field(default_factory=CallPatience)


class WebhookSink:
    """One call for each row, with a key that is the same however often the call is repeated.

    A call whose answer is saved is not made again. One that was answered and not saved, because the process
    died or the answer was lost, is repeated with its key. Calls of one delivery have no order among each
    other; those of the next one begin once all have been answered.
    """

    def __init__(
        self,
        target: WebhookTarget,
        *,
        part_rows: int = PART_ROWS,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
        dice: random.Random | None = None,
    ) -> None:
        self._target = target
        self._part_rows = part_rows
        self._clock = clock
        self._client = WebhookClient(
            target.receiver, sink=self.target, patience=target.patience, sleep=sleep, dice=dice
        )
        self._contract: TableContract | None = None

    @property
    def guarantee(self) -> Guarantee:
        """At least once; exactly once at a receiver that honours `Idempotency-Key`."""
        return Guarantee.AT_LEAST_ONCE

    @property
    def keeps_position(self) -> bool:
        """A receiver knows no positions."""
        return False

    @property
    def applies_deletes(self) -> bool:
        """Deleted rows are calls."""
        return True

    @property
    def target(self) -> str:
        """The target for people."""
        return f"{self._target.receiver.url}/{self._target.path}"

    def prepare(self, contract: TableContract) -> None:
        """Check that the path may be written. Nothing is sent."""
        self._check_allowed()
        self._contract = contract

    def position(self) -> SinkPosition | None:
        """None: the commit of the delivery's record keeps it."""
        return None

    def deliver(self, delivery: Delivery) -> Delivered:
        """Make the calls of a delivery that have no saved answer.

        Raises:
            EffectTakenOver: another process goes on with the delivery.
        """
        self._check_allowed()
        contract = self._contract
        if contract is None:
            raise ValueError("call prepare() first")
        maker = CallMaker(
            contract=contract, path=self._target.path, scope=scope_of(delivery, self._target.name)
        )
        saved = None if delivery.progress is None else delivery.progress.load()
        progress = CallProgress.from_json(saved)
        size = self._part_rows
        for batch, first in left_of(delivery.rows(), progress.rows):
            there = delivery.was_there(batch)
            for start in range(first, batch.num_rows, size):
                calls = list(maker.of_rows(batch.slice(start, size), there[start : start + size]))
                progress = self._part(calls, delivery, progress, CallProgress.after_rows)
        for batch, first in left_of(delivery.deleted(), progress.keys):
            for start in range(first, batch.num_rows, size):
                calls = list(maker.of_deleted(batch.slice(start, size)))
                progress = self._part(calls, delivery, progress, CallProgress.after_keys)
        notes: tuple[str, ...] = ()
        if delivery.whole and delivery.before is not None:
            notes = (f"every row was delivered to {self.target}; rows that are gone were not deleted there",)
        return Delivered(
            written=progress.written,
            unchanged=progress.unchanged,
            deleted=progress.deleted,
            rejected=progress.rejected,
            notes=notes,
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _part(
        self,
        calls: Sequence[Call],
        delivery: Delivery,
        progress: CallProgress,
        done: Callable[[CallProgress, int], CallProgress],
    ) -> CallProgress:
        """Make some calls, and save their answers."""
        delivery.expect_current()
        log = delivery.progress
        part = Part(
            calls=calls,
            send=lambda call: self._answer(call, delivery),
            progress=progress,
            save=lambda found, answers: self._save(found, answers, delivery),
            concurrency=self._target.concurrency,
            is_due=(lambda: False) if log is None else log.is_due,
        )
        return part.carry_out(len(calls), done)

    def _answer(self, call: Call, delivery: Delivery) -> CallAnswer | None:
        if call.path is None:
            return CallAnswer(0, "its keys make no path: an empty value, `.` or `..`")
        log = delivery.progress
        return self._client.call(
            self._target.methods[call.change.value],
            call.path,
            call.body,
            lambda: self._headers(call, delivery),
            may_send=(lambda: True) if log is None else log.is_current,
        )

    def _headers(self, call: Call, delivery: Delivery) -> dict[str, str]:
        contract = self._contract
        assert contract is not None  # `deliver` checked it
        headers = {
            "Idempotency-Key": call.id,
            "Etl-Assets-Table": contract.name,
            "Etl-Assets-Change": call.change.value,
            "Etl-Assets-Delivery": str(delivery.number),
        }
        if call.traceparent is not None:
            headers[TRACEPARENT] = call.traceparent
        if self._target.signing_key is None:
            return headers
        now = int(self._clock())
        return headers | signature_headers(
            self._target.signing_key, call_id=call.id, timestamp=now, body=call.body
        )

    def _save(
        self, progress: CallProgress, answers: Mapping[int, tuple[Call, CallAnswer]], delivery: Delivery
    ) -> CallProgress:
        """Store what was refused, then save; return the progress with the outcomes of new answers."""
        refused = [_rejection(call, answer) for call, answer in answers.values() if _is_refused(call, answer)]
        if refused:
            delivery.reject(refused)
        for call, answer in answers.values():
            progress = _with(progress, call, answer)
        if delivery.progress is not None:
            delivery.progress.save(progress.as_json())
        return progress

    def _check_allowed(self) -> None:
        if not any(fnmatchcase(self._target.path, each) for each in self._target.write):
            raise SinkRefused(
                f"the path {self._target.path} is not among those that may be written",
                fix="add it to `write` of the connection in the platform file",
                sink=self.target,
            )


def _is_refused(call: Call, answer: CallAnswer) -> bool:
    return not answer.ok and not (call.change is RowChange.DELETED and answer.status in _GONE)


def _with(progress: CallProgress, call: Call, answer: CallAnswer) -> CallProgress:
    if _is_refused(call, answer):
        return replace(progress, rejected=progress.rejected + 1)
    if call.change is not RowChange.DELETED:
        return replace(progress, written=progress.written + 1)
    if answer.ok:
        return replace(progress, deleted=progress.deleted + 1)
    return replace(progress, unchanged=progress.unchanged + 1)


def _rejection(call: Call, answer: CallAnswer) -> Rejection:
    return Rejection(
        keys=call.keys.decode(),
        row=call.body.decode(),
        reason=DeadLetterReason.REFUSED_BY_TARGET,
        error=answer.error,
    )
