"""The pipelines that an installation runs: the built-in ones, and those declared in its home folder."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from etl_assets.built_in import NAMES, built_in_pipelines
from etl_assets.contracts.columns import TableContract
from etl_assets.errors import NotFound
from etl_assets.pipelines.catalog import Catalog
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
from etl_assets.pipelines.system_tables import SYSTEM_TABLES
from etl_assets.steps.dead_letters_pipeline import dead_letters_pipeline
from etl_assets.steps.declared_pipeline import declared_pipeline


@dataclass(frozen=True, kw_only=True)
class Installed:
    """What an installation runs.

    Attributes:
        catalog: All pipelines that can run.
        files: The pipeline files, those with problems included.
        unlisted: Why the folder of pipeline files cannot be listed; None if it can. Then there are no files, and
            only the built-in pipelines run.
    """

    catalog: Catalog
    files: tuple[PipelineFile, ...] = ()
    unlisted: str | None = None

    @property
    def broken(self) -> tuple[PipelineFile, ...]:
        """The files that cannot be used."""
        return tuple(file for file in self.files if file.spec is None)


@functools.cache
def built_in_catalog(names: tuple[str, ...] = NAMES) -> Catalog:
    """Return the catalog of an installation without pipeline files.

    Args:
        names: The built-in pipelines that it runs.
    """
    return _catalog(names)


def installed(home: Path, built_in: tuple[str, ...] = NAMES) -> Installed:
    """Return the pipelines of an installation. Its files are read again when one of them has changed.

    Args:
        home: The home folder.
        built_in: The built-in pipelines that it runs.
    """
    folder = pipelines_folder(home)
    try:
        seen = tuple(_seen(folder)) if os.path.lexists(folder) else ()
        return _installed(folder, seen, built_in) if seen else Installed(catalog=built_in_catalog(built_in))
    except OSError as error:
        return Installed(catalog=built_in_catalog(built_in), unlisted=not_listed(folder, error))


def _seen(folder: Path) -> Iterator[tuple[str, int, int, int]]:
    """Yield name, times and size of each pipeline file. One that is removed meanwhile is left out."""
    for path in sorted(folder.iterdir()):
        if is_pipeline_file(path):
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                # Access rights change only the second time.
                yield path.name, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def contract_in(contracts: Mapping[str, TableContract]) -> ContractOf:
    """Return the function that returns the contract of a table."""

    def contract_of(name: str) -> TableContract:
        if name not in contracts:
            raise NotFound(f"there is no table {name!r}", fix="name a table of the catalog", table=name)
        return contracts[name]

    return contract_of


@functools.lru_cache(maxsize=8)
def _installed(
    folder: Path, seen: tuple[tuple[str, int, int, int], ...], built_in: tuple[str, ...]
) -> Installed:
    base = built_in_catalog(built_in)
    files = checked(read_pipeline_files(folder), base)
    contract_of = contract_in(contracts_of(files, base))
    declared = [
        declared_pipeline(DeclaredTables(spec=file.spec, contract_of=contract_of))
        for file in files
        if file.spec is not None
    ]
    return Installed(catalog=_catalog(built_in, *declared), files=files)


def _catalog(built_in: tuple[str, ...], *declared: Pipeline) -> Catalog:
    pipelines = (*(each for each in built_in_pipelines() if each.name in built_in), *declared)
    return Catalog(pipelines=(*pipelines, dead_letters_pipeline(pipelines)), system_tables=SYSTEM_TABLES)
