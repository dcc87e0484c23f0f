"""Where in a table rows can be, as ranges of columns: held against file statistics, and put to Spark as a condition.

Belongs here: what ranges mean. Does not belong here: which ranges a step's rows have (`steps/changes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column

Ranges = Mapping[str, tuple[Any, Any]]
"""Rows whose columns, BIGINT or STRING, lie each between a lowest and a highest value."""
Within = tuple[Ranges, ...]
"""Rows that are in any of some ranges."""


def may_hold(within: Within, lowest: Mapping[str, Any], highest: Mapping[str, Any]) -> bool:
    """Whether a file with these bounds may have such a row; a bound that is not known, or None, leaves out none."""
    return any(
        all(
            lowest.get(name) is None
            or highest.get(name) is None
            or (lowest[name] <= high and low <= highest[name])
            for name, (low, high) in ranges.items()
        )
        for ranges in within
    )


def columns_of(within: Within) -> tuple[str, ...]:
    """The columns that the ranges are of."""
    return tuple(dict.fromkeys(name for ranges in within for name in ranges))


def condition(within: Within) -> Column:
    """The same of rows."""
    from pyspark.sql import functions as F

    each = (
        reduce(and_, (F.col(name).between(low, high) for name, (low, high) in ranges.items()), F.lit(True))
        for ranges in within
    )
    return reduce(or_, each, F.lit(False))
