"""The storage interface of the protocol: keys, bytes and conditional writes under a domain's root.

Belongs here: the interface and its guarantees. Does not belong here: any store (`local_store.py`,
`object_store.py`, and the in-memory twin `etl_assets/testing/memory_store.py`).

Every operation either answers or raises `Unanswered`. A refusal (the key exists, the content changed) is an
answer, and is returned. After `Unanswered` the operation may have been done, may not have been, or may still
be done later: the caller must read again before it decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Found:
    """Content of a key, and the tag that a conditional write compares."""

    content: bytes
    etag: str


class Store(Protocol):
    """A domain's root. Keys are relative paths with `/` between their parts.

    Stores are safe to use from several threads.
    """

    @property
    def name(self) -> str:
        """Name of the store in messages. Contains no credentials."""
        ...

    def get(self, key: str) -> Found | None:
        """Return content and tag of a small object; None if it does not exist.

        Sees every write that was answered before.
        """
        ...

    def create(self, key: str, content: bytes) -> bool:
        """Write a small object that does not exist yet.

        Of any number of concurrent callers one gets True.

        Returns:
            True if the object was written and is durable. False if the key exists: nothing was changed, and
            the existing object may not be durable yet (`persist`).
        """
        ...

    def replace(self, key: str, content: bytes, etag: str) -> bool:
        """Replace a small object if it still has the tag that was read.

        Comparing and writing are one atomic step.

        Returns:
            True if the object was replaced and is durable. False if it has changed or is missing: nothing was
            written.
        """
        ...

    def put(self, key: str, chunks: Iterable[bytes]) -> None:
        """Write a data file as a whole: the key never shows a part of it.

        The file is durable after `persist`. Each data file has a unique name, so writing it again writes the
        same content.
        """
        ...

    def read(self, key: str) -> Iterator[bytes] | None:
        """Return the content of a data file in chunks; None if it does not exist."""
        ...

    def link(self, source: str, target: str) -> bool:
        """Give `target` the content of the data file `source` without moving bytes through this process.

        Returns:
            False if the store cannot do this, or if `source` does not exist.
        """
        ...

    def persist(self, keys: Collection[str]) -> None:
        """Make files and their folders survive a power loss, whichever process wrote them.

        Raises:
            Unanswered: a file is missing or cannot be synced.
        """
        ...

    def size(self, key: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""
        ...

    def modified(self, key: str) -> float | None:
        """Return when a file was written, in seconds since 1970 by the store's clock; None without one."""
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """Yield the keys that begin with `prefix`, at any depth and in no order. `prefix` ends with `/`.

        An empty listing means that there are no such keys.

        Raises:
            Unanswered: the listing is not complete, whatever was yielded before.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove a file; does nothing if it does not exist."""
        ...

    def unfinished(self, prefix: str) -> Iterator[str]:
        """Yield the keys below `prefix` of temporary files of running or killed writes; `list` omits them."""
        ...

    def prune(self, prefix: str) -> None:
        """Remove empty folders: that of `prefix`, which ends with `/`, and those in it.

        Does nothing in a store without folders.
        """
        ...
