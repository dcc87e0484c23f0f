"""The log of a sink's deliveries: one row of the table `effects`, the delivery that is not recorded yet.

A delivery is claimed with its plan, its progress is saved as it goes on, and it is completed with its
figures. The row is kept as long as any of it may be repeated: the next delivery replaces it, and begins only
once this one is recorded. So the log has one short row for each sink, however many rows are delivered.

Belongs here: claiming, saving, completing. Does not belong here: what a delivery is (`sinks/sink.py`), and
what a sink saves (`sinks/webhook/`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from etl_assets.effects.store import Completed, EffectStore

KEY = "delivery"
"""The key of the row of a sink."""
PLAN, PROGRESS, RESULT = "plan", "progress", "result"
SAVE_SECONDS = 15.0
CURRENT_SECONDS = 45.0
"""Less than `store.EXPIRES_SECONDS`, after which another process may take over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDelivery:
    """A delivery that this process may carry out.

    Attributes:
        plan: Its plan, as it was when it began.
        result: Its figures, if it was completed and not recorded; None otherwise.
        continued: Whether an earlier step began it.
    """

    plan: Mapping[str, Any]
    result: Mapping[str, Any] | None
    continued: bool


class DeliveryLog:
    """The log of one sink, for one step. It is the `DeliveryProgress` of the delivery that it claimed."""

    def __init__(self, store: EffectStore, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._plan: Mapping[str, Any] = {}
        self._progress: Mapping[str, Any] | None = None
        self._confirmed = 0.0

    def claim(
        self, wanted: Mapping[str, Any], continues: Callable[[Mapping[str, Any]], bool]
    ) -> ClaimedDelivery:
        """Continue the delivery that is not recorded, or begin another one.

        Args:
            wanted: The plan of the delivery to begin.
            continues: Returns whether to continue a delivery, by its plan. It is dropped otherwise.

        Raises:
            EffectInProgress: another process is at it, and may be alive.
            CommitConflict, Fenced, QuorumUnavailable: nothing was promised; the step is repeated.
        """

        def choose(held: Any | None) -> Any:
            if isinstance(held, dict) and PLAN in held and continues(held[PLAN]):
                return held
            return {PLAN: dict(wanted), PROGRESS: None}

        asked = self._monotonic()
        answer = self._store.claim(KEY, choose)
        self._confirmed = asked
        if isinstance(answer, Completed):
            return ClaimedDelivery(plan=answer.result[PLAN], result=answer.result[RESULT], continued=True)
        self._plan, self._progress = answer.held[PLAN], answer.held[PROGRESS]
        return ClaimedDelivery(plan=self._plan, result=None, continued=answer.attempt > 1)

    def load(self) -> Mapping[str, Any] | None:
        """Return what was saved last."""
        return self._progress

    def save(self, progress: Mapping[str, Any]) -> None:
        """Save the progress, and renew the claim."""
        asked = self._monotonic()
        self._store.note(KEY, {PLAN: self._plan, PROGRESS: progress})
        self._progress, self._confirmed = progress, asked

    def finish(self, result: Mapping[str, Any]) -> None:
        """Complete the delivery with its figures."""
        self._store.complete(KEY, {PLAN: self._plan, RESULT: result})

    def is_due(self) -> bool:
        """Return whether it is time to save."""
        return self._monotonic() - self._confirmed >= SAVE_SECONDS

    def is_current(self) -> bool:
        """Return whether no other process can have taken over yet."""
        return self._monotonic() - self._confirmed < CURRENT_SECONDS
