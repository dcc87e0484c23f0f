"""Records that are JSON objects of any fields: the source of a declared pipeline.

Which columns a record has, and of which types, is for the pipeline's table to say. Here a record is kept as
it came, in canonical form, under an id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from etl_assets.contracts import canonical_json
from etl_assets.contracts.canonical_json import Refused
from etl_assets.contracts.canonical_lines import canonical_texts
from etl_assets.contracts.envelope import (
    KEPT_RECORD_BYTES,
    AnnotatedRecord,
    BadRecord,
    CutLine,
    Record,
    SkippedRecord,
    kept_text,
)
from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.ingest.id_columns import MAX_ID_CHARACTERS, ids_of
from etl_assets.sources.landing import REPLAYS

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.sources.source_files import InputFile, SourceFile

_SHOWN_OF_LETTER = 16
_FEW_LINES = 64
"""Fewer lines are validated faster one by one."""


class ValidatedRecord(NamedTuple):
    """One record: its id and content, or the reason for rejecting it."""

    record_id: str | None = None
    content: str | None = None
    fingerprint: str | None = None
    reason: str | None = None
    error: str | None = None
    record: str | None = None
    record_encoding: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonRecords:
    """JSON objects, or values that a format reads as such.

    A record's id is the values of its id fields; a number has one id however it is spelled, and a text of the
    same characters has it too. Without id fields it is the record's place, by file and position, and its
    content, so that a file that is read again adds nothing but its new and its changed records. A replayed
    dead letter has an id of its own: it corrects a record, and does not contradict it.

    Attributes:
        id_fields: Fields that identify a record.
        max_record_bytes: Greatest size of a record, as it came and in canonical form.
        changes: Whether a record with the same id fields and other content is a new record, because the
            source shows rows as they are: the content is part of the id then.
    """

    id_fields: tuple[str, ...]
    max_record_bytes: int
    changes: bool = False

    @property
    def id_column(self) -> str:
        """The id of a record."""
        return "record_id"

    @property
    def row_type(self) -> type[ValidatedRecord]:
        """A validated record."""
        return ValidatedRecord

    @property
    def staged(self) -> Mapping[str, tuple[str, pa.DataType]]:
        """Id, content and fingerprint."""
        import pyarrow as pa

        fields = {"record_id": "record_id", "record": "content", "fingerprint": "fingerprint"}
        return {column: (field, pa.string()) for column, field in fields.items()}

    @property
    def repeating(self) -> tuple[str, ...]:
        """None: records have little in common."""
        return ()

    @property
    def held_bytes(self) -> int:
        """Bytes of a record to hold."""
        return max(self.max_record_bytes, KEPT_RECORD_BYTES) + 5

    @property
    def uses_positions(self) -> bool:
        """Yes, where records have no id of their own."""
        return not self.id_fields

    def columns_of(self, lines: Sequence[Record], input_file: InputFile) -> Mapping[str, pa.Array] | None:
        """Return id, content and fingerprint of lines in canonical form, with an id, and none too large."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if len(lines) < _FEW_LINES or not self.id_fields or max(map(len, lines)) > self.max_record_bytes:
            return None
        if (texts := canonical_texts(lines)) is None or (ids := ids_of(texts, self.id_fields)) is None:
            return None
        fingerprints = pa.array(
            [hashlib.sha256(line).hexdigest() for line in lines if isinstance(line, bytes)], pa.string()
        )
        parts = [ids]
        if self.changes:
            shown = pc.call_function(
                "binary_slice", [fingerprints.cast(pa.binary())], pc.SliceOptions(0, _SHOWN_OF_LETTER)
            )
            parts += [pa.scalar("#"), shown.cast(pa.string())]
        parts += [pa.scalar(_version_of(input_file.file)), pa.scalar("")]
        record_ids = pc.call_function("binary_join_element_wise", parts)
        return {"record_id": record_ids, "record": texts, "fingerprint": fingerprints}

    def validator(self, input_file: InputFile) -> Callable[[Record, int], ValidatedRecord]:
        """Return the validation of a record of a file."""
        file = input_file.file
        place, version_of_file = f"{file.source}/{input_file.identity}", _version_of(file)

        def validate(line: Record, position: int) -> ValidatedRecord:
            if isinstance(line, BadRecord):
                return self._rejected(line.reason, line.error, line.start)
            if isinstance(line, CutLine):
                return self._too_large(line.start, line.size)
            assert not isinstance(line, SkippedRecord)  # it has no outcome
            raw = line.removesuffix(b"\r") if isinstance(line, bytes) else b""
            if len(raw) > self.max_record_bytes:
                return self._too_large(raw, len(raw))
            try:
                content, value, is_fast = self._content(raw, line)
                if len(content) > self.max_record_bytes:
                    return self._too_large(raw or content, len(content))
                fingerprint = hashlib.sha256(content).hexdigest()
                version = f"#{fingerprint[:_SHOWN_OF_LETTER]}" if self.changes else ""
                if isinstance(line, AnnotatedRecord):
                    content, value = _annotated(value, line.added, is_fast=is_fast)
                record_id = (
                    self._id_of(value) + version + version_of_file
                    if self.id_fields
                    else hashlib.sha256(f"{place}|{position}|{fingerprint}".encode()).hexdigest()
                )
            except Refused as refused:
                kept = raw or (b"" if isinstance(line, bytes) else _text_of(line))
                return self._rejected(refused.reason, refused.error, kept)
            return ValidatedRecord(record_id, content.decode(), fingerprint)

        return validate

    def _content(self, raw: bytes, line: Record) -> tuple[bytes, dict[str, Any], bool]:
        """Return the canonical form of a record, its values, and whether `write_fast` may write them.

        Raises:
            Refused: it has none, or is no object.
        """
        if isinstance(line, dict):
            if all(type(item) is str or item is None for item in line.values()):
                return _written(line, canonical_json.write_fast), line, True
            raw = _written(line)
        content, value, is_fast = canonical_json.canonical(raw)
        if type(value) is not dict:
            raise Refused(DeadLetterReason.NOT_AN_OBJECT, "the line is JSON, but no object")
        return content, value, is_fast

    def _id_of(self, value: Mapping[str, Any]) -> str:
        """Return a record's id.

        Raises:
            Refused: a field of it is missing, or has more than one value.
        """
        if len(self.id_fields) == 1:
            item = value.get(self.id_fields[0])
            if type(item) is str and 0 < len(item) <= MAX_ID_CHARACTERS:
                return item
            if type(item) is int:
                return str(item)
        values = [_exact(value.get(name)) for name in self.id_fields]
        for name, item in zip(self.id_fields, values, strict=True):
            if item is None or item == "":
                raise Refused(
                    DeadLetterReason.MISSING_FIELD,
                    f"{name} is missing, null or empty, and is the record's id",
                )
            if not isinstance(item, str | int | Decimal):  # true and false are int
                raise Refused(
                    DeadLetterReason.WRONG_TYPE, f"{name} is no single value, and is the record's id"
                )
        text = (
            values[0]
            if len(values) == 1 and type(values[0]) is str
            else canonical_json.write(values[0] if len(values) == 1 else values).decode()
        )
        return text if len(text) <= MAX_ID_CHARACTERS else hashlib.sha256(text.encode()).hexdigest()

    def _too_large(self, start: bytes, size: int) -> ValidatedRecord:
        return self._rejected(
            DeadLetterReason.RECORD_TOO_LARGE,
            f"the record has {size:,} bytes, at most {self.max_record_bytes:,} are taken;"
            f" its first {KEPT_RECORD_BYTES:,} are kept here",
            start[:KEPT_RECORD_BYTES],
        )

    def _rejected(self, reason: DeadLetterReason, error: str, start: bytes) -> ValidatedRecord:
        record, encoding = kept_text(start[: self.held_bytes])
        return ValidatedRecord(reason=reason.value, error=error, record=record, record_encoding=encoding)


