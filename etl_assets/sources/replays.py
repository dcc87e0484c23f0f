"""Replayed dead letters: rows of the table `replays`, written as files for the stages that read them.

A record rejected at ingest is replayed as a file of one line, read like any landing file of its day. An event
that a later stage rejected is in the source table already. Its file marks it as replayed and may contain a
corrected payload, which replaces the rejected one. File names are `<dead letter id>.<attempt>.jsonl`. So a
source position names the dead letter and the attempt, and a second reject is recognized as the next attempt
of its dead letter.

A row that the target of a sink rejected is replayed by the next delivery, which reads its request from the
table (`sinks/replay_requests.py`). It has no file.

The table is the authority, and is in every domain. The files are derived from it wherever they are needed,
always the same files with the same times. So a file that was read in one domain counts as read in another.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etl_assets.contracts import canonical_json
from etl_assets.contracts.reasons import RecordEncoding
from etl_assets.contracts.tables import REPLAYS
from etl_assets.delta.log.durability import write_durably
from etl_assets.delta.log.entries import commit_notes
from etl_assets.delta.table import Table
from etl_assets.delta.write.content import content_of
from etl_assets.delta.write.records import commit_rows, read_files
from etl_assets.delta.write.write_version import DEFAULT_LOCK_WAIT_SECONDS
from etl_assets.delta.write.writing import storage_named, writing
from etl_assets.errors import CommitConflict, InputError
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.placement.domains import FailureDomain
from etl_assets.processes import user_and_host

INGEST, NORMALIZE = "ingest", "normalize"
_FILE_NAME = re.compile(r"(?P<id>[0-9a-f]{64})\.(?P<attempt>[0-9]+)\.jsonl")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ATTEMPTS = 3
REQUESTED_BY = "requested_by"
"""Name of the commit fact that says who submitted replays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A dead letter to validate again.

    Attributes:
        stage: The stage that validates it.
        day: Its day.
        letter_id: Id of the dead letter.
        attempt: Number of the attempt.
        content: The one line of its file.
    """

    stage: str
    day: dt.date
    letter_id: str
    attempt: int
    content: bytes

    @property
    def file(self) -> Path:
        """Path of the replay's file, relative to the folder of its stage."""
        return Path(self.day.isoformat()) / f"{self.letter_id}.{self.attempt}.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedEvent:
    """An event that normalize validates again.

    Attributes:
        event_id: Id of the event.
        payload: The corrected payload in canonical form; None keeps the original payload.
        source_position: Position among the replays: day, dead letter and attempt.
    """

    event_id: str
    payload: str | None
    source_position: str


def source_position(day: dt.date, letter_id: str, attempt: int) -> str:
    """Return the position of an attempt among the replays: the one line of its file."""
    return f"{day.isoformat()}/{letter_id}.{attempt}.jsonl:1"


def replay_of(position: str) -> tuple[str, int]:
    """Parse the dead letter id and the attempt from a replay's source position.

    Args:
        position: `<day>/<id>.<attempt>.jsonl:1`.
    """
    letter_id, attempt, *_ = position.rpartition("/")[2].split(".")
    return letter_id, int(attempt)


def record_again(day: dt.date, letter_id: str, attempt: int, record: bytes, *, stage: str = INGEST) -> Replay:
    """Return the replay of a record for a stage that reads a source, original or corrected.

    Raises:
        InputError: the record is more than one line.
    """
    if b"\n" in record.strip():
        raise InputError("a record is one line of JSON", fix="write the corrected record without line breaks")
    content = record.strip() + b"\n"
    return Replay(stage=stage, day=day, letter_id=letter_id, attempt=attempt, content=content)


def event_again(
    day: dt.date,
    letter_id: str,
    attempt: int,
    event_id: str,
    payload: bytes | None,
    *,
    stage: str = NORMALIZE,
) -> Replay:
    """Return the replay of an event for a stage that reads its table, with a corrected payload if one is
    given.

    Raises:
        InputError: the payload is not a JSON object with a canonical form.
    """
    values: dict[str, str | None] = {"event_id": event_id, "payload": None}
    if payload is not None:
        try:
            value, fast = canonical_json.parse(payload.strip())
        except canonical_json.Refused as refused:
            raise InputError(
                f"the corrected payload is refused: {refused.error}", fix="give one JSON object"
            ) from refused
        if not isinstance(value, dict):
            raise InputError("the corrected payload is no JSON object", fix="give one JSON object")
        write = canonical_json.write_fast if fast else canonical_json.write
        values["payload"] = write(value).decode()
    content = json.dumps(values).encode() + b"\n"
    return Replay(stage=stage, day=day, letter_id=letter_id, attempt=attempt, content=content)


def row_again(day: dt.date, letter_id: str, attempt: int, content: bytes, *, stage: str) -> Replay:
    """Return the replay of a row for the deliveries of a sink."""
    return Replay(stage=stage, day=day, letter_id=letter_id, attempt=attempt, content=content)


def submit_replays(
    domain: FailureDomain,
    replays: Sequence[Replay],
    *,
    wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS,
    now: dt.datetime | None = None,
) -> None:
    """Submit replays in one commit, and write their files. A second call changes nothing.

    Args:
        domain: The failure domain to commit in.
        replays: The replays.
        wait_seconds: How long to wait for another process that submits replays.
        now: The time, if not the clock's.

    Raises:
        CommitConflict: other processes kept submitting replays at the same time; nothing was submitted.
        Fenced, QuorumUnavailable: the commit was not acknowledged. Submit again.
    """
    if not replays:
        return
    table = _table(domain)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with writing(table, wait_seconds=wait_seconds, driver_pid=None):
                _commit(table, replays, now or dt.datetime.now(dt.UTC))
        except CommitConflict:
            if attempt == _ATTEMPTS:
                raise
        else:
            break
    failpoint(Failpoint.REPLAY_AFTER_REQUEST)
    with storage_named(table):
        replays_folder(domain, INGEST)


