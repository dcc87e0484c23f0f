"""A store that is not asked while its domain is known not to answer.

What is known is for whoever opens it to say; to the protocol the refusal is an answer that did not arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from etl_assets.errors import Unanswered
from etl_assets.mirroring.stores import Found, Store


class GuardedStore:
    """A store behind a breaker: `shut` says why it is not to be asked now, None if it may be."""

    def __init__(self, store: Store, shut: Callable[[], str | None]) -> None:
        self._store = store
        self._shut = shut

    @property
    def name(self) -> str:
        return self._store.name

    def get(self, key: str) -> Found | None:
        return self._open(key).get(key)

    def create(self, key: str, content: bytes) -> bool:
        return self._open(key).create(key, content)

    def replace(self, key: str, content: bytes, etag: str) -> bool:
        return self._open(key).replace(key, content, etag)

    def put(self, key: str, chunks: Iterable[bytes]) -> None:
        self._open(key).put(key, chunks)

    def read(self, key: str) -> Iterator[bytes] | None:
        return self._open(key).read(key)

    def link(self, source: str, target: str) -> bool:
        return self._open(target).link(source, target)

    def persist(self, keys: Collection[str]) -> None:
        self._open("files").persist(keys)

    def size(self, key: str) -> int | None:
        return self._open(key).size(key)

    def modified(self, key: str) -> float | None:
        return self._open(key).modified(key)

    def list(self, prefix: str) -> Iterator[str]:
        return self._open(prefix).list(prefix)

    def delete(self, key: str) -> None:
        self._open(key).delete(key)

    def _open(self, key: str) -> Store:
        if (why := self._shut()) is not None:
            raise Unanswered(
                f"{self.name}: not asked, because it is unavailable ({why})",
                fix="bring it back; it is probed again by itself, and at once by `etl-assets domains probe`",
                store=self.name,
                key=key,
            )
        return self._store
