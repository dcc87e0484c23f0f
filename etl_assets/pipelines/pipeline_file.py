"""Files of declared pipelines: `<home>/pipelines/*.yaml`, one pipeline each.

A file that cannot be used is a value too, with its problems: it must not keep the others from being used.

Belongs here: reading files, and what one file alone shows. Does not belong here: rules that need other
pipelines (`cross_checks.py`), and the wording of problems (`spec_problems.py`).
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from etl_assets.environment import value_of
from etl_assets.errors import ContractError
from etl_assets.pipelines import problem as places
from etl_assets.pipelines.declared import DeclaredTables
from etl_assets.pipelines.environment_references import replace_references
from etl_assets.pipelines.origin import DEFAULT_TENANT, DeclarationOrigin
from etl_assets.pipelines.problem import Problem, dotted, near
from etl_assets.pipelines.spec import PipelineSpec
from etl_assets.pipelines.spec_fields import NAME_PATTERN
from etl_assets.pipelines.spec_problems import spec_problems
from etl_assets.pipelines.transform_inputs import OF_RECORDS, input_problems, inputs_of
from etl_assets.pipelines.yaml_tree import MAX_BYTES, YamlTree, read_tree

SUFFIXES = (".yaml", ".yml")
MAX_PROBLEMS = 200
"""Problems of a file that are reported."""


@dataclass(frozen=True, kw_only=True)
class PipelineFile:
    """A file and the declaration in it.

    Attributes:
        path: The file.
        spec: The declaration; None if there are problems.
        problems: What is wrong, in the order of the lines.
        name: The pipeline's name; of a file that does not say one, the file's name without its suffix.
        tree: The file's content, for the lines of problems that are found later.
        written: The texts of the declaration that name environment variables, by their place.
        document: For a component of a Dagster project, the number of its YAML document in the file, from 0.
        origin: Where the declaration comes from.
        tenant: Whose pipeline it is.
        revision: The revision of a declaration that came over REST; None for a file.
    """

    path: Path
    spec: PipelineSpec | None
    problems: tuple[Problem, ...] = ()
    name: str = ""
    tree: YamlTree = field(default_factory=YamlTree, repr=False, compare=False)
    written: Mapping[places.Path, str] = field(default_factory=dict, repr=False, compare=False)
    document: int | None = None
    origin: DeclarationOrigin = DeclarationOrigin.FILE
    tenant: str = DEFAULT_TENANT
    revision: int | None = None

    @property
    def label(self) -> str:
        """The file's name, and for a component of a Dagster project its folder's too: `ratings/defs.yaml`."""
        return self.path.name if self.document is None else f"{self.path.parent.name}/{self.path.name}"

    def problem(self, path: places.Path, message: str, fix: str) -> Problem:
        """Return a problem at a place of the declaration."""
        return Problem(self.tree.line(path), dotted(path), message, fix)

    @property
    def argument(self) -> str:
        """What names the file in a command: the pipeline's name if the file has it, or else the path."""
        if self.origin is DeclarationOrigin.REST:
            return self.name
        return self.name if self.path.name == f"{self.name}.yaml" else shlex.quote(str(self.path))

    def located(self, problem: Problem, *, path: str | None = None) -> str:
        """Return a problem as `file:line:field: message`.

        Args:
            problem: One of the file's problems.
            path: How the file is named; by default by its label.
        """
        name = places.printable(path or self.label)
        place = ":".join(str(part) for part in (name, problem.line, problem.field) if part)
        return f"{place}: {problem.message}"

    def contract_problem(self, error: ContractError) -> Problem:
        """Return the problem of a declaration whose tables contradict themselves."""
        place = str(error.fields.get("field", "table"))
        path = tuple(int(part) if part.isdecimal() else part for part in place.split("."))
        return self.problem(path, error.message, error.fix)

    def with_problems(self, problems: Iterable[Problem]) -> PipelineFile:
        """Return the file with more problems, and therefore without a declaration that can be used."""
        both = _limited({*self.problems, *problems})
        return replace(self, spec=None if both else self.spec, problems=tuple(both))


