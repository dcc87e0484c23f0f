"""Entries of a table's `_delta_log`, read as JSON lines.

An entry that Delta has just written has the commit's metrics, its rows by partition and its cursors. So no
Spark job is needed to know the result of a commit.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

UNDO = "undo"
"""Key of the user metadata that marks a commit as an undo."""
_ENTRY_LENGTH = len(f"{0:020d}.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_KEY = 16
"""Number of bytes at the start of an entry's line that show the kind of its action."""
_FEW = 50
"""Up to this many new versions are probed one by one; for more, a listing is cheaper."""
_seen: dict[Path, int] = {}
"""The newest version that was found in each log."""


def entry_path(table_path: Path, version: int) -> Path:
    """Return the path of one version's log entry."""
    return table_path.joinpath("_delta_log", f"{version:020d}.json")


def entry_identity(table_path: Path, version: int) -> tuple[int, int] | None:
    """Return what tells the file of an entry from one of the same name, None if it was cleaned up."""
    try:
        found = os.stat(f"{table_path}/_delta_log/{version:020d}.json")  # noqa: PTH116 - as in `_going_on`
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def checkpoint_path(table_path: Path, version: int) -> Path:
    """Return the path of a version's checkpoint."""
    return entry_path(table_path, version).with_suffix(".checkpoint.parquet")


def last_checkpoint_path(table_path: Path) -> Path:
    """Return the path of the file that names the newest checkpoint."""
    return table_path / "_delta_log" / "_last_checkpoint"


def newest_checkpoint(table_path: Path) -> int:
    """Return the version whose checkpoint the log names as its newest, -1 for none."""
    try:
        version = json.loads(last_checkpoint_path(table_path).read_bytes()).get("version")
    except (FileNotFoundError, NotADirectoryError, ValueError, AttributeError):
        return -1
    return version if isinstance(version, int) else -1


def latest_version(table_path: Path) -> int:
    """Return the newest version in the log, -1 for a folder without a Delta table. Reads no file.

    A process first lists the log. Later calls probe from the version that the last call found: versions have
    no gap between them. If that version is missing, because the table was recreated or set back to a backup,
    the log is listed again.
    """
    known = _seen.get(table_path)
    newest = None if known is None else _going_on(table_path, known)
    if newest is None:
        newest = newest_entry(log_names(table_path))
    _seen[table_path] = newest
    return newest


def _going_on(table_path: Path, known: int) -> int | None:
    """Return the newest version, starting from one that existed; None where a listing must find it."""
    log = f"{table_path}/_delta_log"  # no paths: all tables are asked for their versions all the time

    def exists(version: int) -> bool:
        return os.path.exists(f"{log}/{version:020d}.json")  # noqa: PTH110 - see above

    missing = next((each for each in range(known, known + _FEW) if not exists(each)), None)
    if missing is None or missing == known:
        return None
    # A log that is being truncated loses its oldest entries first: then the version found is missing as well.
    return missing - 1 if exists(missing - 1) else None


def log_names(table_path: Path) -> list[str]:
    """Return the names of all files in a table's log, none for a folder without a Delta table."""
    try:
        # The cheapest way to list names: a log may have ten thousand.
        return os.listdir(table_path / "_delta_log")  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return []


def newest_entry(names: Iterable[str]) -> int:
    """Return the newest version among names in a log, -1 for none."""
    return int(max(_entries(names), default="-1"))


def oldest_entry(names: Iterable[str]) -> int:
    """Return the oldest version among names in a log, -1 for none."""
    return int(min(_entries(names), default="-1"))


def checkpoints(names: Iterable[str]) -> Iterator[int]:
    """Return the versions that have a single-file checkpoint, among names in a log."""
    return (int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name)) is not None)


def _entries(names: Iterable[str]) -> Iterator[str]:
    """Return the names of entries among names in a log, without their suffix."""
    of_that_length = [name for name in names if len(name) == _ENTRY_LENGTH and name.endswith(".json")]
    return (name[:-5] for name in of_that_length if name[:-5].isdigit())


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A data file that a commit added or removed.

    Attributes:
        path: Path relative to the table's folder.
        partition: Values of the Delta partition columns.
        rows: Number of its rows; 0 where the log does not report it.
        changes_rows: Whether the commit changed the table's rows with it. Compaction only moves them.
    """

    path: str
    partition: Mapping[str, str]
    rows: int
    changes_rows: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One commit, as its log entry describes it."""

    version: int
    operation: str
    metrics: Mapping[str, str]
    user_metadata: Mapping[str, Any]
    transactions: Mapping[str, int]
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]

    def metric(self, name: str) -> int:
        """Return one of Delta's operation metrics; 0 where the operation does not report it."""
        return int(self.metrics.get(name, 0))

    def net_rows_by(self, column: str) -> dict[str, int]:
        """Return rows added less rows removed for each value of a Delta partition column."""
        net: Counter[str] = Counter()
        for sign, files in ((1, self.added), (-1, self.removed)):
            for file in files:
                net[file.partition.get(column, "")] += sign * file.rows
        return dict(net)


def read_entry(table_path: Path, version: int) -> LogEntry:
    """Read one log entry.

    Raises:
        FileNotFoundError: the version does not exist or its entry has been cleaned up.
    """
    return parse_entry(version, entry_path(table_path, version).read_bytes())