def _commit(table: Table, replays: Sequence[Replay], now: dt.datetime) -> None:
    base = table.version()
    there = {(each.stage, each.file): each.content for each, _ in _handed_in(table)}
    sinks = _sinks(table)
    # A second request of one attempt to a sink is the same, by whatever process. A correction is not.
    new = [
        each
        for each in replays
        if (place := (each.stage, each.file)) not in there
        or (there[place] != each.content and each.stage not in sinks)
    ]
    if new:
        version = max(base, 0) + 1
        rows = [_row(each, table, now, version) for each in new]
        commit_rows(table, rows, base_version=base, facts={REQUESTED_BY: user_and_host()})


def _row(replay: Replay, table: Table, now: dt.datetime, version: int) -> Mapping[str, Any]:
    try:
        content, encoding = replay.content.decode(), RecordEncoding.UTF8
    except UnicodeDecodeError:
        content, encoding = base64.b64encode(replay.content).decode(), RecordEncoding.BASE64
    return {
        "dead_letter_id": replay.letter_id,
        "attempt": replay.attempt,
        "stage": replay.stage,
        "content": content,
        "content_encoding": encoding.value,
        "domain": table.domain.name,
        "handed_in_at": now,
        "batch_id": version,
        "partition_date": replay.day,
    }


def replays_folder(domain: FailureDomain, stage: str) -> Path:
    """Return the folder with the files of a stage's replays by day, updated to the table's newest version."""
    table = _table(domain)
    if (version := table.version()) >= 0:
        note = next(commit_notes(table.path, version), None)
        mark = json.dumps([version, note and note.user_metadata.get("writer")]).encode()
        laid_out = domain.replays_path("laid_out.json")
        if note is None or not laid_out.exists() or laid_out.read_bytes() != mark:
            _lay_out(table)
            write_durably(laid_out, mark)
    return domain.replays_path(stage)


def _lay_out(table: Table) -> None:
    """Write the files that are missing or differ from the table. For one attempt the last row counts."""
    sinks = _sinks(table)
    last = {
        (each.stage, each.file): (each, handed_in_ns)
        for each, handed_in_ns in _handed_in(table)
        if each.stage not in sinks
    }
    for replay, handed_in_ns in last.values():
        path = table.domain.replays_path(replay.stage) / replay.file
        if not path.exists() or (path.stat().st_mtime_ns, path.stat().st_size) != (
            handed_in_ns,
            len(replay.content),
        ):
            write_durably(path, replay.content, mtime_ns=handed_in_ns)


def _sinks(table: Table) -> frozenset[str]:
    """Return the names of the tables of deliveries."""
    return frozenset(stage.name for stage in table.domain.catalog.stages if stage.delivers)


def _handed_in(table: Table) -> Iterator[tuple[Replay, int]]:
    """Yield every replay in the order of submission, with its time in nanoseconds."""
    if (snapshot := table.snapshot()) is None:
        return
    rows = [
        (row, file.day) for file in content_of(snapshot).values() for row in read_files(table.path, [file])
    ]
    for row, day in sorted(rows, key=lambda each: each[0]["batch_id"]):
        content, is_text = row["content"], row["content_encoding"] == RecordEncoding.UTF8
        replay = Replay(
            stage=row["stage"],
            day=day or dt.date.min,
            letter_id=row["dead_letter_id"],
            attempt=row["attempt"],
            content=content.encode() if is_text else base64.b64decode(content),
        )
        yield replay, (row["handed_in_at"] - _EPOCH) // dt.timedelta(microseconds=1) * 1_000


def _table(domain: FailureDomain) -> Table:
    return Table(name=REPLAYS.name, domain=domain, contract=REPLAYS)


def replay_attempts(domain: FailureDomain, stage: str) -> dict[str, int]:
    """Return the last attempt submitted to a stage for each dead letter, by id.

    Reads the table, not the files.
    """
    attempts: dict[str, int] = {}
    for replay, _ in _handed_in(_table(domain)):
        if replay.stage == stage:
            attempts[replay.letter_id] = max(attempts.get(replay.letter_id, 0), replay.attempt)
    return attempts


def replayed_events(domain: FailureDomain, days: Iterable[dt.date]) -> list[ReplayedEvent]:
    """Return the replayed events of the days, each with its last attempt and its last corrected payload."""
    events: dict[str, ReplayedEvent] = {}
    files = replays_folder(domain, NORMALIZE)
    for day in days:
        folder = files / day.isoformat()
        named = [(match, path) for path in _listing(folder) if (match := _FILE_NAME.fullmatch(path.name))]
        for match, path in sorted(named, key=lambda item: int(item[0]["attempt"])):
            content = json.loads(path.read_bytes())
            event_id, payload = content["event_id"], content["payload"]
            if payload is None and event_id in events:
                payload = events[event_id].payload
            events[event_id] = ReplayedEvent(
                event_id=event_id,
                payload=payload,
                source_position=source_position(day, match["id"], int(match["attempt"])),
            )
    return list(events.values())


def _listing(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []
