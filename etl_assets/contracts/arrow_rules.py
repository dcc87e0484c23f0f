"""Check of a table's contract over Arrow rows, without Spark.

Its findings equal the pandera model's and take milliseconds. Belongs here: the meaning of each rule for Arrow
values. Does not belong here: the rules themselves (`rules.py`), their SQL and pandera (`pandera_models.py`),
and the choice of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.columns import TableContract
from etl_assets.contracts.pandera_models import Violation
from etl_assets.contracts.rules import (
    AtLeast,
    AtMost,
    DoesNotContain,
    HexDigits,
    Matches,
    MaxCharacters,
    NotEmpty,
    NotNull,
    OneOf,
    Rule,
)

if TYPE_CHECKING:
    import pyarrow as pa


def violations_in_process(contract: TableContract, pieces: Iterable[pa.Table]) -> tuple[Violation, ...]:
    """Compare rows with a contract. Of each piece only the merge keys stay in memory.

    Args:
        contract: The table.
        pieces: Its rows, with the contract's columns and types.

    Returns:
        Broken rules in the order of the columns, then merge keys shared by several rows; empty for good rows.
    """
    rules = [(column.name, rule) for column in contract.columns for rule in column.all_rules]
    broken, keys = [0] * len(rules), []
    for rows in pieces:
        for number, (column, rule) in enumerate(rules):
            broken[number] += breaking(rule, rows.column(column))
        keys.append(rows.select(list(contract.merge_key)))
    of_rules = tuple(
        Violation(table=contract.name, column=column, check=rule.explain(column), count=count)
        for (column, rule), count in zip(rules, broken, strict=True)
        if count
    )
    return (*of_rules, *_repeated_keys(contract, keys))


def breaking(rule: Rule, values: pa.ChunkedArray) -> int:
    """Return how many values break a rule. Null breaks only `NotNull`."""
    import pyarrow.compute as pc

    if isinstance(rule, NotNull):
        return values.null_count
    good = pc.call_function("sum", [holds(rule, values)]).as_py() or 0
    return len(values) - values.null_count - good


def _repeated_keys(contract: TableContract, keys: Sequence[pa.Table]) -> Iterator[Violation]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not contract.merge_key or not keys:
        return
    numbers = pa.concat_tables(keys).group_by(list(contract.merge_key)).aggregate([([], "count_all")])
    repeated = pc.call_function(
        "sum", [pc.call_function("greater", [numbers.column("count_all"), pa.scalar(1)])]
    )
    if count := repeated.as_py():
        key = ", ".join(contract.merge_key)
        yield Violation(table=contract.name, column=key, check=f"{key} must be unique", count=count)


def holds(rule: Rule, values: pa.ChunkedArray) -> Any:
    """Return, for each value, whether it satisfies the rule; null or false for null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    match rule:
        case AtLeast(bound):
            return _compared("greater_equal", values, bound, ROUND_CEILING)
        case AtMost(bound):
            return _compared("less_equal", values, bound, ROUND_FLOOR)
        case OneOf(allowed):
            # False for null, which counts the same as null.
            options = pc.SetLookupOptions(pa.array(allowed, pa.string()))
            return pc.call_function("is_in", [values], options)
        case NotEmpty():
            return pc.call_function("not_equal", [values, pa.scalar("")])
        case MaxCharacters(limit):
            return pc.call_function(
                "less_equal", [pc.call_function("utf8_length", [values]), pa.scalar(limit)]
            )
        case DoesNotContain(text):
            found = pc.call_function("match_substring", [values], pc.MatchSubstringOptions(text))
            return pc.call_function("invert", [found])
        case HexDigits(length):
            return _matches(rf"[0-9a-f]{{{length}}}", values)
        case Matches(pattern):
            return _matches(pattern, values)
    raise AssertionError(rule)


def _matches(pattern: str, values: pa.ChunkedArray) -> Any:
    """Return, for each value, whether the pattern matches all of it."""
    import pyarrow.compute as pc

    options = pc.MatchSubstringOptions(rf"\A(?:{pattern})\z")
    return pc.call_function("match_substring_regex", [values], options)


def _compared(comparison: str, values: pa.ChunkedArray, bound: int | Decimal, rounding: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_floating(values.type):
        return pc.call_function(comparison, _numbers(values, bound, rounding))
    found = pc.call_function(comparison, [values, pa.scalar(float(bound))])
    # As in Spark, NaN is above every number.
    is_nan = pc.call_function("is_nan", [values])
    return pc.call_function("or", [found, is_nan]) if comparison == "greater_equal" else found


def _numbers(values: pa.ChunkedArray, bound: int | Decimal, rounding: str) -> list[Any]:
    """Return values and bound as comparable decimals.

    The bound is rounded to the column's number of decimals, in the direction that keeps the rule's meaning.
    """
    import pyarrow as pa

    scale = values.type.scale if pa.types.is_decimal(values.type) else 0
    rounded = Decimal(bound).scaleb(scale).to_integral_value(rounding).scaleb(-scale)
    comparable = pa.decimal128(38, scale)
    return [values.cast(comparable), pa.scalar(rounded, comparable)]