def _version_of(file: SourceFile) -> str:
    """Return what tells the records of a file from others with the same id fields; empty if nothing does."""
    version = f"#{file.version}" if file.version else ""
    if file.source != REPLAYS:
        return version
    letter, _, attempt = file.name.removesuffix(".jsonl").partition(".")
    return f"{version}@{letter[:_SHOWN_OF_LETTER]}.{attempt}"


def _annotated(
    value: dict[str, Any], added: dict[str, Any], *, is_fast: bool
) -> tuple[bytes, dict[str, Any]]:
    """Return the canonical form and the values of a record with the fields that its source adds.

    Raises:
        Refused: the record has one of these fields itself.
    """
    if twice := value.keys() & added.keys():
        raise Refused(
            DeadLetterReason.DUPLICATE_KEY, f"the record has the field {min(twice)}, which the source adds"
        )
    whole = {**value, **added}
    return _written(whole, canonical_json.write_fast if is_fast else canonical_json.write), whole


def _exact(value: Any) -> Any:
    """Return a number of the fast path as the strict path has it; any other value unchanged."""
    return Decimal(repr(value)) if isinstance(value, float) else value


def _written(value: dict[str, Any], write: Callable[[Any], bytes] = canonical_json.write) -> bytes:
    """Return the values of a record as JSON.

    Raises:
        Refused: a text of it is not Unicode.
    """
    try:
        return write(value)
    except orjson.JSONEncodeError as error:  # only a surrogate stands for what is not UTF-8
        raise Refused(DeadLetterReason.INVALID_UTF8, "a text of the record is not UTF-8") from error


def _text_of(value: dict[str, Any]) -> bytes:
    """Return the values of a record without canonical form as text. Numbers stay numbers, NaN too."""
    try:
        return _written(value)
    except Refused:
        return json.dumps(value, default=str, ensure_ascii=False).encode("utf-8", "backslashreplace")
