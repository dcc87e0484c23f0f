"""What a change of a followed table's columns means for its pipeline: pure decisions.

A relation message of the log says the columns that a table has from then on. They are compared with those
that were taken last. What happens depends on the kind of the change, on whether the pipeline declares the
column, and on the policy:

| change | `reject` | `add` | `widen` | `quarantine` |
| --- | --- | --- | --- | --- |
| a column that is not declared was added, dropped, renamed or got another type | stops; a new column of a declared name is taken | taken | taken | taken |
| a declared column was dropped or renamed | stops | stops | stops | quarantined |
| a declared column got a type whose values its own type holds | stops | stops | taken | taken |
| a declared column got another type | stops | stops | stops | quarantined |

Belongs here: finding changes, and deciding. Does not belong here: reading the log (`table_changes.py`), and
what becomes of quarantined rows (`staged.py`).
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import starmap
from typing import Any

from etl_assets.contracts.column_types import DecimalType, parse
from etl_assets.pipelines.postgres_cdc_spec import SchemaChangePolicy
from etl_assets.sources.postgres_cdc.messages import RelationColumn
from etl_assets.sources.postgres_cdc.types import BUILT_IN_TYPES, numeric_precision

Columns = tuple[RelationColumn, ...]


def columns_as_json(columns: Columns) -> list[list[Any]]:
    """Return columns as JSON."""
    return [[each.name, each.type_oid, each.type_modifier, each.is_key] for each in columns]


def columns_of_json(found: Sequence[Sequence[Any]]) -> Columns:
    """Return the columns of their JSON."""
    return tuple(RelationColumn(*each) for each in found)


def column_marks(columns: Columns) -> tuple[str, ...]:
    """Return what is the same for as long as no column gets another name or type."""
    return tuple(f"{each.name} {each.type_oid} {each.type_modifier}" for each in columns)


class ColumnChange(StrEnum):
    """What happened to a column."""

    ADDED = "added"
    DROPPED = "dropped"
    RENAMED = "renamed"
    RETYPED = "retyped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedColumn:
    """A column that changed: as it was, None if it is new, and as it is, None if it is gone."""

    before: RelationColumn | None
    after: RelationColumn | None

    @property
    def change(self) -> ColumnChange:
        """What happened."""
        if self.before is None:
            return ColumnChange.ADDED
        if self.after is None:
            return ColumnChange.DROPPED
        return ColumnChange.RENAMED if self.before.name != self.after.name else ColumnChange.RETYPED

    def __str__(self) -> str:
        """Say it: `price was renamed to cost`."""
        match self.before, self.after:
            case None, RelationColumn() as after:
                return f"{after.name} was added"
            case RelationColumn() as before, None:
                return f"{before.name} was dropped"
            case RelationColumn() as before, RelationColumn() as after if before.name != after.name:
                return f"{before.name} was renamed to {after.name}"
            case RelationColumn() as before, RelationColumn() as after:
                return f"{before.name} is {type_name(after)} instead of {type_name(before)}"
        raise AssertionError(self)


class OutcomeOfChange(StrEnum):
    """What happens to the changes of rows after a change of columns."""

    TAKEN = "taken"
    QUARANTINED = "quarantined"
    STOPS = "stops"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDecision:
    """What happens, and the changes because of which rows are not taken."""

    effect: OutcomeOfChange
    because: tuple[ChangedColumn, ...] = ()


def decide(
    before: Columns | None, after: Columns, declared: Mapping[str, str], policy: SchemaChangePolicy
) -> ColumnDecision:
    """Decide what happens to rows with other columns, by the table above.

    Args:
        before: The columns that were taken last; None: none were.
        after: The columns now.
        declared: Types of the pipeline's columns, by the name of the source's column.
        policy: The policy.
    """
    return decide_by(before, after, policy, lambda each: _is_taken(each, declared, policy))


def decide_by(
    before: Columns | None,
    after: Columns,
    policy: SchemaChangePolicy,
    is_taken: Callable[[ChangedColumn], bool],
) -> ColumnDecision:
    """Decide what happens to rows with other columns, by which changes are taken.

    Args:
        before: The columns that were taken last; None: none were.
        after: The columns now.
        policy: Says what happens to the rows if a change is not taken.
        is_taken: Returns whether a change is.
    """
    if before is None:
        return ColumnDecision(effect=OutcomeOfChange.TAKEN)
    because = tuple(each for each in changed_columns(before, after) if not is_taken(each))
    if not because:
        return ColumnDecision(effect=OutcomeOfChange.TAKEN)
    stays = policy is SchemaChangePolicy.QUARANTINE
    return ColumnDecision(
        effect=OutcomeOfChange.QUARANTINED if stays else OutcomeOfChange.STOPS, because=because
    )


def changed_columns(before: Columns, after: Columns) -> tuple[ChangedColumn, ...]:
    """Return what changed. A dropped and an added column of one type in one place are a renamed one."""
    found: list[ChangedColumn] = []
    names = [[each.name for each in columns] for columns in (before, after)]
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, *names, autojunk=False).get_opcodes():
        old, new = before[i1:i2], after[j1:j2]
        if tag == "equal":
            pairs = zip(old, new, strict=True)
            found += [ChangedColumn(before=b, after=a) for b, a in pairs if _type(b) != _type(a)]
        elif len(old) == len(new) and all(starmap(_are_one, zip(old, new, strict=True))):
            found += [ChangedColumn(before=b, after=a) for b, a in zip(old, new, strict=True)]
        else:
            found += [ChangedColumn(before=each, after=None) for each in old]
            found += [ChangedColumn(before=None, after=each) for each in new]
    return tuple(found)


def type_name(column: RelationColumn) -> str:
    """Return a column's type for people: `int4`, `numeric(9,2)`, or its OID."""
    known = BUILT_IN_TYPES.get(column.type_oid)
    name = f"the type {column.type_oid}" if known is None else known.name
    if name == "numeric" and (size := numeric_precision(column.type_modifier)):
        return f"numeric({size[0]},{size[1]})"
    if name in _WITH_LENGTH and column.type_modifier >= _MODIFIER_OFFSET:
        return f"{name}({column.type_modifier - _MODIFIER_OFFSET})"
    return name


