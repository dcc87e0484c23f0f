"""The pipelines that an installation runs: the built-in ones, and those declared in files and over REST."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from etl_assets.built_in import NAMES, built_in_pipelines
from etl_assets.contracts.columns import TableContract
from etl_assets.errors import NotFound
from etl_assets.pipelines.captured_declarations import captured_path, read_captured
from etl_assets.pipelines.catalog import Catalog
from etl_assets.pipelines.component_files import component_paths, read_components
from etl_assets.pipelines.connection_rights import ConnectionRights
from etl_assets.pipelines.cross_checks import checked, contracts_of
from etl_assets.pipelines.declared import ContractOf, DeclaredTables
from etl_assets.pipelines.pipeline import Pipeline
from etl_assets.pipelines.pipeline_file import (
    PipelineFile,
    is_pipeline_file,
    not_listed,
    pipelines_folder,
    read_pipeline_files,
)
from etl_assets.pipelines.rest_declaration import read_snapshot, snapshot_path
from etl_assets.pipelines.rest_rights import RestRights
from etl_assets.pipelines.system_tables import SYSTEM_TABLES
from etl_assets.pipelines.table_owners import TableOwners, in_order_of_reading
from etl_assets.steps.dead_letters_pipeline import dead_letters_pipeline
from etl_assets.steps.declared_pipeline import declared_pipeline

_Seen = tuple[str, int, int, int, int]


@dataclass(frozen=True, kw_only=True)
class Installed:
    """What an installation runs.

    Attributes:
        catalog: All pipelines that can run.
        files: The declarations of files, those that captures generated, and those over REST; those with
            problems included.
        unlisted: Which folders of files cannot be listed, and why; None if all can. No pipeline of theirs
            runs.
    """

    catalog: Catalog
    files: tuple[PipelineFile, ...] = ()
    unlisted: str | None = None

    @property
    def broken(self) -> tuple[PipelineFile, ...]:
        """The files that cannot be used."""
        return tuple(file for file in self.files if file.spec is None)

    def declaration(self, name: str) -> PipelineFile | None:
        """Return the declaration of a name, of several the usable one; None if nothing declares it."""
        named = [each for each in self.files if each.name == name]
        return next((each for each in named if each.spec is not None), named[0] if named else None)


def built_in_catalog(
    names: tuple[str, ...] = NAMES, connections: tuple[ConnectionRights, ...] = ()
) -> Catalog:
    """Return the catalog of an installation without pipeline files.

    Args:
        names: The built-in pipelines that it runs.
        connections: The connections of the platform file; some give a built-in pipeline a sink.
    """
    return _built_in_catalog(names, connections)


def installed(
    home: Path,
    built_in: tuple[str, ...] = NAMES,
    defs_folders: tuple[Path, ...] = (),
    connections: tuple[ConnectionRights, ...] | None = None,
    rest: RestRights | None = None,
    modules: tuple[str, ...] | None = None,
) -> Installed:
    """Return the pipelines of an installation. Its files are read again when one of them has changed.

    Declarations that captures generated come after those of files, and those over REST last: of two that want
    one name or table, the earlier one is used.

    Args:
        home: The home folder, which has a folder of pipeline files.
        built_in: The built-in pipelines that it runs.
        defs_folders: Defs folders of Dagster projects, whose components declare pipelines.
        connections: The connections of the platform file; None: sinks are not compared with them.
        rest: What declarations over REST may use; None: they are not compared with it.
        modules: Python modules that transforms of files may name; None: any.
    """
    folder = pipelines_folder(home)
    unlisted, listed, seen = [], [], []
    for each in (folder, *defs_folders) if os.path.lexists(folder) else defs_folders:
        try:
            seen += _seen(_pipeline_paths(folder) if each is folder else component_paths(each))
            listed.append(each)
        except OSError as error:
            unlisted.append(not_listed(each, error))
    with contextlib.suppress(OSError):  # what is wrong with it is a problem of it
        seen += _seen([snapshot_path(home), captured_path(home)])
    try:
        found = (
            _installed(home, tuple(listed), tuple(seen), built_in, connections, rest, modules)
            if seen
            else Installed(catalog=_built_in_catalog(built_in, connections or ()))
        )
    except OSError as error:
        unlisted.append(not_listed(folder, error))
        found = Installed(catalog=_built_in_catalog(built_in, connections or ()))
    return replace(found, unlisted="; ".join(unlisted)) if unlisted else found


def _pipeline_paths(folder: Path) -> Iterator[Path]:
    return filter(is_pipeline_file, sorted(folder.iterdir()))


def _seen(paths: Iterable[Path]) -> list[_Seen]:
    """Return path, inode, times and size of each file. One that is removed meanwhile is left out."""
    seen = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            # Access rights change only the second time.
            seen.append((str(path), status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size))
    return seen


def contract_in(contracts: Mapping[str, TableContract]) -> ContractOf:
    """Return the function that returns the contract of a table."""

    def contract_of(name: str) -> TableContract:
        if name not in contracts:
            raise NotFound(f"there is no table {name!r}", fix="name a table of the catalog", table=name)
        return contracts[name]

    return contract_of


def _read_by(file: PipelineFile, contracts: Mapping[str, TableContract], owners: TableOwners) -> ContractOf:
    """Return the function that returns the contract of a table that a declaration may read."""
    return contract_in({name: each for name, each in contracts.items() if owners.are_read_by(file, name)})


@functools.lru_cache(maxsize=8)
def _built_in_catalog(names: tuple[str, ...], connections: tuple[ConnectionRights, ...]) -> Catalog:
    return _catalog(names, connections)


@functools.lru_cache(maxsize=8)
def _installed(
    home: Path,
    listed: tuple[Path, ...],
    seen: tuple[_Seen, ...],
    built_in: tuple[str, ...],
    connections: tuple[ConnectionRights, ...] | None,
    rest: RestRights | None,
    modules: tuple[str, ...] | None,
) -> Installed:
    base, folder = _built_in_catalog(built_in, connections or ()), pipelines_folder(home)
    read = (read_pipeline_files(each) if each == folder else read_components(each) for each in listed)
    declared_in_files = [file for of_folder in read for file in of_folder]
    captured, over_rest = read_captured(captured_path(home)), read_snapshot(snapshot_path(home), rest)
    files = checked([*declared_in_files, *captured, *over_rest], base, connections, modules)
    contracts, owners = contracts_of(files, base), TableOwners(files, base)
    declared = [
        declared_pipeline(DeclaredTables(spec=file.spec, contract_of=_read_by(file, contracts, owners)))
        for file in in_order_of_reading(files)
        if file.spec is not None
    ]
    return Installed(catalog=_catalog(built_in, connections or (), *declared), files=files)


def _catalog(
    built_in: tuple[str, ...], connections: tuple[ConnectionRights, ...], *declared: Pipeline
) -> Catalog:
    pipelines = (*(each for each in built_in_pipelines(connections) if each.name in built_in), *declared)
    return Catalog(pipelines=(*pipelines, dead_letters_pipeline(pipelines)), system_tables=SYSTEM_TABLES)
