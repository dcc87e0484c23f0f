"""Circuit breaker with a time limit for calls to a root, also for file systems and servers that hang.

A call that hangs in the kernel cannot be ended from outside. So each call runs in a daemon thread that
belongs to its root, and is abandoned when its time is over. Afterwards the thread waits for the next call.

Slow is not hung. While a call is late, a liveness probe (`small`) asks the root for something small. A root
that does not answer the probe hangs, and the call is abandoned. A call whose root answers may take up to
`slow_seconds` after its last heartbeat.

States of the breaker, for each root and process:

- Closed: calls pass.
- Open: an abandoned call still hangs. For a pause other calls fail at once, without asking the root.
- Half-open: after the pause one trial call passes. If it hangs as well, the next pause is twice as long.

The breaker closes as soon as the root answers any call, an abandoned one included. So the hanging threads are
those that were running when the outage began, and one more each time its duration has doubled.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import TypeVar, cast

from etl_assets.errors import Unanswered

T = TypeVar("T")

DEFAULT_TIMEOUT_SECONDS = 3.0
SLOW_SECONDS = 60.0
"""How long a call may take without a heartbeat of its own, as long as its root answers the liveness probe."""
FIRST_PAUSE_SECONDS = 5.0
MAX_SLOW = 8
"""Calls that may be abandoned as too slow and still be running; with one more the root counts as hung."""
_IDLE_SECONDS = 60.0


class Hangs(Unanswered):
    """The root answered nothing within the time limit.

    The field `asked` is False if the root was not asked, because it hung a moment ago.
    """


class Heartbeat:
    """Signs of life of a call that writes many bytes.

    The time limit of the call starts again with each beat, and does not run while the call waits for its
    input.
    """

    def __init__(self) -> None:
        self.beat_at = time.monotonic()
        self.waits = False

    def seconds(self) -> float:
        """Return the seconds that the call has been busy since its last beat; 0 while it waits for input."""
        return 0.0 if self.waits else time.monotonic() - self.beat_at

    def of(self, chunks: Iterable[T]) -> Iterator[T]:
        """Yield the chunks that the call is to write, and beat whenever the source has delivered one."""
        incoming = iter(chunks)
        while True:
            self.waits = True
            try:
                chunk = next(incoming, None)
            finally:
                self.beat_at, self.waits = time.monotonic(), False
            if chunk is None:
                return
            yield chunk


def ask(
    root: str,
    question: Callable[[], T],
    seconds: float,
    *,
    pulse: Heartbeat | None = None,
    small: Callable[[], object] | None = None,
    slow_seconds: float = SLOW_SECONDS,
) -> T:
    """Make a call to a root within a time limit, and return its answer.

    Args:
        root: Name of the root. Calls to one root hang together, and share a breaker.
        question: Makes the call. It may still run to its end after it was abandoned.
        seconds: How long the root may take to answer anything.
        pulse: The heartbeat of the call, if it has one.
        small: The liveness probe: a question that the root answers at once unless it hangs. Without it the
            call itself must be answered within `seconds`.
        slow_seconds: How long the call may take without a heartbeat while the root answers the probe.

    Raises:
        Hangs: the root answers nothing. Raised at once while the breaker is open.
        Unanswered: the call took too long, though the root answers.
        Exception: any error of the call itself.
    """
    return _root(root).ask(question, seconds, pulse or Heartbeat(), small, slow_seconds)


def hanging(root: str) -> int:
    """Return the number of calls to a root that this process has abandoned and that are still running."""
    return _root(root).hanging


class _Call:
    """One call in progress; `is_trial` marks the trial call of a half-open breaker."""

    def __init__(self, question: Callable[[], object], *, is_trial: bool) -> None:
        self.is_trial = is_trial
        self.answer: object = None
        self.error: Exception | None = None
        self.ended = threading.Event()
        self._question = question

    def make(self) -> None:
        try:
            self.answer = self._question()
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            self.error = error


class _Thread(threading.Thread):
    """A thread that makes the calls in its queue, one after the other.

    It is a daemon thread, so that the process can end while a call hangs.
    """

    def __init__(self, root: _Root) -> None:
        super().__init__(name=f"ask-{root.name}", daemon=True)
        self.calls: SimpleQueue[_Call] = SimpleQueue()
        self._root = root

    def run(self) -> None:
        while True:
            try:
                call = self.calls.get(timeout=_IDLE_SECONDS)
            except Empty:
                if self._root.dismiss(self):
                    return
                continue
            call.make()
            self._root.end(self, call)
            del call  # and what it answered


class _Root:
    """The circuit breaker of one root in this process, with the threads that make its calls.

    `_shut_until` is None while the breaker is closed, else the monotonic time from which a trial call passes.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._asking_small = threading.Lock()
        self._idle: list[_Thread] = []
        self._given_up: set[_Call] = set()
        self._shut_until: float | None = None
        self._pause = FIRST_PAUSE_SECONDS

    @property
    def hanging(self) -> int:
        return len(self._given_up)

    def ask(
        self,
        question: Callable[[], T],
        seconds: float,
        pulse: Heartbeat,
        small: Callable[[], object] | None,
        slow_seconds: float,
    ) -> T:
        # An open breaker: the probe is the trial call, as it moves few bytes.
        if small is not None and self._is_in_doubt():
            self._ask_small(small, seconds)
        call = self._begin(question, seconds)
        # With a probe half of the time is for the call, and the other half for the probe.
        patience = seconds if small is None else seconds / 2
        while not call.ended.wait(patience):
            if (busy := pulse.seconds()) < patience:
                continue
            # 1. Out of time: without a probe the root hangs, with one the call is merely too slow.
            if small is None or busy >= slow_seconds:
                if self._give_up(call, hangs=small is None):
                    limit = seconds if small is None else slow_seconds
                    raise self._silent(f"did not answer within {limit:g} s", hangs=small is None)
                break  # the call has just ended
            # 2. Late, but not out of time: the root hangs if it does not answer the probe either.
            try:
                self._ask_small(small, seconds / 2)
            except Hangs:
                if self._give_up(call, hangs=True):
                    raise self._silent(f"did not answer within {seconds:g} s", hangs=True) from None
                break
        if call.error is not None:
            raise call.error
        return cast("T", call.answer)

    def end(self, thread: _Thread, call: _Call) -> None:
        """Record the end of a call, maybe an abandoned one, and close the breaker if the root answered."""
        with self._lock:
            self._idle.append(thread)
            broken_off = call in self._given_up and isinstance(call.error, Unanswered)
            self._given_up.discard(call)
            if not broken_off:
                self._shut_until, self._pause = None, FIRST_PAUSE_SECONDS
            elif not self._given_up:
                # That was no answer, but no call hangs any more: a trial may pass at once.
                self._shut_until = time.monotonic()
            call.ended.set()

    def dismiss(self, thread: _Thread) -> bool:
        """Return whether an idle thread may end: True if it has no call, and gets none any more."""
        with self._lock:
            if thread in self._idle:
                self._idle.remove(thread)
                return True
            return False

    def _ask_small(self, small: Callable[[], object], seconds: float) -> None:
        """Run the liveness probe; one thread at a time, the others wait for their turn within the limit.

        Raises:
            Hangs: the root did not answer within `seconds`. Other `Unanswered` errors count as an answer.
        """
        if not self._asking_small.acquire(timeout=seconds):
            raise self._silent(f"did not answer within {seconds:g} s", hangs=True)
        try:
            self.ask(small, seconds, Heartbeat(), None, slow_seconds=seconds)
        except Hangs:
            raise
        except Unanswered:
            return
        finally:
            self._asking_small.release()

    def _is_in_doubt(self) -> bool:
        return self._shut_until is not None

    def _begin(self, question: Callable[[], object], seconds: float) -> _Call:
        """Start a call in an idle or new thread, if the breaker lets it pass.

        Raises:
            Hangs: the breaker is open.
        """
        with self._lock:
            is_trial = False
            if self._shut_until is not None:
                if (now := time.monotonic()) < self._shut_until:
                    raise self._silent(
                        "did not answer a moment ago, and is not asked again yet", hangs=True, asked=False
                    )
                # Half-open: this call is the trial, and the others fail until it has ended or its time is
                # over.
                is_trial, self._shut_until = True, now + seconds
            call = _Call(question, is_trial=is_trial)
            thread = self._idle.pop() if self._idle else _Thread(self)
            if not thread.is_alive():
                thread.start()
            thread.calls.put(call)
            return call

    def _give_up(self, call: _Call, *, hangs: bool) -> bool:
        """Abandon a call, and open the breaker if the root hangs or too many slow calls are left.

        Returns:
            False if the call has just ended, and so is not abandoned.
        """
        with self._lock:
            if call.ended.is_set():
                return False
            self._given_up.add(call)
            if hangs or len(self._given_up) > MAX_SLOW:
                self._pause *= 2 if call.is_trial else 1
                self._shut_until = time.monotonic() + self._pause
            return True

    def _silent(self, what: str, *, hangs: bool, asked: bool = True) -> Unanswered:
        return (Hangs if hangs else Unanswered)(
            f"{self.name}: {what}",
            fix="see that it is mounted or reachable, and that its disk or server is not stuck",
            store=self.name,
            key="",
            asked=asked,
        )


_roots: dict[tuple[int, str], _Root] = {}


def _root(name: str) -> _Root:
    """Return this process's breaker of a root. A forked process gets its own, as it has no threads yet."""
    key = os.getpid(), name
    return _roots.get(key) or _roots.setdefault(key, _Root(name))
