"""Strict conversions of the values of JSON records to column types, as SQL that never fails.

Belongs here: which values each type takes. Does not belong here: how a field's value is found in a record
(`typed_records.py`), and what happens to a record with another value.
"""

from __future__ import annotations

from dataclasses import dataclass

from etl_assets.contracts.column_types import ColumnType, DecimalType, ScalarType
from etl_assets.contracts.sql_text import string_literal

BLANKS = "".join(map(chr, range(0x21))) + "\x7f"
"""Characters that may surround a number or a truth value in a text."""
_INT_BITS = {"INT": 31, "BIGINT": 63}
_DATE = "^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}(?!(?s:.))"
_TIME = (
    "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?"
    "([Zz]|[+-][0-9]{2}:[0-9]{2})?(?!(?s:.))"
)
_WHOLE_NUMBER = "^-?[0-9]+(?!(?s:.))"
_DOUBLE = "^[+-]?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?(?!(?s:.))"
_FIRST_MILLIS, _LAST_MILLIS = -62_135_596_800_000, 253_402_300_799_999
_FIRST_TIME, _LAST_TIME = "TIMESTAMP '0001-01-01T00:00:00Z'", "TIMESTAMP '9999-12-31T23:59:59.999999Z'"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeConversion:
    """The conversion of a simple type.

    Attributes:
        sql: SQL for the value; null for a text that is no value of the type.
        expected: What a value must be, in words.
        needs_digits: Whether the text must have every digit of a fraction, as in the record.
    """

    sql: str
    expected: str
    needs_digits: bool = False


def conversion(type_: ScalarType | DecimalType, text: str, *, is_number: str) -> TypeConversion:
    """Return the conversion of a value to a type.

    Args:
        type_: The type.
        text: SQL for the value as text; a number as JSON writes it.
        is_number: SQL for whether the value is a JSON number, for a text of digits.
    """
    if isinstance(type_, DecimalType):
        return _decimal(type_, text)
    match type_.name:
        case "STRING":
            return TypeConversion(sql=text, expected="a text", needs_digits=True)
        case "INT" | "BIGINT" as name:
            # `try_cast` takes a sign and digits between blanks, and nothing else.
            limit = 2 ** _INT_BITS[name]
            return TypeConversion(
                sql=f"try_cast({text} AS {name})",
                expected=f"a whole number from {-limit} to {limit - 1}",
            )
        case "BOOLEAN":
            word = f"lower({_trimmed(text)})"
            return TypeConversion(
                sql=f"CASE {word} WHEN 'true' THEN true WHEN 'false' THEN false END", expected="true or false"
            )
        case "DATE":
            pattern = string_literal(_DATE)
            return TypeConversion(
                sql=f"CASE WHEN {text} RLIKE {pattern} THEN try_cast({text} AS DATE) END",
                expected="a day as YYYY-MM-DD",
            )
        case "TIMESTAMP":
            return _timestamp(text, is_number)
        case "DOUBLE":
            trimmed = _trimmed(text)
            number = f"try_cast({trimmed} AS DOUBLE)"
            return TypeConversion(
                sql=f"CASE WHEN {trimmed} RLIKE {string_literal(_DOUBLE)} AND abs({number}) <"
                f" double('Infinity') THEN {number} END",
                expected="a number",
            )
    raise AssertionError(type_)


def described(type_: ColumnType) -> str:
    """Return what a value of a nested type must be, in words."""
    return f"JSON of the type {type_.ddl}"


def _decimal(type_: DecimalType, text: str) -> TypeConversion:
    trimmed = _trimmed(text)
    # Zeros at the end of a fraction change nothing. Other digits beyond the scale would be rounded away.
    pattern = f"^[+-]?[0-9]+([.](?=[0-9])[0-9]{{0,{type_.scale}}}0*)?(?!(?s:.))"
    return TypeConversion(
        sql=f"CASE WHEN {trimmed} RLIKE {string_literal(pattern)} THEN try_cast({trimmed} AS {type_.ddl})"
        " END",
        expected=(
            f"a number of at most {type_.precision - type_.scale} digits before and {type_.scale} after the"
            " point"
        ),
        needs_digits=True,
    )


def _timestamp(text: str, is_number: str) -> TypeConversion:
    # A pattern for the zone would cost more than the cast.
    has_zone = f"upper(right({text}, 1)) = 'Z' OR substring({text}, -6, 1) IN ('+', '-')"
    zoned = f"CASE WHEN {has_zone} THEN upper({text}) ELSE concat(upper({text}), 'Z') END"
    at = f"try_cast({zoned} AS TIMESTAMP)"
    at_the_edge = f"{text} < '0001-01-03' OR {text} > '9999-12-29'"
    bounded = (
        f"CASE WHEN {at_the_edge} THEN CASE WHEN {at} BETWEEN {_FIRST_TIME} AND {_LAST_TIME} THEN {at} END"
        f" ELSE {at} END"
    )
    millis = f"try_cast({text} AS BIGINT)"
    return TypeConversion(
        sql=(
            f"CASE WHEN {text} RLIKE {string_literal(_TIME)} THEN {bounded} WHEN {text} RLIKE"
            f" {string_literal(_WHOLE_NUMBER)} AND {is_number} AND {millis} BETWEEN {_FIRST_MILLIS} AND"
            f" {_LAST_MILLIS} THEN timestamp_millis({millis}) END"
        ),
        expected="a time as in RFC 3339, a time without zone in UTC, or whole milliseconds since 1970",
    )


def _trimmed(text: str) -> str:
    return f"trim(BOTH {string_literal(BLANKS)} FROM {text})"
