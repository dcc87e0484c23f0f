"""Which plain records are deletes or truncates, in Arrow.

Conditions of the forms `column = 'text'`, `coalesce(column, false)` and `column` are known, as most
declarations have them. Spark takes records with any other condition.

Belongs here: the conditions, and which values such records need. Does not belong here: the same in Spark
(`change_kinds.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from etl_assets.contracts.arrow_calls import call
from etl_assets.contracts.tables.tombstones import IS_TRUNCATE
from etl_assets.delta.write.changes import IS_DELETED
from etl_assets.pipelines.declared import OFFSET, DeclaredTables
from etl_assets.transforms.lacking_values import lacked_mark, lacking_columns

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT = re.compile(r"\s*([A-Za-z_]\w*)\s*==?\s*'([^'\\]*)'\s*", re.ASCII)
_FLAG = re.compile(r"\s*(?:coalesce\(\s*([A-Za-z_]\w*)\s*,\s*false\s*\)|([A-Za-z_]\w*))\s*", re.ASCII)
_LITERALS = frozenset({"true", "false", "null"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainCondition:
    """A condition that a record meets if a column has a value.

    Attributes:
        column: The column.
        value: The value; null is none.
        needs: The columns that count of a record that meets it.
    """

    column: str
    value: str | bool
    needs: frozenset[str]

    def met(self, rows: Mapping[str, pa.Array]) -> pa.Array:
        """Return for each row whether it meets the condition."""
        return call("coalesce", call("equal", rows[self.column], self.value), False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainKinds:
    """How deletes and truncates are known among plain records.

    Attributes:
        deletes: What a delete meets; None if there are none.
        truncates: What a truncate meets, which is then no delete; None if there are none.
        lacks: The column that says which fields a change lacks; None if changes are whole.
        fields: For each column that may be lacked, the name of its field.
    """

    deletes: PlainCondition | None = None
    truncates: PlainCondition | None = None
    lacks: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, tables: DeclaredTables) -> PlainKinds | None:
        """Return the conditions of a table that applies changes; None if only Spark knows them."""
        spec = tables.spec.table
        place = frozenset(tables.order[:1]) - {OFFSET}
        needs = {"deletes": place | set(spec.keys), "truncates": place}
        texts = {"deletes": spec.apply_as_deletes, "truncates": spec.apply_as_truncates}
        given = {kind: text for kind, text in texts.items() if text is not None}
        found = {kind: _condition(tables, text, needs[kind]) for kind, text in given.items()}
        if None in found.values():
            return None
        lacking = lacking_columns(tables)
        lacks, fields = (None, {}) if lacking is None else (lacking.lacks, lacking.fields)
        deletes, truncates = found.get("deletes"), found.get("truncates")
        return cls(deletes=deletes, truncates=truncates, lacks=lacks, fields=fields)

    def waived(self, name: str, rows: Mapping[str, pa.Array]) -> list[pa.Array]:
        """Return conditions: a row that meets one does not need the value of a column."""
        conditions = [each for each in (self.deletes, self.truncates) if each is not None]
        waived = [each.met(rows) for each in conditions if name not in each.needs]
        if self.lacks is not None and name in self.fields:
            import pyarrow.compute as pc

            options = pc.MatchSubstringOptions(lacked_mark(self.fields[name]))
            is_lacked = pc.call_function("match_substring", [rows[self.lacks]], options)
            waived.append(call("coalesce", is_lacked, False))
        return waived

    def flags(self, rows: Mapping[str, pa.Array], number: int) -> dict[str, pa.Array]:
        """Return whether each of some rows is a delete and whether it is a truncate, by column."""
        import pyarrow as pa

        none = pa.repeat(pa.scalar(False), number)
        truncates = none if self.truncates is None else self.truncates.met(rows)
        deletes = none if self.deletes is None else self.deletes.met(rows)
        return {IS_DELETED: call("and_not", deletes, truncates), IS_TRUNCATE: truncates}


def _condition(tables: DeclaredTables, text: str, needs: frozenset[str]) -> PlainCondition | None:
    types = {column.name: column.type for column in tables.parsed_columns}
    if found := _TEXT.fullmatch(text):
        name, value, type_ = found[1], found[2], "STRING"
    elif found := _FLAG.fullmatch(text):
        name, value, type_ = found[1] or found[2], True, "BOOLEAN"
    else:
        return None
    if types.get(name) != type_ or name.lower() in _LITERALS:
        return None
    return PlainCondition(column=name, value=value, needs=needs)
