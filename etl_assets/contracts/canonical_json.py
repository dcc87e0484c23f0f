"""Canonical JSON: one text per meaning, so that an event sent twice has the same fingerprint.

Keys are sorted by code point. There is no white space, escapes are the shortest, and numbers have no
exponent, trailing zeros or negative zero (`1.10` and `1.1` are one number). Text without a single meaning is
refused: a key twice in one object, NaN, a number that a decimal of 38 digits cannot hold, text that is not
Unicode.

Two paths produce the same bytes. The fast one (orjson) is taken if writing the parsed value reproduces the
line, which proves that nothing was dropped or changed. Every other line takes the strict path.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, NoReturn

import orjson

from etl_assets.contracts.reasons import DeadLetterReason

MAX_DIGITS = 38
MAX_DEPTH = 100
_WHOLE_AS_FRACTION = re.compile(rb"\.0[,}\]]")
_EXPONENT = re.compile(rb"e(?<=[0-9]e)[-+]?[0-9]+[,}\]]")
"""Begins with a letter, because a search for a letter is several times as fast as one for any digit."""


class Refused(ValueError):
    """The text has no canonical form. Carries the reason, and the error in words."""

    def __init__(self, reason: DeadLetterReason, error: str) -> None:
        super().__init__(error)
        self.reason = reason
        self.error = error


def parse(line: bytes) -> tuple[Any, bool]:
    """Parse one JSON text.

    Returns:
        The value, and whether orjson may write its canonical form (`write_fast`). A value of the strict path
        holds decimals; `write` writes it.

    Raises:
        Refused: the text is not JSON or has no canonical form.
    """
    try:
        value = orjson.loads(line)
        written = orjson.dumps(value)
    except (orjson.JSONDecodeError, TypeError):
        return _parse_strictly(line), False
    if not _is_reproduced(line, written) or not _has_canonical_numbers(written):
        return _parse_strictly(line), False
    return value, True


def canonical(line: bytes) -> tuple[bytes, Any, bool]:
    """Parse one JSON text as `parse` does, and write it.

    Returns:
        Its canonical form, and what `parse` returns.

    Raises:
        Refused: as `parse`.
    """
    try:
        value = orjson.loads(line)
        content = write_fast(value)
        # A line that is canonical already is proof enough, and is only written once.
        is_fast = content == line or _is_reproduced(line, orjson.dumps(value))
    except (orjson.JSONDecodeError, TypeError):
        is_fast = False
    if is_fast and _has_canonical_numbers(content):
        return content, value, True
    value = _parse_strictly(line)
    return write(value), value, False


def _is_reproduced(line: bytes, written: bytes) -> bool:
    """Return whether a line is what orjson writes of it, but for the spaces of most libraries' output."""
    return written == line or written == line.replace(b'": ', b'":').replace(b', "', b',"')


def _has_canonical_numbers(written: bytes) -> bool:
    """Return whether what orjson has written is canonical, and not too deep.

    orjson writes the shortest form of every number. Of those only forms like `1.0` and `1e16` are not
    canonical. Text in a string may look like one; the strict path is then taken needlessly.
    """
    return (
        _EXPONENT.search(written) is None
        and _WHOLE_AS_FRACTION.search(written) is None
        and written.count(b"[") + written.count(b"{") <= MAX_DEPTH
    )


def write_fast(value: Any) -> bytes:
    """Return the canonical form of a value that `parse` marked as fast."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def write(value: Any) -> bytes:
    """Return the canonical form of a value of the strict path."""
    match value:
        case dict():
            parts = (b"%b:%b" % (orjson.dumps(key), write(value[key])) for key in sorted(value))
            return b"{%b}" % b",".join(parts)
        case list():
            return b"[%b]" % b",".join(map(write, value))
        case Decimal():
            return _plain(value).encode()
        case bool() | None | str():
            return orjson.dumps(value)
        case _:
            return str(value).encode()


def _plain(number: Decimal) -> str:
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _parse_strictly(line: bytes) -> Any:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(DeadLetterReason.INVALID_UTF8, f"byte {error.start + 1} is not UTF-8") from error
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_float=_decimal,
            parse_int=_integer,
            parse_constant=_constant,
        )
        if _depth(value) > MAX_DEPTH:
            raise Refused(DeadLetterReason.MALFORMED_JSON, f"nested deeper than {MAX_DEPTH} levels")
        text.encode()
        write(value)
    except Refused as error:
        raise _of_field(text, error) from error
    except json.JSONDecodeError as error:
        raise Refused(
            DeadLetterReason.MALFORMED_JSON, f"not JSON at character {error.pos + 1}: {error.msg}"
        ) from error
    except RecursionError as error:
        raise Refused(DeadLetterReason.MALFORMED_JSON, f"nested deeper than {MAX_DEPTH} levels") from error
    except (orjson.JSONEncodeError, UnicodeEncodeError) as error:
        raise Refused(DeadLetterReason.MALFORMED_JSON, "an escape stands for half a character") from error
    return value


def _of_field(text: str, refused: Refused) -> Refused:
    """Return why a text is refused, with the field that has the number at fault, if a field has it."""

    def number(of: str) -> Refused | None:
        try:
            _decimal(of)
        except Refused as error:
            return error
        return None

    def fields(pairs: list[tuple[str, Any]]) -> None:
        for key, value in pairs:
            if (error := _refused_in(value)) is not None:
                raise Refused(error.reason, f"{key[:100]}: {error.error}")

    def constant(of: str) -> Refused:
        return Refused(DeadLetterReason.MALFORMED_JSON, f"{of} is not JSON")

    try:
        json.loads(
            text, object_pairs_hook=fields, parse_float=number, parse_int=number, parse_constant=constant
        )
    except Refused as found:
        return found if found.reason is refused.reason else refused
    except (ValueError, RecursionError):
        pass
    return refused


def _refused_in(value: Any) -> Refused | None:
    if isinstance(value, list):
        return next((found for each in value if (found := _refused_in(each)) is not None), None)
    return value if isinstance(value, Refused) else None


def _depth(value: Any) -> int:
    """Return the nesting depth of objects and arrays, without recursion."""
    deepest, level = 0, [value]
    while level := [item for item in level if isinstance(item, (dict, list))]:
        deepest += 1
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Refused(DeadLetterReason.DUPLICATE_KEY, f"the key {twice[:100]!r} stands twice in one object")
    return value


def _decimal(text: str) -> Decimal:
    if "e" in text or "E" in text:
        raise Refused(DeadLetterReason.UNSAFE_NUMBER, "a number is written with an exponent")
    _check_digits(text)
    return Decimal(text)


def _integer(text: str) -> int:
    _check_digits(text)
    return int(text)


def _check_digits(text: str) -> None:
    if len(text.replace("-", "").replace(".", "")) > MAX_DIGITS:
        raise Refused(DeadLetterReason.UNSAFE_NUMBER, f"a number has more than {MAX_DIGITS} digits")


def _constant(text: str) -> NoReturn:
    raise Refused(DeadLetterReason.MALFORMED_JSON, f"{text} is not JSON")
