"""A store in memory whose operations can fail, come late, happen twice, or happen without a reply.

It passes the same contract tests as the real stores. A `Weather` decides the fault of each operation; without
one there are none. Its tags are hashes of the content, as on S3. That is the hardest case: the same content
has the same tag.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from etl_assets.errors import Unanswered
from etl_assets.mirroring.stores.store import Found

T = TypeVar("T")
_NOTHING_THERE: Mapping[str, Any] = {"get": None, "read": None, "size": None, "modified": None, "list": ()}
"""Results of read operations when they find nothing."""


class StoreFault(StrEnum):
    """Fault of one operation.

    LOST: it never reaches the store.
    UNANSWERED: it is done, and the reply is lost.
    LATE: it is done at some later time, long after the caller has stopped waiting.
    TWICE: it is done, answered, and done again at some later time.
    ABSENT: a read finds nothing where something exists, as in the empty folder that a disk is about to be
        mounted on; writes are not affected.
    """

    LOST = "lost"
    UNANSWERED = "unanswered"
    LATE = "late"
    TWICE = "twice"
    ABSENT = "absent"


class Weather(Protocol):
    """Decides the faults of operations, and may switch to another process around each."""

    def before(self, store: str, operation: str, key: str) -> StoreFault | None:
        """Return the fault of an operation. Called before it takes effect."""
        ...

    def after(self, store: str, operation: str, key: str) -> None:
        """Called after an operation took effect, before its reply arrives."""
        ...

    def later(self, store: str, effect: Callable[[], object]) -> None:
        """Take an effect, to be run at some later time."""
        ...


class MemoryStore:
    """A store whose root is in memory."""

    def __init__(self, name: str, weather: Weather | None = None) -> None:
        self._name = name
        self._weather = weather
        self.files: dict[str, bytes] = {}
        self._modified: dict[str, float] = {}

    @property
    def name(self) -> str:
        return self._name

    def get(self, key: str) -> Found | None:
        def effect() -> Found | None:
            content = self.files.get(key)
            return None if content is None else Found(content, _tag(content))

        return self._do("get", key, effect)

    def create(self, key: str, content: bytes) -> bool:
        def effect() -> bool:
            if key in self.files:
                return False
            self._write(key, content)
            return True

        return self._do("create", key, effect)

    def replace(self, key: str, content: bytes, etag: str) -> bool:
        def effect() -> bool:
            if key not in self.files or _tag(self.files[key]) != etag:
                return False
            self._write(key, content)
            return True

        return self._do("replace", key, effect)

    def put(self, key: str, chunks: Iterable[bytes]) -> None:
        content = b"".join(chunks)
        self._do("put", key, lambda: self._write(key, content))

    def read(self, key: str) -> Iterator[bytes] | None:
        content = self._do("read", key, lambda: self.files.get(key))
        return None if content is None else iter([content])

    def link(self, source: str, target: str) -> bool:
        def effect() -> bool:
            if source not in self.files:
                return False
            self._write(target, self.files[source])
            return True

        return self._do("link", target, effect)

    def persist(self, keys: Collection[str]) -> None:
        def effect() -> str | None:
            return next((key for key in keys if key not in self.files), None)

        if (missing := self._do("persist", ", ".join(keys), effect)) is not None:
            raise self._unanswered("persist", missing)

    def size(self, key: str) -> int | None:
        def effect() -> int | None:
            content = self.files.get(key)
            return None if content is None else len(content)

        return self._do("size", key, effect)

    def modified(self, key: str) -> float | None:
        return self._do("modified", key, lambda: self._modified.get(key) if key in self.files else None)

    def list(self, prefix: str) -> Iterator[str]:
        yield from self._do("list", prefix, lambda: [key for key in self.files if key.startswith(prefix)])

    def delete(self, key: str) -> None:
        self._do("delete", key, lambda: self.files.pop(key, None))

    def unfinished(self, prefix: str) -> Iterator[str]:
        return iter(())

    def prune(self, prefix: str) -> None:
        """Do nothing: this store has no folders."""

    def _write(self, key: str, content: bytes) -> None:
        self.files[key] = content
        self._modified[key] = time.time()

    def _do(self, operation: str, key: str, effect: Callable[[], T]) -> T:
        if self._weather is None:
            return effect()
        fault = self._weather.before(self._name, operation, key)
        if fault is StoreFault.LATE:
            self._weather.later(self._name, effect)
        if fault in (StoreFault.LOST, StoreFault.LATE):
            raise self._unanswered(operation, key)
        if fault is StoreFault.ABSENT and operation in _NOTHING_THERE:
            return _NOTHING_THERE[operation]
        answer = effect()
        if fault is StoreFault.TWICE:
            self._weather.later(self._name, effect)
        self._weather.after(self._name, operation, key)
        if fault is StoreFault.UNANSWERED:
            raise self._unanswered(operation, key)
        return answer

    def _unanswered(self, operation: str, key: str) -> Unanswered:
        return Unanswered(
            f"{self._name} did not answer ({operation} {key})",
            fix="read again before deciding",
            store=self._name,
            key=key,
        )


def _tag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
