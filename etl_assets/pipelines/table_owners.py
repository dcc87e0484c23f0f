"""Whose tables there are, and which declaration may read which.

Belongs here: the tables that a declaration has and reads, and their owners. Does not belong here: names
that are taken, and tables that are missing (`cross_checks.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from etl_assets.contracts.tables.deliveries import deliveries_name
from etl_assets.pipelines.catalog import Catalog
from etl_assets.pipelines.origin import DEFAULT_TENANT, DeclarationOrigin
from etl_assets.pipelines.pipeline_file import PipelineFile
from etl_assets.pipelines.problem import Path
from etl_assets.pipelines.spec import PipelineSpec
from etl_assets.pipelines.table_source_spec import TableSource
from etl_assets.pipelines.transform_specs import LookupTransform


class TableOwners:
    """The owners of all tables.

    A declaration over REST reads tables of its own tenant alone; those of the platform are the default
    tenant's. Files read all.
    """

    def __init__(self, files: Sequence[PipelineFile], base: Catalog) -> None:
        names = {*base.names, *(contract.name for contract in base.tables)}
        self._tenants = dict.fromkeys(names, DEFAULT_TENANT)
        for file in files:
            for name in () if file.spec is None else table_names(file.spec):
                self._tenants.setdefault(name, file.tenant)

    def are_read_by(self, file: PipelineFile, name: str) -> bool:
        """Return whether a declaration may read a table. One that nobody has is not refused here."""
        is_from_rest = file.origin is DeclarationOrigin.REST
        return not is_from_rest or self._tenants.get(name, file.tenant) == file.tenant


def table_names(spec: PipelineSpec) -> dict[str, Path]:
    """Return the tables of a declared pipeline, each with the place of the declaration that names it."""
    own: Path = ("table", "name") if spec.table.name else ("name",)
    source, table = spec.source_table_name, spec.table_name
    tombstones: dict[str, Path] = {} if spec.tombstones_name is None else {spec.tombstones_name: own}
    history = dict.fromkeys(filter(None, (spec.history_name, spec.versions_name)), own)
    of_sinks: dict[str, Path] = {
        name: ("sinks", index, "name") if sink.name else ("sinks", index)
        for index, sink in enumerate(spec.sinks)
        for deliveries in [deliveries_name(table, sink.sink_name)]
        for name in (deliveries, f"{deliveries}_rejects")
    }
    records: dict[str, Path] = {}
    if spec.keeps_records:
        records = {source: ("name",), f"{source}_rejects": ("name",)}
    return {table: own, f"{table}_rejects": own} | records | tombstones | history | of_sinks


def lookups(spec: PipelineSpec) -> Iterator[tuple[Path, str]]:
    """Yield the tables that a pipeline looks values up in, with their places in the declaration."""
    for index, transform in enumerate(spec.transforms):
        if isinstance(transform, LookupTransform):
            yield ("transforms", index, "table"), transform.table


def followed(spec: PipelineSpec) -> Iterator[tuple[Path, str]]:
    """Yield the table whose changes are the pipeline's records, if there is one."""
    if isinstance(spec.source, TableSource):
        yield ("source", "table"), spec.source.table


def tables_read(spec: PipelineSpec) -> Iterator[tuple[Path, str]]:
    """Yield the tables that a pipeline follows or looks values up in, with their places."""
    yield from followed(spec)
    yield from lookups(spec)


def in_order_of_reading(files: Iterable[PipelineFile]) -> list[PipelineFile]:
    """Return usable declarations in their order, but each after those whose tables it follows or looks up."""
    left = [file for file in files if file.spec is not None]
    ordered: list[PipelineFile] = []
    while left:
        to_come = {name for file in left if file.spec is not None for name in table_names(file.spec)}
        ready = [
            file
            for file in left
            if file.spec is not None and all(name not in to_come for _, name in tables_read(file.spec))
        ] or left  # a circle, which is a problem of its files
        ordered += ready
        done = {id(file) for file in ready}
        left = [file for file in left if id(file) not in done]
    return ordered
