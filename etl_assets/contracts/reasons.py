"""Reasons and outcomes: the closed sets of terms for the processing of a record.

Belongs here: the terms and their meanings. Does not belong here: the code that decides which one applies
(`transforms/`), and the tables that hold them (`tables/`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Outcome(StrEnum):
    """Outcome of one input record at one stage."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    REJECTED = "rejected"
    NORMALIZED = "normalized"
    COMMITTED = "committed"
    REPLAYED = "replayed"


EXCEPTIONAL_OUTCOMES = (Outcome.DUPLICATE, Outcome.CONFLICT, Outcome.REJECTED, Outcome.REPLAYED)
"""Outcomes that a stage records itself. The others follow from the tables.

Only a delivery to a sink records that it replayed something: other stages have a row of it.
"""


class DeadLetterReason(StrEnum):
    """Reason why a record was rejected."""

    MALFORMED_JSON = "MalformedJson"
    MALFORMED_CSV = "MalformedCsv"
    MALFORMED_VALUE = "MalformedValue"
    MALFORMED_EVENT = "MalformedEvent"
    UNKNOWN_SCHEMA = "UnknownSchema"
    SCHEMA_CHANGED = "SchemaChanged"
    DUPLICATE_KEY = "DuplicateKey"
    INVALID_UTF8 = "InvalidUtf8"
    RECORD_TOO_LARGE = "RecordTooLarge"
    NOT_AN_OBJECT = "NotAnObject"
    MISSING_FIELD = "MissingField"
    WRONG_TYPE = "WrongType"
    UNSAFE_NUMBER = "UnsafeNumber"
    INVALID_TIMESTAMP = "InvalidTimestamp"
    TIMESTAMP_OUT_OF_RANGE = "TimestampOutOfRange"
    FINGERPRINT_CONFLICT = "FingerprintConflict"
    UNKNOWN_EVENT_TYPE = "UnknownEventType"
    UNSUPPORTED_SCHEMA_VERSION = "UnsupportedSchemaVersion"
    INVALID_PAYLOAD = "InvalidPayload"
    CONTRACT_VIOLATION = "ContractViolation"
    EXPECTATION_FAILED = "ExpectationFailed"
    REFUSED_BY_TARGET = "RefusedByTarget"


class DeadLetterState(StrEnum):
    """State of a dead letter's lifecycle."""

    OPEN = "open"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


class RecordEncoding(StrEnum):
    """Encoding of a rejected record as text."""

    UTF8 = "utf-8"
    BASE64 = "base64"


OUTCOME_MEANINGS: Mapping[Outcome, str] = MappingProxyType(
    {
        Outcome.ACCEPTED: "Ingest took the record in: it is a row of the source table.",
        Outcome.DUPLICATE: "The same event was accepted before, with the same content: nothing was written.",
        Outcome.CONFLICT: "Another content was accepted under the same event id before: it stands.",
        Outcome.REJECTED: "The stage cannot use the record: it is a dead letter.",
        Outcome.NORMALIZED: "The stage that normalizes made a row of the event.",
        Outcome.COMMITTED: "The event is a row of the table at the end of the path.",
        Outcome.REPLAYED: "A dead letter was handed in again.",
    }
)

REASON_MEANINGS: Mapping[DeadLetterReason, str] = MappingProxyType(
    {
        DeadLetterReason.MALFORMED_JSON: "The line is not JSON: cut off, NaN, or something else altogether.",
        DeadLetterReason.MALFORMED_CSV: "A row of a CSV file does not have the fields of its header, or a"
        " quote is not closed.",
        DeadLetterReason.MALFORMED_VALUE: "The value of a Kafka record is not what its format or its schema"
        " says; its bytes are kept.",
        DeadLetterReason.MALFORMED_EVENT: "A change event of Debezium lacks what its connector writes, or"
        " cannot be applied; the error says what is missing.",
        DeadLetterReason.UNKNOWN_SCHEMA: "The schema registry has no schema of the record's id, or one of"
        " another format.",
        DeadLetterReason.SCHEMA_CHANGED: "The columns of the source's table had changed in a way that the"
        " pipeline does not take; replay it once the declaration fits.",
        DeadLetterReason.DUPLICATE_KEY: "An object of the record has one key twice: it has no one meaning.",
        DeadLetterReason.INVALID_UTF8: "The line is not UTF-8; its bytes are kept in base64.",
        DeadLetterReason.RECORD_TOO_LARGE: "The line is longer than the platform takes.",
        DeadLetterReason.NOT_AN_OBJECT: "The line is JSON, but not an object.",
        DeadLetterReason.MISSING_FIELD: "A field that every event has is missing or null.",
        DeadLetterReason.WRONG_TYPE: "A field of the envelope has another JSON type than it must have.",
        DeadLetterReason.UNSAFE_NUMBER: "A number that the canonical form would change.",
        DeadLetterReason.INVALID_TIMESTAMP: "The event's time is no time, or has no zone.",
        DeadLetterReason.TIMESTAMP_OUT_OF_RANGE: "The event's time is outside of what the platform takes.",
        DeadLetterReason.FINGERPRINT_CONFLICT: "Its event id was accepted before with another content.",
        DeadLetterReason.UNKNOWN_EVENT_TYPE: "No contract knows the event type; replay it once one does.",
        DeadLetterReason.UNSUPPORTED_SCHEMA_VERSION: "Newer than any known version; replay it once known.",
        DeadLetterReason.INVALID_PAYLOAD: "The payload is not what its event type and version demand.",
        DeadLetterReason.CONTRACT_VIOLATION: "A value breaks a rule of the contract; the error names it.",
        DeadLetterReason.REFUSED_BY_TARGET: "The target of a sink does not accept the row; the error has its"
        " words.",
        DeadLetterReason.EXPECTATION_FAILED: "A row does not meet an expectation of its pipeline; the error"
        " names it.",
    }
)
