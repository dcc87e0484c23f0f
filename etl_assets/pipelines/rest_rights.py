"""What a declaration that comes over REST may use of the server: variables, files, modules, connections.

Belongs here: rules that pipeline files do not have. Does not belong here: what every declaration must be
(`spec.py`, `cross_checks.py`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

from etl_assets.pipelines.environment_references import reference_names
from etl_assets.pipelines.files_spec import FilesSource
from etl_assets.pipelines.pipeline_file import PipelineFile
from etl_assets.pipelines.problem import Path, Problem, dotted
from etl_assets.pipelines.reader_block import reader_block
from etl_assets.pipelines.source_specs import KafkaSource
from etl_assets.pipelines.spec import PipelineSpec
from etl_assets.pipelines.transform_specs import PythonTransform

_LITERAL = re.compile(r"""(?:[rR])?'(?:[^'\\]|\\.|'')*'|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_CALLS_JAVA = re.compile(r"(?i)`?\b(java_method|reflect|try_reflect)\b`?")
_RUNS_A_SCRIPT = re.compile(r"""(?i)\busing\s*(?:''|")""")
_QUOTED = re.compile(r'`[^`]*[^\w `$-][^`]*`|"[^"]*[/:\\.][^"]*"')
_DOTTED_TABLE = re.compile(r"(?i)\b(?:from|join)\s+(?:\(\s*)*[\w`\"]+\s*\.")
_FORMAT = re.compile(
    r"(?i)(?<![\w.])`?(?:csv|json|parquet|orc|text|avro|delta|binaryfile|xml|iceberg)`?\s*\.\s*[\w`\"]"
)
SQL_FIELDS = frozenset(
    {"where", "expression", "select", "condition", "apply_as_deletes", "apply_as_truncates"}
)
"""Fields of a declaration that hold Spark SQL, wherever they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestRights:
    """What the platform file allows.

    Attributes:
        variables: Environment variables that may be named.
        modules: Python modules whose functions may be named.
        connections: Connections that may be named; `*` stands for all.
        read: What sources may read, as `connection/name` with `*`, `?` and `[…]`: topics, and paths of object
            stores. A query reads all that its connection has.
        write: What sinks may write, the same way: tables with their schema, indexes, topics, folders, paths.
        folders: Folders, relative to the home folder, whose files may be read.
        own: Tenant and name of the connections that tenants have defined over REST: each may name its own.
    """

    variables: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    connections: tuple[str, ...] = ()
    read: tuple[str, ...] = ("*",)
    write: tuple[str, ...] = ("*",)
    folders: tuple[str, ...] = ()
    own: frozenset[tuple[str, str]] = frozenset()

    def allows_connection(self, name: str, tenant: str) -> bool:
        """Return whether a declaration of a tenant may name a connection."""
        return (tenant, name) in self.own or name in self.connections or "*" in self.connections

    def allows_writing(self, connection: str, target: str, tenant: str) -> bool:
        """Return whether sinks of a tenant may write a target by a connection."""
        return self.allows_connection(connection, tenant) and _is_one_of(f"{connection}/{target}", self.write)

    def environ(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the part of an environment that declarations may read."""
        return {name: values[name] for name in self.variables if name in values}


def right_problems(file: PipelineFile, rights: RestRights) -> Iterator[Problem]:
    """Yield what a declaration may not do."""
    yield from _variable_problems(file, rights)
    spec = file.spec
    if spec is None:
        return
    yield from _connection_problems(file, spec, rights)
    yield from _target_problems(file, spec, rights)
    block, source = reader_block(spec)
    is_local = isinstance(source, FilesSource) and source.connection is None
    if is_local and not _is_below(source.path, rights.folders):
        yield Problem(
            None,
            dotted((*block, "path")),
            "a declaration over REST may not read files there",
            f"name files below {', '.join(rights.folders) or 'none: no folder is allowed'}"
            " (`rest.folders` of the platform file)",
            value=file.written.get((*block, "path"), source.path),
            allowed=rights.folders,
        )
    for index, transform in enumerate(spec.transforms):
        if isinstance(transform, PythonTransform):
            module = transform.function.partition(":")[0]
            if module not in rights.modules:
                yield _refused(
                    file,
                    ("transforms", index, "function"),
                    f"the module `{module}`",
                    "modules",
                    rights.modules,
                    value=module,
                )
    content = spec.model_dump(mode="json", by_alias=True, exclude={"source"})
    for place, text in _sql_texts(content, ()):
        if why := sql_problem(text):
            yield file.problem(place, f"a declaration over REST may not {why}", "leave it out, or use a file")


