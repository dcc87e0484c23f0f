"""A bucket as a place of files: listing, and reading objects as a whole.

Belongs here: requests, and their errors. Does not belong here: which objects are files of a source
(`folders.py`).
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from etl_assets.errors import SourceRefused, SourceUnavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Backend

_CHUNK_BYTES = 8 << 20
_TAG_DIGITS = 1_000_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundObject:
    """An object as it was listed or read.

    Attributes:
        key: Its key below the root of the connection.
        size: Bytes.
        modified: When it was written, by the store's clock.
        tag: Its entity tag, which another content does not have.
    """

    key: str
    size: int
    modified: dt.datetime
    tag: str

    @property
    def mtime_ns(self) -> int:
        """The time in nanoseconds, exact to the millisecond. The digits below are from the tag.

        So an object that is written twice at one time by the store's clock is known to have changed.
        """
        return int(self.modified.timestamp() * 1_000) * _TAG_DIGITS + digits_of(self.tag)


def digits_of(tag: str) -> int:
    """Return what the time of an object has of its tag."""
    return zlib.crc32(tag.encode()) % _TAG_DIGITS


class Bucket:
    """A bucket, or a prefix of one. Nothing is sent before the first request."""

    def __init__(self, name: str, open_backend: Callable[[], Backend]) -> None:
        """Wrap a bucket.

        Args:
            name: Its address for people, without credentials.
            open_backend: Opens it.
        """
        self.name = name
        self._open = open_backend

    @cached_property
    def _backend(self) -> Backend:
        return self._open()

    def list(self, folder: str) -> Iterator[FoundObject]:
        """Yield the objects below a folder, at any depth.

        Raises:
            SourceUnavailable: the store does not answer.
            SourceRefused: it does not allow that, or there is no such bucket.
        """
        import obstore

        prefix = f"{folder}/" if folder else None
        pages = iter(self._ask(folder, lambda: obstore.list(self._backend, prefix)))
        while (page := self._ask(folder, lambda: next(pages, None))) is not None:
            yield from map(_found, page)

    def read(self, key: str, *, most_bytes: int) -> bytes | None:
        """Return the content of a small object; None if there is none.

        Raises:
            SourceUnavailable, SourceRefused: as for `list`; also if it is larger.
        """
        import obstore

        def asked() -> bytes | None:
            try:
                answer = obstore.get(self._backend, key)
            except FileNotFoundError:
                return None
            if answer.meta["size"] > most_bytes:
                raise SourceRefused(
                    f"{self.name}/{key} has {answer.meta['size']:,} bytes, more than {most_bytes:,}",
                    fix="name fewer files in it",
                    source=self.name,
                )
            return bytes(answer.bytes())

        return self._ask(key, asked)

    def download(self, key: str, path: Path) -> FoundObject | None:
        """Write an object to a file, some of it at a time; return it as it was read, None if there is none.

        Raises:
            SourceUnavailable: the connection was lost on the way; the file has a part of the object.
        """
        import obstore

        try:
            answer = self._ask(key, lambda: obstore.get(self._backend, key))
        except FileNotFoundError:
            return None
        chunks = iter(answer.stream(min_chunk_size=_CHUNK_BYTES))
        with path.open("wb") as file:
            while (chunk := self._ask(key, lambda: next(chunks, None))) is not None:
                file.write(chunk)
            size = file.tell()
        found = _found(answer.meta)
        if size != found.size:
            self._unavailable(key, f"it ended after {size:,} of {found.size:,} bytes")
        return found

    def _ask(self, key: str, question: Callable[[], T]) -> T:
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            return question()
        except FileNotFoundError as error:
            if "NoSuchBucket" not in str(error):
                raise
            self._refused("there is no such bucket", "make it, or correct `root` of the connection", error)
        except (PermissionDeniedError, UnauthenticatedError) as error:
            self._refused(
                "the store does not allow to list or read it",
                "give the connection's credentials the right to list and read",
                error,
            )
        except (BaseError, OSError) as error:
            self._unavailable(key, type(error).__name__, error)

    def _refused(self, why: str, fix: str, error: Exception) -> NoReturn:
        raise SourceRefused(f"{self.name}: {why}", fix=fix, source=self.name) from error

    def _unavailable(self, key: str, why: str, error: Exception | None = None) -> NoReturn:
        raise SourceUnavailable(
            f"{self.name}/{key} could not be read ({why})",
            fix="see whether the object store answers; the step is repeated",
            source=self.name,
        ) from error


def _found(meta: Any) -> FoundObject:
    return FoundObject(
        key=meta["path"],
        size=meta["size"],
        modified=meta["last_modified"],
        tag=meta.get("e_tag") or meta.get("version") or "",
    )
