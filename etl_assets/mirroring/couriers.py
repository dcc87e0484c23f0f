"""Errands to several domains at once, and how long to wait for their answers.

Each domain has a thread of its own that takes errands in order, so that a domain that hangs delays nobody else. An
errand that is given up goes on behind the scenes; every errand of the protocol may be done late, or twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from threading import Lock
from typing import Protocol, TypeVar

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
    """A thread for each domain."""

    def __init__(self, *, patience_seconds: float = DEFAULT_PATIENCE_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._lock = Lock()

    def gather(self, errands: Errands[T], enough: Callable[[Mapping[str, T]], bool]) -> dict[str, T]:
        pending = {self._thread(domain).submit(errand): domain for domain, errand in errands.items()}
        answers: dict[str, T] = {}
        deadline = time.monotonic() + self._patience_seconds
        while pending and not enough(answers):
            done, _ = wait(pending, timeout=deadline - time.monotonic(), return_when=FIRST_COMPLETED)
            if not done:
                break
            for future in done:
                answers[pending.pop(future)] = future.result()
        for future in pending:
            future.cancel()  # those that a hanging domain has not begun: the next errand there does their work
        return answers

    def close(self) -> None:
        """End the threads once their errands have ended."""
        for thread in self._threads.values():
            thread.shutdown(wait=True, cancel_futures=True)
        self._threads.clear()

    def _thread(self, domain: str) -> ThreadPoolExecutor:
        with self._lock:
            if domain not in self._threads:
                name = f"courier-{domain}"
                self._threads[domain] = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
            return self._threads[domain]