def sql_problem(text: str) -> str | None:
    """Return what a text in Spark SQL does that no client may; None if nothing.

    Spark reads a file by its path where a table's name may stand, calls Java by name, and runs any command
    by `SELECT TRANSFORM … USING`.
    """
    rest = _LITERAL.sub("''", text)
    if found := _CALLS_JAVA.search(rest):
        return f"call Java (`{found[1].lower()}`)"
    if _RUNS_A_SCRIPT.search(rest):
        return "run a script (`TRANSFORM … USING`)"
    if _QUOTED.search(rest) or _DOTTED_TABLE.search(rest) or _FORMAT.search(rest):
        return "name a table by its format and path, or with a dot"
    return None


def _variable_problems(file: PipelineFile, rights: RestRights) -> Iterator[Problem]:
    for path, text in file.written.items():
        for name in reference_names(text):
            if name not in rights.variables:
                yield _refused(file, path, f"the environment variable {name}", "variables", rights.variables)


def _target_problems(file: PipelineFile, spec: PipelineSpec, rights: RestRights) -> Iterator[Problem]:
    for place, connection, target in _read_targets(spec):
        if rights.allows_connection(connection, file.tenant) and not _is_one_of(
            f"{connection}/{target}", rights.read
        ):
            yield _refused(file, place, f"`{connection}/{target}`", "read", rights.read, value=target)
    for index, sink in enumerate(spec.sinks):
        name, target = sink.connection, sink.target_name
        is_allowed = rights.allows_writing(name, target, file.tenant)
        if rights.allows_connection(name, file.tenant) and not is_allowed:
            place = ("sinks", index, sink.target_field)
            yield _refused(file, place, f"`{name}/{target}`", "write", rights.write, value=target)


def _read_targets(spec: PipelineSpec) -> Iterator[tuple[Path, str, str]]:
    """Yield place, connection and name of what a source reads by a connection."""
    block, source = reader_block(spec)
    connection = getattr(source, "connection", None)
    if connection is None:
        return
    if isinstance(source, KafkaSource):
        yield (*block, "topic"), connection, source.topic
    elif isinstance(source, FilesSource):
        yield (*block, "path"), connection, source.path
        if source.manifest is not None:
            yield (*block, "manifest"), connection, source.manifest
    else:  # a query, which may read anything
        yield (*block, "connection"), connection, "*"


def _is_one_of(name: str, patterns: Collection[str]) -> bool:
    return ".." not in name.split("/") and any(fnmatchcase(name, each) for each in patterns)


def _connection_problems(file: PipelineFile, spec: PipelineSpec, rights: RestRights) -> Iterator[Problem]:
    block, source = reader_block(spec)
    named: dict[Path, str | None] = {(*block, "connection"): getattr(source, "connection", None)}
    named |= {("sinks", index, "connection"): each.connection for index, each in enumerate(spec.sinks)}
    for place, name in named.items():
        if name is not None and not rights.allows_connection(name, file.tenant):
            yield _refused(
                file, place, f"the connection `{name}`", "connections", rights.connections, value=name
            )


def _refused(
    file: PipelineFile,
    place: Path,
    what: str,
    setting: str,
    allowed: Collection[str],
    *,
    value: str | None = None,
) -> Problem:
    return Problem(
        None,
        dotted(place),
        f"a declaration over REST may not use {what}",
        f"allowed: {', '.join(allowed) or 'none'} (`rest.{setting}` of the platform file)",
        value=value,
        allowed=tuple(allowed),
    )


def _is_below(path: str, folders: Collection[str]) -> bool:
    parts = PurePosixPath(path).parts
    if path.startswith(("/", "~")) or ".." in parts:
        return False
    return any(parts[: len(inside)] == inside for each in folders if (inside := PurePosixPath(each).parts))


def _sql_texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key in SQL_FIELDS and isinstance(each, str):
                yield (*path, key), each
            else:
                yield from _sql_texts(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _sql_texts(each, (*path, index))
