"""Sources of type `table`: what their records have, and what is wrong with one.

Belongs here: rules about the table that is followed. Does not belong here: names of tables that are missing,
and circles (`cross_checks.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from etl_assets.contracts.columns import TableContract
from etl_assets.pipelines.declared import OFFSET, DeclaredTables
from etl_assets.pipelines.problem import Problem, near
from etl_assets.pipelines.table_source_spec import TABLE_DELETED_FIELD, TableSource
from etl_assets.pipelines.transform_specs import FilterTransform, MapTransform, PythonTransform, SqlTransform

if TYPE_CHECKING:
    from etl_assets.pipelines.catalog import Catalog
    from etl_assets.pipelines.pipeline_file import PipelineFile
    from etl_assets.pipelines.spec import PipelineSpec


def columns_of_records(table: TableContract) -> tuple[str, ...]:
    """Return the columns of a table that records of its rows have: all but what the platform adds."""
    added = {OFFSET, table.batch_column} - set(table.merge_key)
    return tuple(name for name in table.names if name not in added)


def needs_former_values(tables: DeclaredTables) -> bool:
    """Return whether a changed row is also a record of its former values.

    It is not where the new row certainly replaces the former one in the pipeline's table: with the same keys,
    and without a transform that makes keys or leaves rows out.
    """
    spec = tables.spec
    assert isinstance(spec.source, TableSource)  # asked of pipelines that follow a table
    keys = tables.contract_of(spec.source.table).merge_key
    own = {spec.columns[name].from_ or name if name in spec.columns else "" for name in spec.table.keys}
    return own != set(keys) or any(_may_lose(each, spec.table.keys) for each in spec.transforms)


def _may_lose(transform: object, keys: tuple[str, ...]) -> bool:
    """Return whether a transform may make no row of the new values that has the former one's key."""
    match transform:
        case MapTransform():
            return not transform.columns.keys().isdisjoint(keys)
        case FilterTransform() | SqlTransform() | PythonTransform():
            return True
        case _:
            return False


def problems_of_followed(
    file: PipelineFile,
    spec: PipelineSpec,
    contracts: Mapping[str, TableContract],
    base: Catalog,
    files: Sequence[PipelineFile],
) -> Iterator[Problem]:
    """Yield what keeps a pipeline from following the table that its source names, which exists."""
    source = spec.source
    if not isinstance(source, TableSource):
        return
    table = contracts[source.table]
    if table.batch_column is None or not _is_of_rows(source.table, base, files):
        yield file.problem(
            ("source", "table"),
            f"`{source.table}` has no rows of a pipeline to follow",
            "name the table of a pipeline, or that of its accepted records (`<name>_source`)",
        )
        return
    names = columns_of_records(table)
    for name, column in spec.columns.items():
        field = column.from_ or name
        if field not in names and field != TABLE_DELETED_FIELD:
            place = ("columns", name, "from") if column.from_ else ("columns", name)
            yield file.problem(
                place,
                f"the table `{source.table}` has no column `{field}`",
                f"{near(field, names)}columns: {', '.join(names)}",
            )


def _is_of_rows(name: str, base: Catalog, files: Sequence[PipelineFile]) -> bool:
    """Return whether a table has rows of a stage: not what it rejected, delivered or deleted."""
    stage = base.stage_of(name)
    if stage is not None:
        return stage.name == name and not stage.delivers
    declared = (each.spec for each in files if each.spec is not None)
    return any(
        name in (each.table_name, each.history_name)
        or (each.keeps_records and name == each.source_table_name)
        for each in declared
    )
