"""The spool of a capture: the changes of each table that were read from the log and not yet committed.

```
<home>/captured/<capture>/
  lock                   one process at a time reads the log, or changes which tables there are
  spool.json             where the reader is in the log
  read_until             an empty file whose time is that up to which the log has been read
  <pipeline>/<end>-<number>-<rows>.arrows     changes of one table that end at a place in the log
```

One reading adds files for some tables, and then `spool.json` says where it ended. Files beyond that place are
those of a reader that died, and are removed by the next one. Files and `spool.json` are on the disk before
the server is told anything.

Belongs here: files. Does not belong here: what is in them (`routed_changes.py`), and what the server may
forget (`confirmation.py`).
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, Any

from etl_assets.delta.log.durability import write_durably
from etl_assets.delta.write.lock import POLL_SECONDS, locked
from etl_assets.errors import SourceUnavailable, StorageFailed
from etl_assets.sources.postgres_cdc.staged import SUFFIX

_NAME = re.compile(rf"([0-9A-F]{{16}})-(\d{{6}})-(\d+){re.escape(SUFFIX)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A file with changes of one table.

    Attributes:
        path: The file.
        end_lsn: The transactions in it end at or before this place, and after the segment before it, unless
            that ends at the same place.
        rows: How many changes it has.
    """

    path: Path
    end_lsn: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolState:
    """Where the reader is.

    Attributes:
        system: What identifies the server's data.
        end_lsn: End of the last transaction that was read.
        seen_lsn: End of the log when it was last looked at; up to there the log has nothing else.
        is_whole: Whether the last reading found nothing more.
        timeline: Timeline of the server's log; 0: it is not known.
        publication: OID of the publication; 0: it is not known.
        id: Name of the spool, by which the control store knows it; empty: it is older than such names.
    """

    system: str
    end_lsn: int
    seen_lsn: int = 0
    is_whole: bool = True
    timeline: int = 0
    publication: int = 0
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSpool:
    """What the control store knows of the spool in use, for a process that takes over without having it.

    Attributes:
        id: Its name.
        system: What identifies the server's data; empty: nothing was read yet.
        timeline: Timeline of the server's log.
        publication: OID of the publication.
    """

    id: str
    system: str = ""
    timeline: int = 0
    publication: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)

    @staticmethod
    def of(found: Mapping[str, Any]) -> KnownSpool:
        """Return the spool of its JSON. What a later release has added is left out."""
        return KnownSpool(
            **{each.name: found[each.name] for each in fields(KnownSpool) if each.name in found}
        )


