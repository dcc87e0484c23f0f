"""What a declaration must leave to a source of type `sql` that reports rows which are gone.

Belongs here: the rules. Does not belong here: the declaration itself (`spec.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.contracts.write_mode import WriteMode
from etl_assets.pipelines.source_specs import SqlLoad, SqlSource

if TYPE_CHECKING:
    from etl_assets.pipelines.spec import PipelineSpec


def expect_deletes(spec: PipelineSpec, deleted_column: str) -> None:
    """Expect that the table of a declaration can delete rows that are gone.

    Args:
        spec: The declaration.
        deleted_column: The column that the platform adds, by which rows are deleted.

    Raises:
        ValueError: it cannot.
    """
    source, table = spec.source, spec.table
    assert isinstance(source, SqlSource)  # no other source has such rows
    if deleted_column in spec.columns:
        raise ValueError(f"the column {deleted_column} is the platform's here; give yours another name")
    if "write_mode" in table.model_fields_set and table.write_mode is not WriteMode.APPLY_CHANGES:
        raise ValueError(
            f"write_mode {table.write_mode} deletes no rows, and the source reports rows that are gone;"
            " leave write_mode out, or write apply_changes"
        )
    if not table.keys:
        raise ValueError("the source reports rows that are gone, so the table needs keys")
    if table.sequence_by is not None and source.load is SqlLoad.FULL:
        raise ValueError("a full load has the newest row of each key; leave sequence_by out")
    for index, each in enumerate(spec.transforms):
        made = getattr(each, "columns", None) if each.type in ("sql", "python") else None
        if made is not None and deleted_column not in made:
            raise ValueError(
                f"transforms.{index}.columns has no `{deleted_column}: boolean`, by which rows that are"
                " gone are deleted; add it, and keep the column"
            )
