"""What a declaration must leave to a source that reports rows which are gone: a query, or a table.

Belongs here: the rules. Does not belong here: the declaration itself (`spec.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.contracts.write_mode import WriteMode
from etl_assets.pipelines.source_specs import SqlLoad, SqlSource
from etl_assets.pipelines.table_source_spec import TABLE_DELETED_FIELD, TableSource

if TYPE_CHECKING:
    from etl_assets.pipelines.spec import PipelineSpec


def field_of_gone_rows(spec: PipelineSpec) -> str | None:
    """Return the field by which the platform deletes rows that are gone.

    None if the source reports no such rows, or a column takes the field: then the declaration says itself
    what becomes of them.
    """
    match spec.source:
        case SqlSource() if spec.source.reports_deletes:
            return "sql.deleted"
        case TableSource() if all(each.from_ != TABLE_DELETED_FIELD for each in spec.columns.values()):
            return TABLE_DELETED_FIELD
        case _:
            return None


def expect_deletes(spec: PipelineSpec, deleted_column: str) -> None:
    """Expect that the table of a declaration can delete rows that are gone.

    Args:
        spec: The declaration.
        deleted_column: The column that the platform adds, by which rows are deleted.

    Raises:
        ValueError: it cannot.
    """
    source, table = spec.source, spec.table
    if deleted_column in spec.columns:
        raise ValueError(f"the column {deleted_column} is the platform's here; give yours another name")
    if "write_mode" in table.model_fields_set and table.write_mode is not WriteMode.APPLY_CHANGES:
        raise ValueError(
            f"write_mode {table.write_mode} deletes no rows, and the source reports rows that are gone;"
            f" leave write_mode out, or write apply_changes{_or_by_hand(spec)}"
        )
    if not table.keys:
        raise ValueError(f"the source reports rows that are gone, so the table needs keys{_or_by_hand(spec)}")
    if table.sequence_by is not None:
        if isinstance(source, SqlSource) and source.load is SqlLoad.FULL:
            raise ValueError("a full load has the newest row of each key; leave sequence_by out")
        if isinstance(source, TableSource):
            raise ValueError(
                "changes of a table arrive in the order of its versions; leave sequence_by out"
                f"{_or_by_hand(spec)}"
            )
    for index, each in enumerate(spec.transforms):
        made = getattr(each, "columns", None) if each.type in ("sql", "python") else None
        if made is not None and deleted_column not in made:
            raise ValueError(
                f"transforms.{index}.columns has no `{deleted_column}: boolean`, by which rows that are"
                " gone are deleted; add it, and keep the column"
            )


def _or_by_hand(spec: PipelineSpec) -> str:
    """Return what a declaration may do instead, if its source allows it."""
    if not isinstance(spec.source, TableSource):
        return ""
    return f"; or take `{TABLE_DELETED_FIELD}` as a column, and say yourself what becomes of such records"
