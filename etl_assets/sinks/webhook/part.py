"""A part of a delivery: some calls at a time, whose answers are saved together.

Belongs here: threads, and when answers are saved. Does not belong here: what an answer means (`sink.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.sinks.webhook.calls import Call
from etl_assets.sinks.webhook.client import CallAnswer
from etl_assets.sinks.webhook.progress import CallProgress

_LOOK_SECONDS = 1.0
Answers = Mapping[int, tuple[Call, CallAnswer]]


@dataclass(kw_only=True)
class Part:
    """Some calls.

    Attributes:
        calls: The calls, in the order of the delivery.
        send: Makes a call and returns its final answer; None if the claim has to be renewed first.
        progress: The progress before; its `answered` are places in `calls` that are not called again.
        save: Saves a progress with new answers, and returns it with their outcomes.
        concurrency: Most calls at a time.
        is_due: Returns whether it is time to save.
    """

    calls: Sequence[Call]
    send: Callable[[Call], CallAnswer | None]
    progress: CallProgress
    save: Callable[[CallProgress, Answers], CallProgress]
    concurrency: int
    is_due: Callable[[], bool]
    _new: dict[int, tuple[Call, CallAnswer]] = field(default_factory=dict)

    def carry_out(self, number: int, done: Callable[[CallProgress, int], CallProgress]) -> CallProgress:
        """Make the calls, save their answers, and return the progress after the part.

        After an error no further call begins; the answers of those that were made are saved before it is
        raised.
        """
        answered = set(self.progress.answered)
        left = deque(place for place in range(len(self.calls)) if place not in answered)
        running: dict[Future[CallAnswer | None], int] = {}
        failure: BaseException | None = None
        with ThreadPoolExecutor(max_workers=self.concurrency, thread_name_prefix="webhook") as pool:
            while running or (left and failure is None):
                while left and failure is None and len(running) < self.concurrency:
                    place = left.popleft()
                    running[pool.submit(self.send, self.calls[place])] = place
                finished, _ = wait(running, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
                for future in finished:
                    place = running.pop(future)
                    failure = self._take(place, future, left) or failure
                if failure is None and self.is_due():
                    self._save_some()
        if failure is not None:
            self._save_some()
            raise failure
        # The last answers and the step to the next part are saved at once.
        after = done(self.progress, number)
        self.progress = self.save(after, self._new)
        failpoint(Failpoint.WEBHOOK_AFTER_SAVE)
        return self.progress

    def _take(self, place: int, future: Future[CallAnswer | None], left: deque[int]) -> BaseException | None:
        error = future.exception()
        if error is not None:
            return error
        answer = future.result()
        if answer is None:
            # The process was paused: whether the delivery is still its own is asked before it goes on.
            left.appendleft(place)
            self._save_some()
        else:
            failpoint(Failpoint.WEBHOOK_AFTER_CALL)
            self._new[place] = self.calls[place], answer
        return None

    def _save_some(self) -> None:
        new, self._new = self._new, {}
        answered = tuple(sorted({*self.progress.answered, *new}))
        self.progress = self.save(replace(self.progress, answered=answered), new)