def parse_entry(version: int, content: bytes) -> LogEntry:
    """Parse a log entry, given its content."""
    # Split bytes, not text: the lines of a text also end at characters such as U+2028, which JSON strings may
    # hold.
    actions = [json.loads(line) for line in content.splitlines()]
    info = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    return LogEntry(
        version=version,
        operation=info.get("operation", ""),
        metrics=info.get("operationMetrics", {}),
        user_metadata=_user_metadata(info),
        transactions={a["txn"]["appId"]: a["txn"]["version"] for a in actions if "txn" in a},
        added=tuple(_data_file(action["add"]) for action in actions if "add" in action),
        removed=tuple(_data_file(action["remove"]) for action in actions if "remove" in action),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitNote:
    """The first line of an entry: the time of the commit, and the platform's metadata for it.

    `in_commit_timestamp` is Delta's own time of the commit (ms), of tables that have one.
    """

    version: int
    at: dt.datetime
    in_commit_timestamp: int | None
    user_metadata: Mapping[str, Any]

    @property
    def identity(self) -> list[Any]:
        """The commit's number, time and writer's mark, as JSON has them.

        They distinguish it from another commit of that version, in a table that was set back since.
        """
        return [self.version, self.at.isoformat(), self.user_metadata.get("writer")]


def commit_notes(table_path: Path, newest: int) -> Iterator[CommitNote]:
    """Return the notes of the commits up to a version, newest first, until an entry has been cleaned up."""
    for version in range(newest, -1, -1):
        path = entry_path(table_path, version)
        try:
            with path.open(encoding="utf-8") as entry:
                info = json.loads(entry.readline()).get("commitInfo", {})
            exact = info.get("inCommitTimestamp")
            milliseconds = exact or info.get("timestamp") or path.stat().st_mtime * 1000
        except FileNotFoundError:
            return
        yield CommitNote(
            version=version,
            at=dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC),
            in_commit_timestamp=exact,
            user_metadata=_user_metadata(info),
        )


def recent_user_metadata(table_path: Path, newest: int, limit: int) -> Iterator[Mapping[str, Any]]:
    """Return the user metadata of up to `limit` commits, newest first.

    Reads the first line of each entry only.
    """
    for note in itertools.islice(commit_notes(table_path, newest), limit):
        yield note.user_metadata


def read_transactions(table_path: Path, version: int) -> Mapping[str, int] | None:
    """Read the version last committed for each transaction id up to a version, in one pass over the log.

    None where that version cannot be read from single-file checkpoints and entries alone.
    """
    newest = max((each for each in checkpoints(log_names(table_path)) if each <= version), default=-1)
    found: dict[str, int] = {}
    try:
        if newest >= 0:
            # Imported only here: it takes longer than all that a run with nothing to do does.
            import pyarrow.parquet as pq

            checkpoint = pq.ParquetFile(checkpoint_path(table_path, newest))
            if "txn" in checkpoint.schema_arrow.names:
                actions = checkpoint.read(columns=["txn.appId", "txn.version"]).column("txn").drop_null()
                found |= {action["appId"]: action["version"] for action in actions.to_pylist()}
        for each in range(newest + 1, version + 1):
            lines = entry_path(table_path, each).read_bytes().splitlines()
            actions = (json.loads(line)["txn"] for line in lines if b'"txn"' in line[:_KEY])
            found |= {action["appId"]: action["version"] for action in actions}
    except FileNotFoundError:  # The log was truncated meanwhile, or has multi-part checkpoints.
        return None
    return found


def read_metadata(table_path: Path, version: int) -> Mapping[str, Any] | None:
    """Read the metadata of a table up to a version as its log has it: id, columns, properties and so on.

    None where that version cannot be read from single-file checkpoints and entries alone.
    """
    import pyarrow.parquet as pq

    newest = max((each for each in checkpoints(log_names(table_path)) if each <= version), default=-1)
    try:
        for each in range(version, newest, -1):
            for line in reversed(entry_path(table_path, each).read_bytes().splitlines()):
                if b'"metaData"' in line[:_KEY]:
                    return json.loads(line)["metaData"]
        if newest < 0:
            return None
        found = pq.read_table(checkpoint_path(table_path, newest), columns=["metaData"], partitioning=None)
    except FileNotFoundError:  # The log was truncated meanwhile, or has multi-part checkpoints.
        return None
    (action,) = found.column("metaData").drop_null().to_pylist()
    maps = {"configuration": dict(action["configuration"] or {})}
    options = dict((action["format"] or {}).get("options") or {})
    kept = {name: value for name, value in action.items() if value is not None}
    return {**kept, **maps, "format": {"provider": "parquet", "options": options}}


def _user_metadata(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the platform's user metadata; empty for commits of other writers, whose text is their own."""
    try:
        value = json.loads(info.get("userMetadata") or "{}")
    except json.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _data_file(action: Mapping[str, Any]) -> DataFile:
    stats = json.loads(action.get("stats") or "{}")
    return DataFile(
        path=unquote(action["path"]),
        partition=action.get("partitionValues") or {},
        rows=stats.get("numRecords", 0),
        changes_rows=action.get("dataChange", True),
    )
