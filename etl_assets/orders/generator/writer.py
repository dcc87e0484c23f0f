"""The writer of landing files: complete files or none, and never the same lines twice.

A file appears under its name only when it is complete and durable: it is written under a hidden temporary
name, flushed to the disk and renamed. A file landed before under the same name stays. With the same bytes
nothing is done; with other bytes it is an error, because a reader may have read the file already.

Belongs here: writing bytes into a landing folder. Does not belong here: the content of lines, and reading
them.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from etl_assets.errors import LandingFileDiffers, LandingNotWritten

_LINES_PER_WRITE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedFile:
    """A file that is in the landing folder; `written` is False if it existed before with the same bytes."""

    path: Path
    bytes: int
    written: bool


class LandingWriter:
    """Writes the files of a landing folder, one open at a time.

    Args:
        landing: The landing folder; it is created with the first file.
    """

    def __init__(self, landing: Path) -> None:
        self.landing = landing

    def path(self, day: date, name: str) -> Path:
        """Return the path of the file of a name and arrival day; `name` has no suffix."""
        return self.landing / day.isoformat() / f"{name}.jsonl"

    def land(self, day: date, name: str, lines: Iterable[bytes]) -> LandedFile:
        """Land one file, durable when this returns.

        Args:
            day: The UTC day of arrival.
            name: The name of the file without a suffix; the order of names is the order of arrival.
            lines: The lines without line ends, read once.

        Raises:
            LandingFileDiffers: A file of that name exists with other bytes.
            LandingNotWritten: The file system refused.
        """
        path = self.path(day, name)
        if _is_there(path):
            return LandedFile(path=path, bytes=self._verified(path, lines), written=False)
        with durable_file(path) as handle:
            size = sum(handle.write(chunk) for chunk in _chunks(lines))
        return LandedFile(path=path, bytes=size, written=True)

    def check(self, day: date, name: str, lines: Iterable[bytes]) -> None:
        """Raise `LandingFileDiffers` if `land` would, and write nothing."""
        path = self.path(day, name)
        if _is_there(path):
            self._verified(path, lines)

    @staticmethod
    def _verified(path: Path, lines: Iterable[bytes]) -> int:
        """Return the size of a file after checking that it has exactly these lines."""
        size = 0
        with _refusals_named(path), path.open("rb") as handle:
            for chunk in _chunks(lines):
                size += len(chunk)
                if handle.read(len(chunk)) != chunk:
                    raise _differs(path)
            if handle.read(1):
                raise _differs(path)
        return size


def _is_there(path: Path) -> bool:
    with _refusals_named(path):
        return path.exists()


@contextmanager
def durable_file(path: Path) -> Generator[BinaryIO]:
    """Open a file that replaces any file of its name once it is complete and on the disk, or not at all.

    Raises:
        LandingNotWritten: The file system refused; the temporary file has been removed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with _refusals_named(path):
        _durable_folder(path.parent)
        try:
            with temporary.open("wb") as handle:
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            temporary.rename(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _fsync_folder(path.parent)


def _durable_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _durable_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _fsync_folder(folder.parent)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _refusals_named(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise LandingNotWritten(
            f"{path} cannot be written or compared: {error.strerror or error}",
            fix="check the permissions of the folder and the space left on its disk, then run the same"
            " command again; files that were landed are kept and not written twice",
            file=str(path),
        ) from error


def _chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    iterator = iter(lines)
    while batch := list(islice(iterator, _LINES_PER_WRITE)):
        batch.append(b"")
        yield b"\n".join(batch)


def _differs(path: Path) -> LandingFileDiffers:
    return LandingFileDiffers(
        f"the landing file {path} is there with other content, and a landed file never changes",
        fix="land into an empty folder, or move that file away if nothing has read it yet",
        file=str(path),
    )
