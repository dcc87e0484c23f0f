"""A time limit that holds even where a file system or a server hangs: what does not answer is given up, and left behind.

A call that hangs in the kernel cannot be ended from outside. It is made in a daemon thread of its root's, which waits for
the next one afterwards, and is given up when its time is over. Slow is not hung: a call is given up when its root does not
answer anything, and one whose root answers something small meanwhile may go on for a long time.

While a given-up call hangs, nobody in the process asks its root: after a pause one is let through to try, and if that one
hangs as well, the next pause is twice as long. So the threads that hang are those that were under way when it began, and
one more each time the outage has doubled. As soon as one of them comes to its end, the root is asked again.
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
"""How long a call may take without a sign of life of its own, as long as its root answers."""
FIRST_PAUSE_SECONDS = 5.0
MAX_SLOW = 8
"""So many calls that were too slow, and go on behind the scenes, are taken for a root that hangs."""
_IDLE_SECONDS = 60.0


class Hangs(Unanswered):
    """The root answered nothing within the time limit; `asked` is False if it was not asked because of that."""


class Heartbeat:
    """Signs of life of a call that moves many bytes: its time counts anew with each, and not while it waits for others."""

    def __init__(self) -> None:
        self.beat_at = time.monotonic()
        self.waits = False

    def seconds(self) -> float:
        """How long the call has been busy since its last sign of life."""
        return 0.0 if self.waits else time.monotonic() - self.beat_at

    def of(self, chunks: Iterable[T]) -> Iterator[T]:
        """Chunks that the call is to write, and somebody else is to bring."""
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
    """The answer to a question about a root.

    Args:
        root: What hangs or does not as one.
        question: Makes the call. It may be made to its end after it was given up.
        seconds: How long the root may take to answer anything.
        pulse: The call's signs of life, if it gives any.
        small: Asks the root something that it answers at once unless it hangs; without it the question itself is that.
        slow_seconds: How long the call may take without a sign of life of its own while the root answers.

    Raises:
        Hangs: the root answers nothing; at once if that was found out a moment ago.
        Unanswered: the call took too long; the root answers.
    """
    return _root(root).ask(question, seconds, pulse or Heartbeat(), small, slow_seconds)


def hanging(root: str) -> int:
    """How many calls to a root this process has given up that have not come to their end."""
    return _root(root).hanging


class _Call:
    """One question under way."""

    def __init__(self, question: Callable[[], object], *, is_trial: bool) -> None:
        self.is_trial = is_trial
        self.answer: object = None
        self.error: Exception | None = None
        self.ended = threading.Event()
        self._question = question

    def make(self) -> None:
        try:
            self.answer = self._question()
        except Exception as error:  # noqa: BLE001 - handed over to whoever asked
            self.error = error


class _Thread(threading.Thread):
    """Makes the calls it is given, one after the other. A daemon: a process must be able to end while it hangs."""

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
    """What this process knows of a root: who is at hand to ask it, what hangs there, and when it may be asked again."""

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
        if small is not None and self._is_in_doubt():
            self._ask_small(small, seconds)
        call = self._begin(question, seconds)
        patience = seconds if small is None else seconds / 2
        while not call.ended.wait(patience):
            if (busy := pulse.seconds()) < patience:
                continue
            if small is None or busy >= slow_seconds:
                if self._give_up(call, hangs=small is None):
                    limit = seconds if small is None else slow_seconds
                    raise self._silent(f"did not answer within {limit:g} s", hangs=small is None)
                break
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
        """A call has come to its end, maybe long after it was given up."""
        with self._lock:
            self._idle.append(thread)
            broken_off = call in self._given_up and isinstance(call.error, Unanswered)
            self._given_up.discard(call)
            if not broken_off:
                self._shut_until, self._pause = None, FIRST_PAUSE_SECONDS
            elif not self._given_up:
                # That was no answer, but nothing hangs any more: somebody may try.
                self._shut_until = time.monotonic()
            call.ended.set()

    def dismiss(self, thread: _Thread) -> bool:
        """Whether a thread may end: nobody has a call for it."""
        with self._lock:
            if thread in self._idle:
                self._idle.remove(thread)
                return True
            return False

    def _ask_small(self, small: Callable[[], object], seconds: float) -> None:
        """Raises `Hangs`; any other error is an answer. Of many that want to know one asks."""
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
        with self._lock:
            is_trial = False
            if self._shut_until is not None:
                if (now := time.monotonic()) < self._shut_until:
                    raise self._silent(
                        "did not answer a moment ago, and is not asked again yet", hangs=True, asked=False
                    )
                # One goes ahead; the others wait for what becomes of it.
                is_trial, self._shut_until = True, now + seconds
            call = _Call(question, is_trial=is_trial)
            thread = self._idle.pop() if self._idle else _Thread(self)
            if not thread.is_alive():
                thread.start()
            thread.calls.put(call)
            return call

    def _give_up(self, call: _Call, *, hangs: bool) -> bool:
        """Leave a call behind; False if it has just come to its end."""
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
    """A forked process begins anew: it has none of the threads."""
    key = os.getpid(), name
    return _roots.get(key) or _roots.setdefault(key, _Root(name))
