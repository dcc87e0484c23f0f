"""Folders of source files: the closed, readable files of each day.

Files are `<folder>/<YYYY-MM-DD>/<name>`, where the day is the day of arrival (UTC), or `<folder>/<name>`,
where it is the day of the last change (UTC). A file is closed when its name neither starts with `.` or `_`
nor ends in `.tmp`, `.part` or `.inprogress`, and when it has not changed for `settle_seconds`. Writers that
rename a finished file into place are safe, whatever the file's size. For writers that write in place, only
the settling time keeps a half-written file from being read. A closed file that changes is read again; what it
had before is known by its records' ids.
"""

from __future__ import annotations

import datetime as dt
import gzip
import os
import stat
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from etl_assets.errors import SourceChanged, SourceUnreadable
from etl_assets.sources.formats import JSON_LINES, RecordFormat
from etl_assets.sources.lines import Block, is_compressed
from etl_assets.sources.source_files import InputFile, Listing, SourceFile

LANDING = "landing"
REPLAYS = "dead_letters"
_OPEN_SUFFIXES = (".tmp", ".part", ".inprogress")
_OPEN_PREFIXES = (".", "_")
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderEntry:
    """An entry of a folder, as it was listed.

    `appeared_ns` is the time of its last change or of its renaming: a file may be moved in with an old time
    of change.
    """

    name: str
    is_file: bool
    size: int
    mtime_ns: int
    appeared_ns: int

    @property
    def day(self) -> dt.date:
        """The day (UTC) on which it was last changed."""
        return dt.datetime.fromtimestamp(self.mtime_ns // 1_000_000_000, dt.UTC).date()


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """A folder with files, and the name of its files as a source.

    Attributes:
        source: Name of the source.
        path: The folder.
        format: How files are read.
        pattern: Shell pattern of the names of files to read: others are another source's. None: the folder is
            this source's alone, and files have a suffix of the format.
        by_day: Whether it has a folder for each day; otherwise files lie in it, and a file belongs to the day
            on which it was last changed.
        scan: Entries by day, of a folder without days, as `scanned` found them; None: looked up at each call.
    """

    source: str
    path: Path
    format: RecordFormat = JSON_LINES
    pattern: str | None = None
    by_day: bool = True
    scan: Mapping[dt.date, tuple[FolderEntry, ...]] | None = field(default=None, repr=False, compare=False)

    @property
    def place(self) -> str:
        """The folder for people."""
        return str(self.path)

    @property
    def file_names(self) -> str:
        """Names of the files that are read, for people."""
        return self.pattern or ", ".join(f"*{suffix}" for suffix in self.format.suffixes)

    @property
    def kind_of_file(self) -> str:
        """What a file is, for people."""
        return "event file" if self.source == LANDING else "file of this source"

    def scanned(self) -> Folders:
        """Return the folder as it is now, for several calls of one look.

        A folder without days is then listed once, and not for each day.
        """
        return self if self.by_day else replace(self, scan=self._files_by_day())

    def days(self) -> Iterator[tuple[dt.date, int]]:
        """Yield each day folder with its modification time in nanoseconds.

        Costs one `stat` per day, and lists no day folder. Without day folders it costs one `stat` per file,
        and yields each day on which a file was last changed, with the time at which the last of its files
        appeared.
        """
        if not self.by_day:
            for day, entries in self._by_day().items():
                if times := [each.appeared_ns for each in entries if self._is_wanted(each.name)]:
                    yield day, max(times)
            return
        for entry in self._entries():
            day = parse_day(entry.name)
            if day is None or not _is_folder(entry):
                continue
            try:
                modified_ns = entry.stat().st_mtime_ns
            except FileNotFoundError:
                continue  # removed since the listing
            yield day, modified_ns

    def strangers(self) -> tuple[str, ...]:
        """Return entries that are neither a day's folder nor set aside by a leading `.` or `_`.

        Nothing in them is read.
        """
        if not self.by_day:
            return ()
        return tuple(
            sorted(
                shown(entry.name)
                for entry in self._entries()
                if not entry.name.startswith(_OPEN_PREFIXES)
                and not (parse_day(entry.name) and _is_folder(entry))
            )
        )

    def list_day(self, day: dt.date, *, now_ns: int, settle_seconds: float) -> Listing:
        """List one day's files; a missing folder is empty.

        Raises:
            SourceUnreadable: the folder cannot be listed, or a file to read has a name that is not UTF-8.
        """
        files, unsettled, ignored, set_aside = [], [], [], []
        for entry in self._entries_of_day(day) if self.by_day else self._by_day().get(day, ()):
            if _is_open(entry.name):
                set_aside.append(shown(entry.name))
            elif not entry.is_file or not self._is_wanted(entry.name):
                ignored.append(shown(entry.name))
            elif shown(entry.name) != entry.name:
                raise self._unnameable(day, entry.name)
            elif settle_seconds > 0 and now_ns - entry.mtime_ns < settle_seconds * 1e9:
                unsettled.append(entry.name)
            else:
                files.append(self._file(day, entry))
        return Listing(
            files=tuple(files),
            unsettled=tuple(unsettled),
            ignored=tuple(ignored),
            set_aside=tuple(set_aside),
        )

    def path_of(self, file: SourceFile) -> Path:
        """Return the path of a file."""
        return self._folder_of(file.day) / file.name

    def input_file(self, file: SourceFile) -> InputFile:
        """Return a file with what is needed to read it."""
        return InputFile(
            file=file,
            path=str(self.path_of(file)),
            format=self.format,
            identity=file.identity or (file.position if self.by_day else file.name),
        )

    def verify(self, files: Iterable[SourceFile]) -> None:
        """Check that files can be opened and are as they were listed.

        Raises:
            SourceUnreadable: a file cannot be opened.
            SourceChanged: a file has another size or modification time.
        """
        for file in files:
            path = self.path_of(file)
            try:
                with path.open("rb") as opened:
                    status = os.fstat(opened.fileno())
            except OSError as error:
                raise _unreadable(path, error) from error
            if (status.st_size, status.st_mtime_ns) != (file.size, file.mtime_ns):
                raise SourceChanged(
                    f"the file {path} changed while it was being read: {file.size:,} bytes when planned,"
                    f" {status.st_size:,} now",
                    fix="write files under a name that starts with `.` and rename them when they are"
                    " complete; the next run reads the file as it is then, and nothing counts twice",
                    file=str(path),
                    day=file.day,
                )

    def verify_compression(self, files: Iterable[SourceFile]) -> None:
        """Read compressed files to their end, to find a damaged one after reading has failed.

        Raises:
            SourceUnreadable: a file is cut off or is not what its name says.
        """
        for file in files:
            if not is_compressed(file.name):
                continue
            try:
                with gzip.open(self.path_of(file)) as opened:
                    while opened.read(_PIECE_BYTES):
                        pass
            except (EOFError, OSError, zlib.error) as error:
                raise SourceUnreadable(
                    f"{self.path_of(file)} cannot be decompressed: {error}",
                    fix="write the file again as a whole, or move it out of the folder",
                    file=str(self.path_of(file)),
                    day=file.day,
                ) from error

    def refuse_named(self, files: Iterable[SourceFile], error: Exception) -> None:
        """Raise an error for the file that a read error names, in this process or in a worker.

        The file can be opened here, so the fault is its disk, or the worker's access to it. Returns if the
        error names none of the files.

        Raises:
            SourceUnreadable: the error names a file.
        """
        said = str(error)
        for file in files:
            if repr(path := str(self.path_of(file))) in said:
                if SourceUnreadable.__name__ in said:
                    self._refuse_format(path)
                why = error.strerror if isinstance(error, OSError) else "by a worker of Spark, see its error"
                raise SourceUnreadable(
                    f"{path} cannot be read: {why}",
                    fix="see whether its disk is sound (`dmesg`) and every worker has the folder under that"
                    " path, or move the file out of the folder",
                    file=path,
                    day=file.day,
                ) from error

    def _unnameable(self, day: dt.date, name: str) -> SourceUnreadable:
        """Return the error for a file without source positions: these are text, and its name is not."""
        file = f"{shown(str(self._folder_of(day)))}/{shown(name)}"
        return SourceUnreadable(
            f"{file} has a name that is not UTF-8, so nothing of its day is read",
            fix="rename it, or move it out of the folder",
            file=file,
            day=day,
        )

    def _refuse_format(self, path: str) -> None:
        """Read a file that a worker found not to be of its format, for the error: only its text comes from a
        worker.

        Raises:
            SourceUnreadable: the file is not of its format.
        """
        for _ in self.format.read(Block(path=path, start=0, end=None), _PIECE_BYTES):
            pass

    def _file(self, day: dt.date, entry: FolderEntry) -> SourceFile:
        return SourceFile(
            day=day, source=self.source, name=entry.name, size=entry.size, mtime_ns=entry.mtime_ns
        )

    def _is_wanted(self, name: str) -> bool:
        if _is_open(name):
            return False
        return (
            name.endswith(self.format.suffixes) if self.pattern is None else fnmatchcase(name, self.pattern)
        )

    def _concerns(self, name: str) -> bool:
        """Return whether an entry is this source's, or will be once it has its finished name."""
        if self.pattern is None or self._is_wanted(name):
            return True
        finished = name.lstrip("._")
        for suffix in _OPEN_SUFFIXES:
            finished = finished.removesuffix(suffix)
        return _is_open(name) and fnmatchcase(finished, self.pattern)

    def _by_day(self) -> Mapping[dt.date, tuple[FolderEntry, ...]]:
        return self._files_by_day() if self.scan is None else self.scan

    def _files_by_day(self) -> Mapping[dt.date, tuple[FolderEntry, ...]]:
        """Return the entries of a folder without days, by the day of their last change."""
        found: defaultdict[dt.date, list[FolderEntry]] = defaultdict(list)
        for entry in self._concerning(self.path):
            found[entry.day].append(entry)
        return {day: tuple(entries) for day, entries in found.items()}

    def _entries_of_day(self, day: dt.date) -> list[FolderEntry]:
        return self._concerning(self._folder_of(day))

    def _concerning(self, folder: Path) -> list[FolderEntry]:
        """Return the entries of a folder that concern this source, by name."""
        found = []
        for entry in _entries(folder):
            if not self._concerns(entry.name):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # renamed or removed since the listing; the next listing has the new state
            found.append(
                FolderEntry(
                    name=entry.name,
                    is_file=stat.S_ISREG(status.st_mode),
                    size=status.st_size,
                    mtime_ns=status.st_mtime_ns,
                    appeared_ns=max(status.st_mtime_ns, status.st_ctime_ns),
                )
            )
        return sorted(found, key=lambda entry: entry.name)

    def _folder_of(self, day: dt.date) -> Path:
        return self.path / day.isoformat() if self.by_day else self.path

    def _entries(self) -> list[os.DirEntry[str]]:
        return _entries(self.path)


def _is_open(name: str) -> bool:
    """Return whether a name marks an entry as unfinished."""
    return name.startswith(_OPEN_PREFIXES) or name.endswith(_OPEN_SUFFIXES)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what is in a folder; a missing one is empty."""
    try:
        return list(os.scandir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(folder, error) from error


def shown(name: str) -> str:
    """Return a name as text, with escapes for bytes that are not UTF-8."""
    return os.fsencode(name).decode("utf-8", errors="backslashreplace")


def parse_day(name: str) -> dt.date | None:
    """Return the day that a folder is named for; None for any other name."""
    try:
        day = dt.date.fromisoformat(name)
    except ValueError:
        return None
    return day if day.isoformat() == name else None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a cycle of links
        return False


def _unreadable(path: Path, error: OSError) -> SourceUnreadable:
    return SourceUnreadable(
        f"{path} cannot be read: {error.strerror}",
        fix="give this user permission to read it (and its folder), or move it out of there",
        file=str(path),
    )


def verify(folders: Iterable[Folders], files: Iterable[SourceFile]) -> None:
    """Check that files in any of the folders can be opened and are as they were listed.

    Raises:
        SourceUnreadable: a file cannot be opened.
        SourceChanged: a file has another size or modification time.
    """
    files = list(files)
    for each in folders:
        each.verify(file for file in files if file.source == each.source)
