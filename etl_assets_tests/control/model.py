"""What run control must do, said a second time in the plainest way, to compare the store with."""

from __future__ import annotations

import copy
import datetime as dt
from dataclasses import dataclass, field

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


def later(seconds: float) -> dt.datetime:
    return NOW + dt.timedelta(seconds=seconds)


@dataclass
class ModelRun:
    status: str = "requested"
    attempts: int = 0
    begun: bool = False
    waits_until: float | None = None
    timed: bool = False


@dataclass
class ModelPipeline:
    state: str = "IDLE"
    open: ModelRun | None = None
    remembered: ModelRun | None = None
    token: int = 0
    over: list[str] = field(default_factory=list)
    """Statuses of the runs that have ended, in the order of their ends."""

    def copy(self) -> ModelPipeline:
        return copy.deepcopy(self)

    def view(self) -> tuple[object, ...]:
        """What can be read of the store, too."""
        runs = [
            None if run is None else (run.status, run.attempts, run.begun)
            for run in (self.open, self.remembered)
        ]
        can_wait = self.state in ("RUN_REQUESTED", "FAILED")
        waits = can_wait and self.open is not None and self.open.waits_until is not None
        return (self.state, *runs, waits, self.token, sorted(self.over))

    # Clients.

    def run(self) -> bool:
        if self.state in ("IDLE", "CANCELED", "FAILED"):
            if self.state == "FAILED":
                self.over.append("failed")
            self.open, self.remembered = self.remembered or ModelRun(), None
            self.state = "RUN_REQUESTED"
        elif self.open is None or self.open.begun:
            self.remembered = self.remembered or ModelRun()
        return True

    def pause(self) -> bool:
        if self.state == "CANCEL_REQUESTED":
            return False
        if self.state == "RUNNING":
            self.state = "PAUSE_REQUESTED"
        elif self.state in ("IDLE", "RUN_REQUESTED", "CANCELED", "FAILED"):
            self.state = "PAUSED"
            if self.open is not None and self.open.status == "requested":
                self.open.status = "paused"
        return True

    def resume(self) -> bool:
        if self.state in ("CANCEL_REQUESTED", "FAILED"):
            return False
        if self.state == "PAUSE_REQUESTED":
            self.state = "RUNNING"
        elif self.state == "CANCELED":
            self.state = "IDLE"
        elif self.state == "PAUSED":
            if self.open is None:
                self.open, self.remembered = self.remembered, None
            self.state = "IDLE" if self.open is None else "RUN_REQUESTED"
            self._wait_no_more()
        return True

    def cancel(self) -> bool:
        if self.state == "IDLE":
            return False
        if self.remembered is not None:
            self.over.append("canceled")
            self.remembered = None
        if self.state in ("RUNNING", "PAUSE_REQUESTED"):
            self.state = "CANCEL_REQUESTED"
        elif self.state != "CANCEL_REQUESTED":
            self.state = "CANCELED"
            if self.open is not None:
                self.over.append("failed" if self.open.status == "failed" else "canceled")
                self.open = None
        return True

    def retry(self) -> bool:
        if self.state not in ("FAILED", "RUN_REQUESTED"):
            return False
        self.state = "RUN_REQUESTED"
        self._wait_no_more()
        return True

    def _wait_no_more(self) -> None:
        if self.open is not None:
            if self.open.status == "failed":
                self.open.attempts = 0
            self.open.status, self.open.waits_until, self.open.timed = "requested", None, False

    # Runners.

    def can_be_claimed(self, now: float) -> bool:
        if self.state != "RUN_REQUESTED" or self.open is None:
            return False
        return self.open.waits_until is None or self.open.waits_until <= now

    def claim(self) -> None:
        assert self.open is not None
        self.state, self.token = "RUNNING", self.token + 1
        self.open.status, self.open.begun, self.open.waits_until = "running", True, None
        self.open.attempts += 1

    def finish(self) -> None:
        self.over.append("succeeded")
        self.open = None
        if self.state == "PAUSE_REQUESTED":
            self.state = "PAUSED"
        elif self.remembered is not None:
            self.open, self.remembered, self.state = self.remembered, None, "RUN_REQUESTED"
        else:
            self.state = "IDLE" if self.state == "RUNNING" else "CANCELED"

    def leave(self, *, failed: bool, waits_until: float | None = None, timed: bool = False) -> None:
        """An attempt ends without success, for good if it failed."""
        assert self.open is not None
        if self.state == "CANCEL_REQUESTED":
            self.over.append("canceled")
            self.open, self.remembered = self.remembered, None
            self.state = "RUN_REQUESTED" if self.open else "CANCELED"
            return
        self.open.waits_until, self.open.timed = waits_until, timed
        is_pausing = self.state == "PAUSE_REQUESTED"
        self.state = "PAUSED" if is_pausing else ("FAILED" if failed else "RUN_REQUESTED")
        self.open.status = "failed" if failed else ("paused" if is_pausing else "requested")

    def lose(self) -> None:
        assert self.open is not None
        is_last = self.open.attempts >= 3 and self.state == "RUNNING"
        self.leave(failed=is_last)

    def release(self) -> None:
        assert self.open is not None
        self.open.attempts -= 1
        self.leave(failed=False)

    def wake(self, now: float) -> None:
        if self.state != "FAILED" or self.open is None or not self.open.timed:
            return
        if self.open.waits_until is not None and self.open.waits_until <= now:
            self.retry()
