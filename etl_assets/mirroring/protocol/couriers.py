"""Concurrent requests to several domains, and how long to wait for their answers.

Each domain has a thread of its own that runs its requests in order, so a domain that is slow or hangs delays
no other. A request that is no longer waited for continues in the background. Every request of the protocol
may run late, or twice.
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
    """Runs requests, one per domain."""

    def gather(self, errands: Errands[T], enough: Callable[[Mapping[str, T]], bool]) -> dict[str, T]:
        """Run the requests concurrently, and return their answers by domain.

        Returns as soon as `enough` is true of the answers so far, all domains have answered, or the time is
        over. An exception in a request is raised here.
        """
        ...

    def gather_from_all(self, errands: Errands[T]) -> dict[str, T]:
        """Run requests that every domain should answer, although nothing depends on a single answer.

        Once more than half of the domains have answered, the others get a short grace period.
        """
        ...


class ThreadCouriers:
    """Couriers with one thread for each domain.

    Use an instance for one table. Any number of threads may share it; their requests to one domain run in
    turn. A request that has not begun and is no longer waited for is cancelled by the next one to its domain,
    as the next ballot makes up for it. So requests do not pile up at a domain that hangs.
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
        """Add the answers of pending requests to `answers`, until there are enough or the time is over."""
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
        """Wait for the running requests, and end the threads."""
        for thread in self._threads.values():
            thread.shutdown(wait=True)
        self._threads.clear()

    @contextmanager
    def _sent(self, errands: Errands[T]) -> Generator[dict[Future[T], str]]:
        """Send requests, and yield their futures with their domains.

        Requests that are still pending at the end continue in the background, or are cancelled by a later
        request.
        """
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