def _limited(problems: Collection[Problem]) -> list[Problem]:
    """Return problems in the order of their lines; of very many, the first."""
    ordered = sorted(problems, key=lambda each: (each.line or 0, each.field, each.message))
    if len(ordered) <= MAX_PROBLEMS:
        return ordered
    shown, rest = ordered[: MAX_PROBLEMS - 1], ordered[MAX_PROBLEMS - 1 :]
    return [*shown, Problem(rest[0].line, "", f"{len(rest):,} more problems", "correct those above first")]


def unreadable(
    path: Path, error: Exception, what: str, *, fix: str, origin: DeclarationOrigin
) -> PipelineFile:
    """Return one broken declaration for a file with many that cannot be read, so that all others are used."""
    why = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
    problem = Problem(None, "", f"{what}: {why}", fix)
    return PipelineFile(path=path, spec=None, name=path.stem, problems=(problem,), origin=origin)


def pipelines_folder(home: Path) -> Path:
    """Return the folder of an installation's pipeline files, which may not exist."""
    return home / "pipelines"


def not_listed(folder: Path, error: OSError) -> str:
    """Return what is said of a folder that cannot be listed."""
    return f"{folder} cannot be listed: {error.strerror or type(error).__name__}"


FIX_OF_NOT_LISTED = "let this user read the folder, or remove it if there is nothing in it"


def read_pipeline_files(folder: Path, environ: Mapping[str, str] | None = None) -> tuple[PipelineFile, ...]:
    """Read the pipeline files of a folder, sorted by name. Other files and hidden ones are ignored.

    Args:
        folder: The folder; one that does not exist holds none.
        environ: Environment variables, for references to them; by default the process's.

    Raises:
        OSError: the folder cannot be listed.
    """
    if not os.path.lexists(folder):
        return ()
    names = sorted(each.name for each in folder.iterdir() if is_pipeline_file(each))
    return tuple(read_pipeline_file(folder / name, environ, within=folder) for name in names)


def is_pipeline_file(path: Path) -> bool:
    """Return whether a file is named as a pipeline file is."""
    return path.suffix in SUFFIXES and not path.name.startswith(".")


def read_pipeline_file(
    path: Path, environ: Mapping[str, str] | None = None, *, within: Path | None = None
) -> PipelineFile:
    """Read a pipeline file, and validate what it shows by itself. What is wrong is in its problems.

    Args:
        path: The file.
        environ: Environment variables, for references to them; by default the process's.
        within: The folder that a link must not lead out of; None if it may lead anywhere.
    """
    content = read_content(path, within)
    return parse_pipeline(content, path, environ) if isinstance(content, bytes) else content


def read_content(path: Path, within: Path | None = None) -> bytes | PipelineFile:
    """Return the content of a file, or the broken pipeline file that stands for one that cannot be read."""
    try:
        if within is not None and not path.resolve(strict=True).is_relative_to(within.resolve()):
            return _unreadable(
                path, "it is a link that leads out of the folder", "copy the file into the folder"
            )
        if not stat.S_ISREG(path.stat().st_mode):
            return _unreadable(path, "it is not a regular file", "give the name to a YAML file, or remove it")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        return _unreadable(
            path, error.strerror or type(error).__name__, "make it readable for the platform, or remove it"
        )


def parse_pipeline(content: bytes, path: Path, environ: Mapping[str, str] | None = None) -> PipelineFile:
    """Validate the content of a pipeline file.

    Args:
        content: The content.
        path: The file that it is of, which is not read.
        environ: Environment variables, for references to them; by default the process's.
    """
    return validated(read_tree(content), path, environ)


def validated(
    tree: YamlTree, path: Path, environ: Mapping[str, str] | None = None, *, document: int | None = None
) -> PipelineFile:
    """Validate a declaration.

    Args:
        tree: The declaration.
        path: The file that it is of, which is not read.
        environ: Environment variables, for references to them; by default the process's.
        document: The number of its YAML document, for a component of a Dagster project.
    """
    problems = list(tree.problems)
    replaced = replace_references(tree, partial(value_of, environ=environ))
    problems += replaced.problems
    spec = None
    if isinstance(tree.value, dict):
        try:
            spec = PipelineSpec.model_validate(replaced.value)
        except ValidationError as error:
            unreplaced = {problem.field for problem in replaced.problems}
            found = spec_problems(error, tree, replaced.is_hidden)
            problems += (replaced.without_values(each) for each in found if each.field not in unreplaced)
    elif not problems:
        problems.append(_not_a_declaration(tree))
    file = PipelineFile(
        path=path,
        spec=spec,
        name=_name(tree.value, path if document is None else path.parent),
        tree=tree,
        written=replaced.written,
        document=document,
    )
    return file.with_problems(problems if spec is None else [*problems, *_column_problems(file, spec)])


