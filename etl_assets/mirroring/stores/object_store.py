"""A bucket or container as a store: S3 and compatible servers, Azure's blob storage, memory.

Conditional writes are the store's own (`If-None-Match`, `If-Match`). Credentials come from the store's usual
chain: environment, profile, workload or instance identity. They are never taken from the address, and never
shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError, PreconditionError
from obstore.store import ObjectStore as Backend
from obstore.store import from_url

from etl_assets.errors import SettingsError, Unanswered
from etl_assets.mirroring.stores.store import Found

CONNECT_TIMEOUT = timedelta(seconds=2)
READ_TIMEOUT = timedelta(seconds=20)
"""A request ends if the server sends nothing for this long.

If the whole server hangs, the caller got an error long before (`circuit_breaker.py`).
"""
REQUEST_TIMEOUT = timedelta(minutes=10)
"""Time limit for a whole file, however slow the connection is."""
RETRY_TIMEOUT = timedelta(seconds=10)
FIRST_BACKOFF = timedelta(milliseconds=50)
CHUNK_BYTES = 8 * 1024 * 1024

T = TypeVar("T")


class ObjectStore:
    """A prefix of a bucket."""

    def __init__(self, backend: Backend, *, name: str, copies: bool = True) -> None:
        """Wrap a bucket or container; nothing is sent yet.

        Args:
            backend: The bucket or container.
            name: Its name in messages.
            copies: Whether a copy within the store is complete when the store answers.
        """
        self._backend = backend
        self._name = name
        self._copies = copies

    @classmethod
    def open(cls, uri: str) -> ObjectStore:
        """Open `s3://bucket/prefix`, `az://container/prefix` or `memory:///`. Nothing is sent yet.

        Raises:
            SettingsError: the address contains credentials or a query, or is of an unknown kind of store.
        """
        parts = urlsplit(uri)
        if "@" in parts.netloc:
            raise _refused(parts.scheme, "holds credentials", "give credentials by the store's own chain")
        if parts.query or parts.fragment:
            raise _refused(parts.scheme, "has a query", "give options by the store's environment variables")
        if parts.scheme == "memory":
            return cls(from_url(uri), name=uri)
        if parts.scheme not in ("s3", "az"):
            raise _refused(parts.scheme, "is of no store that is known", "use s3:// or az://")
        try:
            backend = from_url(
                uri,
                # The stores' own addresses are all https; an http endpoint was configured on purpose.
                client_options={
                    "connect_timeout": CONNECT_TIMEOUT,
                    "read_timeout": READ_TIMEOUT,
                    "timeout": REQUEST_TIMEOUT,
                    "allow_http": True,
                },
                retry_config={
                    "max_retries": 3,
                    "retry_timeout": RETRY_TIMEOUT,
                    "backoff": {"init_backoff": FIRST_BACKOFF, "max_backoff": 8 * FIRST_BACKOFF, "base": 2},
                },
            )
        except (BaseError, ValueError) as error:
            raise _refused(parts.scheme, "cannot be opened", "use s3:// or az://") from error
        # Azure answers when a copy has begun, not when it is complete.
        return cls(backend, name=uri, copies=parts.scheme != "az")

    @property
    def name(self) -> str:
        return self._name

    def get(self, key: str) -> Found | None:
        def found() -> Found | None:
            try:
                answer = obstore.get(self._backend, key)
            except FileNotFoundError:
                return None
            return Found(bytes(answer.bytes()), _tag(answer.meta))

        return self._ask(key, found)

    def create(self, key: str, content: bytes) -> bool:
        return self._put_if(key, content, "create")

    def replace(self, key: str, content: bytes, etag: str) -> bool:
        return self._put_if(key, content, json.loads(etag))

    def put(self, key: str, chunks: Iterable[bytes]) -> None:
        self._ask(key, lambda: obstore.put(self._backend, key, iter(chunks)))

    def read(self, key: str) -> Iterator[bytes] | None:
        def opened() -> Any:
            try:
                return obstore.get(self._backend, key).stream(min_chunk_size=CHUNK_BYTES)
            except FileNotFoundError:
                return None

        stream = self._ask(key, opened)
        return None if stream is None else self._chunks(key, stream)

    def link(self, source: str, target: str) -> bool:
        def copied() -> bool:
            try:
                obstore.copy(self._backend, source, target)
            except (FileNotFoundError, NotSupportedError):
                return False
            return True

        return self._copies and self._ask(target, copied)

    def persist(self, keys: Collection[str]) -> None:
        """Do nothing: every write that an object store has acknowledged is durable."""

    def size(self, key: str) -> int | None:
        def asked() -> int | None:
            try:
                return obstore.head(self._backend, key)["size"]
            except FileNotFoundError:
                return None

        return self._ask(key, asked)

    def modified(self, key: str) -> float | None:
        def asked() -> float | None:
            try:
                return obstore.head(self._backend, key)["last_modified"].timestamp()
            except FileNotFoundError:
                return None

        return self._ask(key, asked)

    def list(self, prefix: str) -> Iterator[str]:
        pages = iter(obstore.list(self._backend, prefix))
        while (page := self._ask(prefix, lambda: next(pages, None))) is not None:
            yield from (entry["path"] for entry in page)

    def delete(self, key: str) -> None:
        def deleted() -> None:
            with suppress(FileNotFoundError):
                obstore.delete(self._backend, key)

        self._ask(key, deleted)

    def unfinished(self, prefix: str) -> Iterator[str]:
        """Yield nothing: an unfinished upload is not an object, and the bucket's own rules remove it."""
        return iter(())

    def prune(self, prefix: str) -> None:
        """Do nothing: an object store has no folders."""

    def _put_if(self, key: str, content: bytes, mode: Any) -> bool:
        def put() -> bool:
            try:
                obstore.put(self._backend, key, content, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError, FileNotFoundError):
                return False
            return True

        return self._ask(key, put)

    def _chunks(self, key: str, stream: Any) -> Iterator[bytes]:
        chunks = iter(stream)
        while (chunk := self._ask(key, lambda: next(chunks, None))) is not None:
            yield bytes(chunk)

    def _ask(self, key: str, question: Callable[[], T]) -> T:
        try:
            return question()
        except (BaseError, OSError) as error:
            raise Unanswered(
                f"{self._name}: {key} could not be read or written ({type(error).__name__})",
                fix="see that the store is reachable and that this process has credentials for it",
                store=self._name,
                key=key,
            ) from error


def _tag(meta: Any) -> str:
    """Return an object's tag and version as JSON: some stores compare the one, some the other."""
    return json.dumps({name: meta[name] for name in ("e_tag", "version") if meta.get(name) is not None})


def _refused(scheme: str, what: str, fix: str) -> SettingsError:
    return SettingsError(f"the root {scheme}://… {what}", fix=fix, field="uri")
