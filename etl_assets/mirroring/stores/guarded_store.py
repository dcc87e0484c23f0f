"""Guarded store: every operation has a time limit, and none is begun on a domain that is known not to answer.

The breaker, passed in by the code that opens the store, knows which domains do not answer. To the protocol a
refused operation is an answer that did not arrive. So is an abandoned operation, which may still be done at
any time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Protocol, TypeVar

from etl_assets.errors import Unanswered
from etl_assets.mirroring.stores.circuit_breaker import Hangs, Heartbeat, ask
from etl_assets.mirroring.stores.store import Found, Store

T = TypeVar("T")

_KEYS_AT_ONCE = 500


class Breaker(Protocol):
    """Circuit breaker of the domain of a store, shared by this process and others."""

    def shut(self) -> str | None:
        """Return why the domain must not be asked now, or None if it may be."""
        ...

    def hangs(self, began: float, problem: str) -> None:
        """Record that an operation got no answer within the limit; `began` is a monotonic time."""
        ...


class GuardedStore:
    """A store behind a circuit breaker and a time limit."""

    def __init__(
        self, store: Store, *, seconds: float, small_key: str, breaker: Breaker | None = None
    ) -> None:
        """Guard a store; nothing is asked yet.

        Args:
            store: The store.
            seconds: How long its root may take to answer anything.
            small_key: Key of a small object. It is read as the liveness probe while an operation is late.
            breaker: Says when not to ask the store.
        """
        self._store = store
        self._seconds = seconds
        self._small_key = small_key
        self._breaker = breaker

    @property
    def name(self) -> str:
        return self._store.name

    def get(self, key: str) -> Found | None:
        return self._ask(key, lambda: self._store.get(key))

    def create(self, key: str, content: bytes) -> bool:
        return self._ask(key, lambda: self._store.create(key, content))

    def replace(self, key: str, content: bytes, etag: str) -> bool:
        return self._ask(key, lambda: self._store.replace(key, content, etag))

    def put(self, key: str, chunks: Iterable[bytes]) -> None:
        # The chunks come from another domain, whose time must not count for this one.
        pulse = Heartbeat()
        self._ask(key, lambda: self._store.put(key, pulse.of(chunks)), pulse)

    def read(self, key: str) -> Iterator[bytes] | None:
        chunks = self._ask(key, lambda: self._store.read(key))
        return None if chunks is None else self._each(key, lambda: next(chunks, None))

    def link(self, source: str, target: str) -> bool:
        return self._ask(target, lambda: self._store.link(source, target))

    def persist(self, keys: Collection[str]) -> None:
        self._ask("files", lambda: self._store.persist(keys))

    def size(self, key: str) -> int | None:
        return self._ask(key, lambda: self._store.size(key))

    def modified(self, key: str) -> float | None:
        return self._ask(key, lambda: self._store.modified(key))

    def list(self, prefix: str) -> Iterator[str]:
        return self._some_at_once(prefix, self._store.list(prefix))

    def delete(self, key: str) -> None:
        self._ask(key, lambda: self._store.delete(key))

    def unfinished(self, prefix: str) -> Iterator[str]:
        return self._some_at_once(prefix, self._store.unfinished(prefix))

    def prune(self, prefix: str) -> None:
        self._ask(prefix, lambda: self._store.prune(prefix))

    def _some_at_once(self, prefix: str, keys: Iterator[str]) -> Iterator[str]:
        for some in self._each(prefix, lambda: list(islice(keys, _KEYS_AT_ONCE))):
            yield from some

    def _each(self, key: str, following: Callable[[], T | None]) -> Iterator[T]:
        while found := self._ask(key, following):
            yield found

    def _ask(self, key: str, question: Callable[[], T], pulse: Heartbeat | None = None) -> T:
        self._expect_open(key)
        began = time.monotonic()
        try:
            return ask(self.name, question, self._seconds, pulse=pulse, small=self._small)
        except Hangs as error:
            # The error may concern the root that this one copies from.
            is_news = error.fields["asked"] and error.fields["store"] == self.name
            if self._breaker is not None and is_news:
                self._breaker.hangs(began, error.message)
            raise

    def _small(self) -> object:
        return self._store.get(self._small_key)

    def _expect_open(self, key: str) -> None:
        if self._breaker is not None and (why := self._breaker.shut()) is not None:
            raise Unanswered(
                f"{self.name}: not asked, because it is unavailable ({why})",
                fix="bring it back; it is probed again by itself, and at once by `etl-assets domains probe`",
                store=self.name,
                key=key,
            )
