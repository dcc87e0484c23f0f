"""Which columns of a followed table its pipeline takes, and what an operator does about others.

Belongs here: the decision as an error, or as the reason of dead letters. Does not belong here: the decision
itself (`column_changes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from etl_assets.errors import SourceSchemaChanged
from etl_assets.pipelines.postgres_cdc_spec import SchemaChangePolicy
from etl_assets.sources.postgres_cdc.column_changes import (
    ChangedColumn,
    ColumnChange,
    Columns,
    Effect,
    decide,
    holds,
    type_name,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenColumns:
    """The columns of a pipeline's source.

    Attributes:
        table: Schema and name of the table.
        declared: Types of the pipeline's columns, by the name of the source's column.
        policy: Which changes are taken.
    """

    table: str
    declared: Mapping[str, str]
    policy: SchemaChangePolicy

    def quarantined(self, before: Columns | None, after: Columns, commit_lsn: int) -> str | None:
        """Return why rows with some columns become dead letters; None: they are taken.

        Args:
            before: The columns that were taken last; None: it is not known.
            after: The columns now.
            commit_lsn: The commit of the transaction that has them; 0: they are copied.

        Raises:
            SourceSchemaChanged: the pipeline stops.
        """
        found = decide(before, after, self.declared, self.policy)
        if found.effect is Effect.TAKEN:
            return None
        changes = ", ".join(map(str, found.because))
        advice = "; ".join(dict.fromkeys(map(self._advice, found.because)))
        if found.effect is Effect.QUARANTINED:
            return f"columns of {self.table} changed: {changes}; {advice}, then replay it"
        raise SourceSchemaChanged(
            f"columns of {self.table} changed, and `schema_changes: {self.policy}` does not take that:"
            f" {changes}. Changes before that are stored",
            fix=f"{advice}; then run again. `schema_changes: quarantine` goes on with dead letters instead",
            source=self.table,
            changes=[str(each) for each in found.because],
            commit_lsn=commit_lsn,
        )

    def _advice(self, changed: ChangedColumn) -> str:
        """Return what lets the pipeline take a change."""
        before, after = changed.before, changed.after
        if before is None or before.name not in self.declared:
            return "set `schema_changes: add` in the pipeline's source"
        name = before.name
        if after is None:
            return f"remove the column that takes {name} from the pipeline's `columns`"
        if changed.change is ColumnChange.RENAMED:
            return f"let the column that takes {name} have `from: {after.name}`"
        if holds(self.declared[name], after):
            return "set `schema_changes: widen` in the pipeline's source"
        return f"declare a type for {name} that holds all values of {type_name(after)}"
