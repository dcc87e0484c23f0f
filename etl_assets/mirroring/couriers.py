"""Errands to several domains at once, and how long to wait for their answers.

Each domain has a thread of its own that takes errands in order, so that a domain that is slow or hangs delays nobody
else. An errand that is given up goes on behind the scenes; every errand of the protocol may be done late, or twice.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Lock
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Errands = Mapping[str, Callable[[], T]]

DEFAULT_PATIENCE_SECONDS = 30.0
DEFAULT_GRACE_SECONDS = 1.0


class Couriers(Protocol):
    """Runs errands, one a domain."""

    def gather(self, errands: Errands[T], enough: Callable[[Mapping[str, T]], bool]) -> dict[str, T]:
        """Run the errands at once and return their answers by domain.

        Returns as soon as `enough` holds of the answers so far, all have answered, or patience is at its end. An
        exception in an errand is raised here.
        """
        ...

    def gather_from_all(self, errands: Errands[T]) -> dict[str, T]:
        """Run errands that everybody is to answer, and nothing depends on whether everybody does.

        Once more than half have answered the others get a short grace.
        """
        ...


class ThreadCouriers:
    """A thread for each domain. To be used for one table, by any number of threads, which take turns at each domain.

    An errand that nobody waits for any more and that was not begun gives way to the next one there: what it was to do is done
    by the next ballot. So a domain that hangs collects no errands.
    """

    def __init__(
        self,
        *,
        patience_seconds: float = DEFAULT_PATIENCE_SECONDS,
        grace_seconds: float = DEFAULT_GRACE_SECONDS,
    ) -> None:
        self._patience_seconds = patience_seconds
        self._grace_seconds = grace_seconds
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._left: defaultdict[str, list[Future[Any]]] = defaultdict(list)
        self._lock = Lock()

    def gather(self, errands: Errands[T], enough: Callable[[Mapping[str, T]], bool]) -> dict[str, T]:
        with self._sent(errands) as pending:
            return self._await(pending, enough, {}, self._patience_seconds)

    def gather_from_all(self, errands: Errands[T]) -> dict[str, T]:
        def most(answers: Mapping[str, T]) -> bool:
            return 2 * len(answers) > len(errands)

        with self._sent(errands) as pending:
            answers = self._await(pending, most, {}, self._patience_seconds)
            return self._await(pending, lambda _: False, answers, self._grace_seconds)

    @staticmethod
    def _await(
        pending: dict[Future[T], str],
        enough: Callable[[Mapping[str, T]], bool],
        answers: dict[str, T],
        patience_seconds: float,
    ) -> dict[str, T]:
        """Move answers from the pending errands to those that were given, until there are enough or for so long."""
        deadline = time.monotonic() + patience_seconds
        while pending and not enough(answers):
            left = max(0.0, deadline - time.monotonic())
            done, _ = wait(pending, timeout=left, return_when=FIRST_COMPLETED)
            if not done:
                break
            for future in done:
                answers[pending.pop(future)] = future.result()
        return answers

    def close(self) -> None:
        """Wait for the errands that are under way, and end the threads."""
        for thread in self._threads.values():
            thread.shutdown(wait=True)
        self._threads.clear()

    @contextmanager
    def _sent(self, errands: Errands[T]) -> Generator[dict[Future[T], str]]:
        """Errands on their way, and whose answers are waited for within; those that remain are left to themselves."""
        pending = {self._send(domain, errand): domain for domain, errand in errands.items()}
        try:
            yield pending
        finally:
            with self._lock:
                for future, domain in pending.items():
                    self._left[domain].append(future)

    def _send(self, domain: str, errand: Callable[[], T]) -> Future[T]:
        with self._lock:
            if domain not in self._threads:
                name = f"courier-{domain}"
                self._threads[domain] = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
            for left in self._left.pop(domain, ()):
                left.cancel()
            return self._threads[domain].submit(errand)