@dataclass(slots=True, kw_only=True)
class Spool:
    """The spool of a capture.

    Attributes:
        folder: Its folder.
        wait_seconds: How long to wait for another process that reads the log.
    """

    folder: Path
    wait_seconds: float = 300.0
    _depth: int = field(default=0, init=False)

    @contextmanager
    def alone(self) -> Generator[None]:
        """Hold the lock of the capture. A thread that holds it may enter again; threads are the caller's.

        Raises:
            SourceUnavailable: another process has held it for `wait_seconds`.
        """
        if self._depth:
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a+") as lock:
            self._acquire(lock)
            with suppress(OSError):  # a full disk: the number is for messages alone
                os.ftruncate(lock.fileno(), 0)
                os.write(lock.fileno(), str(os.getpid()).encode())
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    def _acquire(self, lock: IO[str]) -> None:
        deadline = time.monotonic() + self.wait_seconds
        while not locked(lock, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                lock.seek(0)
                raise SourceUnavailable(
                    f"the process {lock.read() or 'of another command'} has held the log of the capture"
                    f" {self.folder.name} for more than {self.wait_seconds:g} s",
                    fix="wait if it reads a large transaction; if it is stopped, let it go on or end it",
                    source=self.folder.name,
                )
            time.sleep(POLL_SECONDS)

    def state(self) -> SpoolState | None:
        """Return where the reader is; None before the first reading, or if the file is lost."""
        try:
            found = json.loads((self.folder / "spool.json").read_bytes())
        except FileNotFoundError:
            return None
        return SpoolState(
            system=str(found["system"]),
            end_lsn=int(found["end_lsn"]),
            seen_lsn=int(found["seen_lsn"]),
            is_whole=bool(found["is_whole"]),
            timeline=int(found.get("timeline", 0)),
            publication=int(found.get("publication", 0)),
            id=str(found.get("id", "")),
        )

    def write_state(self, state: SpoolState) -> None:
        """Let what was added until now count."""
        found = asdict(state)
        with _named(self.folder):
            write_durably(self.folder / "spool.json", json.dumps(found).encode())

    def note_read_until(self, seconds: float) -> None:
        """Note up to which time, in seconds since 1970, the log has been read. A power cut may lose it."""
        path = self.folder / "read_until"
        with _named(self.folder):
            path.touch()
            os.utime(path, (seconds, seconds))

    def read_until(self) -> float | None:
        """Return up to which time the log has been read; None if that is not known."""
        try:
            return (self.folder / "read_until").stat().st_mtime
        except FileNotFoundError:
            return None

    def segments(self, pipeline: str, *, after_lsn: int, until_lsn: int) -> tuple[Segment, ...]:
        """Return the changes of a table that end after one place and at or before another, in order."""
        return tuple(each for each in self._all(pipeline) if after_lsn < each.end_lsn <= until_lsn)

    def is_empty(self, pipeline: str) -> bool:
        """Return whether there are no files of a table."""
        try:
            return next((self.folder / pipeline).iterdir(), None) is None
        except FileNotFoundError:
            return True

    def size(self, pipeline: str) -> int:
        """Return the bytes of a table's changes."""
        return sum(each.path.stat().st_size for each in self._all(pipeline) if each.path.exists())

    def age(self, pipeline: str, *, after_lsn: int) -> float:
        """Return the seconds since the oldest change of a table after a place was read; 0.0 without one."""
        for each in self._all(pipeline):
            if each.end_lsn > after_lsn and each.path.exists():
                return max(0.0, time.time() - each.path.stat().st_mtime)
        return 0.0

    def add(self, pipeline: str, files: Sequence[Segment]) -> None:
        """Move files of changes here, which count after `write_state`."""
        folder = self.folder / pipeline
        with _named(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for number, each in enumerate(files):
                with each.path.open("rb") as file:
                    os.fsync(file.fileno())
                each.path.replace(folder / f"{each.end_lsn:016X}-{number:06d}-{each.rows}{SUFFIX}")
            _sync(folder)
            _sync(self.folder)

    def remove(self, pipeline: str, *, until_lsn: int) -> None:
        """Remove the changes of a table up to a place."""
        for each in self._all(pipeline):
            if each.end_lsn <= until_lsn:
                each.path.unlink(missing_ok=True)

    def remove_beyond(self, end_lsn: int) -> None:
        """Remove what a reader left behind that died before `write_state`."""
        for folder in self.folder.iterdir():
            if folder.name == "reading":
                shutil.rmtree(folder, ignore_errors=True)
            elif folder.is_dir():
                for each in self._all(folder.name):
                    if each.end_lsn > end_lsn:
                        each.path.unlink(missing_ok=True)

    def _all(self, pipeline: str) -> list[Segment]:
        try:
            names = sorted(each.name for each in (self.folder / pipeline).iterdir())
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            if (match := _NAME.fullmatch(name)) is not None:
                end, _, rows = match.groups()
                path = self.folder / pipeline / name
                found.append(Segment(path=path, end_lsn=int(end, 16), rows=int(rows)))
        return found


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _named(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFailed(
            f"changes cannot be written into {folder}: {error.strerror or type(error).__name__}",
            fix="make room, or give the right to write there; the server keeps the log until then",
        ) from error
