"""`etl-assets pipelines`: declare pipelines in files, and see what is wrong with them; run control."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etl_assets.cli import run_control
from etl_assets.cli.schedules import schedules

if TYPE_CHECKING:
    from etl_assets.pipelines.pipeline_file import PipelineFile
    from etl_assets.settings import Settings


@click.group(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  etl-assets pipelines new suppliers --from ~/suppliers.csv\n"
        "  etl-assets pipelines validate\n"
        "  etl-assets pipelines show suppliers\n"
        "  etl-assets pipelines pause suppliers --reason 'database upgrade'\n"
    )
)
def pipelines() -> None:
    """Declare pipelines as YAML files in the home folder's `pipelines`, one in a file, and control their
    runs.
    """


for _command in (*run_control.COMMANDS, schedules):
    pipelines.add_command(_command)


@pipelines.command()
@click.argument("name")
@click.option(
    "--from",
    "sample",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A .csv, .tsv, .jsonl or .ndjson (also .gz) or .parquet file: its first 1,000 records suggest the"
    " columns.",
)
@click.option("--json", "as_json", is_flag=True, help="Print an object with the file, for machines.")
def new(name: str, sample: Path | None, as_json: bool) -> None:
    """Write a declaration to begin with, `pipelines/NAME.yaml`. A file that exists is not touched."""
    from etl_assets.errors import SettingsError
    from etl_assets.installed import built_in_catalog
    from etl_assets.pipelines.cross_checks import checked
    from etl_assets.pipelines.json_schema import schema_text
    from etl_assets.pipelines.pipeline_file import parse_pipeline, pipelines_folder
    from etl_assets.pipelines.sample import read_sample
    from etl_assets.pipelines.starting_file import SCHEMA_FILE, starting_file
    from etl_assets.settings import load_settings

    settings = load_settings()
    home, base = settings.home, built_in_catalog(settings.pipelines.built_in, settings.connection_rights)
    folder = pipelines_folder(home)
    content = starting_file(name, None if sample is None else read_sample(sample), home).encode()
    path = folder / f"{name if os.sep not in name else 'NAME'}.yaml"
    others = _read(settings)
    *_, found = checked(
        [*others, parse_pipeline(content, path)],
        base,
        settings.connection_rights,
        settings.pipelines.python_modules,
    )
    for problem in found.problems:
        raise SettingsError(
            f"no pipeline can be made: {problem.message}", fix=problem.fix, field=problem.field
        )
    taken = next((each for each in (path, path.with_suffix(".yml")) if os.path.lexists(each)), None)
    if taken is not None:
        raise SettingsError(f"{taken} exists already", fix="edit it, or give the new pipeline another name")
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / SCHEMA_FILE, schema_text().encode())
    _write(path, content)
    if as_json:
        click.echo(json.dumps({"name": name, "file": str(path)}))
    else:
        click.echo(f"{path}\nedit it, then: etl-assets pipelines validate {name}")


def _write(path: Path, content: bytes) -> None:
    """Write a file as a whole. What is left of an interrupted attempt is hidden, and no pipeline file."""
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(content)
    part.replace(path)


@pipelines.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, for machines.")
def list_(as_json: bool) -> None:
    """List the declared pipelines, those over REST included: source, table, and whether each can be used."""
    found = _checked_files()
    if as_json:
        click.echo(json.dumps([_as_json(file) for file in found]))
        return
    from rich.console import Console
    from rich.table import Table

    from etl_assets.pipelines.problem import printable

    table = Table()
    for column in ("pipeline", "source", "table", "state", "file"):
        table.add_column(column, no_wrap=column in ("pipeline", "state"))
    for file in found:
        row = _as_json(file) | {"file": printable(file.label)}
        table.add_row(
            *(f"{row[key] or ''}".replace("[", "\\[") for key in ("name", "source", "table", "state", "file"))
        )
    Console().print(table)
    if any(file.spec is None for file in found):
        click.echo("what is wrong: etl-assets pipelines validate")


@pipelines.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON.")
def show(name: str, as_json: bool) -> None:
    """Show a declaration with its defaults, and its tables with their columns.

    Values of environment variables are not shown.
    """
    import yaml

    from etl_assets.pipelines.resolved import resolved

    files = _checked_files()
    file = _one(name, files)
    if file.spec is None:
        _print_problems([file])
        sys.exit(1)
    shown = resolved(file, _contract_of(files))
    if as_json:
        click.echo(json.dumps(shown))
        return
    click.echo(yaml.safe_dump(shown["declaration"], sort_keys=False, allow_unicode=True, width=110), nl=False)
    for table in shown["tables"]:
        click.echo(f"\n{table['name']}: {table['description']}")
        for column in table["columns"]:
            required = ", required" if column["required"] else ""
            click.echo(f"  {column['name']}: {column['type']}{required}")


@pipelines.command()
@click.argument("named", metavar="[FILE|NAME]...", nargs=-1)
@click.option(
    "--no-import",
    is_flag=True,
    help="Do not import the modules of Python functions, which runs their code; Spark is left out as well.",
)
@click.option(
    "--no-spark", is_flag=True, help="Do not have Spark look at SQL and the results of Python functions."
)
@click.option("--no-connect", is_flag=True, help="Do not ask databases about the queries of `sql` sources.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print a list of objects with all problems, for machines."
)
def validate(
    named: tuple[str, ...], no_import: bool, no_spark: bool, no_connect: bool, as_json: bool
) -> None:
    """Validate pipeline files, by default all: fields, columns, names, lookups, queries, SQL and functions.

    Imports the modules of Python functions and calls those of whole frames with a frame without rows, which
    runs their code. If a file has transforms, Spark starts and analyzes them, which takes some seconds. The
    queries of `sql` sources are checked by their databases. Every problem comes with its line, field and fix.
    Exit code 1 if a file has problems.
    """
    files = _checked_files(outside=[Path(each) for each in named if _is_path(each)])
    chosen = [file for each in dict.fromkeys(named) for file in _named(each, files)] if named else files
    if not no_connect:
        from etl_assets.cli.query_checks import with_query_problems
        from etl_assets.settings import load_settings

        chosen = with_query_problems(load_settings(), chosen)
    if not no_import:
        from etl_assets.pipelines.python_functions import function_problems

        chosen = [file.with_problems(function_problems(file)) for file in chosen]
        if not no_spark:
            from etl_assets.cli.transform_problems import with_transform_problems
            from etl_assets.settings import load_settings

            chosen = with_transform_problems(load_settings(), chosen, _contract_of(files))
    if as_json:
        click.echo(json.dumps([_as_json(file) for file in chosen]))
    else:
        _print_problems(chosen)
    if any(file.spec is None for file in chosen):
        sys.exit(1)


@pipelines.command()
def schema() -> None:
    """Print the JSON Schema of a pipeline file, for editors and other programs."""
    from etl_assets.pipelines.json_schema import schema_text

    click.echo(schema_text(), nl=False)


def _checked_files(outside: list[Path] | None = None) -> list[PipelineFile]:
    """Return the files of the installation and others, each with its problems.

    A file from outside stands for the one of the same name in the folder. An installation is not needed for
    it; without a platform file its connections are not checked.
    """
    from etl_assets.installed import built_in_catalog
    from etl_assets.pipelines.cross_checks import checked
    from etl_assets.settings import load_installation, load_settings, platform_file

    settings = load_settings() if outside else load_installation()
    files = _read(settings)
    known = {_real(file.path) for file in files}
    added = [file for path in outside or () if _real(path) not in known for file in _read_outside(path)]
    replaced = {file.label for file in added}
    files = [file for file in files if file.label not in replaced] + added
    # As an installation reads them: first its own by their names, then those of projects, then REST's.
    files.sort(key=_order)
    base = built_in_catalog(settings.pipelines.built_in, settings.connection_rights)
    is_known = not outside or platform_file().exists()
    rights = settings.connection_rights if is_known else None
    return [*checked(files, base, rights, settings.pipelines.python_modules)]


def _order(file: PipelineFile) -> tuple[bool, bool, str]:
    from etl_assets.pipelines.origin import DeclarationOrigin

    is_rest, is_component = file.origin is DeclarationOrigin.REST, file.document is not None
    return is_rest, is_component, "" if is_rest or is_component else file.label


def _read(settings: Settings) -> list[PipelineFile]:
    """Return the files of an installation, each with the problems that it has by itself.

    Raises:
        SettingsError: a folder cannot be listed.
    """
    from etl_assets.errors import SettingsError
    from etl_assets.pipelines.component_files import read_components
    from etl_assets.pipelines.pipeline_file import (
        FIX_OF_NOT_LISTED,
        not_listed,
        pipelines_folder,
        read_pipeline_files,
    )
    from etl_assets.pipelines.rest_declaration import read_snapshot, snapshot_path

    folder = pipelines_folder(settings.home)
    try:
        files = [*read_pipeline_files(folder)]
        for folder in settings.defs_folders:
            files += read_components(folder)
    except OSError as error:
        raise SettingsError(not_listed(folder, error), fix=FIX_OF_NOT_LISTED) from error
    return [*files, *read_snapshot(snapshot_path(settings.home), settings.rest_rights)]


def _read_outside(path: Path) -> tuple[PipelineFile, ...]:
    from etl_assets.pipelines.component_files import FILE_NAMES, read_component_file
    from etl_assets.pipelines.pipeline_file import read_pipeline_file

    return read_component_file(path) if path.name in FILE_NAMES else (read_pipeline_file(path),)


def _real(path: Path) -> Path:
    return path.absolute().parent.resolve() / path.name


def _is_path(named: str) -> bool:
    return named.endswith((".yaml", ".yml")) or os.sep in named


def _named(named: str, files: list[PipelineFile]) -> list[PipelineFile]:
    """Return what an argument names: the pipelines of a file by its path, or a pipeline by its name."""
    if not _is_path(named):
        return [_one(named, files)]
    if not Path(named).exists():
        raise click.UsageError(f"there is no file {named}")
    found = [file for file in files if _real(file.path) == _real(Path(named))]
    if not found:
        raise click.UsageError(
            f"{named} is not a pipeline file: its name should end with .yaml and not begin with a dot"
        )
    return found


def _one(named: str, files: list[PipelineFile]) -> PipelineFile:
    """Return the first pipeline that an argument names. One without problems goes before others of its
    name.
    """
    from etl_assets.pipelines.problem import near

    of_name = _named(named, files) if _is_path(named) else [file for file in files if file.name == named]
    if not of_name:
        names = [file.name for file in files]
        raise click.UsageError(
            f"there is no pipeline {named}: {near(named, names)}pipelines: {', '.join(names) or 'none'}"
        )
    return next((file for file in of_name if file.spec is not None), of_name[0])


def _contract_of(files: list[PipelineFile]) -> Any:
    """Return a function that returns the contract of a table, built-in or declared."""
    from etl_assets.installed import built_in_catalog, contract_in
    from etl_assets.pipelines.cross_checks import contracts_of
    from etl_assets.settings import load_settings

    return contract_in(contracts_of(files, built_in_catalog(load_settings().pipelines.built_in)))


def _as_json(file: PipelineFile) -> dict[str, Any]:
    spec = file.spec
    return {
        "name": file.name,
        "source": None if spec is None else spec.source.type,
        "table": None if spec is None else spec.table_name,
        "state": "broken" if spec is None else "ok",
        "file": _path(file),
        "problems": [problem.as_json() for problem in file.problems],
    }


def _print_problems(files: list[PipelineFile]) -> None:
    for file in files:
        for line in _report(file):
            click.echo(line)


def _report(file: PipelineFile) -> Iterator[str]:
    if file.spec is not None:
        yield f"{_path(file)}: ok"
    for problem in file.problems:
        yield f"{file.located(problem, path=str(file.path))}\n  fix: {problem.fix}"


def _path(file: PipelineFile) -> str:
    from etl_assets.pipelines.problem import printable

    return printable(str(file.path))