_MODIFIER_OFFSET = 4
_WITH_LENGTH = ("varchar", "bpchar")
_WHOLE_DIGITS = {"int2": 5, "int4": 10, "int8": 19}
_HELD: Mapping[str, Sequence[str]] = {
    "INT": ("int2", "int4"),
    "BIGINT": ("int2", "int4", "int8", "oid"),
    "DOUBLE": ("float4", "float8", "int2", "int4"),
    "BOOLEAN": ("bool",),
    "DATE": ("date",),
    "TIMESTAMP": ("timestamp", "timestamptz"),
}
"""Types of PostgreSQL whose values a column holds, by its type. A text holds all."""


def holds(declared: str, column: RelationColumn) -> bool:
    """Return whether a column of the pipeline holds every value of a column of the source."""
    if declared == "STRING":
        return True
    known = BUILT_IN_TYPES.get(column.type_oid)
    name = "" if known is None else known.name
    wanted = parse(declared)
    if not isinstance(wanted, DecimalType):
        return name in _HELD.get(declared, ())
    if name in _WHOLE_DIGITS:
        return wanted.precision - wanted.scale >= _WHOLE_DIGITS[name]
    size = numeric_precision(column.type_modifier) if name == "numeric" else None
    if size is None:
        return False
    precision, scale = size
    return wanted.scale >= scale and wanted.precision - wanted.scale >= precision - scale


def _is_taken(changed: ChangedColumn, declared: Mapping[str, str], policy: SchemaChangePolicy) -> bool:
    if changed.before is None:
        assert changed.after is not None  # it was added
        return policy is not SchemaChangePolicy.REJECT or changed.after.name in declared
    mine = declared.get(changed.before.name)
    if mine is None:
        is_expected = changed.after is not None and changed.after.name in declared
        return policy is not SchemaChangePolicy.REJECT or is_expected
    if changed.after is None or changed.after.name != changed.before.name:
        return False
    takes_types = policy in (SchemaChangePolicy.WIDEN, SchemaChangePolicy.QUARANTINE)
    return takes_types and holds(mine, changed.after)


def _type(column: RelationColumn) -> tuple[int, int]:
    return column.type_oid, column.type_modifier


def _are_one(before: RelationColumn, after: RelationColumn) -> bool:
    return _type(before) == _type(after)
