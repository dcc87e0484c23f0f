"""Ranges of columns that limit the wanted rows: tested on file statistics, and given to Spark as a condition.

Belongs here: the meaning of ranges. Does not belong here: which ranges a step's rows have
(`steps/changes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column

Ranges = Mapping[str, tuple[Any, Any]]
"""A lowest and a highest value, both included, by column, BIGINT or STRING. A row must be in all of them."""
Within = tuple[Ranges, ...]
"""Alternatives: a row must meet at least one of them."""


def may_hold(within: Within, lowest: Mapping[str, Any], highest: Mapping[str, Any]) -> bool:
    """Return whether a file with these bounds may have a matching row.

    A bound that is unknown or None excludes nothing.
    """
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
    """Return the columns that the ranges name."""
    return tuple(dict.fromkeys(name for ranges in within for name in ranges))


def condition(within: Within) -> Column:
    """Return the Spark condition that holds for rows within the ranges."""
    from pyspark.sql import functions as F

    each = (
        reduce(and_, (F.col(name).between(low, high) for name, (low, high) in ranges.items()), F.lit(True))
        for ranges in within
    )
    return reduce(or_, each, F.lit(False))
