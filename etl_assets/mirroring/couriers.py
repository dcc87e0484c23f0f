"""Errands to several domains at once, and how long to wait for their answers.

Each domain has a thread of its own that takes errands in order, so that a domain that hangs delays nobody else. An
errand that is given up goes on behind the scenes; every errand of the protocol may be done late, or twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Errands = Mapping[str, Callable[[], T]]

DEFAULT_PATIENCE_SECONDS = 30.0


class Couriers(Protocol):
    """Runs errands, one a domain."""

    def gather(self, errands: Errands[T], enough: Callable[[Mapping[str, T]], bool]) -> dict[str, T]:
        """Run the errands at once and return their answers by domain.

        Returns as soon as `enough` holds of the answers so far, all have answered, or patience is at its end. An
        exception in an errand is raised here.
        """
        ...


class ThreadCouriers:
    """A thread for each domain. To be used for one table, by one commit at a time."""

    def __init__(self, *, patience_seconds: float = DEFAULT_PATIENCE_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._last: dict[str, Future[Any]] = {}
        self._lock = Lock()

    def gather(self, errands: Errands[T], enough: Callable[[Mapping[str, T]], bool]) -> dict[str, T]:
        pending = {self._send(domain, errand): domain for domain, errand in errands.items()}
        answers: dict[str, T] = {}
        deadline = time.monotonic() + self._patience_seconds
        while pending and not enough(answers):
            left = max(0.0, deadline - time.monotonic())
            done, _ = wait(pending, timeout=left, return_when=FIRST_COMPLETED)
            if not done:
                break
            for future in done:
                domain = pending.pop(future)
                if not future.cancelled():
                    answers[domain] = future.result()
        return answers

    def close(self) -> None:
        """Wait for the errands that are under way, and end the threads."""
        for thread in self._threads.values():
            thread.shutdown(wait=True)
        self._threads.clear()

    def _send(self, domain: str, errand: Callable[[], T]) -> Future[T]:
        with self._lock:
            if domain not in self._threads:
                name = f"courier-{domain}"
                self._threads[domain] = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
            if domain in self._last:
                # An errand that a hanging domain has not begun: the new one does its work as well.
                self._last[domain].cancel()
            self._last[domain] = future = self._threads[domain].submit(errand)
            return future
