"""From the texts of a column's values to an Arrow array.

Belongs here: reading a column of one batch at once, and naming each value that its Arrow type cannot hold.
Does not belong here: which type that is (`types.py`).
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.column_types import MAX_DECIMAL_PRECISION
from etl_assets.sources.postgres_cdc import times
from etl_assets.sources.postgres_cdc.array_literals import elements
from etl_assets.sources.postgres_cdc.types import InfinityPolicy, ValueKind, ValueType

if TYPE_CHECKING:
    import pyarrow as pa

Texts = Sequence[bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedColumn:
    """The values of a column.

    Attributes:
        array: One value for each text, null where the text is None or the value was refused.
        refused: Why values were refused, by their place. A caller must not take their nulls for values.
    """

    array: pa.Array
    refused: Mapping[int, str] = field(default_factory=dict)


def to_arrow(type_: ValueType, texts: Texts | pa.BinaryArray) -> ConvertedColumn:
    """Read the texts of a column.

    Args:
        type_: What the column becomes.
        texts: The values as PostgreSQL writes them under `SESSION_SETTINGS`, less than 2 GiB in all.
    """
    import pyarrow as pa

    column = texts if isinstance(texts, pa.BinaryArray) else pa.array(texts, pa.binary())
    return _READERS[type_.kind](type_, column)


def _booleans(type_: ValueType, column: pa.BinaryArray) -> ConvertedColumn:
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pc.SetLookupOptions(pa.array([b"f", b"t"], pa.binary()), skip_nulls=True)
    found = pc.call_function("index_in", [column], known)
    if found.null_count == column.null_count:
        return ConvertedColumn(array=found.cast(pa.bool_()))
    return _each(type_, column, {b"t": True, b"f": False}.__getitem__, "it is neither t nor f")


def _bytes(type_: ValueType, column: pa.BinaryArray) -> ConvertedColumn:
    return _each(type_, column, _from_hex, "it is not bytea in hex")


def _from_hex(text: bytes) -> bytes:
    if not text.startswith(b"\\x"):
        raise ValueError
    return binascii.unhexlify(text[2:])


def _each(
    type_: ValueType, column: pa.BinaryArray, read: Callable[[bytes], Any], otherwise: str
) -> ConvertedColumn:
    import pyarrow as pa

    texts = column.to_pylist()
    try:
        return ConvertedColumn(
            array=pa.array([None if text is None else read(text) for text in texts], type_.arrow)
        )
    except (KeyError, ValueError):
        pass
    values: list[Any] = []
    refused: dict[int, str] = {}
    for place, text in enumerate(texts):
        try:
            values.append(None if text is None else read(text))
        except (KeyError, ValueError):
            values.append(None)
            refused[place] = otherwise
    return ConvertedColumn(array=pa.array(values, type_.arrow), refused=refused)


def _strings(type_: ValueType, column: pa.BinaryArray) -> ConvertedColumn:
    # A database whose encoding is SQL_ASCII has texts of any bytes.
    return _cast(type_, column, str)


def _numbers(type_: ValueType, column: pa.BinaryArray) -> ConvertedColumn:
    return _cast(type_, column, _no_number)


def _no_number(_: str) -> Any:
    raise ValueError("it is not a number of the column's type")


def _numerics(type_: ValueType, column: pa.BinaryArray) -> ConvertedColumn:
    def one(text: str) -> Decimal:
        import pyarrow as pa

        try:
            value = Decimal(text)
        except InvalidOperation:
            raise ValueError("it is not a number") from None
        if not value.is_finite():
            raise ValueError("it is not a finite number, which decimals do not have")
        try:
            return pa.scalar(value, type_.arrow).as_py()
        except pa.ArrowInvalid:
            raise ValueError(f"it does not fit exactly into {type_.arrow}") from None

    return _cast(type_, column, one, _decimals)


def _decimals(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast texts by a wider decimal, because Arrow does not notice when a rescaled number overflows."""
    import pyarrow as pa
    from pyarrow import compute as pc

    longest = pc.call_function("max", [pc.call_function("binary_length", [texts])]).as_py()
    if longest is not None and longest > MAX_DECIMAL_PRECISION:
        raise pa.ArrowInvalid("more digits than the wider decimal takes for sure")
    return texts.cast(pa.decimal256(2 * MAX_DECIMAL_PRECISION, type_.scale)).cast(type_)


