"""A folder as a store: a disk, or a mount that has hard links, `flock`, atomic rename and fsync.

A small object is created by a hard link to a finished, fsynced file, which fails if the name exists. It is
replaced by a rename under a kernel lock. A process that is suspended with the lock keeps it; other processes
then get no answer, and continue as if the domain were down. A missing root is a disk that is not mounted: it
never answers, and is never created.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import time
import uuid
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from etl_assets.errors import Unanswered
from etl_assets.mirroring.stores.store import Found

LOCK_WAIT_SECONDS = 5.0
CHUNK_BYTES = 4 * 1024 * 1024
_POLL_SECONDS = 0.002
_NOT_EMPTY_OR_GONE = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT)
_TEMPORARY = ".mirror-"
_LOCK = f"{_TEMPORARY}lock-"


class LocalStore:
    """A root folder on this machine."""

    def __init__(self, root: Path, *, lock_wait_seconds: float = LOCK_WAIT_SECONDS) -> None:
        self._root = root
        self._lock_wait_seconds = lock_wait_seconds

    @property
    def name(self) -> str:
        return str(self._root)

    def get(self, key: str) -> Found | None:
        with self._answering(key):
            try:
                content = self._path(key).read_bytes()
            except FileNotFoundError:
                self._expect_root()
                return None
            return Found(content, _etag(content))

    def create(self, key: str, content: bytes) -> bool:
        with self._answering(key):
            path = self._path(key)
            if path.exists():
                return False  # the link below would fail as well, after writing a file
            with self._written(path, [content]) as temporary:
                try:
                    path.hardlink_to(temporary)
                except FileExistsError:
                    return False
            _fsync(path.parent)
            return True

    def replace(self, key: str, content: bytes, etag: str) -> bool:
        with self._answering(key):
            path = self._path(key)
            if not path.exists():
                self._expect_root()
                return False
            with self._locked(key, path):
                try:
                    if _etag(path.read_bytes()) != etag:
                        return False
                except FileNotFoundError:
                    return False
                with self._written(path, [content]) as temporary:
                    temporary.replace(path)
                _fsync(path.parent)
            return True

    def put(self, key: str, chunks: Iterable[bytes]) -> None:
        with self._answering(key):
            path = self._path(key)
            with self._written(path, chunks) as temporary:
                temporary.replace(path)

    def read(self, key: str) -> Iterator[bytes] | None:
        path = self._path(key)
        with self._answering(key):
            if not path.is_file():
                self._expect_root()
                return None

        def chunks() -> Iterator[bytes]:
            # Opened by the first chunk, so that a caller who reads none leaves no file open.
            with self._answering(key), path.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk

        return chunks()

    def link(self, source: str, target: str) -> bool:
        with self._answering(target):
            path = self._path(target)
            self._make_folder(path.parent)
            try:
                path.hardlink_to(self._path(source))
            except FileNotFoundError:
                return False
            except FileExistsError:
                return path.samefile(self._path(source))
            return True

    def persist(self, keys: Collection[str]) -> None:
        folders: set[Path] = set()
        for key in keys:
            with self._answering(key):
                path = self._path(key)
                _fsync(path)
                folders.update(folder for folder in path.parents if folder.is_relative_to(self._root))
        for folder in folders:
            with self._answering(str(folder)):
                _fsync(folder)

    def size(self, key: str) -> int | None:
        with self._answering(key):
            try:
                return self._path(key).stat().st_size
            except FileNotFoundError:
                self._expect_root()
                return None

    def modified(self, key: str) -> float | None:
        with self._answering(key):
            try:
                return self._path(key).stat().st_mtime
            except FileNotFoundError:
                self._expect_root()
                return None

    def list(self, prefix: str) -> Iterator[str]:
        with self._answering(prefix):
            for folder, names in self._walk(prefix):
                for name in names:
                    if not name.startswith(_TEMPORARY):
                        yield (folder / name).relative_to(self._root).as_posix()

    def delete(self, key: str) -> None:
        with self._answering(key):
            try:
                self._path(key).unlink()
            except FileNotFoundError:
                self._expect_root()

    def unfinished(self, prefix: str) -> Iterator[str]:
        with self._answering(prefix):
            for folder, names in self._walk(prefix):
                for name in names:
                    # Never a lock: removing it would leave its holder without one.
                    if name.startswith(_TEMPORARY) and not name.startswith(_LOCK):
                        yield (folder / name).relative_to(self._root).as_posix()

    def prune(self, prefix: str) -> None:
        with self._answering(prefix):
            for folder, _ in self._walk(prefix, topdown=False):
                try:
                    folder.rmdir()
                except OSError as error:
                    if error.errno not in _NOT_EMPTY_OR_GONE:
                        raise

    def _path(self, key: str) -> Path:
        path = self._root / key
        if ".." in path.parts or Path(key).is_absolute():
            raise ValueError(f"the key {key!r} leaves the root")
        return path

    def _walk(self, prefix: str, *, topdown: bool = True) -> Iterator[tuple[Path, Sequence[str]]]:
        """Yield the folders below a prefix, each with the names of its files.

        A missing folder under an existing root counts as empty. Any other folder that cannot be listed raises
        an error.

        Raises:
            OSError: a folder cannot be listed, or the root is missing.
        """

        def unlisted(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise error
            self._expect_root()

        self._expect_root()
        for folder, _, names in os.walk(self._path(prefix), topdown=topdown, onerror=unlisted):
            yield Path(folder), names

    def _expect_root(self) -> None:
        if not self._root.is_dir():
            raise FileNotFoundError(errno.ENOENT, "the root is not there")

    @contextmanager
    def _answering(self, key: str) -> Generator[None]:
        """Turn errors of the file system into `Unanswered`."""
        try:
            yield
        except OSError as error:
            raise Unanswered(
                f"{self._root}: {key} could not be read or written ({error.strerror or error})",
                fix="see that the folder is mounted, writable for this user and not full",
                store=self.name,
                key=key,
            ) from error

    @contextmanager
    def _written(self, path: Path, chunks: Iterable[bytes]) -> Generator[Path]:
        """Write and fsync a temporary file beside `path`, and yield it; remove it unless it was renamed."""
        self._make_folder(path.parent)
        temporary = path.with_name(f"{_TEMPORARY}{uuid.uuid4().hex}")
        try:
            with temporary.open("xb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)

    def _make_folder(self, folder: Path) -> None:
        """Create a folder with its missing parents, and fsync the folders that contain the new ones."""
        self._expect_root()
        missing = [folder]
        while not missing[-1].exists():
            missing.append(missing[-1].parent)
        if len(missing) == 1:
            return
        folder.mkdir(parents=True, exist_ok=True)
        for existing in missing[1:]:
            _fsync(existing)

    @contextmanager
    def _locked(self, key: str, path: Path) -> Generator[None]:
        deadline = time.monotonic() + self._lock_wait_seconds
        with path.with_name(f"{_LOCK}{path.name}").open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise TimeoutError(
                            f"another process holds the lock of {key} and does not go on"
                        ) from None
                    time.sleep(_POLL_SECONDS)
            yield


def _etag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
