"""Records that are events in an envelope (`contracts/envelope.py`)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.contracts.envelope import CutLine, Limits, Record, ValidatedLine, judge, too_large

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.sources.source_files import InputFile

_EPOCH_DAY = dt.date(1970, 1, 1)
_MICROS_PER_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeRecords:
    """One event a line, as JSON. `limits` are those of a record."""

    limits: Limits

    @property
    def id_column(self) -> str:
        """The producer's id of an event."""
        return "event_id"

    @property
    def row_type(self) -> type[ValidatedLine]:
        """A validated line."""
        return ValidatedLine

    @property
    def staged(self) -> Mapping[str, tuple[str, pa.DataType]]:
        """The envelope's fields."""
        import pyarrow as pa

        texts = ("event_id", "tenant_id", "aggregate_id", "event_type")
        more = ("payload", "fingerprint", "trace_id", "span_id")
        return {
            **{name: (name, pa.string()) for name in texts},
            "schema_version": ("schema_version", pa.int32()),
            "occurred_at": ("occurred_at_micros", pa.timestamp("us", tz="UTC")),
            **{name: (name, pa.string()) for name in more},
        }

    @property
    def repeating(self) -> tuple[str, ...]:
        """Fields with few values."""
        return ("tenant_id", "event_type", "schema_version")

    @property
    def held_bytes(self) -> int:
        """Bytes of a line to hold."""
        return self.limits.held_bytes

    @property
    def uses_positions(self) -> bool:
        """No: an event has an id."""
        return False

    def columns_of(self, lines: Sequence[Record], input_file: InputFile) -> None:
        """Return nothing: events are validated one by one."""

    def validator(self, input_file: InputFile) -> Callable[[Record, int], ValidatedLine]:
        """Return the validation of a line that arrived on the file's day."""
        limits = self.limits
        latest = ((input_file.file.day - _EPOCH_DAY).days + 1) * _MICROS_PER_DAY + limits.skew_micros

        def validate(line: Record, position: int) -> ValidatedLine:
            if isinstance(line, bytes):
                return judge(line.removesuffix(b"\r"), latest_micros=latest, limits=limits)
            if isinstance(line, CutLine):
                return too_large(line, limits=limits)
            raise TypeError(f"an event is a line of JSON, not {type(line).__name__}")

        return validate
