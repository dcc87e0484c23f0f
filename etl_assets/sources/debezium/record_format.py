"""How events are read: the format of the files or of the topic, with each record made one of a change.

A record that is no change of a row is skipped. One that cannot be used is a dead letter with the event as it
came.

Belongs here: the layer over another format. Does not belong here: what an event says (`envelopes.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.contracts import canonical_json
from etl_assets.contracts.canonical_json import Refused
from etl_assets.contracts.envelope import AnnotatedRecord, BadRecord, Record, SkippedRecord
from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.sources.debezium.envelopes import EventReader
from etl_assets.sources.debezium.not_an_event import NotAnEvent

if TYPE_CHECKING:
    from etl_assets.sources.formats import RecordFormat
    from etl_assets.sources.lines import Block

KEY, TOMBSTONE = "kafka.key", "kafka.tombstone"
"""Fields that the format of a topic adds to a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEvents:
    """The format.

    Attributes:
        inner: The format of what holds the events.
        events: What the events are.
    """

    inner: RecordFormat
    events: EventReader

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of the names of the files."""
        return self.inner.suffixes

    def blocks(self, path: str, size: int, most_bytes: int) -> Iterator[Block]:
        """Cut a file into blocks."""
        return self.inner.blocks(path, size, most_bytes)

    def read(self, block: Block, held_bytes: int) -> Generator[tuple[int, list[Record]]]:
        """Yield the changes of a block."""
        for position, records in self.inner.read(block, held_bytes):
            yield position, [self._record(each) for each in records]

    def positions(self, first: int, records: Sequence[Record]) -> Iterable[int]:
        """Return numbers: changes are identified by their fields, not by their places in a file."""
        return range(first, first + len(records))

    def _record(self, record: Record) -> Record:
        if not isinstance(record, bytes) or not record.strip():
            return record
        key: Any = None
        if isinstance(record, AnnotatedRecord):
            if record.added.get(TOMBSTONE):
                return SkippedRecord("tombstone")
            key = _key(record.added.get(KEY))
        try:
            event, _ = canonical_json.parse(record.removesuffix(b"\r"))
            return self.events.record(event, key)
        except Refused as refused:
            return BadRecord(start=bytes(record), reason=refused.reason, error=refused.error)
        except NotAnEvent as error:
            return BadRecord(start=bytes(record), reason=DeadLetterReason.MALFORMED_EVENT, error=str(error))


def _key(text: Any) -> Any:
    """Return the key of a message, if it is JSON."""
    if not isinstance(text, str):
        return None
    try:
        return canonical_json.parse(text.encode())[0]
    except Refused:
        return None