def _dates(type_: ValueType, column: pa.BinaryArray) -> ConvertedColumn:
    def one(text: str) -> int:
        sign = _infinite(type_, text)
        return times.days(text) if sign is None else times.LAST_DAY if sign > 0 else times.FIRST_DAY

    return _cast(type_, column, one)


def _timestamps(type_: ValueType, column: pa.BinaryArray) -> ConvertedColumn:
    def one(text: str) -> int:
        sign = _infinite(type_, text)
        if sign is None:
            if (found := times.microseconds(text)) > times.MAX_MICROSECONDS:
                raise ValueError("it is after the year 294246, where Arrow's microseconds end")
            return found
        day = times.LAST_DAY + 1 if sign > 0 else times.FIRST_DAY
        return day * times.MICROSECONDS_PER_DAY - (sign > 0)

    return _cast(type_, column, one)


def _infinite(type_: ValueType, text: str) -> int | None:
    """Return the sign of an infinite time, None for any other."""
    sign = times.INFINITE.get(text)
    if sign is not None and type_.infinity is InfinityPolicy.REJECT:
        raise ValueError(f"it is {text}, which dates and times of Delta do not have")
    return sign


def _lists(type_: ValueType, column: pa.BinaryArray) -> ConvertedColumn:
    import pyarrow as pa

    assert type_.element is not None  # a list has elements
    rows: list[list[str | None] | None] = []
    refused: dict[int, str] = {}
    for place, text in enumerate(column.to_pylist()):
        try:
            rows.append(None if text is None else elements(_text(text), type_.delimiter))
        except ValueError as error:
            rows.append(None)
            refused[place] = str(error)
    flat = [None if each is None else each.encode() for row in rows if row for each in row]
    found = to_arrow(type_.element, flat)
    offsets = [0, *accumulate(len(row or ()) for row in rows)]
    if found.refused:
        places = [place for place, row in enumerate(rows) for _ in row or ()]
        for number, reason in found.refused.items():
            refused.setdefault(places[number], f"an element: {reason}")
    missing = pa.array([row is None or place in refused for place, row in enumerate(rows)], pa.bool_())
    # A list that is null has no elements: where one was refused, the others of its list stay unused.
    array = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), found.array, mask=missing)
    return ConvertedColumn(array=array.cast(type_.arrow), refused=refused)


def _plain(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    return texts.cast(type_)


def _cast(
    type_: ValueType,
    column: pa.BinaryArray,
    one: Callable[[str], Any],
    all_at_once: Callable[[pa.Array, pa.DataType], pa.Array] = _plain,
) -> ConvertedColumn:
    """Convert a column at once. Where Arrow does not read a value, halve until it stands alone.

    Args:
        type_: What the column becomes.
        column: Its texts.
        one: Reads a value that Arrow does not read; ValueError says why it cannot be held.
        all_at_once: Casts an array of texts, or raises ArrowInvalid.
    """
    import pyarrow as pa

    parts: list[pa.Array] = []
    refused: dict[int, str] = {}
    pending = [(0, len(column))]
    while pending:
        start, end = pending.pop()
        part = column.slice(start, end - start)
        try:
            parts.append(all_at_once(part.cast(pa.string()), type_.arrow))
        except pa.ArrowInvalid:
            if end - start > 1:
                middle = (start + end) // 2
                pending += [(middle, end), (start, middle)]
                continue
            try:
                parts.append(pa.array([one(_text(part[0].as_py()))], type_.arrow))
            except ValueError as error:
                refused[start] = str(error)
                parts.append(pa.nulls(1, type_.arrow))
    return ConvertedColumn(array=pa.concat_arrays(parts), refused=refused)


def _text(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None


_READERS: Mapping[ValueKind, Callable[[ValueType, pa.BinaryArray], ConvertedColumn]] = {
    ValueKind.BOOLEAN: _booleans,
    ValueKind.NUMBER: _numbers,
    ValueKind.NUMERIC: _numerics,
    ValueKind.BYTES: _bytes,
    ValueKind.DATE: _dates,
    ValueKind.TIMESTAMP: _timestamps,
    ValueKind.LIST: _lists,
    ValueKind.TEXT: _strings,
}
