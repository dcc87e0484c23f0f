"""What `tables restore` and `reprocess` may do to a table.

Belongs here: the declaration. Does not belong here: the planning of an undo (`undo/plan.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etl_assets.delta.table import Table
    from etl_assets.placement.domains import FailureDomain


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptValues:
    """Rows that an undo leaves where they are: those with one of some values in a column."""

    column: str
    values: frozenset[str]


KeepRows = Callable[["FailureDomain", Sequence[dt.date]], Sequence[KeptValues]]
"""The rows of some days that stay, from the domain whose tables are undone. A row stays for any of the
values.
"""
KeepFacts = Callable[["Table", int], Mapping[str, Any]]
"""The facts of an older version's commit that the commit of an undo repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoPolicy:
    """How a table takes part in an undo.

    Attributes:
        refusal: Why the table is not restored; None if it can be.
        fix: What to do instead, where it is not restored.
        keep_rows: Rows that stay when their day is taken out, because an operator decided on them. None: no
            row stays.
        keep_facts: Facts that the commit of an undo repeats. None: it has none.
    """

    refusal: str | None = None
    fix: str = ""
    keep_rows: KeepRows | None = None
    keep_facts: KeepFacts | None = None
