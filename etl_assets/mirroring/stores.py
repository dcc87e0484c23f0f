"""The storage under a domain's root, as the protocol sees it: keys, bytes and conditional writes.

Belongs here: the interface and what it guarantees. Not here: any store (`local_store.py`, `object_store.py`, and the
in-memory twin `etl_assets/testing/memory_store.py`).

Every operation either answers or raises `Unanswered`. A refusal (the key exists, the content changed) is an answer, and
it is returned. After `Unanswered` the operation may have been done, may not, or may still be done later: whoever gets it
reads again before deciding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Found:
    """Content of a key and the tag that a conditional write compares."""

    content: bytes
    etag: str


class Store(Protocol):
    """A domain's root. Keys are relative paths with `/` between their parts. Safe for use by several threads."""

    @property
    def name(self) -> str:
        """What to call it in messages. Holds no credentials."""
        ...

    def get(self, key: str) -> Found | None:
        """Content and tag of a small object; None when it is not there. Sees every write that was answered before."""
        ...

    def create(self, key: str, content: bytes) -> bool:
        """Write a small object that is not there yet; durable when it returns True.

        Of any number of callers one gets True. False: the key exists, and nothing was changed; the one who made it may not
        have come to make it durable (`persist`).
        """
        ...

    def replace(self, key: str, content: bytes, etag: str) -> bool:
        """Replace a small object if it still has the tag that was read; durable when it returns True.

        Comparing and writing are one step. False: the content changed or is gone, and nothing was written.
        """
        ...

    def put(self, key: str, chunks: Iterable[bytes]) -> None:
        """Write a data file as a whole: the key never shows a part of it. Durable after `persist`.

        Data files have names of their own, so that writing one again writes the same content.
        """
        ...

    def read(self, key: str) -> Iterator[bytes] | None:
        """The content of a data file in chunks; None when it is not there."""
        ...

    def link(self, source: str, target: str) -> bool:
        """Let `target` have the content of the data file `source` without moving bytes through this process.

        False: the store cannot, or `source` is not there.
        """
        ...

    def persist(self, keys: Collection[str]) -> None:
        """Make files and the folders that name them survive a power loss, whoever wrote them.

        Raises:
            Unanswered: one of them is not there or cannot be synced.
        """
        ...

    def size(self, key: str) -> int | None:
        """Bytes of a file; None when it is not there."""
        ...

    def modified(self, key: str) -> float | None:
        """When a file got its content, in seconds since 1970 by the store's own clock; None when it is not there."""
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """Keys that begin with `prefix`, which ends with `/`, at any depth, in no order.

        Raises:
            Unanswered: not all of them can be told, whatever was listed before; an empty listing says that there are none.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove a file; an absent one is fine."""
        ...

    def unfinished(self, prefix: str) -> Iterator[str]:
        """Keys below `prefix` of what writes under way, and killed ones, have left so far; `list` does not name them."""
        ...

    def prune(self, prefix: str) -> None:
        """Remove folders in which there is nothing: that of `prefix`, which ends with `/`, and those in it.

        A store without folders has nothing to do.
        """
        ...