def _column_problems(file: PipelineFile, spec: PipelineSpec) -> Iterator[Problem]:
    """Yield what is wrong with the columns, each judged by itself so that all problems are found."""
    if _column_error(spec) is not None:
        for name, column in spec.columns.items():
            error = _column_error(spec.model_copy(update={"columns": {name: column}}))
            if error is not None:
                yield file.contract_problem(error)
    if wrong := [*input_problems(spec.transforms)]:
        yield from (file.problem(*each) for each in wrong)
        return
    names = _names_at(spec)
    yield from _lookup_problems(file, spec, names)
    known = names[-1][1] if names else [*spec.columns]
    laid_out_by = spec.table.partition_by
    wanted: dict[places.Path, str | None] = {
        ("table", field, index): name
        for field in ("keys", "except_column_list")
        for index, name in enumerate(getattr(spec.table, field))
    }
    wanted["table", "sequence_by"] = spec.table.sequence_by
    if laid_out_by is not None:
        wanted["table", *laid_out_by.place] = laid_out_by.column
    for place, name in wanted.items():
        if name is not None and name not in known:
            yield file.problem(
                place, f"there is no column `{name}`", f"{near(name, known)}columns: {', '.join(known)}"
            )


def _lookup_problems(
    file: PipelineFile, spec: PipelineSpec, names: Sequence[tuple[list[str], list[str]]]
) -> Iterator[Problem]:
    for index, (transform, (known, _)) in enumerate(zip(spec.transforms, names, strict=True)):
        for mine in transform.on if transform.type == "lookup" else ():
            if mine not in known:
                yield file.problem(
                    ("transforms", index, "on", mine),
                    f"there is no column `{mine}`",
                    f"{near(mine, known)}columns here: {', '.join(known)}",
                )


def _column_error(spec: PipelineSpec) -> ContractError | None:
    try:
        DeclaredTables(spec=spec, contract_of=_no_table).parsed_columns  # noqa: B018 - computing it validates
    except ContractError as error:
        return error
    return None


def _names_at(spec: PipelineSpec) -> list[tuple[list[str], list[str]]]:
    """Return the names of the columns before and after each transform."""
    after = {OF_RECORDS: [*spec.columns]}
    found = []
    for index, (transform, sources) in enumerate(
        zip(spec.transforms, inputs_of(spec.transforms), strict=True)
    ):
        before = [*dict.fromkeys(name for source in sources for name in after[source])]
        after[index] = _names_after(transform, before)
        found.append((before, after[index]))
    return found


def _names_after(transform: Any, names: list[str]) -> list[str]:
    """Return the names of the columns after a transform."""
    if transform.type in ("map", "lookup"):
        return [*names, *(name for name in transform.columns if name not in names)]
    if transform.type in ("sql", "python") and transform.columns is not None:
        return [*transform.columns]
    return names


def _no_table(name: str) -> Any:
    raise ContractError(f"{name} is not looked at here", fix="check the file with the others")


def _not_a_declaration(tree: YamlTree) -> Problem:
    what = "the file is empty" if tree.value is None else "the file holds no mapping of fields"
    return Problem(
        None,
        "",
        what,
        "write `name: …`, `source:`, `columns:` and `table:`; `etl-assets pipelines new` makes one",
    )


def _name(content: Any, path: Path) -> str:
    given = content.get("name") if isinstance(content, dict) else None
    if isinstance(given, str) and re.fullmatch(NAME_PATTERN, given):
        return given
    return places.printable(path.stem)


def _unreadable(path: Path, why: str, fix: str) -> PipelineFile:
    return PipelineFile(
        path=path,
        spec=None,
        name=places.printable(path.stem),
        problems=(Problem(None, "", f"the file cannot be read: {why}", fix),),
    )
