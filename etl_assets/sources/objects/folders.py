"""Folders of an object store: the files of each day, like those of this machine.

An object is complete from the moment at which it is listed, so nothing has to settle. Its day is that of its
folder, or the day (UTC) on which it was written. A store lists a prefix with everything below it; that costs
one request for each thousand objects, at each look.

Belongs here: which objects are files of a source. Does not belong here: requests (`bucket.py`), and the local
copies of what is read (`copies.py`).
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from etl_assets.errors import SourceUnreadable
from etl_assets.sources.landing import FolderEntry, Folders, parse_day, shown
from etl_assets.sources.objects.bucket import Bucket, FoundObject
from etl_assets.sources.objects.manifest import MAX_MANIFEST_BYTES, names_in
from etl_assets.sources.source_files import SourceFile

_MAX_NAME_BYTES = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFolders(Folders):
    """A folder of a bucket with files, and the name of its files as a source.

    Attributes:
        bucket: The bucket.
        prefix: The folder below its root, without slashes at its ends.
        manifest: Key of the object that names the files to read; None: all that are listed.
    """

    bucket: Bucket = field(repr=False, compare=False)
    prefix: str
    manifest: str | None = None
    path: Path = Path()

    @property
    def place(self) -> str:
        """The folder for people."""
        return f"{self.bucket.name}/{self.prefix}".rstrip("/")

    def scanned(self) -> ObjectFolders:
        """Return the folder as it is now: it is listed once, for all days."""
        return replace(self, scan=self._files_by_day())

    def days(self) -> Iterator[tuple[dt.date, int]]:
        """Yield each day with the time at which the last of its files was written."""
        for day, entries in self._by_day().items():
            if times := [each.appeared_ns for each in entries if self._is_wanted(each.name)]:
                yield day, max(times)

    def strangers(self) -> tuple[str, ...]:
        """Return nothing: what lies beside the folders of days may be another source's."""
        return ()

    def verify(self, files: Iterable[SourceFile]) -> None:
        """Do nothing: the copies are compared with what was listed, when they are made."""

    def key_of(self, file: SourceFile) -> str:
        """Return the key of a file."""
        parts = (self.prefix, file.day.isoformat() if self.by_day else "", file.name)
        return "/".join(filter(None, parts))

    def _entries_of_day(self, day: dt.date) -> list[FolderEntry]:
        return list(self._by_day().get(day, ()))

    def _files_by_day(self) -> Mapping[dt.date, tuple[FolderEntry, ...]]:
        found: defaultdict[dt.date, dict[str, FolderEntry]] = defaultdict(dict)
        wanted = self._named()
        missing = set(wanted or ())
        for each in self.bucket.list(self.prefix):
            missing.discard(each.key)
            if wanted is not None and each.key not in wanted:
                continue
            if (placed := self._placed(each)) is not None:
                day, entry = placed
                found[day][entry.name] = entry
        if missing:
            raise SourceUnreadable(
                f"{self.bucket.name}/{self.manifest} names {shown(min(missing))}, which is not there",
                fix="write files before the manifest that names them, or take the name out of it",
                file=f"{self.bucket.name}/{min(missing)}",
            )
        return {
            day: tuple(sorted(entries.values(), key=lambda each: each.name)) for day, entries in found.items()
        }

    def _placed(self, each: FoundObject) -> tuple[dt.date, FolderEntry] | None:
        """Return an object as an entry of its day; None if it is not of this source."""
        inside = each.key.removeprefix(f"{self.prefix}/") if self.prefix else each.key
        folder, _, rest = inside.partition("/") if self.by_day else ("", "", inside)
        day = parse_day(folder) if self.by_day else each.modified.astimezone(dt.UTC).date()
        name, _, below = rest.partition("/")
        if day is None or not name or not self._concerns(name):
            return None
        return day, FolderEntry(
            name=name,
            is_file=not below and len(name.encode()) <= _MAX_NAME_BYTES,
            size=each.size,
            mtime_ns=each.mtime_ns,
            appeared_ns=each.mtime_ns,
        )

    def _named(self) -> frozenset[str] | None:
        """Return the keys that the manifest names, of those below the folder; None without a manifest."""
        if self.manifest is None:
            return None
        content = self.bucket.read(self.manifest, most_bytes=MAX_MANIFEST_BYTES)
        if content is None:
            return frozenset()
        try:
            names = names_in(content, root=self.bucket.name)
        except ValueError as error:
            raise SourceUnreadable(
                f"{self.bucket.name}/{self.manifest} is no manifest: {error}",
                fix='write a key on each line, or JSON such as {"files": ["orders/a.csv"]}',
                file=f"{self.bucket.name}/{self.manifest}",
            ) from error
        prefix = f"{self.prefix}/" if self.prefix else ""
        return frozenset(name for name in names if name.startswith(prefix))
