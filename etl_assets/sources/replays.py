"""Dead letters that were handed in again, as durable files under the domain's root.

A record refused at ingest comes back as a file of one line, read like any landing file of its day. An event refused at
normalize is in raw_events already; its file marks it as replayed and may carry a corrected payload, which takes the
place of the refused one. File names are `<dead letter id>.<attempt>.jsonl`, so that a source position tells both, and
what a stage refuses again is known as the next attempt of its letter.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from etl_assets.contracts import canonical_json
from etl_assets.delta.durability import write_durably
from etl_assets.errors import InputError
from etl_assets.placement.domains import FailureDomain

INGEST, NORMALIZE = "ingest", "normalize"
_FILE_NAME = re.compile(r"(?P<id>[0-9a-f]{64})\.(?P<attempt>[0-9]+)\.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedInEvent:
    """An event that normalize is to judge again.

    Attributes:
        event_id: Its id.
        payload: The corrected payload, canonical; None leaves the one it came with.
        source_position: Where it stands among the replays: the day, the letter, the attempt.
    """

    event_id: str
    payload: str | None
    source_position: str


def source_position(day: dt.date, letter_id: str, attempt: int) -> str:
    """Where an attempt stands among the replays: the one line of its file."""
    return f"{day.isoformat()}/{letter_id}.{attempt}.jsonl:1"


def hand_in_record(domain: FailureDomain, day: dt.date, letter_id: str, attempt: int, record: bytes) -> None:
    """Put a record, as it came or corrected, before ingest again.

    Raises:
        InputError: the record is more than one line.
    """
    if b"\n" in record.strip():
        raise InputError("a record is one line of JSON", fix="write the corrected record without line breaks")
    _write(domain, INGEST, day, letter_id, attempt, record.strip() + b"\n")


def hand_in_event(
    domain: FailureDomain, day: dt.date, letter_id: str, attempt: int, event_id: str, payload: bytes | None
) -> None:
    """Mark an event for normalization again, with a corrected payload if one is given.

    Raises:
        InputError: the payload is no JSON object with a canonical form.
    """
    content: dict[str, str | None] = {"event_id": event_id, "payload": None}
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
        content["payload"] = write(value).decode()
    _write(domain, NORMALIZE, day, letter_id, attempt, json.dumps(content).encode() + b"\n")


def handed_in_events(domain: FailureDomain, days: Iterable[dt.date]) -> list[HandedInEvent]:
    """The days' events that were handed in, each with its last attempt and the last corrected payload."""
    events: dict[str, HandedInEvent] = {}
    for day in days:
        folder = domain.replays_path(NORMALIZE) / day.isoformat()
        named = [(match, path) for path in _listing(folder) if (match := _FILE_NAME.fullmatch(path.name))]
        for match, path in sorted(named, key=lambda item: int(item[0]["attempt"])):
            content = json.loads(path.read_bytes())
            event_id, payload = content["event_id"], content["payload"]
            if payload is None and event_id in events:
                payload = events[event_id].payload
            events[event_id] = HandedInEvent(
                event_id=event_id,
                payload=payload,
                source_position=source_position(day, match["id"], int(match["attempt"])),
            )
    return list(events.values())


def _listing(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _write(
    domain: FailureDomain, stage: str, day: dt.date, letter_id: str, attempt: int, content: bytes
) -> None:
    write_durably(domain.replays_path(stage) / day.isoformat() / f"{letter_id}.{attempt}.jsonl", content)
