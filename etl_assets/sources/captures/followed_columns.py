"""Which changes of a captured table's columns are followed, by the policy of its capture: pure decisions.

The declaration of a captured table is generated, so it follows the table of the source as far as the policy
and the stored columns allow:

| change | `reject` | `add` | `widen` | `quarantine` |
| --- | --- | --- | --- | --- |
| a column was added, dropped or renamed | error | followed | followed | followed |
| a column got a type that its stored type holds, or can become | error | error | followed | followed |
| a column got any other type | error | error | error | dead letters |

A change after which a column is stored as before, such as `varchar(20)` to `text`, is none. Another copy of a
table takes the columns as they are.

Belongs here: the decisions, for changes of the log and for a discovery. Does not belong here: finding changes
of columns (`postgres_cdc/column_changes.py`), and the declaration itself (`table_declaration.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from etl_assets.contracts.column_types import MAX_DECIMAL_PRECISION, DecimalType, canonical, parse
from etl_assets.errors import SourceSchemaChanged
from etl_assets.pipelines.postgres_cdc_spec import SchemaChangePolicy
from etl_assets.sources.postgres_cdc.column_changes import (
    ChangedColumn,
    ColumnChange,
    Columns,
    OutcomeOfChange,
    decide_by,
)

_WHOLE_DIGITS = {"INT": 10, "BIGINT": 19}
_TAKES_TYPES = (SchemaChangePolicy.WIDEN, SchemaChangePolicy.QUARANTINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedColumns:
    """The columns of one captured table.

    Attributes:
        capture: Name of the capture.
        table: Schema and name of the table.
        declared: Types of the pipeline's columns, by the name of the source's column.
        policy: Which changes are followed.
    """

    capture: str
    table: str
    declared: Mapping[str, str]
    policy: SchemaChangePolicy

    def quarantined(
        self, before: Columns | None, after: Columns, types: Mapping[str, str], commit_lsn: int
    ) -> str | None:
        """Return why rows with some columns become dead letters; None: they are taken.

        Args:
            before: The columns that were taken last; None: it is not known.
            after: The columns now.
            types: What they are stored as, by name, as a declaration has it.
            commit_lsn: The commit of the first transaction that has them; 0: they are copied.

        Raises:
            SourceSchemaChanged: the table stands still before them.
        """
        found = decide_by(before, after, self.policy, lambda each: self._is_followed(each, types))
        if found.effect is OutcomeOfChange.TAKEN:
            return None
        changes = ", ".join(map(str, found.because))
        rollback = f"`etl-assets cdc rollback {self.capture} {self.table}"
        copy = f"{rollback} --copy` copies the table again, with its columns as they are"
        if found.effect is OutcomeOfChange.QUARANTINED:
            return f"columns of {self.table} changed: {changes}; {copy}"
        takes = self._policy_that_takes(found.because, types)
        raise SourceSchemaChanged(
            f"columns of {self.table} changed, and `schema_changes: {self.policy}` of the capture"
            f" {self.capture} does not take that: {changes}. Changes before that are applied",
            fix=copy if takes is None else f"set `schema_changes: {takes}`, then {rollback}`; or: {copy}",
            source=self.table,
            changes=[str(each) for each in found.because],
            commit_lsn=commit_lsn,
        )

    def _is_followed(self, changed: ChangedColumn, types: Mapping[str, str]) -> bool:
        wider = self._wider(changed, types)
        if wider is not None and wider.is_same:
            return True
        if self.policy is SchemaChangePolicy.REJECT:
            return False
        return changed.change is not ColumnChange.RETYPED or (
            self.policy in _TAKES_TYPES and (wider is not None and wider.type is not None)
        )

    def _policy_that_takes(
        self, because: tuple[ChangedColumn, ...], types: Mapping[str, str]
    ) -> SchemaChangePolicy | None:
        """Return the policy that would take all of some changes; None: none does."""
        retyped = [self._wider(each, types) for each in because if each.change is ColumnChange.RETYPED]
        if any(each is not None and each.type is None for each in retyped):
            return None
        return SchemaChangePolicy.WIDEN if retyped else SchemaChangePolicy.ADD

    def _wider(self, changed: ChangedColumn, types: Mapping[str, str]) -> _Wider | None:
        """Return what becomes of the stored type of a column that got another one; None: it got none."""
        if changed.change is not ColumnChange.RETYPED or changed.after is None:
            return None
        name = changed.after.name
        found = _one_spelling(types[name])
        held = self.declared.get(name, found)
        return _Wider(type=wider_type(held, found), is_same=held == found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wider:
    """The type that holds what was stored and what comes, None: there is none; and whether both are one."""

    type: str | None
    is_same: bool


def followed_declaration(
    before: Mapping[str, Any], found: Mapping[str, Any], policy: SchemaChangePolicy | None
) -> dict[str, Any] | None:
    """Return the declaration of a table whose columns may have changed; None: the policy does not follow.

    A type never becomes narrower: the table has the rows of before.

    Args:
        before: The declaration until now.
        found: The one that the source has now.
        policy: The policy; None: the table is copied again, so that it takes its columns as they are.
    """
    held, names = _by_source(before), _by_source(found)
    columns = dict(found["columns"])
    is_changed = set(held) != set(names)
    for source, name in names.items():
        if source not in held:
            continue
        old, new = (_one_spelling(each["type"]) for each in (before["columns"][held[source]], columns[name]))
        if old == new:
            continue
        wider = wider_type(old, new)
        is_changed = True
        if policy is not None and (wider is None or policy not in _TAKES_TYPES):
            return None
        columns[name] = columns[name] | {"type": (wider or new).lower()}
    if is_changed and policy is SchemaChangePolicy.REJECT:
        return None
    return {**found, "columns": columns}


@cache
def wider_type(held: str, found: str) -> str | None:
    """Return the type that a stored column of one type needs to hold values of another one as well.

    Args:
        held: The stored type, in its one spelling.
        found: The type of the values.

    Returns:
        A type that Delta can widen the stored one to, or the stored one; None: there is none.
    """
    if held in (found, "STRING"):
        return held
    if held in _WHOLE_DIGITS and found in _WHOLE_DIGITS:
        return "BIGINT"
    if (held, found) == ("DOUBLE", "INT"):
        return held
    one, other = parse(held), parse(found)
    if not isinstance(one, DecimalType):
        return None
    digits = _WHOLE_DIGITS.get(found)
    if digits is not None:
        return held if one.precision - one.scale >= digits else None
    if not isinstance(other, DecimalType):
        return None
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    return DecimalType(precision, scale).ddl if precision <= MAX_DECIMAL_PRECISION else None


def has_columns(declaration: Mapping[str, Any], known: Mapping[str, str]) -> bool:
    """Return whether a pipeline, as a process knows it, has all columns of a declaration, with its types.

    Args:
        declaration: The declaration; empty: there is none yet.
        known: Types of the columns that the process knows, by name.
    """
    columns: Mapping[str, Any] = declaration.get("columns", {})
    return all(known.get(name) == _one_spelling(each["type"]) for name, each in columns.items())


_one_spelling = cache(canonical)


def _by_source(declaration: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of a declaration's columns, by those of the source."""
    return {each.get("from", name): name for name, each in declaration["columns"].items()}
